"""A name that moves from one manifest to another never vanishes on the way, and no other writer loses a record."""

from dataclasses import dataclass, replace

import pytest

from manifests.values.desired import Desired
from manifests.values.dns import Publish, Record, RecordList, Routing, Target
from providers.facts import RecordKey
from reconciler.core.model.reasons import Rule
from tests.core.dns.world import A1, A2, B1, HOST, INSTANCE, NAMES, PASS, ZONE, World, geo_world, policy

BOTH = Target("both", Publish.ADDRESSES, addresses=(A1, A2))
PLAIN = policy(BOTH, routing=Routing.SIMPLE)
RECORD = Record("record/app", "app", HOST, NAMES, ZONE, "A", 60, (B1,))


@dataclass
class Lists(World):
    """A world with record lists."""

    lists: tuple[RecordList, ...] = ()

    def desired(self) -> Desired:
        return replace(super().desired(), record_lists=self.lists)

    def follow(self, *, crash: bool = False) -> set[str]:
        """Write action by action until nothing is left; returns the marks at the end. The host never loses its answer."""
        answered = False
        for _ in range(60):
            decision = self.decide()
            if decision.steps:
                self.write(decision, 1)
                if crash:
                    self.crash()
            elif later := [wait.until for wait in decision.waits if wait.until is not None]:
                self.pass_time((min(later) - self.now.steady) / 1e9)
            else:
                return {self.zone.value.owners[key] for key in self.sets}
            before, answered = answered, any(key.name == HOST for key in self.sets)
            assert answered or not before
        raise AssertionError("the world never settles")


def listed(value: str = B1) -> RecordList:
    return RecordList("recordlist/all", "all", NAMES, ZONE, {(HOST, "A", ""): (300, (value,), None, "", False)})


def mark(key: str) -> str:
    return f"{INSTANCE}/{key}"


def start(**given: object) -> Lists:
    world = Lists((), **given)  # type: ignore[arg-type]
    world.set_health(a1=PASS, a2=PASS, b1=PASS, x=PASS)
    world.follow()
    return world


@pytest.mark.parametrize("target", [PLAIN, policy()], ids=["plain", "tree"])
def test_a_name_of_a_list_becomes_a_policy(target: object) -> None:
    world = start(lists=(listed(),))
    world.lists, world.policies = (replace(listed(), sets={}),), (target,)  # type: ignore[assignment]

    assert world.follow() == {mark("dnspolicy/app")}


def test_a_name_of_a_list_stays_until_its_policy_has_a_healthy_address() -> None:
    world = start(lists=(listed(A1),))
    before = dict(world.sets)
    world.lists, world.policies, world.health = (), (replace(PLAIN, ttl=300),), {}
    world.follow()

    assert dict(world.sets) == before


@pytest.mark.parametrize("prune", [True, False])
def test_a_policy_with_another_name_keeps_its_tree(prune: bool) -> None:
    world = start()
    world.policies = (policy(),)
    world.follow()
    before = dict(world.sets)
    world.policies, world.prune = (replace(policy(), key="dnspolicy/new", name="new"),), prune

    assert world.follow() == {mark("dnspolicy/new")}
    assert dict(world.sets) == before


def test_a_record_becomes_a_policy_and_a_policy_a_record() -> None:
    world = start(records=(RECORD,))
    world.records, world.policies = (), (PLAIN,)
    assert world.follow() == {mark("dnspolicy/app")}

    world.records, world.policies = (RECORD,), ()
    assert world.follow() == {mark("record/app")}


def test_a_balanced_name_becomes_a_record_without_pruning_its_tree() -> None:
    world = start()
    world.policies = (policy(),)
    world.follow()
    world.policies, world.records = (), (RECORD,)
    world.follow()

    assert world.sets[RecordKey(HOST, "A")].values == (B1,)
    assert RecordKey(HOST, "CNAME") not in world.sets


def test_a_record_with_another_name_keeps_its_set() -> None:
    world = start(records=(RECORD,))
    world.records = (replace(RECORD, key="record/new", name="new"),)

    assert world.follow() == {mark("record/new")}


def test_a_record_of_another_instance_is_not_taken_over() -> None:
    world = geo_world()
    owners = dict.fromkeys(world.zone.value.owners, "other/dnspolicy/app")
    world.zone = replace(world.zone, value=replace(world.zone.value, owners=owners))
    world.policies = (PLAIN,)

    assert not world.decide().steps
    assert {hold.rule for hold in world.decide().holds} == {Rule.FOREIGN_RECORD}


def tree(key: str) -> dict[str, object]:
    return {"policies": (replace(policy(), key=f"dnspolicy/{key}", name=key),)}


FORMS: dict[str, dict[str, object]] = {
    "list": {"lists": (listed(),)},
    "record": {"records": (RECORD,)},
    "cname": {"records": (replace(RECORD, type="CNAME", values=("else.example.net.",)),)},
    "plain": {"policies": (PLAIN,)},
    "tree": tree("app"),
    "tree-of-another-name": tree("new"),
}


@pytest.mark.parametrize("known", [True, False], ids=["healthy", "unknown"])
@pytest.mark.parametrize("after", FORMS)
@pytest.mark.parametrize("before", FORMS)
def test_a_name_that_changes_its_form_always_has_an_answer(before: str, after: str, known: bool) -> None:
    world = Lists(**{"policies": (), **FORMS[before]})  # type: ignore[arg-type]
    world.set_health(a1=PASS, a2=PASS, b1=PASS, x=PASS)
    world.follow()
    for name in ("lists", "records", "policies"):
        setattr(world, name, FORMS[after].get(name, ()))
    if not known:
        world.health = {}
    world.revision = "r2"
    world.follow(crash=True)

    fresh = Lists(**{"policies": (), **FORMS[after]})  # type: ignore[arg-type]
    fresh.set_health(a1=PASS, a2=PASS, b1=PASS, x=PASS)
    fresh.follow()
    if known:
        assert {key: record for key, record in world.sets.items() if key.name == HOST} == {
            key: record for key, record in fresh.sets.items() if key.name == HOST
        }
