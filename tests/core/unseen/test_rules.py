"""The rules, one by one, with a silent node: what is on it is unknown, what is elsewhere is decided as usual."""

from dataclasses import replace

import pytest

from manifests.values.desired import SECOND, Guard, MassChange, Push
from manifests.values.dns import Publish, Target
from manifests.values.limits import Rate, RestartLimits
from manifests.values.rollouts import Rollout as RolloutTimes
from manifests.values.rollouts import Strategy
from providers.actions import RemoveEndpoint, SetWeight
from providers.facts import ProbeValue, RecordKey, RecordSet
from reconciler.core.exits.grants import allowance
from reconciler.core.model.instant import Now
from reconciler.core.model.ledger import Absence, Escalation, ExitTimes, Failures, Grant, Outbreak
from reconciler.core.model.push_fact import PushEvent, PushFact
from reconciler.core.model.reasons import Reason, Rule
from reconciler.core.model.restart_request import Fate, Request
from reconciler.core.model.revision import Revision, Rollout, Standing
from reconciler.core.model.weight_memory import Ready
from reconciler.core.replicas.snapshot import Snapshot
from reconciler.core.rollouts import host_restart
from reconciler.core.status.objects import rows
from tests.builders import NOW, ago, container
from tests.core.unseen.fleet import NODES, SILENT, Fleet, spec, steps
from tests.sim.manifest import POOLS, ZONE, Shop


def later(seconds: float) -> Now:
    span = int(seconds * SECOND)
    return Now(NOW.wall + span, NOW.steady + span, NOW.lineage)


def fleet_of(**fields) -> Fleet:
    fleet = Fleet(spec(**fields)).learned()
    fleet.silent.add(SILENT)
    return fleet


def rules(decision) -> set[Rule]:
    return {hold.rule for hold in decision.holds}


def weights(decision) -> dict[str, int]:
    return {
        step.action.endpoint.address: step.action.weight
        for step in decision.steps
        if isinstance(step.action, SetWeight)
    }


# --- pools ------------------------------------------------------------------------------------------------------------


def test_a_failing_member_loses_its_weight_beside_an_unknown_one():
    fleet = fleet_of()
    fleet.sick(0, "readiness")
    assert weights(fleet.decide()) == {fleet.facts[0].address: 0}


def test_an_unknown_member_counts_as_not_ready_in_a_panic():
    """Two of four fail: no panic while the other two are ready, panic when one of these is unknown."""
    fleet = Fleet(spec()).learned()
    for number in (0, 1):
        fleet.sick(number, "readiness")
    assert Rule.PANIC not in rules(fleet.decide())
    fleet.silent.add(SILENT)
    decision = fleet.decide()
    assert Rule.PANIC in rules(decision)
    assert not weights(decision)


def test_the_last_known_member_keeps_its_weight():
    fleet = fleet_of()
    for number in (0, 1, 2):
        fleet.sick(number, "readiness")
    decision = fleet.decide()
    assert not weights(decision)
    assert not decision.steps


def test_a_dead_member_goes_and_that_of_a_silent_node_stays():
    fleet = fleet_of()
    dead = fleet.without(0)
    decision = fleet.decide()
    touched = {
        step.action.endpoint.address for step in decision.steps if isinstance(step.action, SetWeight | RemoveEndpoint)
    }
    assert touched == {dead.address}


def test_the_rows_of_an_unknown_member_stay():
    fleet = fleet_of()
    before = fleet.ledger.weighed[f"{POOLS}/web"], fleet.ledger.ready
    assert len(before[0]) == 4
    fleet.decide()
    assert (fleet.ledger.weighed[f"{POOLS}/web"], fleet.ledger.ready) == before


def test_a_dead_member_stays_while_the_ledger_does_not_list_the_node():
    fleet = Fleet(spec())
    fleet.silent.add(SILENT)
    fleet.without(0)
    decision = fleet.decide()
    assert not any(isinstance(step.action, SetWeight | RemoveEndpoint) for step in decision.steps)


# --- names ------------------------------------------------------------------------------------------------------------


def published(decision) -> set[str]:
    """The addresses that the decision withdraws."""
    gone: set[str] = set()
    for step in decision.steps:
        for change in getattr(step.action, "changes", ()):
            before = set(change.before.values) if change.before else set()
            gone |= before - (set(change.after.values) if change.after else set())
    return gone


def test_only_the_address_of_a_container_that_is_gone_is_withdrawn():
    fleet = fleet_of()
    gone = fleet.without(1)
    assert published(fleet.decide()) == {gone.address}


def test_an_unknown_address_stays_under_its_own_target():
    """Two services behind one name, one of which has its only replica on the silent node."""
    api = spec(name="api", replicas=1, nodes=(SILENT,), publish=None, pools=("api",))
    fleet = Fleet(spec(replicas=3), api)
    key = RecordKey(f"web.{ZONE}", "A")
    fleet.records[key] = RecordSet(30, tuple(sorted({*fleet.records[key].values, fleet.facts[3].address})))
    (policy,) = fleet.desired.policies
    both = (*policy.targets, Target("api", Publish.ENDPOINTS, "service/api"))
    two = replace(fleet.desired, policies=(replace(policy, targets=both),))
    fleet.manifests = two
    fleet.learned()
    fleet.silent.add(SILENT)
    decision = fleet.decide()
    assert not decision.steps
    outcome = decision.status.names.policies[policy.key]
    assert [address.target for address in outcome.target_addresses if address.address == fleet.facts[3].address] == [
        "api"
    ]


@pytest.mark.parametrize("silent", [False, True])
def test_a_balancer_is_not_withdrawn_while_an_endpoint_may_serve(silent):
    """The known endpoint of `api` fails; another one is on the silent node. `web` is healthy in the same name."""
    api = spec(name="api", replicas=2, nodes=("node-a", SILENT), publish=None, pools=("api",))
    fleet = Fleet(spec(replicas=3, publish=Publish.BALANCER), api)
    (policy,) = fleet.desired.policies
    services = {service.key: service for service in fleet.desired.services}
    (balancer,) = services["service/api"].balancers
    services["service/api"] = replace(
        services["service/api"], balancers=(replace(balancer, addresses=("203.0.113.20",)),)
    )
    targets = (*policy.targets, Target("api", Publish.BALANCER, "service/api"))
    two = replace(
        fleet.desired,
        policies=(replace(policy, targets=targets),),
        services=tuple(services[k] for k in sorted(services)),
    )
    fleet.manifests = two
    fleet.records[RecordKey(f"web.{ZONE}", "A")] = RecordSet(30, ("203.0.113.10", "203.0.113.20"))
    fleet.learned()
    api_here = next(number for number, fact in enumerate(fleet.facts) if fact.mark.workload == "api")
    fleet.sick(api_here, "readiness")
    if silent:
        fleet.silent.add(SILENT)
    else:
        fleet.sick(api_here + 1, "readiness")
    assert published(fleet.decide()) == (set() if silent else {"203.0.113.20"})


def test_the_silence_of_unknown_senders_says_as_much_of_the_channel():
    """Three of five senders fell silent together, one of them on the silent node: the pushes may be lost on their way."""
    fleet = Fleet(spec(replicas=5))
    (web,) = fleet.desired.workloads
    fleet.manifests = replace(fleet.desired, workloads=(replace(web, push=Push()),))
    fleet.learned().silent.add(SILENT)
    pushes = {}
    for number, fact in enumerate(fleet.facts):
        at = NOW.steady - (70 if number in (0, 1, 3) else 1) * SECOND
        pushes[fact.generation] = PushFact(PushEvent.READY, at, at, "boot", 1)
    for number in (0, 1):
        fleet.sick(number, "readiness")
    current = fleet.decide(pushes=pushes).status.roster.groups["workload/web"].current
    assert [current[ordinal].ready for ordinal in (0, 1)] == [ProbeValue.UNKNOWN] * 2


# --- healing ----------------------------------------------------------------------------------------------------------


def test_an_unknown_replica_counts_as_failed_once_one_fails():
    fleet = fleet_of()
    fleet.sick(0)
    decision = fleet.decide()
    assert "workload/web" in decision.ledger.outbreaks
    assert [grant.object for grant in decision.ledger.grants.values()] == ["workload/web/0"]
    fleet.sick(1)
    held = [hold for hold in fleet.decide().holds if hold.rule is Rule.MASS_FAILURE and hold.object == "workload/web/1"]
    assert held
    assert "1 may fail as well, because their nodes cannot be read" in held[0].message


def test_the_unknown_result_of_a_canary_is_no_failure_and_no_end():
    fleet = fleet_of()
    fleet.sick(0)
    fleet.ledger = replace(fleet.ledger, outbreaks={"workload/web": Outbreak(ago(900), "workload/web/3")})
    decision = fleet.decide()
    row = decision.ledger.outbreaks["workload/web"]
    assert (row.canary, row.failures) == ("workload/web/0", 0)


def test_a_mass_failure_of_a_silent_node_is_remembered():
    fleet = fleet_of()
    outbreaks = {f"node/{SILENT}": Outbreak(ago(9000), "", 2, ago(8000), ago(7000)), "node/node-a": Outbreak(ago(9000))}
    fleet.ledger = replace(fleet.ledger, outbreaks=outbreaks)
    kept = fleet.decide().ledger.outbreaks
    assert kept[f"node/{SILENT}"] == outbreaks[f"node/{SILENT}"]
    assert kept["node/node-a"].calm is not None


def grant_on(fleet: Fleet, number: int, cause: Reason, at: int, **fields) -> None:
    fact = fleet.facts[number]
    ordinal = fact.mark.ordinal
    grant = Grant(f"workload/web/{ordinal}", fact.generation, cause, ago(at), node=fact.node, **fields)
    fleet.ledger = replace(fleet.ledger, grants={**fleet.ledger.grants, fact.id: grant})


def test_a_disruption_on_a_silent_node_counts_for_as_long_as_it_may_take():
    fleet = fleet_of(max_unavailable=1)
    grant_on(fleet, 3, Reason.LIVENESS_FAILED, 5)
    fleet.sick(0)
    decision = fleet.decide()
    assert fleet.facts[0].id not in decision.ledger.grants
    assert fleet.facts[3].id in decision.ledger.grants
    over = allowance(fleet.desired.workloads[0]) - 5 * SECOND
    assert NOW.steady < decision.wake_at <= NOW.steady + over


def test_after_that_the_others_heal_and_nothing_wakes_at_once():
    fleet = fleet_of(max_unavailable=1)
    grant_on(fleet, 3, Reason.LIVENESS_FAILED, 3600)
    decision = fleet.decide()
    assert decision.wake_at > NOW.steady + SECOND
    fleet.sick(0)
    decision = fleet.decide()
    assert {fleet.facts[0].id, fleet.facts[3].id} == set(decision.ledger.grants)


def test_a_disruption_elsewhere_ends_when_its_container_is_gone():
    fleet = fleet_of()
    grant_on(fleet, 1, Reason.TEMPLATE_CHANGED, 5)
    gone = fleet.without(1)
    assert gone.id not in fleet.decide().ledger.grants


def test_a_request_restarts_the_others_and_waits_for_the_unknown_one():
    guard = Guard(restarts=RestartLimits(workload=Rate(600, 600), node=Rate(600, 600), total=Rate(600, 600)))
    fleet = Fleet(spec())
    fleet.shop = replace(fleet.shop, guard=guard)
    fleet.learned().silent.add(SILENT)
    fleet.ledger = replace(fleet.ledger, requests={"r": Request("workload/web", ago(1), "ada", deadline=3600 * SECOND)})
    fleet.decide()
    members = {member.object: member for member in fleet.ledger.requests["r"].members}
    assert {obj: member.fate for obj, member in members.items()} == {
        f"workload/web/{n}": Fate.WAITING for n in range(4)
    }
    assert members["workload/web/3"].message == f"its node {SILENT} cannot be read"
    fleet.silent.clear()
    fleet.decide()
    member = fleet.ledger.requests["r"].members[3]
    assert (member.generation, member.fate) == (fleet.facts[3].generation, Fate.WAITING)


def test_an_unknown_member_of_a_request_expires_at_the_deadline():
    fleet = fleet_of()
    fleet.ledger = replace(fleet.ledger, requests={"r": Request("workload/web/3", ago(1), "ada", deadline=60 * SECOND)})
    fleet.decide()
    request = fleet.decide(later(1), runtimes=fleet.observed().runtimes).ledger.requests["r"]
    assert request.finished is None
    fleet.ledger = replace(fleet.ledger, requests={"r": request._replace(at=ago(61))})
    request = fleet.decide().ledger.requests["r"]
    assert request.members[0].fate is Fate.EXPIRED
    assert SILENT in request.members[0].message


# --- rollouts ---------------------------------------------------------------------------------------------------------


def test_waiting_for_a_silent_node_is_no_lack_of_progress():
    """The other replicas are new; the time until the node answers does not count against the deadline."""
    new = spec(image="v2")
    fleet = Fleet(new).learned()
    old = container(spec(), 3, node=SILENT, id="old", address="10.9.9.9", ports=())
    fleet.facts[3] = old
    active = Rollout(
        active=spec().revision,
        rows=(
            Revision(spec().revision, 1, Standing.ACTIVE, ago(9000), activated=ago(9000)),
            Revision(new.revision, 2, Standing.SCHEDULED, ago(5000), due=ago(5000)),
        ),
        progressed=ago(5000),
        ready=3,
    )
    fleet.ledger = replace(fleet.ledger, rollouts={"workload/web": active})
    fleet.decide()
    fleet.ledger = replace(fleet.ledger, rollouts={"workload/web": active})
    fleet.silent.add(SILENT)
    decision = fleet.decide()
    rollout = decision.ledger.rollouts["workload/web"]
    assert (rollout.active, rollout.progressed) == (spec().revision, None)
    assert rollout.of(new.revision).standing is Standing.SCHEDULED
    assert Rule.PROGRESS not in rules(decision)


def test_a_create_first_rollout_never_needs_the_unknown_replica():
    fleet = fleet_of()
    fleet.shop = Shop((spec(image="v2"),))
    assert [step for step in steps(fleet.decide()) if step.startswith("create")] == [
        f"create shop-web-{spec(image='v2').revision[:8]}-0"
    ]


def test_a_replica_that_moves_is_not_created_before_its_unknown_one_went():
    """With `recreate` the old one goes first, and nothing shows that it did."""
    moved = spec(strategy=Strategy.RECREATE, replicas=1, nodes=(SILENT,))
    fleet = Fleet(moved).learned()
    fleet.silent.add(SILENT)
    fleet.shop = Shop((replace(moved, nodes=("node-a",)),))
    assert not steps(fleet.decide())
    fleet.silent.clear()
    assert steps(fleet.decide())


def test_a_replica_moves_to_a_node_that_answers():
    fleet = Fleet(spec(replicas=2, nodes=("node-a", "node-b"))).learned()
    fleet.shop = Shop((spec(replicas=2, nodes=("node-a", SILENT)),))
    fleet.silent.add(SILENT)
    decision = fleet.decide()
    assert steps(decision) == [f"create {fleet.facts[1].name}"]
    assert [step.action.node for step in decision.steps] == ["node-a"]


def test_a_template_and_the_pins_of_an_unknown_revision_stay():
    fleet = Fleet(spec()).learned()
    fleet.shop = Shop((spec(image="v2"),))
    fleet.facts = [replace(fact, digests=(("", "img@sha256:1"),)) for fact in fleet.facts]
    fleet.decide()
    old = f"workload/web@{spec().revision}"
    assert old in fleet.ledger.templates
    fleet.facts = [
        fleet.facts[3],
        *(container(spec(image="v2"), n, node=NODES[n], id=f"new-{n}") for n in range(3)),
    ]
    fleet.ledger = replace(fleet.ledger, rollouts={})
    fleet.decide()
    fleet.silent.add(SILENT)
    fleet.decide()
    assert old in fleet.ledger.templates
    assert old in fleet.ledger.pins
    assert old in fleet.ledger.specs


def test_a_node_that_answers_again_excuses_no_failure_elsewhere():
    """While its engine is away, a canary that fails on another node is judged as always."""
    fields = {"strategy": Strategy.ACTIVATE, "rollout": RolloutTimes(bake=600 * SECOND)}
    fleet = Fleet(spec(**fields))
    (web,) = fleet.desired.workloads
    active = Revision(web.template.revision, 1, Standing.ACTIVE, ago(90), activated=ago(90), scale=4)
    fleet.ledger = replace(
        fleet.ledger, rollouts={"workload/web": Rollout(active=web.template.revision, rows=(active,))}
    )
    fleet.learned().silent.add(SILENT)
    fleet.facts[0] = replace(fleet.facts[0], running_since=NOW.steady)
    fleet.sick(0)
    groups = fleet.decide().status.roster.groups
    snap = Snapshot(fleet.desired, fleet.observed(), fleet.decide().status.sight, fleet.decide().status.roster, NOW)
    noted = host_restart.note(snap, fleet.ledger.rollouts["workload/web"], groups["workload/web"], False)
    assert noted.host_restarted is not None
    assert not host_restart.excused(snap, noted, groups["workload/web"]).containers


# --- what is remembered -------------------------------------------------------------------------------------------------


def test_rows_of_unknown_containers_stay_and_those_of_gone_ones_go():
    fleet = fleet_of()
    here, there = fleet.facts[0], fleet.facts[3]
    fleet.ledger = replace(
        fleet.ledger,
        runtime_restarts={here.id: 3, there.id: 4},
        failures={
            "workload/web/0": Failures(3, ago(90_000), here.generation),
            "workload/web/3": Failures(4, ago(90_000), there.generation),
        },
        ready={fact.id: Ready(fact.started_at, ago(90), False) for fact in (here, there)},
    )
    fleet.without(0)
    ledger = fleet.decide().ledger
    assert ledger.runtime_restarts == {there.id: 4}
    assert set(ledger.failures) == {"workload/web/3"}
    assert {here.id, there.id} & set(ledger.ready) == {there.id}


def test_rows_of_a_deleted_workload_stay_while_its_node_is_silent():
    old = spec(name="old", replicas=1, nodes=(SILENT,), pools=(), publish=None)
    other = spec(name="other", replicas=1, nodes=("node-a",), pools=(), publish=None)
    fleet = Fleet(spec(), old, other, prune=True).learned()
    fleet.shop = replace(fleet.shop, specs=(spec(),))
    fleet.ledger = replace(fleet.ledger, escalations={"workload/old/0": Escalation(2, "r", ago(10))})
    fleet.facts = [fact for fact in fleet.facts if fact.mark.workload != "other"]
    fleet.silent.add(SILENT)
    revision = fleet.desired.revision
    fleet.ledger = replace(
        fleet.ledger, absences={key: Absence(ago(9), revision) for key in ("workload/old", "workload/other")}
    )
    ledger = fleet.decide().ledger
    assert set(ledger.exit_times) == {"workload/web", "workload/old"}
    assert ledger.exit_times["workload/old"] != ExitTimes(0, 0, 0)
    assert set(ledger.absences) == {"workload/old"}
    assert set(ledger.escalations) == {"workload/old/0"}


@pytest.mark.parametrize("silent", [False, True])
def test_orphans_on_a_silent_node_count_in_a_mass_deletion(silent):
    """Two of four workloads are orphaned: too many to prune without approval, also while one of them is unknown."""
    names = {"web": "node-a", "api": "node-b", "old": "node-c", "older": SILENT}
    specs = [spec(name=name, replicas=1, nodes=(node,), pools=(), publish=None) for name, node in sorted(names.items())]
    fleet = Fleet(*specs, prune=True)
    fleet.shop = replace(fleet.shop, guard=Guard(mass_change=MassChange(40, 0)))
    fleet.learned()
    fleet.shop = replace(fleet.shop, specs=tuple(declared for declared in specs if not declared.name.startswith("old")))
    revision = fleet.desired.revision
    fleet.ledger = replace(
        fleet.ledger, absences={f"workload/{name}": Absence(ago(120), revision) for name in ("old", "older")}
    )
    if silent:
        fleet.silent.add(SILENT)
    decision = fleet.decide()
    assert not decision.steps
    assert Rule.MASS_CHANGE in rules(decision)


# --- status -------------------------------------------------------------------------------------------------------------


def test_status_lists_the_unknown_replicas_apart_from_missing_ones():
    fleet = fleet_of()
    fleet.without(1)
    decision = fleet.decide()
    (web,) = rows(decision.status, decision.holds, NOW)["workloads"]
    assert web["missing"] == [f"shop-web-{spec().revision[:8]}-1"]
    assert web["unreadable"] == [
        {"replica": "workload/web/3", "container": f"shop-web-{spec().revision[:8]}-3", "node": SILENT}
    ]
    assert (web["condition"], web["available"], web["unknown"]) == ("Unknown", 2, 1)
