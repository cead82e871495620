"""The guard of deletions: which orphaned objects may be pruned, and when so many would go that an operator must approve it.

Called by `gates`, `dns/publish` and `traffic` for containers, pool members and record sets that no manifest names any more. Health
decisions are not guarded here.
"""

from collections.abc import Collection
from dataclasses import dataclass

from manifests.values.desired import SECOND, Desired
from manifests.values.limits import Held
from providers.facts import fingerprint
from reconciler.core.limits import windows
from reconciler.core.model.instant import Now, due, elapsed, next_after
from reconciler.core.model.ledger import Ledger
from reconciler.core.model.observed import NEVER_READ
from reconciler.core.model.reasons import Hold, Rule

PROOF = 60 * SECOND
"""Two complete, equal reads of a directory must be this far apart before something absent from it is pruned."""


@dataclass(frozen=True, slots=True)
class Pruning:
    """The answer for all deletions of one decision.

    `hash` is what an operator approves when `mass` (a message, empty if they are few enough) holds them; `read_at` is the steady
    instant of the last complete read of the source (ns).
    """

    hash: str
    mass: str
    read_at: int


def judge(desired: Desired, ledger: Ledger, pruned: Collection[str], owned: int, read_at: int) -> Pruning:
    """Whether the deletions as a whole are too many: over the share and the minimum, or all owned objects.

    Args:
        pruned: the objects that would be deleted.
        owned: how many objects this instance owns in all.
    """
    if not pruned:
        return Pruning("", "", read_at)
    digest = fingerprint(desired.revision, *sorted(pruned))
    count, limit = len(pruned), desired.guard.mass_change
    if desired.destroy or digest in ledger.approvals:
        return Pruning(digest, "", read_at)
    share = count * 100 // max(owned, 1)
    if count >= owned or (count > limit.minimum and count * 100 > limit.share * owned):
        mass = f"{count} of {owned} owned objects ({share} %) would be deleted; more than {limit.share} %, or all, needs approval"
        return Pruning(digest, mass, read_at)
    return Pruning(digest, "", read_at)


def hold(desired: Desired, ledger: Ledger, pruning: Pruning, obj: str, action: str, now: Now) -> Hold | None:
    """The hold on the deletion of an object that no manifest names; None when it may go."""
    if desired.destroy:
        return None
    if not desired.prune:
        message = f"{obj} is orphaned (owned, but in no manifest), and pruning is off"
        next_step = "run with --prune, or set spec.prune of the Instance to true"
        return Hold(obj, action, Rule.PRUNE_OFF, message, next_step=next_step)
    window = windows.hold(desired, Held.PRUNE, obj, action, now)
    if window is not None:
        return window
    if not desired.complete:
        message = f"only a part of the manifests was read, so another file may still declare {obj}"
        next_step = "run on the root directory of the manifests"
        return Hold(obj, action, Rule.INCOMPLETE_SOURCE, message, next_step=next_step)
    if pruning.read_at == NEVER_READ:
        message = f"{obj} is in no stored manifest, but the manifests themselves are invalid and may declare it"
        return Hold(obj, action, Rule.ABSENCE_UNPROVEN, message, next_step="correct the manifests")
    if ledger.source != desired.source:
        before = ledger.source or "an unknown source (the ledger was lost)"
        message = f"the inventory was made from {before}, but this run reads {desired.source}"
        next_step = "run once with --take-over if this is intended"
        return Hold(obj, action, Rule.SOURCE_CHANGED, message, next_step=next_step)
    absence = ledger.absences.get(obj)
    proven = (
        absence is not None
        and elapsed(absence.since, now) >= PROOF
        and (absence.since.boot != now.boot or pruning.read_at - absence.since.steady >= PROOF)
    )
    if not proven:
        # On a grid that starts with the absence, so that the answer stays the same until then.
        until = now.steady + PROOF if absence is None else due(absence.since, PROOF, now)
        if until <= now.steady:
            until = next_after(until, SECOND, now)
        message = f"one read of the manifests lacks {obj}; an equal read {PROOF // SECOND}s later must confirm that"
        return Hold(obj, action, Rule.ABSENCE_UNPROVEN, message, until=until)
    if pruning.mass:
        next_step = f"reconcile apply --approve {pruning.hash}"
        return Hold(obj, action, Rule.MASS_CHANGE, pruning.mass, next_step=next_step)
    return None
