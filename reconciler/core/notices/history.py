"""What became of each commit that this host fetched, for pipelines that wait for one. Called by `reconciler/commits/recorder.py`.

Every fetched commit ends as applied, failed, refused or superseded. It differs from the statuses of `commits.py` in what a waiting script has
to tell apart: a commit that waits for an operator from one that makes progress, and a refused one from one that failed.
"""

from collections.abc import Iterable
from dataclasses import replace
from enum import StrEnum
from typing import NamedTuple

from reconciler.core import image_choices
from reconciler.core.decision import Decision
from reconciler.core.model.reasons import Hold
from reconciler.core.model.source_problem import OBJECT
from reconciler.core.notices import commits
from reconciler.core.notices.incidents import State
from reconciler.core.notices.model import Symptom

KEPT = 200
"""Commits that are remembered; the oldest ones are forgotten first, and never the current ones."""

TEXT = 500
"""Characters of a text."""


class Fate(StrEnum):
    """What became of a commit. `PENDING` and `MANUAL` are not final."""

    PENDING = "pending"
    """It is not applied yet, or not healthy yet."""
    MANUAL = "manual"
    """It is not applied, and only an operator can change that."""
    APPLIED = "applied"
    """It is, or was, applied and healthy."""
    FAILED = "failed"
    """A revision of it failed."""
    REFUSED = "refused"
    """It is invalid, unverified, or has what may not be read. Another commit stays in force."""
    SUPERSEDED = "superseded"
    """A newer commit took its place before it was applied."""


OPEN = frozenset({Fate.PENDING, Fate.MANUAL})


class Row(NamedTuple):
    """One commit. `at_wall` is since when (wall ns) it has this fate; `review` says how its plan compares with the reviewed one."""

    commit: str
    fate: Fate
    text: str
    at_wall: int
    review: str = ""


class Refusal(NamedTuple):
    """A commit that cannot come into force. `final`: what is wrong is in the commit; else it may still be read."""

    commit: str
    cause: str
    final: bool


class Source(NamedTuple):
    """What is known of the source at a decision. All commits are empty where there is none.

    Attributes:
        in_force: the commit of the manifests in force. decided: the decision is about these manifests.
        seen: the newest commit that was read whole.
        refusal: why the newest commit is not in force.
        waiting: the commit of a valid revision that waits.
        returned: the commit in force took the place of another one since the last decision.
    """

    in_force: str
    decided: bool
    seen: str = ""
    refusal: Refusal | None = None
    waiting: str = ""
    returned: bool = False

    @property
    def newest_known(self) -> bool:
        """Whether the newest commit is known: not after a start without the remote."""
        return bool(self.waiting or (self.seen if self.refusal is None else self.refusal.commit))

    @property
    def alike(self) -> str:
        """The newest commit, where it changes nothing in the manifests in force; else empty."""
        return self.seen if self.refusal is None and self.seen not in (self.in_force, self.waiting) else ""


def follow(
    rows: tuple[Row, ...], source: Source, decision: Decision, symptoms: tuple[Symptom, ...], wall: int
) -> tuple[Row, ...]:
    """The history after a decision; the same tuple where nothing changed.

    Args:
        rows: before, the oldest first.
        symptoms: of the decision.
        wall: the wall clock (ns).
    """
    current = dict(_current(source, decision, symptoms))
    after = {row.commit: row for row in rows}
    for commit, (fate, text) in current.items():
        before = after.get(commit)
        returned = source.returned and commit == source.in_force  # what was said of its earlier time is over
        if before is not None and not returned and _stays(before, fate, text):
            continue
        if before is not None and commit == source.alike and before.fate not in OPEN:
            continue
        # The text of an open commit says what is missing now, but the moment is of its fate.
        at = before.at_wall if before is not None and before.fate is fate else wall
        review = "" if before is None else before.review
        if before is None or before.fate is not fate:
            after.pop(commit, None)  # the newest change stands last
        after[commit] = Row(commit, fate, text[:TEXT], at, review)
    newest = next(reversed(current), "")
    replaced = newest and (source.newest_known or not current.keys() <= {row.commit for row in rows})
    for commit, row in list(after.items()):
        if row.fate not in OPEN or commit in current:
            continue
        if replaced:
            text = f"commit {newest[:12]} took its place before it was applied"
            after[commit] = row._replace(fate=Fate.SUPERSEDED, text=text, at_wall=wall)
        elif source.refusal is not None:  # what it waited for may be over
            at = row.at_wall if row.fate is Fate.PENDING else wall
            text = f"it is not applied, and whether it still is the newest one is not known: {source.refusal.cause}"
            after[commit] = row._replace(fate=Fate.PENDING, text=text[:TEXT], at_wall=at)
    kept = list(after.values())
    while len(kept) > KEPT:
        kept.remove(next((row for row in kept if row.commit not in current), kept[0]))
    result = tuple(kept)
    return rows if result == rows else result


def reviewed(rows: tuple[Row, ...], commit: str, review: str) -> tuple[Row, ...]:
    """The history with how the plan of a commit compares with the reviewed one. The same tuple for an unknown commit."""
    return tuple(row._replace(review=review[:TEXT]) if row.commit == commit else row for row in rows)


def _stays(before: Row, fate: Fate, text: str) -> bool:
    """Whether a commit keeps its row: one that was applied is not open again when a replica fails later."""
    if before.fate is Fate.APPLIED and fate in OPEN:
        return True
    return before.fate is fate and (fate not in OPEN or before.text == text[:TEXT])


def _current(
    source: Source, decision: Decision, symptoms: tuple[Symptom, ...]
) -> Iterable[tuple[str, tuple[Fate, str]]]:
    """The commit in force and the newest one, with their fates; the newest last."""
    applied = _in_force(source, decision, symptoms)
    if source.in_force:
        yield source.in_force, applied
    refusal = source.refusal
    if source.waiting and source.waiting != source.in_force:
        yield source.waiting, _waiting(decision.holds)
    if refusal is not None and refusal.commit and refusal.commit != source.in_force:
        yield refusal.commit, (Fate.REFUSED if refusal.final else Fate.PENDING, refusal.cause)
    elif source.alike:
        fate, text = applied
        yield source.alike, (fate, f"it changes nothing in the manifests; {text}")


def _in_force(source: Source, decision: Decision, symptoms: tuple[Symptom, ...]) -> tuple[Fate, str]:
    if not source.decided:
        return Fate.PENDING, "it is being put in force"
    # What holds a newer commit says nothing about this one.
    decision = replace(decision, holds=tuple(hold for hold in decision.holds if hold.object != OBJECT))
    state, text = commits.outcome(decision, symptoms, State())
    if state == commits.SUCCESS:
        return Fate.APPLIED, text
    if state == commits.FAILURE:
        return Fate.FAILED, text
    if image_choices.blamed(decision.status.desired, decision.ledger.rollouts):
        return Fate.PENDING, text
    waits = any(hold.until is None and hold.rule not in commits.IGNORED for hold in decision.holds)
    return Fate.MANUAL if waits else Fate.PENDING, text


def _waiting(holds: tuple[Hold, ...]) -> tuple[Fate, str]:
    """The fate of a valid revision that is not in force, by the holds of the source."""
    held = [hold for hold in holds if hold.object == OBJECT]
    if not held:
        return Fate.PENDING, "it waits until new commits are taken"
    manual = all(hold.until is None for hold in held)
    return Fate.MANUAL if manual else Fate.PENDING, f"it waits: {held[0].message}"
