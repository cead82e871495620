"""The guard of deletions: which orphaned objects may be pruned, and when so many would go that an operator must approve it.

Called by `decide`, `gates`, `dns/publish` and `changes` for containers, pool members and record sets that no manifest names any more.
Health decisions are not guarded here.
"""

from collections.abc import Collection
from dataclasses import dataclass

from manifests.values.desired import SECOND, Desired
from manifests.values.limits import Held
from manifests.values.source_identity import same_set
from reconciler.core.limits import approvals, windows
from reconciler.core.limits.approval_classes import NOTHING, Classified
from reconciler.core.limits.approvals import Approvals
from reconciler.core.model.instant import Now, due, elapsed, next_after
from reconciler.core.model.ledger import Ledger
from reconciler.core.model.observed import NEVER_READ
from reconciler.core.model.reasons import Hold, Rule

PROOF = 60 * SECOND
"""Two complete, equal reads of a directory must be this far apart before something absent from it is pruned."""


@dataclass(frozen=True, slots=True)
class Pruning:
    """The answer for all deletions of one decision.

    `mass` is a message when they are so many that each needs approval, else empty; `read_at` is the steady instant of the last
    complete read of the source (ns). `classes` are the changes that need approval for what they are, deletions or not.
    """

    mass: str
    read_at: int
    approvals: Approvals
    classes: Classified = NOTHING


def mass(desired: Desired, pruned: Collection[str], owned: int) -> str:
    """Why the deletions as a whole need approval: over the share and the minimum, or all owned objects. Empty when they do not.

    Args:
        desired: the manifests.
        pruned: the objects that would be deleted.
        owned: how many objects this instance owns in all.
    """
    count, limit = len(pruned), desired.guard.mass_change
    if not pruned or desired.destroy or not desired.prune:
        return ""
    share = count * 100 // max(owned, 1)
    if count >= owned or (count > limit.minimum and count * 100 > limit.share * owned):
        return f"{count} of {owned} owned objects ({share} %) would be deleted; more than {limit.share} %, or all, needs approval"
    return ""


def hold(desired: Desired, ledger: Ledger, pruning: Pruning, obj: str, action: str, item: str, now: Now) -> Hold | None:
    """The hold on the deletion of an object that no manifest names; None when it may go. `item` as in `limits/approvals`."""
    if desired.destroy:
        return None
    if not desired.prune:
        message = f"{obj} is orphaned (owned, but in no manifest), and pruning is off"
        next_step = "run with --prune, or set spec.prune of the Instance to true"
        return Hold(obj, action, Rule.PRUNE_OFF, message, next_step=next_step)
    if not desired.complete:
        message = f"only a part of the manifests was read, so another file may still declare {obj}"
        next_step = "run on the root directory of the manifests"
        return Hold(obj, action, Rule.INCOMPLETE_SOURCE, message, next_step=next_step)
    if pruning.read_at == NEVER_READ:
        message = f"{obj} is in no stored manifest, but those at the source are invalid or wait, and may declare it"
        next_step = "correct the manifests, or let new commits come into force"
        return Hold(obj, action, Rule.ABSENCE_UNPROVEN, message, next_step=next_step)
    if not same_set(ledger.source, desired.source):
        before = ledger.source or "an unknown source (the ledger was lost)"
        message = f"the inventory was made from {before}, but this run reads {desired.source}"
        next_step = "run once with --take-over if this is intended"
        return Hold(obj, action, Rule.SOURCE_CHANGED, message, next_step=next_step)
    # After what only an operator ends: nothing happens when a window closes and the source is still another one.
    open_windows = windows.holds(desired, Held.PRUNE, obj, action, now)
    if open_windows:
        return max(open_windows, key=lambda window: window.until or 0)  # one answer: the one that ends last
    absence = ledger.absences.get(obj)
    proven = (
        absence is not None and elapsed(absence.since, now) >= PROOF and pruning.read_at - absence.since.steady >= PROOF
    )
    if not proven:
        # On a grid that starts with the absence, so that the answer stays the same until then.
        until = now.steady + PROOF if absence is None else due(absence.since, PROOF, now)
        if until <= now.steady:
            until = next_after(until, SECOND, now)
        message = f"one read of the manifests lacks {obj}; an equal read {PROOF // SECOND}s later must confirm that"
        return Hold(obj, action, Rule.ABSENCE_UNPROVEN, message, until=until)
    return unapproved(desired, pruning.approvals, pruning.mass, obj, action, item)


def unapproved(
    desired: Desired, given: Approvals, message: str, obj: str, action: str, item: str, rule: Rule = Rule.MASS_CHANGE
) -> Hold | None:
    """The hold on a change that needs approval for the reason in `message`; None without a reason, or when it was approved."""
    if not message or item in given.covered:
        return None
    if given.unused:
        message += f"; the approval of {given.unused} is for other changes"
    return Hold(obj, action, rule, message, next_step=approvals.command(desired, given), item=item)
