"""How incidents are counted and judged, on small histories whose result is known."""

import pytest

from tests.incidents.cases import PRODUCT, RULES, Case, Outcome
from tests.incidents.judge import judge
from tests.incidents.score import Restart, Row, Score, burst, in_vain
from tests.incidents.traces import HalfHangs, Trace, WrongProbe

GOOD = Row(
    restarts=1,
    useless=0,
    first=0,
    retries=0,
    most=0,
    burst=1,
    lowest=50,
    empty=0.0,
    emptied=0.0,
    unnamed=0.0,
    recovery=0.5,
    spell=0.5,
    lost=1.0,
)


def in_vain_at(*restarts: tuple[float, object]) -> tuple[int, int]:
    return in_vain([Restart(at, slot, False, "liveness") for at, slot in restarts])


@pytest.mark.parametrize(
    ("restarts", "counted"),
    [
        ([], (0, 0)),
        ([(0, 1)], (1, 0)),
        ([(0, 1), (59, 1), (178, 1), (420, 1), (900, 1), (1500, 1), (2100, 1)], (1, 6)),
        ([(0, 1), (30, 1)], (2, 0)),
        ([(0, 1), (60, 1), (120, 1)], (2, 1)),
        ([(0, 1), (60, 2)], (2, 0)),
        ([(0, 1), (60, 2), (120, 1), (180, 2)], (2, 2)),
    ],
)
def test_retries_of_the_same_replica_after_their_pause_count_apart(restarts, counted):
    assert in_vain_at(*restarts) == counted


def test_the_most_restarts_of_one_replica_in_five_minutes_are_counted():
    at = [(0, 1), (100, 1), (200, 2), (299, 1), (300, 1), (700, 1)]
    assert burst([Restart(when, slot, True, "liveness") for when, slot in at]) == 3


def started(size: int, kind: type[Trace] = WrongProbe) -> Score:
    score = Score(kind(size), exit=5)
    for slot in range(size):
        score.trace.started(slot, -100)
        score.trace.ask(slot, "readiness", -50)
    return score


def seconds(score: Score, begin: int, end: int, weights: dict) -> None:
    for now in range(begin, end):
        score.sample(now, weights)


def test_an_empty_pool_with_a_replica_that_passes_was_emptied():
    score = started(3)
    seconds(score, 0, 60, dict.fromkeys(range(3), 100.0))
    seconds(score, 60, 120, {})
    row = score.row()
    assert (row.empty, row.emptied, row.lost) == (1.0, 1.0, 6.0)


def test_one_replica_may_be_out_from_its_stop_to_its_readiness():
    score = started(1)
    seconds(score, 0, 4, {})  # its drain
    score.restart(4, 0, "liveness")
    score.trace.stopped(0, 4)
    score.trace.started(0, 5)
    seconds(score, 4, 10, {})
    assert (score.row().empty, score.row().emptied) == (0.17, 0.0)
    score.trace.ask(0, "readiness", 10)
    seconds(score, 10, 30, {})
    assert score.row().emptied == pytest.approx(16 / 60, abs=0.01)


def test_of_several_replicas_one_stays_while_another_is_out():
    score = started(2)
    for slot in (0, 1):
        score.restart(0, slot, "liveness")
        score.trace.stopped(slot, 0)
        score.trace.started(slot, 1)
    seconds(score, 0, 30, {})
    assert score.row().emptied == 0.5


def test_a_pool_that_is_empty_because_the_host_is_down_was_not_emptied():
    score = started(2)
    for slot in (0, 1):
        score.trace.stopped(slot, 0)
    seconds(score, 0, 60, {})
    assert (score.row().empty, score.row().emptied) == (1.0, 0.0)


def test_a_restart_is_useful_when_the_physics_say_so():
    score = started(2, HalfHangs)
    seconds(score, 0, 61, dict.fromkeys(range(2), 100.0))
    score.restart(61, 0, "liveness")
    score.restart(61, 1, "liveness")
    assert [restart.helps for restart in score.restarts] == [True, False]


def outcome(case: Case, ours: dict, others: dict | None = None) -> Outcome:
    rows = dict.fromkeys(RULES, GOOD)
    rows |= {name: Row(**(GOOD.data() | row)) for name, row in (others or {}).items()}
    rows[PRODUCT] = Row(**(GOOD.data() | ours))
    return Outcome(case, rows)


def broken(one: Outcome, reference: Row | None = None) -> set[str]:
    return {finding.bound for finding in judge(one, reference) if not finding.holds}


def test_figures_as_good_as_those_of_the_others_keep_all_bounds():
    assert broken(outcome(Case("2", 3), {})) == set()


@pytest.mark.parametrize(
    ("case", "ours", "bound"),
    [
        (Case("2", 3), {"emptied": 0.02}, "minutes emptied by us"),
        (Case("2", 1), {"emptied": 0.02}, "minutes emptied by us"),
        (Case("2", 2), {"first": 2}, "useless restarts"),
        (Case("8a", 3), {"first": 3}, "useless restarts"),
        (Case("2", 1), {"burst": 6}, "restarts of one replica in 5 min"),
        (Case("2", 1), {"most": 8}, "useless restarts of one replica"),
        (Case("11a", 30), {"most": 8}, "useless restarts of one replica"),
        (Case("2", 3), {"lost": 1.21}, "thousands of requests lost"),
        (Case("2", 3), {"recovery": 1.53}, "minutes to recover"),
        (Case("2", 3), {"recovery": None}, "minutes to recover"),
        (Case("7b", 3), {"spell": 1.53}, "minutes to recover"),
        (Case("3c", 3), {"recovery": 6.1}, "minutes to recover"),
        (Case("3c", 3), {"lost": 140.1}, "thousands of requests lost"),
    ],
)
def test_each_bound_is_broken_by_the_first_figure_beyond_it(case, ours, bound):
    assert broken(outcome(case, ours)) == {bound}


@pytest.mark.parametrize(
    ("case", "ours"),
    [
        (Case("2", 2), {"first": 1, "useless": 7, "retries": 6}),
        (Case("8a", 3), {"first": 2}),
        (Case("2", 1), {"first": 7, "most": 7, "burst": 5}),
        (Case("2", 3), {"lost": 1.2, "recovery": 1.52}),
        (Case("7a", 3), {"recovery": 60.0}),
        (Case("3c", 3), {"recovery": 6.0, "lost": 140.0}),
    ],
)
def test_each_bound_is_kept_up_to_its_figure(case, ours):
    assert broken(outcome(case, ours)) == set()


def test_only_a_restart_that_was_made_may_delay_the_one_that_helps():
    assert broken(outcome(Case("6b", 3), {"recovery": 2.0})) == {"minutes to recover"}
    assert broken(outcome(Case("6b", 3), {"recovery": 2.0, "useless": 1, "first": 1})) == set()


def test_lost_requests_compare_with_the_best_tool_and_the_knowing_rule():
    others = {
        "docker-autoheal": {"lost": 9.0},
        "kubelet": {"lost": 4.0},
        "Nomad": {"lost": 8.0},
        "all-knowing": {"lost": 2.0},
    }
    assert broken(outcome(Case("2", 3), {"lost": 4.5}, others)) == set()
    assert broken(outcome(Case("2", 3), {"lost": 4.51}, others)) == {"thousands of requests lost"}


def test_where_the_reference_counts_it_must_not_get_worse():
    reference = Row(**(GOOD.data() | {"lost": 7.0, "recovery": 3.0}))
    assert broken(outcome(Case("4a", 3), {"lost": 7.1, "recovery": 3.1}), reference) == set()
    assert len(broken(outcome(Case("4a", 3), {"lost": 7.2, "recovery": 3.2}), reference)) == 2
    assert broken(outcome(Case("4a", 3), {"lost": 70.0}), None) == set()
