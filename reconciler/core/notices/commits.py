"""Which status each commit shows: pending, success, failure, or superseded. Called by the notifier with each decision.

Every commit that was in force, was refused, or changed no manifests ends with a final status: applied, failed, refused, or superseded by a newer commit. A
status is set when its state changes, and not when only the words do.
"""

from typing import NamedTuple

from reconciler.core import image_choices
from reconciler.core.decision import Decision
from reconciler.core.model.instant import Instant, Now, instant
from reconciler.core.model.reasons import Rule, Waiting
from reconciler.core.model.source_problem import OBJECT
from reconciler.core.notices import incidents
from reconciler.core.notices.incidents import State
from reconciler.core.notices.model import Symptom, subject
from reconciler.core.status.objects import Condition

KEPT = 50
"""Commits whose status is remembered; the oldest final ones are forgotten first."""

PENDING, SUCCESS, FAILURE, SUPERSEDED = "pending", "success", "failure", "superseded"

IGNORED = frozenset(
    {
        Rule.PRUNE_OFF,
        Rule.ABSENCE_UNPROVEN,
        Rule.POLICY_KEPT,
        Rule.FIXED_WEIGHTS,
        Rule.OBSERVE_ONLY,
        Rule.DRIFT,
        Rule.FILES_KEPT,
    }
)
"""Rules whose holds say nothing of whether the commit in force is applied, because what they hold counts as converged."""

CONVERGED = frozenset({Waiting.ROLLBACK_WINDOW, Waiting.COMMIT})
"""Waits of a commit that is applied."""


class Row(NamedTuple):
    """The status of one commit. `sent` says that the forge has it; `tries` and `last` are of the calls that failed."""

    commit: str
    state: str
    text: str
    at: Instant
    sent: bool = False
    tries: int = 0
    last: Instant | None = None
    wait: int = 0

    @property
    def final(self) -> bool:
        """Whether a reader need not wait any longer."""
        return self.state != PENDING


def outcome(decision: Decision, symptoms: tuple[Symptom, ...], state: State) -> tuple[str, str]:
    """State and description of the commit in force."""
    blamed = image_choices.blamed(decision.status.desired, decision.ledger.rollouts)
    failed = [
        symptom
        for symptom in symptoms
        if symptom.kind == "rollout" and symptom.operator and symptom.object not in blamed
    ]
    if failed:
        more = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
        return FAILURE, f"{failed[0].object}{more}: {failed[0].message}"
    if blamed:  # the commit is judged by the image that takes its place
        key, image = next(iter(blamed.items()))
        return PENDING, f"{key}: {image}, which its image policy chose, failed and is taken back"
    # Holds of the source are about another commit than the one in force.
    holds = [hold for hold in decision.holds if hold.rule not in IGNORED and hold.object != OBJECT]
    waiting = next((hold for hold in holds if hold.until is None), None)
    if waiting is not None:
        return PENDING, f"{waiting.object} waits for an operator: {waiting.message}"
    workloads = decision.status.workloads
    bad = [row for row in workloads if row.condition not in {Condition.READY, Condition.SUSPENDED}]
    waits = [wait for wait in decision.waits if wait.waiting not in CONVERGED]
    moving = bool(decision.steps or decision.unsettled or holds or waits)
    if not bad and not moving:
        return SUCCESS, f"applied, and {len(workloads)} workload{'s are' if len(workloads) != 1 else ' is'} healthy"
    ill = next(incidents.open_health(state), None)
    if ill is not None and not decision.steps and all(row.condition is Condition.DEGRADED for row in bad) and bad:
        named = [name for name, member in sorted(ill.members.items()) if member.gone is None]
        return FAILURE, f"applied, but {subject(named)} not healthy: {ill.members[named[0]].message}"
    if holds:
        return PENDING, f"{holds[0].object}: {holds[0].message}"
    if waits:
        return PENDING, f"{waits[0].object} waits for {waits[0].waiting.value}"
    return PENDING, f"{len(workloads) - len(bad)} of {len(workloads)} workloads are ready"


def waits(decision: Decision) -> tuple[str, str]:
    """State and description of a valid commit that waits."""
    held = next((hold.message for hold in decision.holds if hold.object == OBJECT), "it is about to come into force")
    return PENDING, held


def follow(rows: tuple[Row, ...], seen: tuple[tuple[str, str, str], ...], newest: str, now: Now) -> tuple[Row, ...]:
    """The statuses after a decision.

    Args:
        rows: before, the oldest first.
        seen: commit, state and description: of the commit in force, of a newer one with the same manifests, and of one that waits or is
            refused.
        newest: the newest of these, which supersedes other pending commits; empty while unknown, as after a start without
            the remote.
        now: the time of the decision.
    """
    after = {row.commit: row for row in rows}
    for commit, state, text in seen:
        before = after.get(commit)
        if before is not None and (before.state == state or _stays(before.state, state, text)):
            continue
        after.pop(commit, None)
        after[commit] = Row(commit, state, text, instant(now))
    current = {commit for commit, _, _ in seen}
    newest = newest or next(
        (commit for commit, _, _ in reversed(seen) if all(row.commit != commit for row in rows)), ""
    )
    for commit, row in list(after.items()):
        if newest and not row.final and commit not in current:
            after[commit] = Row(commit, SUPERSEDED, f"superseded by {newest[:12]}", instant(now))
    kept = list(after.values())
    while len(kept) > KEPT:
        oldest = next((row for row in kept if row.final and row.commit not in current), kept[0])
        kept.remove(oldest)
    result = tuple(kept)
    return rows if result == rows else result


def _stays(before: str, state: str, text: str) -> bool:
    """Whether a commit keeps its state: one that was applied is not pending again, and fails only with its rollout."""
    if before != SUCCESS:
        return False
    return state == PENDING or (state == FAILURE and text.startswith("applied, but"))
