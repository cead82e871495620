"""A server that refuses some record sets of a list gets all others, in few calls, and each bad set is named."""

from collections.abc import Set
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.actions import ChangeRecords
from reconciler.core.actions.asked import digest
from reconciler.core.decision import Decision
from reconciler.core.dns.list_batches import CALLS, REFUSALS
from reconciler.core.effects import fold as effect
from reconciler.core.model.ledger_fold import Outcome, OutcomeKind, fold
from reconciler.core.model.reasons import Rule
from tests.core.dns.test_record_lists import Listed, many, record_list
from tests.core.dns.world import ZONE


@dataclass
class Server(Listed):
    """A server that refuses each request with one of its `bad` names, or everything."""

    bad: Set[str] = field(default_factory=set)
    kind: OutcomeKind = OutcomeKind.REJECTED
    whole: bool = False
    everything: bool = False
    calls: int = 0
    refused: int = 0

    def turn(self) -> Decision:
        """One decision, and the answers of the server to its steps."""
        decision = self.decide()
        outcomes = []
        for step in decision.steps:
            assert isinstance(step.action, ChangeRecords)
            self.calls += 1
            names = {change.key.name.removesuffix(f".{ZONE}") for change in step.action.changes}
            if self.everything or names & self.bad:
                self.refused += 1
                asked = digest(step.action, self.desired(), {})
                outcomes.append(Outcome(step.id, self.kind, f"no: {len(names)}", step.object, asked, whole=self.whole))
            else:
                zone = effect(self.observed(), step, self.now).zones[next(iter(self.observed().zones))]
                self.zone = zone
                outcomes.append(Outcome(step.id, OutcomeKind.DONE))
        self.ledger = fold(self.ledger, tuple(outcomes), self.now)
        self.pass_time(0.01)
        return decision

    def run(self, turns: int) -> Decision:
        """Decide again and again, until no step is due."""
        for _ in range(turns):
            decision = self.turn()
            if not decision.steps:
                return decision
        pytest.fail(f"steps are still due after {turns} turns")

    def kinds(self) -> set[tuple[str, str]]:
        return {(key.name.removesuffix(f".{ZONE}"), key.type) for key in self.sets}

    def written(self) -> set[str]:
        return {key.name.removesuffix(f".{ZONE}") for key in self.sets}


def server(count: int, bad: Set[str], **fields: object) -> Server:
    return Server((), lists=(record_list(**many(count)),), bad=bad, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(("count", "bad"), [(4, {"n2"}), (450, {"n7", "n301", "n449"}), (3000, {"n1", "n2", "n3"})])
def test_all_but_the_bad_sets_are_written_in_few_calls(count, bad):
    world = server(count, bad)
    last = world.run(40)
    assert world.written() == {f"n{number}" for number in range(count)} - bad
    assert world.calls <= 2 + len(bad) * 3 * max(4, count.bit_length())
    held = {hold.action for hold in last.holds if hold.rule is Rule.STEP_FAILED}
    assert {action.rpartition("/")[2] for action in held} == {f"{name}.{ZONE} A" for name in bad}


@given(bad=st.sets(st.integers(0, 199), max_size=12))
def test_any_bad_sets_are_isolated(bad):
    names = {f"n{number}" for number in bad}
    world = server(200, names)
    world.run(60)
    assert world.written() == {f"n{number}" for number in range(200)} - names


def test_at_most_sixteen_calls_begin_in_one_decision():
    world = server(400, {f"n{number}" for number in range(0, 400, 4)})
    for _ in range(80):
        assert len(world.turn().steps) <= CALLS
    assert len(world.written()) == 300


def test_a_corrected_set_is_written_at_once():
    world = server(450, {"n7", "n301"})
    world.run(40)
    world.bad = {"n301"}
    world.lists = (record_list(**{**many(450), "n7_A": "203.0.113.7"}),)
    assert [change.key.name for step in world.turn().steps for change in step.action.changes] == [f"n7.{ZONE}"]
    assert "n7" in world.written()
    world.bad = set()
    world.pass_time(6)
    assert len(world.turn().steps) == 1  # tried again after five seconds
    assert not world.turn().steps
    assert not world.ledger.step_failures


def test_a_bad_set_that_is_left_out_leaves_nothing_behind():
    world = server(30, {"n7"})
    world.run(40)
    world.lists = (record_list(**{name: value for name, value in many(30).items() if name != "n7_A"}),)
    assert not world.turn().steps
    assert not world.ledger.step_failures


def test_a_refusal_for_rights_is_not_divided():
    world = server(450, set(), everything=True, whole=True)
    world.run(3)
    assert world.calls == 1
    world.pass_time(6)
    world.everything = False
    world.run(3)
    assert (len(world.written()), world.calls) == (450, 2)


def test_a_server_that_refuses_everything_is_not_asked_for_each_set():
    world = server(4000, set(), everything=True)
    for _ in range(200):
        world.turn()
    assert world.refused <= REFUSALS + CALLS
    world.everything = False
    world.pass_time(301)
    for _ in range(200):
        world.turn()
    assert len(world.written()) == 4000


def test_a_call_that_never_ends_in_time_is_made_smaller():
    world = server(450, {"n7"}, kind=OutcomeKind.UNKNOWN)
    world.turn()
    for _ in range(40):
        world.pass_time(301)
        world.turn()
    assert world.bad.isdisjoint(world.written())
    assert len(world.written()) > 350


def test_sets_that_replace_one_another_stay_together():
    world = Server((), lists=(record_list(a_A="192.0.2.1", b_A="192.0.2.2"),))
    world.run(5)
    world.lists = (record_list(a_CNAME="host.example.net.", b_A="192.0.2.9"),)
    world.bad = {"b"}
    world.run(10)
    assert world.has()["a CNAME"] == "host.example.net."
    assert "a A" not in world.has()


def test_names_that_point_at_a_bad_set_wait_for_it():
    world = Server((), lists=(record_list(a_A="192.0.2.1", c_A="192.0.2.3", b_CNAME=f"a.{ZONE}"),), bad={"a"})
    last = world.run(10)
    assert world.written() == {"c"}
    assert any(f"a.{ZONE} is not published yet" in wait.message for wait in last.waits)
    world.sound()


def test_a_set_waits_for_the_address_that_it_points_at_in_another_half():
    server = Server((), lists=(record_list(**many(40), bad_A="192.0.2.9"),), bad={"bad"})
    sets = dict(server.lists[0].sets)
    sets[f"mail.{ZONE}", "MX", ""] = (300, (f"10 n7.{ZONE}",), None, "", False)
    sets[f"lost.{ZONE}", "MX", ""] = (300, (f"10 bad.{ZONE}",), None, "", False)
    server.lists = (replace(server.lists[0], sets=sets),)
    server.turn()
    while server.turn().steps:
        assert ("mail", "MX") not in server.kinds() or ("n7", "A") in server.kinds()
    assert ("mail", "MX") in server.kinds()
    assert ("lost", "MX") not in server.kinds()
    assert any(f"bad.{ZONE} A is not published yet" in wait.message for wait in server.decide().waits)


def test_an_address_stays_while_its_replacement_is_refused():
    server = Server((), lists=(record_list(**many(8), web_A="192.0.2.9"),))
    server.run(4)
    sets = {key: value for key, value in server.lists[0].sets.items() if key[0] != f"web.{ZONE}"}
    sets[f"web.{ZONE}", "AAAA", ""] = (300, ("2001:db8::1",), None, "", False)
    sets[f"new.{ZONE}", "A", ""] = (300, ("192.0.2.8",), None, "", False)
    server.lists, server.bad = (replace(server.lists[0], sets=sets),), {"web"}
    server.run(6)
    assert {("web", "A"), ("new", "A")} <= server.kinds()
    assert ("web", "AAAA") not in server.kinds()


def test_an_address_stays_while_a_refused_set_still_points_at_it():
    sets = dict(record_list(**many(8), old_A="192.0.2.9").sets)
    sets[f"mail.{ZONE}", "MX", ""] = (300, (f"10 old.{ZONE}",), None, "", False)
    server = Server((), lists=(replace(record_list(), sets=sets),))
    server.run(4)
    sets = {key: value for key, value in sets.items() if key[0] != f"old.{ZONE}"}
    sets[f"mail.{ZONE}", "MX", ""] = (300, (f"10 n1.{ZONE}",), None, "", False)
    sets[f"new.{ZONE}", "A", ""] = (300, ("192.0.2.8",), None, "", False)
    server.lists, server.bad = (replace(server.lists[0], sets=sets),), {"mail"}
    server.run(6)
    assert {("old", "A"), ("new", "A")} <= server.kinds()
    server.bad = set()
    server.pass_time(400)
    server.run(6)
    assert ("old", "A") not in server.kinds()
