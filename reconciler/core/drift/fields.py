"""Fields of a container that drift: limits, restart policy, networks and image, one by one, and what the manifests say of each.

A field is drift when the declaration of it is the one that the world converged to last; then `spec.drift` of the workload decides. A
field whose declaration is new is a change, and always done. The restart policy has no rule: without it the runtime does not start a
container that fails. Called by `differences`.
"""

from dataclasses import dataclass, field, replace

from manifests.values.desired import SECOND, Workload
from manifests.values.drift import DriftAction
from manifests.values.pod import Live, RuntimeRestart
from providers.facts import ContainerFact
from reconciler.core.model.drift import Drift, Moved, Reverts, Why
from reconciler.core.model.instant import Now, due, elapsed, instant
from reconciler.core.model.ledger import Ledger
from reconciler.core.model.reasons import Act, HeldAction, Hold, Rule
from reconciler.core.model.revision import revision_key
from reconciler.core.replicas.snapshot import Snapshot

REVERTS = 3
"""How often a field is set again before it is left to the other writer, as for record sets (`dns/other_writers`)."""

WITHIN = 900 * SECOND
"""The span in which they count, and the time for which the field is then left (ns)."""

_OFF = RuntimeRestart.NO.value

_RULED = ("resources", "networks", "image")


@dataclass(slots=True)
class Compared:
    """One container beside its manifest.

    live: the settings that it should get in place; equal to its own where nothing is to be done. moved: the fields that are set, or
    connected again. why: drift where all of them drifted. joins: networks to connect. image: it is recreated for its image.
    """

    live: tuple[Live, ...]
    moved: list[Moved] = field(default_factory=list)
    why: Why = Why.DRIFT
    joins: bool = False
    image: bool = False


class Watch:
    """The drift of all containers in one decision: holds, what `reconcile drift` lists beside the steps, and the rows of reverts."""

    def __init__(self, ledger: Ledger, now: Now) -> None:
        self._ledger, self._now = ledger, now
        self.holds: list[Hold] = []
        self.reported: list[Drift] = []
        self._found: set[str] = set()

    def compare(self, workload: Workload, obj: str, fact: ContainerFact, wanted: tuple[Live, ...]) -> Compared:
        """What is to be done about the settings and networks of a container that differs.

        Args:
            obj: the key of its replica.
            wanted: the settings that it should have by its manifest.
        """
        result = Compared(fact.live)
        self._settings(workload, obj, fact, wanted, result)
        if fact.unjoined:
            names = ", ".join(fact.unjoined)
            result.joins = self._may(workload, obj, fact, "networks", Moved("networks", names, "not connected"), result)
        return result

    def image(self, workload: Workload, obj: str, fact: ContainerFact) -> Moved | None:
        """The image of a container that is not the one of its revision, when it is to be recreated for that."""
        moved = other_image(workload, fact, self._ledger)
        if moved is None or not self._may(workload, obj, fact, "image", moved, Compared(())):
            return None
        return moved

    def _settings(
        self, workload: Workload, obj: str, fact: ContainerFact, wanted: tuple[Live, ...], result: Compared
    ) -> None:
        if not fact.live or fact.live == wanted:
            return
        row = self._ledger.applied.get(workload.key)
        before = {} if row is None else {setting.container: setting for setting in row.live}
        by_name = {setting.container: setting for setting in wanted}
        live: list[Live] = []
        changed = False
        for setting in fact.live:
            new = by_name.get(setting.container, setting)
            known = before.get(setting.container)
            prefix = f"{setting.container}." if setting.container else ""
            limits = Moved(f"{prefix}resources", _limits(new), _limits(setting))
            if _limits(new) != _limits(setting):
                drifted = known is not None and _limits(known) == _limits(new)
                if not drifted or self._may(workload, obj, fact, "resources", limits, result):
                    changed |= not drifted
                    if not drifted:
                        result.moved.append(limits)
                else:
                    new = new._replace(cpu=setting.cpu, memory=setting.memory)
            if new.restart != setting.restart:
                policy = Moved(f"{prefix}restartPolicy", new.restart, setting.restart)
                drifted = known is not None and known.restart == new.restart
                if drifted and setting.restart == _OFF:
                    result.moved.append(
                        policy
                    )  # a restart of ours leaves it off, so it says nothing about another writer
                elif not drifted or self._may(workload, obj, fact, "restartPolicy", policy, result):
                    changed |= not drifted
                    if not drifted:
                        result.moved.append(policy)
                else:
                    new = new._replace(restart=setting.restart)
            live.append(new)
        result.live = tuple(live)
        result.why = Why.CHANGE if changed else Why.DRIFT

    def _may(
        self, workload: Workload, obj: str, fact: ContainerFact, name: str, moved: Moved, result: Compared
    ) -> bool:
        """Whether a field that drifted is corrected: the manifests do not forbid it, and no other writer fights for it."""
        action = getattr(workload.drift, name) if name in _RULED else DriftAction.CORRECT
        if action is DriftAction.IGNORE:
            return False
        step, held = f"correct {moved.field} of {fact.name}", HeldAction(Act.UPDATE, (fact.id,))
        if action is DriftAction.REPORT:
            next_step = f"set drift.{name} of {workload.key} to correct, or undo it"
            if name == "image":
                next_step = f"set drift.image of {workload.key} to correct, or change its template"
            self._hold(Hold(obj, step, Rule.DRIFT, _text(fact, moved), next_step=next_step, held=held), fact, moved)
            return False
        self._found.add(f"{obj}|{moved.field}")
        until = contested_until(self._ledger.reverts.get(f"{obj}|{moved.field}"), self._now)
        if until:
            minutes = WITHIN // SECOND // 60
            message = (
                f"another writer changes {moved.field} of {fact.name} again after {REVERTS} corrections in {minutes} minutes: "
                f"{moved.declared} declared, {moved.observed} observed; reconcile leaves it as it is for now"
            )
            next_step = f"stop the other writer, or set drift.{name} of {workload.key} to ignore"
            hold = Hold(obj, step, Rule.CONFLICTING_WRITER, message, until, next_step, held=held)
            self._hold(hold, fact, moved)
            return False
        result.moved.append(moved)
        return True

    def _hold(self, hold: Hold, fact: ContainerFact, moved: Moved) -> None:
        self.holds.append(hold)
        answer = "reported" if hold.rule is Rule.DRIFT else f"held ({hold.rule.value})"
        self.reported.append(Drift(hold.object, fact.name, moved, hold.message, answer, hold.next_step))

    def remember(self, snap: Snapshot, ledger: Ledger) -> Ledger:
        """The ledger with the reverts that this look adds. Those of replicas that cannot be seen stay as they are."""
        rows = ledger.reverts
        if not rows and not self._found:
            return ledger
        kept: dict[str, Reverts] = {}
        for key, row in rows.items():
            workload, _, ordinal = key.partition("|")[0].rpartition("/")
            group = snap.roster.groups.get(workload)
            if key in self._found or (group is None and not snap.roster.unseen.nodes):
                continue
            seen = group is not None and int(ordinal) in group.current
            if any(elapsed(at, self._now) < WITHIN for at in row.at):
                kept[key] = row._replace(restored=True) if seen and not row.restored else row
        for key in self._found:
            row = rows.get(key, Reverts((), restored=True))
            if row.restored:
                recent = tuple(at for at in row.at if elapsed(at, self._now) < WITHIN)
                row = Reverts((*recent, instant(self._now))[-REVERTS - 1 :])
            kept[key] = row
        return ledger if kept == rows else replace(ledger, reverts=kept)


def contested_until(row: Reverts | None, now: Now) -> int:
    """Until when (steady instant) another writer keeps a field; 0 = it is corrected."""
    if row is None or len(row.at) < REVERTS or (len(row.at) == REVERTS and not row.restored):
        return 0
    # With one more revert than allowed it is left for a whole span; with as many, until the first of them does not count any more.
    last = row.at[-1] if len(row.at) > REVERTS else row.at[0]
    until = due(last, WITHIN, now)
    return until if until > now.steady else 0


def other_image(workload: Workload, fact: ContainerFact, ledger: Ledger) -> Moved | None:
    """The digest of an image in a container of ours that is not the one its revision was created from; None where all are."""
    if fact.mark is None or fact.adopted or not fact.digests:
        return None
    pins = ledger.pins.get(revision_key(workload.key, fact.mark.revision), ())
    if pins == fact.digests:
        return None
    known = dict(pins)
    for container, digest in fact.digests:
        pinned = known.get(container, digest)
        if pinned != digest:
            return Moved(f"{container}.image" if container else "image", pinned, digest)
    return None


def _limits(setting: Live) -> str:
    cpu = f"{setting.cpu}m" if setting.cpu else "unlimited"
    return f"cpu {cpu} memory {setting.memory or 'unlimited'}"


def _text(fact: ContainerFact, moved: Moved) -> str:
    return f"{fact.name} drifted: {moved.text}; it is only reported"
