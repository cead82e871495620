"""The parts of a delegation are separate objects, and each step is one that a provider accepts."""

from manifests.values.dns import Record
from providers.actions import ChangeRecords
from providers.dns.common.change import changed_sets
from providers.facts import RecordKey, RecordSet
from reconciler.core.decision import Decision
from reconciler.core.dns import delegations, list_order
from reconciler.core.dns.records import RecordDiff
from reconciler.core.model.reasons import Reason, Waiting
from tests.core.dns.world import NAMES, ZONE, World

CUT, NS1, NS2 = f"sub.{ZONE}", f"ns1.sub.{ZONE}", f"ns2.sub.{ZONE}"
DIGEST = f"1 13 2 {'0b' * 32}"


def record(name: str, host: str, kind: str, *values: str) -> Record:
    return Record(f"record/{name}", name, host, NAMES, ZONE, kind, 60, tuple(sorted(values)))


GLUE, MORE_GLUE = record("a-glue", NS1, "A", "192.0.2.1"), record("b-glue", NS2, "AAAA", "2001:db8::1")
SIGNER = record("c-ds", CUT, "DS", DIGEST)
ONE, BOTH = record("servers", CUT, "NS", NS1), record("servers", CUT, "NS", NS1, NS2)


def accepted(world: World, decision: Decision) -> list[str]:
    """Do the steps as a provider does: each must be one that it accepts. Returns their objects."""
    for index, step in enumerate(decision.steps):
        assert isinstance(step.action, ChangeRecords)
        changed_sets(ZONE, world.sets, step.action.changes)
        world.write(Decision(**{**_fields(decision), "steps": decision.steps[index : index + 1]}))
    return [step.object for step in decision.steps]


def _fields(decision: Decision) -> dict[str, object]:
    return {name: getattr(decision, name) for name in decision.__slots__}


def settled(world: World) -> list[list[str]]:
    rounds = []
    while steps := accepted(world, world.decide()):
        rounds.append(steps)
        assert len(rounds) < 10
    return rounds


def test_a_whole_delegation_is_published_in_an_accepted_order() -> None:
    world = World((), records=(GLUE, MORE_GLUE, SIGNER, BOTH))
    first = world.decide()
    assert [(wait.object, wait.waiting) for wait in first.waits] == [("record/c-ds", Waiting.NAMES)]
    rounds = settled(world)
    assert rounds[-1] == ["record/c-ds"]
    assert {key.type for key in world.sets} == {"A", "AAAA", "DS", "NS"}


def test_a_further_address_waits_until_the_delegation_names_it() -> None:
    world = World((), records=(GLUE, ONE))
    settled(world)
    world.records = (GLUE, MORE_GLUE, BOTH)
    decision = world.decide()
    assert [step.object for step in decision.steps] == ["record/servers"]
    assert f"{CUT} NS does not name {NS2} yet" in decision.waits[0].message
    assert settled(world) == [["record/servers"], ["record/b-glue"]]


def test_a_delegation_ends_after_its_ds_and_before_its_addresses() -> None:
    world = World((), records=(GLUE, SIGNER, ONE))
    settled(world)
    gone = {
        record.type: RecordDiff(
            record.key,
            NAMES,
            ZONE,
            RecordKey(record.host, record.type),
            RecordSet(60, record.values),
            None,
            Reason.PRUNED,
        )
        for record in (GLUE, SIGNER, ONE)
    }
    cuts = delegations.changed(gone.values(), ZONE)
    why = {kind: delegations.waits([diff], cuts, world.zone.value) for kind, diff in gone.items()}
    assert why == {"A": f"{CUT} NS still names {NS1}", "DS": "", "NS": f"{CUT} DS still belongs to the delegation"}
    assert not delegations.waits([gone["NS"], gone["DS"]], cuts, world.zone.value), "in one step nothing waits"


def test_in_a_list_the_parts_of_a_delegation_are_one_change() -> None:
    def diff(name: str, kind: str, *values: str) -> RecordDiff:
        after = RecordSet(60, values)
        return RecordDiff("recordlist/all", NAMES, ZONE, RecordKey(name, kind), None, after, Reason.PUBLISHED)

    groups = [[diff(NS1, "A", "192.0.2.1")], [diff(f"www.{ZONE}", "A", "192.0.2.9")], [diff(CUT, "NS", NS1)]]
    groups.append([diff(CUT, "DS", DIGEST)])
    joined = list_order.together(groups)
    assert sorted(len(group) for group in joined) == [1, 3]
