"""The time of one decision in a converged world, by number of workloads, and by the number of nodes that each may use.

Run by `make bench`; prints two Markdown tables. CPU seconds of this process. The garbage collector is off during a decision, as in
the loop. The rows of the second table alternate within one run, so that their ratio can be compared between machines.
"""

import gc
import resource
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import median

from manifests.values.desired import (
    SECOND,
    Backend,
    Balancer,
    Container,
    Desired,
    Guard,
    Instance,
    Port,
    Probe,
    ProbeKind,
    Service,
    Template,
    Workload,
)
from manifests.values.dns import DNSPolicy, Publish, Target
from manifests.values.nodes import Nodes
from providers.facts import (
    ContainerFact,
    ContainerState,
    Endpoint,
    Generation,
    Known,
    Mark,
    MemberFact,
    PoolFact,
    PortFact,
    ProbeFact,
    Probes,
    ProbeValue,
    RecordKey,
    RecordSet,
    Unknown,
    ZoneFact,
    container_name,
)
from reconciler.core.decide import decide
from reconciler.core.model.instant import Now
from reconciler.core.model.observed import Observed

REPLICAS = 3
FLEET = 5_000
"""Nodes of the second table, and workloads of `NODES_USED` replicas."""

NODES_USED = 10
"""Replicas of a workload of the second table, each on a node of its own."""

LISTS = 50
"""Lists of nodes of the second table. Manifests with equal lists share one; those that name all nodes are few in practice."""

NOW = Now(1_800_000_000 * SECOND, 10_000 * SECOND, "boot")


def world(
    count: int, replicas: int = REPLICAS, nodes: Sequence[Sequence[str]] = (("local",),)
) -> tuple[Desired, Observed]:
    """`count` workloads of ready replicas, each behind a service, a pool and a name. Everything is converged.

    Args:
        count: how many workloads.
        replicas: of each workload.
        nodes: the nodes that the workloads may use, in turn: the first workload the first entry, and so on.
    """
    probe = Probe(ProbeKind.HTTP, port=8080)
    workloads, services, policies = [], [], []
    facts: dict[str, list[ContainerFact]] = {node: [] for usable in nodes for node in usable}
    lists = [Nodes(usable) for usable in nodes]
    probes, pools = {}, {}
    records: dict[RecordKey, RecordSet] = {}
    owners: dict[RecordKey, str] = {}
    services_of = {}
    passing = ProbeFact(ProbeValue.PASS, ProbeValue.PASS, 9, 3, NOW.steady - SECOND, NOW.steady, 60 * SECOND)
    zone = "example.test."
    for index in range(count):
        name = f"w{index:05d}"
        container = Container("app", ("run",), ports=(Port("http", 8080),), liveness=probe, readiness=probe)
        template = Template((("app", name),), container, revision=f"{index:016x}")
        usable = lists[index % len(lists)]
        workloads.append(Workload(f"workload/{name}", name, usable, replicas, template))
        services.append(
            Service(f"service/{name}", name, (Backend(f"workload/{name}", 8080),), (Balancer("pool", name),))
        )
        services_of[f"workload/{name}"] = ((f"service/{name}", 8080),)
        host = f"{name}.{zone}"
        target = Target("here", Publish.ENDPOINTS, f"service/{name}")
        policies.append(DNSPolicy(f"dnspolicy/{name}", name, host, "zone", zone, (target,)))
        members, addresses = [], []
        for ordinal in range(replicas):
            mark = Mark("bench", name, ordinal, template.revision)
            number = index * replicas + ordinal
            node = usable[ordinal % len(usable)]
            address = f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"
            facts[node].append(
                ContainerFact(
                    node,
                    container_name(mark),
                    f"id{number}",
                    ContainerState.RUNNING,
                    1,
                    NOW.steady - 100 * SECOND,
                    address,
                    (PortFact(8080, address, 8080),),
                    mark,
                )
            )
            probes[Generation(f"id{number}", 1)] = Probes(None, passing, passing)
            members.append(MemberFact(Endpoint(address, 8080), 100, True, container_name(mark)))
            addresses.append(address)
        pools["pool", name] = Known(PoolFact(name, tuple(members)), "pool", NOW.steady)
        records[RecordKey(host, "A")] = RecordSet(60, tuple(sorted(addresses)))
        owners[RecordKey(host, "A")] = f"bench/dnspolicy/{name}"
    desired = Desired(
        "bench",
        "r",
        "/",
        True,
        Instance("bench"),
        Guard(),
        (),
        tuple(workloads),
        tuple(services),
        tuple(policies),
        services_of,
    )
    observed = Observed(
        runtimes={node: Known(tuple(of_node), node, NOW.steady) for node, of_node in facts.items()},
        pools=pools,
        zones={("zone", zone): Known(ZoneFact(zone, 1, records, owners), "zone", NOW.steady)},
        probes=probes,
    )
    return desired, observed


def fleet(
    count: int, *, every: bool, nodes: int = FLEET, used: int = NODES_USED, lists: int = LISTS
) -> tuple[Desired, Observed]:
    """`count` workloads of `used` replicas, each replica on a node of its own.

    Args:
        count: how many workloads.
        every: each workload may use every node; else only those where its replicas are.
        nodes: how many nodes.
        used: replicas of a workload.
        lists: how many lists of nodes the workloads share. Their replicas are on the first nodes of their list.
    """
    names = [f"node-{index:05d}" for index in range(nodes)]
    turned = [(*names[first:], *names[:first]) for first in range(0, nodes, max(used, nodes // lists))]
    desired, observed = world(count, used, [usable if every else usable[:used] for usable in turned])
    empty = {name: Known((), name, NOW.steady) for name in names}
    return desired, replace(observed, runtimes={**empty, **observed.runtimes})


def settled(desired: Desired, observed: Observed) -> tuple[Desired, Observed]:
    """The same with the ledger after the first decision."""
    first = decide(desired, observed, NOW)
    # The world above belongs to an instance without a ledger. Once its history is known, nothing remains to be written.
    ledger = first.ledger
    return desired, replace(observed, ledger=replace(ledger, history_lost=None, source="bench"))


def one_fails(observed: Observed) -> Observed:
    """The same while one replica fails its liveness probe: a decision grants its restart and begins again with that."""
    fail = ProbeFact(ProbeValue.FAIL, ProbeValue.FAIL, 9, 3, NOW.steady - SECOND, NOW.steady, 60 * SECOND)
    generation = next(iter(observed.probes))
    return replace(observed, probes={**observed.probes, generation: Probes(None, fail, fail)})


def one_silent(observed: Observed) -> Observed:
    """The same while one node with replicas cannot be read."""
    node = next(node for node, known in observed.runtimes.items() if isinstance(known, Known) and known.value)
    return replace(observed, runtimes={**observed.runtimes, node: Unknown("no answer", node, NOW.steady)})


def spent(desired: Desired, observed: Observed) -> tuple[float, int]:
    """(CPU seconds of a decision, its steps)."""
    gc.disable()
    begun = time.process_time()
    decision = decide(desired, observed, NOW)
    seconds = time.process_time() - begun
    gc.enable()
    return seconds, len(decision.steps)


def measure(count: int, times: int = 5) -> tuple[float, int, float]:
    """(median CPU seconds of a decision, steps, peak MB)."""
    desired, observed = settled(*world(count))
    runs = [spent(desired, observed) for _ in range(times)]
    seconds = median(seconds for seconds, _ in runs)
    return seconds, runs[-1][1], resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def compare_nodes(times: int = 5) -> None:
    """Print the second table: the same decision when a workload may use few nodes, and when it may use all of them."""
    print(f"\n| {FLEET * NODES_USED:,} replicas on {FLEET:,} nodes | {NODES_USED} nodes per workload, CPU s |", end="")
    print(" every node per workload, CPU s | ratio |\n| --- | --- | --- | --- |")
    few, every = (settled(*fleet(FLEET, every=may_use_every)) for may_use_every in (False, True))
    cases: tuple[tuple[str, Callable[[Observed], Observed]], ...] = (
        ("converged", lambda observed: observed),
        ("one replica fails", one_fails),
        ("one node cannot be read", one_silent),
    )
    for name, change in cases:
        both = [(desired, change(observed)) for desired, observed in (few, every)]
        runs = [[spent(*world)[0] for world in both] for _ in range(times)]
        seconds = [median(column) for column in zip(*runs, strict=True)]
        print(f"| {name} | {seconds[0]:.3f} | {seconds[1]:.3f} | {seconds[1] / seconds[0]:.2f} |", flush=True)


def main() -> None:
    """Print the tables."""
    if sys.argv[1:2] == ["--load"]:
        desired, observed = settled(*world(10_000))
        until = time.monotonic() + float(sys.argv[2])
        while time.monotonic() < until:
            decide(desired, observed, NOW)
        return
    print("| workloads x 3 replicas | one decision, CPU s | us per replica | steps | peak RSS MB |")
    print("| --- | --- | --- | --- | --- |")
    for count in (1_000, 2_500, 5_000, 10_000):
        seconds, steps, peak = measure(count)
        print(f"| {count:,} | {seconds:.3f} | {seconds * 1e6 / count / REPLICAS:.1f} | {steps} | {peak:.0f} |")
    compare_nodes()


if __name__ == "__main__":
    main()
