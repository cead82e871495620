"""The models of other tools do what their documentation says."""

from itertools import pairwise

import pytest

from tests.incidents.peers import PEERS, AllKnowing, Autoheal, Kubelet, Nomad
from tests.incidents.traces import BEFORE, Answer, HalfHangs, LostDependency, NoRoute, Trace


class AlwaysBad(Trace):
    """Liveness fails from the beginning to the end."""

    key, duration = "test", 7200.0

    def answer(self, slot, probe, now):
        return Answer.FAIL if probe == "liveness" and now >= 0 else super().answer(slot, probe, now)


def gaps(rule: type, trace: Trace, slot: int = 0) -> list[float]:
    at = [restart.at for restart in rule(trace).run().restarts if restart.slot == slot]
    return [later - earlier for earlier, later in pairwise(at)]


def test_the_kubelet_doubles_its_wait_up_to_five_minutes():
    found = gaps(Kubelet, AlwaysBad(1))
    detection = found[0]  # the first restart has no wait
    waits = [round(gap - detection) for gap in found]
    assert detection < 40
    assert [
        abs(wait - wanted) <= 10 for wait, wanted in zip(waits, (0, 10, 20, 40, 80, 160, 300, 300), strict=False)
    ] == [True] * 8


def test_the_kubelet_forgets_its_wait_after_ten_minutes():
    kubelet = Kubelet(AlwaysBad(1))
    (replica,) = kubelet.replicas
    replica.since = 0.0
    assert [kubelet.pause(replica, now) for now in (100, 200, 300)] == [0.0, 10.0, 20.0]
    assert kubelet.pause(replica, 600) == 40.0
    assert kubelet.pause(replica, 601) == 0.0


def test_autoheal_restarts_one_after_the_other_without_a_limit():
    score = Autoheal(AlwaysBad(5)).run()
    at = [restart.at for restart in score.restarts]
    assert len(set(at)) == len(at)
    assert max(gaps(Autoheal, AlwaysBad(5))) < 60


def test_autoheal_checks_inside_the_container():
    assert Autoheal(NoRoute(3)).run().restarts == []
    assert len(Kubelet(NoRoute(3)).run().restarts) > 3


def test_nomad_restarts_twice_and_then_waits_longer_and_longer():
    nomad = Nomad(AlwaysBad(1))
    (replica,) = nomad.replicas
    waits = [nomad.pause(replica, now) for now in range(0, 90, 10)]
    assert [wait for wait in waits if wait >= 30] == [30.0, 60.0, 120.0]
    assert all(15 <= wait < 18.75 for wait in waits if wait < 30)


def test_nomad_begins_again_only_at_its_longest_delay():
    nomad = Nomad(AlwaysBad(1))
    (replica,) = nomad.replicas

    def third(now: float) -> float:
        return [nomad.pause(replica, now) for _ in range(3)][-1]

    replica.backoff, replica.rescheduled = 1800.0, 0.0
    assert third(20_000) == 3600.0  # however long it was well
    assert third(21_000) == 3600.0
    assert third(24_601) == 30.0


def test_the_knowing_rule_restarts_exactly_who_is_cured():
    score = AllKnowing(HalfHangs(10)).run()
    assert sorted(restart.slot for restart in score.restarts) == [0, 1, 2, 3, 4]
    assert all(restart.helps for restart in score.restarts)
    assert AllKnowing(LostDependency(10)).run().restarts == []


@pytest.mark.parametrize("name", PEERS)
def test_a_quiet_hour_has_no_restart_and_loses_nothing(name):
    row = PEERS[name](Trace(3)).run().row()
    assert (row.restarts, row.lost, row.recovery) == (0, 0, 0)


def test_all_rules_probe_at_the_same_phases():
    one, other = HalfHangs(3, seed=1), HalfHangs(3, seed=2)
    assert one.phase(0, "liveness", 10) == HalfHangs(3, seed=1).phase(0, "liveness", 10)
    assert [one.phase(slot, "liveness", 10) for slot in range(3)] != [
        other.phase(slot, "liveness", 10) for slot in range(3)
    ]
    assert BEFORE < 0


class NeverStarts(Trace):
    """It never gets ready."""

    key, duration = "test", 400.0

    def warm(self, slot, now):
        return False


@pytest.mark.parametrize(("rule", "least", "most"), [(Kubelet, 105, 107), (Autoheal, 115, 130), (Nomad, 130, 145)])
def test_a_start_that_takes_too_long_is_ended_after_its_grace(rule, least, most):
    """The kubelet kills after 95 s and waits 10 s or more; in the others the checks begin to count then."""
    assert least <= gaps(rule, NeverStarts(1))[0] <= most
