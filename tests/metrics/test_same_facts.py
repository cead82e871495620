"""Status, metrics and events have the same value for the same fact, through incidents in the simulated world."""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest

from manifests.values.desired import SECOND
from manifests.values.rollouts import DEFAULT_ROLLOUT
from providers.facts import Generation, ProbeValue
from providers.testing.faults import Fault
from reconciler.core.model.reasons import Rule
from reconciler.metrics.state import ends
from reconciler.shell.report.summary import decision_json
from tests.laws.helpers import LOOSE, MINUTE, QUICK, WEB
from tests.metrics.scrapes import Scrape
from tests.sim.manifest import NAMES, NODE, POOLS, Shop, Spec
from tests.sim.world import World

STEP = 7 * SECOND


def scrape(world: World) -> Scrape:
    assert world.monitoring is not None
    assert world.monitoring.meter is not None
    return Scrape(world.monitoring.meter.text())


def status(world: World) -> dict:
    """What `reconcile status -o json` shows of the last tick."""
    assert world.monitoring is not None
    tick = world.monitoring.last
    assert tick is not None
    return json.loads(decision_json(tick.decision, tick.desired, tick.now))


def agree(world: World) -> None:
    """The last tick says the same in status and metrics, and the audit the same as the counters."""
    shown, metrics = status(world), scrape(world)
    _workloads(shown["status"], metrics)
    _traffic(shown["status"], metrics)
    _names(shown["status"], metrics)
    _holds(world, shown, metrics)
    _counters(world, metrics)


def _workloads(shown: dict, metrics: Scrape) -> None:
    names = {workload["key"].partition("/")[2] for workload in shown["workloads"]}
    assert {name for (name,) in metrics.by("workload_replicas_desired", "workload")} == names
    for workload in shown["workloads"]:
        name = workload["key"].partition("/")[2]
        states = Counter(replica["state"] for replica in workload["replicas"])
        assert metrics.get("workload_replicas_desired", workload=name) == workload["wanted"]
        assert metrics.get("workload_replicas_available", workload=name) == workload["available"]
        assert metrics.get("workload_replicas_unknown", workload=name) == workload["unknown"]
        failed = {replica["replica"] for replica in workload["replicas"] if replica["state"] == "Failed"}
        assert metrics.get("workload_replicas_failed", workload=name) == len(failed)
        ready = metrics.get("workload_replicas_ready", workload=name)
        assert (ready is None) == (workload["condition"] == "Unknown")
        if ready is not None:
            hidden = sum(states[state] for state in ("Failed", "Held", "Restarting", "Leaving"))
            assert states["Ready"] <= ready <= states["Ready"] + hidden
        for probe in ("startup", "liveness", "readiness"):
            running = [replica for replica in workload["replicas"] if replica["runtime"] == "running"]
            verdicts = {replica["probes"][probe]["verdict"] for replica in running if replica["probes"][probe]}
            wanted = 0.0 if "fail" in verdicts else 1.0 if "pass" in verdicts else None
            assert metrics.get("workload_probe_success", workload=name, probe=probe) == wanted, verdicts


def _traffic(shown: dict, metrics: Scrape) -> None:
    weights: Counter[tuple[str, str]] = Counter()
    for row in shown["endpoints"]:
        if row["weight"] is not None and row["replica"]:
            weights[row["pool"], row["replica"].removeprefix("workload/")] += row["weight"]
    assert metrics.by("endpoint_weight", "pool", "replica") == dict(weights)
    serving = {
        (pool["pool"],): sum(member["ours"] and member["weight"] > 0 for member in pool["members"])
        for service in shown["services"]
        for pool in service["pools"]
        if pool["members"] is not None
    }
    assert metrics.by("service_endpoints_serving", "pool") == serving


def _names(shown: dict, metrics: Scrape) -> None:
    for row in shown["names"]:
        name = row["key"].partition("/")[2]
        published = None if row["published"] is None else len(row["published"])
        assert metrics.get("name_addresses_published", policy=name) == published
        healthy = {leaf["address"] for leaf in row["leaves"] if leaf["healthy"]}
        assert metrics.get("name_addresses_healthy", policy=name) == len(healthy)
        omitted = {leaf["address"] for leaf in row["leaves"] if leaf["published"] is False}
        assert metrics.get("name_addresses_omitted", policy=name) == (None if published is None else len(omitted))


def _holds(world: World, shown: dict, metrics: Scrape) -> None:
    held = Counter(hold["rule"] for hold in shown["holds"])
    assert metrics.by("holds", "rule") == {(rule.value,): held[rule.value] for rule in Rule}
    begun = {
        (event.object, event.step, event.cause): event.wall for event in world.memory.events if event.kind == "held"
    }
    oldest: dict[tuple[str, ...], float] = {}
    for hold in shown["holds"]:
        since = hold["since_wall"] or begun[hold["object"], hold["action"], hold["rule"]]
        oldest[(hold["rule"],)] = min(since / SECOND, oldest.get((hold["rule"],), float("inf")))
    assert metrics.by("hold_oldest_timestamp_seconds", "rule") == pytest.approx(oldest)
    suspended = shown["status"]["suspensions"]
    assert metrics.get("suspensions", by="operator") == len(suspended)
    began = [e.wall for e in world.memory.events if e.kind == "suspended" and suspended]
    assert metrics.get("suspension_oldest_timestamp_seconds") == (min(began) / SECOND if began else None)
    unread = {name.partition("/")[0] for name in shown["status"]["unknown"]}
    readable = {name for (name,), value in metrics.by("provider_readable", "provider").items() if not value}
    assert readable == unread


def _counters(world: World, metrics: Scrape) -> None:
    """Of a world whose process was never replaced."""
    steps = Counter((step.partition(" ")[0], outcome) for step, outcome in world.memory.audit)
    assert metrics.by("steps_total", "verb", "outcome") == dict(steps)
    verdicts = [event for event in world.memory.events if event.kind == "verdict"]
    changes = Counter((event.step.partition(" ")[0], event.cause.rpartition(" ")[2]) for event in verdicts)
    assert metrics.by("verdict_changes_total", "probe", "verdict") == dict(changes)
    exits = Counter((event.object.split("/")[1], event.cause) for event in world.memory.events if event.kind == "exit")
    assert metrics.by("exits_total", "workload", "cause") == dict(exits)


def sick(world: World) -> None:
    world.apps.sick.add(world.generation(WEB.format(1)))


def cursed(world: World) -> None:
    world.apps.cursed.add(WEB.format(1))


def unready(world: World) -> None:
    world.apps.unready.add(world.generation(WEB.format(0)))


def all_fail(world: World) -> None:
    world.apps.sick.update(Generation(c.id, c.started_at) for c in world.containers().values())


def crashed(world: World) -> None:
    world.runtime.exit(WEB.format(2))


def crash_loop(world: World) -> None:
    world.apps.crash_after[WEB.format(2)] = 20 * SECOND


def unreadable(name: str) -> Callable[[World], None]:
    def happen(world: World) -> None:
        world.outside.break_reads(name)

    return happen


def suspended(world: World) -> None:
    world.memory.say("suspend", "workload/web")
    world.apps.sick.add(world.generation(WEB.format(1)))


def everything_suspended(world: World) -> None:
    world.memory.say("suspend", "*")
    world.runtime.exit(WEB.format(0))


def rolled_out(world: World) -> None:
    world.push(Shop((replace(world.shop.specs[0], image="v2"), *world.shop.specs[1:]), guard=LOOSE))


def bad_rollout(world: World) -> None:
    world.apps.lies["*", "readiness"] = ProbeValue.FAIL
    rolled_out(world)


def removed(world: World) -> None:
    world.push(replace(world.shop, specs=world.shop.specs[1:], prune=True))


def rejected(world: World) -> None:
    world.fail_next(POOLS, *[Fault.REJECTED] * 8)
    unready(world)


def drained(world: World) -> None:
    world.memory.say("drain", "workload/web/0")


INCIDENTS = {
    "a replica fails its liveness probe": sick,
    "a replica fails whatever is tried": cursed,
    "a replica is not ready": unready,
    "all replicas fail": all_fail,
    "a container crashes": crashed,
    "a container crashes again and again": crash_loop,
    "the node cannot be read": unreadable(NODE),
    "the pool cannot be read": unreadable(POOLS),
    "the zone cannot be read": unreadable(NAMES),
    "a failing workload is suspended": suspended,
    "everything is suspended": everything_suspended,
    "a rollout": rolled_out,
    "a rollout that never gets ready": bad_rollout,
    "a workload is removed": removed,
    "the pool refuses writes": rejected,
    "a replica is drained": drained,
}


@pytest.fixture
def world():
    made = World(
        Shop(
            (Spec(backoff=QUICK, rollout=DEFAULT_ROLLOUT), Spec("api", 2, pools=("api",), liveness=False)), guard=LOOSE
        )
    )
    made.monitored = True
    made.run(90 * SECOND)
    yield made
    made.close()


@pytest.mark.parametrize("incident", INCIDENTS)
def test_the_same_fact_has_the_same_value_everywhere(incident, world):
    agree(world)
    INCIDENTS[incident](world)
    for _ in range(20):
        world.run(STEP)
        agree(world)
    if incident.endswith("cannot be read"):
        for name in (NODE, POOLS, NAMES):
            world.outside.mend_reads(name)
    world.memory.say("resume", "*")
    for _ in range(10):
        world.run(STEP)
        agree(world)


def test_the_ages_of_holds_and_suspensions_survive_a_restart(world):
    everything_suspended(world)
    world.run(60 * SECOND)
    before = scrape(world).by("hold_oldest_timestamp_seconds", "rule")
    assert before[("Suspended",)] > 0
    since = scrape(world).get("suspension_oldest_timestamp_seconds")
    world.restart()
    world.run(30 * SECOND)
    after = scrape(world)
    assert after.by("hold_oldest_timestamp_seconds", "rule")[("Suspended",)] == before[("Suspended",)]
    assert after.get("suspension_oldest_timestamp_seconds") == since
    assert after.by("steps_total", "verb") == {}


def test_restarts_have_their_cause_and_actor(world):
    sick(world)
    world.run(2 * MINUTE)
    api = next(name for name in world.containers() if "-api-" in name)
    world.runtime.exit(api)
    world.run(2 * MINUTE)
    world.runtime.exit(WEB.format(0))
    world.start_by_hand(WEB.format(0))
    world.run(2 * MINUTE)
    assert scrape(world).of("restarts_total") == {
        frozenset({("workload", "web"), ("cause", "LivenessFailed"), ("actor", "reconciler")}): 1,
        frozenset({("workload", "api"), ("cause", "Crashed"), ("actor", "reconciler")}): 1,
        frozenset({("workload", "web"), ("cause", "Crashed"), ("actor", "external")}): 1,
    }


def test_a_verdict_that_is_acted_on_at_once_is_timed(world):
    before = scrape(world).get("verdict_to_command_seconds_count") or 0
    unready(world)
    world.run(MINUTE)
    after = scrape(world)
    assert after.get("verdict_to_command_seconds_count") == before + 1
    assert after.get("verdict_to_command_seconds_bucket", le="1.0") == before + 1


def test_a_removed_workload_loses_all_its_series(world):
    sick(world)
    world.run(MINUTE)
    assert b'workload="web"' in scrape(world).text
    removed(world)
    world.run(5 * MINUTE)
    text = scrape(world).text
    assert b'"web' not in text
    assert b'workload="api"' in text


def test_every_rule_has_a_way_to_end():
    assert {ends(rule) for rule in Rule} == {"operator", "automatic", "converged"}
