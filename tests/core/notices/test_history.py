"""Every fetched commit ends as applied, failed, refused or superseded, and the history is bounded."""

from collections.abc import Iterable
from dataclasses import replace

import pytest

from manifests.values.desired import Container, Desired, Guard, Instance, Template, Workload
from manifests.values.image_choice import ImageChoice
from manifests.values.notices import Topic
from reconciler.core.decision import Decision
from reconciler.core.model.instant import Instant
from reconciler.core.model.ledger import Ledger
from reconciler.core.model.reasons import Hold, Rule
from reconciler.core.model.revision import Revision, Rollout, Standing
from reconciler.core.model.source_problem import OBJECT
from reconciler.core.notices import history
from reconciler.core.notices.history import KEPT, OPEN, Fate, Refusal, Row, Source, follow
from reconciler.core.notices.model import Symptom
from reconciler.core.status.objects import Status

A, B, C = "a" * 40, "b" * 40, "c" * 40


def decided(*holds: Hold) -> Decision:
    return Decision((), holds, (), Status(), Ledger(), 2**62)


def hold(rule: Rule, until: int | None = None, obj: str = "workload/web") -> Hold:
    return Hold(obj, "remove", rule, "it is held", until=until)


def fates(rows: Iterable[Row]) -> dict[str, str]:
    return {row.commit[:1]: row.fate.value for row in rows}


def after(*steps: tuple[Source, Decision]) -> tuple[Row, ...]:
    rows: tuple[Row, ...] = ()
    for wall, (source, decision) in enumerate(steps, start=1):
        rows = follow(rows, source, decision, (), wall)
    return rows


def test_a_commit_is_pending_until_a_decision_about_it_has_nothing_left():
    rows = after((Source(A, decided=False), decided()))
    assert fates(rows) == {"a": "pending"}
    rows = follow(rows, Source(A, decided=True), decided(hold(Rule.BUDGET, 5)), (), 2)
    assert fates(rows) == {"a": "pending"}
    assert fates(follow(rows, Source(A, decided=True), decided(), (), 3)) == {"a": "applied"}


def test_a_hold_without_an_end_waits_for_an_operator():
    assert fates(after((Source(A, decided=True), decided(hold(Rule.MASS_CHANGE))))) == {"a": "manual"}


@pytest.mark.parametrize(("final", "fate"), [(True, "refused"), (False, "pending")])
def test_a_commit_that_cannot_come_into_force_is_refused_or_pending(final, fate):
    refused = Source(A, decided=True, seen=B, refusal=Refusal(B, "it is invalid", final))
    rows = after((Source(A, decided=True), decided()), (refused, decided()))
    assert fates(rows) == {"a": "applied", "b": fate}
    rows = follow(rows, Source(C, decided=True, seen=C), decided(), (), 9)
    assert fates(rows) == {"a": "applied", "b": "refused" if final else "superseded", "c": "applied"}


@pytest.mark.parametrize(
    ("proved", "fate"), [("", "pending"), ("an earlier revision", "failed")], ids=["a new image", "a proved image"]
)
def test_a_commit_does_not_fail_for_an_image_that_a_policy_chose(proved: str, fate: str):
    known = ImageChoice("workload/web", "main", "shop:1.4", "shop:1.5", proved=proved)
    workload = Workload(
        "workload/web", "web", ("n",), 1, Template((), Container("main", ()), revision="new"), image_choices=(known,)
    )
    wanted = Desired("source", "revision", "/", True, Instance("shop"), Guard(), (), (workload,), (), ())
    at = Instant(1, 1, "")
    rollout = Rollout(active="old", rows=(Revision("new", 2, Standing.FAILED, at, why="it fails"),))
    stuck = hold(Rule.PROGRESS)
    decision = replace(decided(stuck), status=Status(desired=wanted), ledger=Ledger(rollouts={"workload/web": rollout}))
    found = Symptom("rollout", Topic.ROLLOUT, "workload/web", "it fails", "", True)
    source = Source(A, decided=True)
    assert fates(follow((), source, decision, (found,), 1)) == {"a": fate}
    applied = follow((), source, decided(), (), 1)
    assert fates(follow(applied, source, decision, (found,), 2)) == {"a": "failed" if proved else "applied"}


def test_a_commit_that_waits_is_superseded_by_the_next_one():
    waits = Source(A, decided=True, seen=B, waiting=B)
    rows = after((waits, decided(hold(Rule.SUSPENDED, None, OBJECT))))
    assert fates(rows) == {"a": "applied", "b": "manual"}
    rows = follow(rows, Source(A, decided=True, seen=C, waiting=C), decided(hold(Rule.WINDOW, 99, OBJECT)), (), 2)
    assert fates(rows) == {"a": "applied", "b": "superseded", "c": "pending"}


@pytest.mark.parametrize(
    "newer",
    [
        Source(A, decided=True, seen=B, waiting=B),
        Source(A, decided=True, seen=B),
        Source(A, decided=True, refusal=Refusal(B, "the remote does not answer", final=False)),
    ],
    ids=["it waits", "it changes nothing", "it is not read yet"],
)
def test_a_commit_stays_open_while_the_newest_one_is_not_known(newer):
    """A daemon that starts without the remote knows only what is in force."""
    busy = decided(hold(Rule.BUDGET, 5))
    rows = after((Source(A, decided=True, seen=A), decided()), (newer, busy))
    assert fates(rows) == {"a": "applied", "b": "pending"}
    restarted = Source(A, decided=True, seen=B, refusal=Refusal("", "the remote does not answer", final=False))
    assert follow(rows, Source(A, decided=True), busy, (), 9) is rows
    rows = follow(rows, restarted, busy, (), 9)
    assert fates(rows) == {"a": "applied", "b": "pending"}
    assert rows[-1].text.endswith("is not known: the remote does not answer")
    assert follow(rows, restarted, busy, (), 10) is rows
    back = follow(rows, Source(A, decided=True, seen=A), busy, (), 10)
    assert fates(back) == {"a": "applied", "b": "superseded"}


def test_a_commit_waits_for_no_operator_while_the_source_cannot_be_read():
    """What it waited for may be over, and `wait` would end with it."""
    waits = Source(A, decided=True, seen=B, waiting=B)
    rows = after((waits, decided(hold(Rule.SUSPENDED, None, OBJECT))))
    assert fates(rows) == {"a": "applied", "b": "manual"}
    restarted = Source(A, decided=True, seen=B, refusal=Refusal("", "the remote does not answer", final=False))
    rows = follow(rows, restarted, decided(), (), 7)
    assert (rows[-1].fate, rows[-1].at_wall) == (Fate.PENDING, 7)


def test_a_commit_that_comes_into_force_again_is_open_until_it_is_applied():
    """A branch that is set back to an earlier commit, as promotions do: the world is not at it yet."""
    rows = after((Source(A, decided=True, seen=A), decided()), (Source(B, decided=True, seen=B), decided()))
    again = Source(A, decided=False, seen=A, returned=True)
    rows = follow(rows, again, decided(), (), 3)
    assert fates(rows) == {"a": "pending", "b": "applied"}
    rows = follow(rows, again._replace(decided=True, returned=False), decided(hold(Rule.BUDGET, 5)), (), 4)
    assert fates(rows) == {"a": "pending", "b": "applied"}
    rows = follow(rows, again._replace(decided=True, returned=False), decided(), (), 5)
    assert fates(rows) == {"a": "applied", "b": "applied"}


def test_a_commit_that_changes_nothing_ends_as_the_one_in_force():
    same = Source(A, decided=True, seen=B)
    assert fates(after((same, decided()))) == {"a": "applied", "b": "applied"}
    assert fates(after((same, decided(hold(Rule.BUDGET, 5))))) == {"a": "pending", "b": "pending"}


def test_an_applied_commit_stays_and_a_refused_one_may_come_into_force():
    rows = after((Source(A, decided=True), decided()), (Source(A, decided=True), decided(hold(Rule.MASS_CHANGE))))
    assert fates(rows) == {"a": "applied"}
    refused = (Row(A, Fate.REFUSED, "no key", 1),)
    assert fates(follow(refused, Source(A, decided=True), decided(), (), 2)) == {"a": "applied"}


def test_no_commit_stays_open_behind_another_and_the_rows_are_bounded():
    rows: tuple[Row, ...] = ()
    for number in range(KEPT + 50):
        commit = f"{number:040x}"
        waits = decided(hold(Rule.BUDGET, 5)) if number % 3 else decided()
        rows = follow(rows, Source(commit, decided=number % 2 == 0), waits, (), number)
        assert all(row.fate not in OPEN for row in rows if row.commit != commit)
    assert len(rows) == KEPT
    assert rows[-1].commit == f"{KEPT + 49:040x}"


def test_the_same_decision_again_gives_the_same_history_and_keeps_a_review():
    rows = history.reviewed(after((Source(A, decided=True), decided())), A, "as reviewed in merge request 7")
    again = follow(rows, Source(A, decided=True), decided(), (), 99)
    assert again is rows
    later = follow(rows, Source(B, decided=True), decided(), (), 100)
    assert later[0].review == "as reviewed in merge request 7"
