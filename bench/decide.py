"""The time of one decision in a converged world, by number of workloads.

Run by `make bench`; prints a Markdown table. CPU seconds of this process. The garbage collector is off during a decision, as in
the loop.
"""

import gc
import resource
import sys
import time
from dataclasses import replace

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
    ZoneFact,
    container_name,
)
from reconciler.core.decide import decide
from reconciler.core.model.instant import Now
from reconciler.core.model.observed import Observed

REPLICAS = 3
NOW = Now(1_800_000_000 * SECOND, 10_000 * SECOND, "boot")


def world(count: int) -> tuple[Desired, Observed]:
    """`count` workloads of three ready replicas, each behind a service, a pool and a name. Everything is converged."""
    probe = Probe(ProbeKind.HTTP, port=8080)
    workloads, services, policies = [], [], []
    facts, probes, pools = [], {}, {}
    records: dict[RecordKey, RecordSet] = {}
    owners: dict[RecordKey, str] = {}
    services_of = {}
    passing = ProbeFact(ProbeValue.PASS, ProbeValue.PASS, 9, 3, NOW.steady - SECOND, NOW.steady, 60 * SECOND)
    zone = "example.test."
    for index in range(count):
        name = f"w{index:05d}"
        container = Container("app", ("run",), ports=(Port("http", 8080),), liveness=probe, readiness=probe)
        template = Template((("app", name),), container, revision=f"{index:016x}")
        workloads.append(Workload(f"workload/{name}", name, ("local",), REPLICAS, template))
        services.append(
            Service(f"service/{name}", name, (Backend(f"workload/{name}", 8080),), (Balancer("pool", name),))
        )
        services_of[f"workload/{name}"] = ((f"service/{name}", 8080),)
        host = f"{name}.{zone}"
        target = Target("here", Publish.ENDPOINTS, f"service/{name}")
        policies.append(DNSPolicy(f"dnspolicy/{name}", name, host, "zone", zone, (target,)))
        members, addresses = [], []
        for ordinal in range(REPLICAS):
            mark = Mark("bench", name, ordinal, template.revision)
            number = index * REPLICAS + ordinal
            address = f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"
            facts.append(
                ContainerFact(
                    "local",
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
        runtimes={"local": Known(tuple(facts), "local", NOW.steady)},
        pools=pools,
        zones={("zone", zone): Known(ZoneFact(zone, 1, records, owners), "zone", NOW.steady)},
        probes=probes,
    )
    return desired, observed


def settled(count: int) -> tuple[Desired, Observed]:
    """The same with the ledger after the first decision."""
    desired, observed = world(count)
    first = decide(desired, observed, NOW)
    # The world above belongs to an instance without a ledger. Once its history is known, nothing remains to be written.
    ledger = first.ledger
    return desired, replace(observed, ledger=replace(ledger, history_lost=None, source="bench"))


def measure(count: int, times: int = 5) -> tuple[float, int, float]:
    """(median CPU seconds of a decision, steps, peak MB)."""
    desired, observed = settled(count)
    spent = []
    steps = 0
    for _ in range(times):
        gc.disable()
        begun = time.process_time()
        decision = decide(desired, observed, NOW)
        spent.append(time.process_time() - begun)
        gc.enable()
        steps = len(decision.steps)
    return sorted(spent)[times // 2], steps, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    """Print the table."""
    if sys.argv[1:2] == ["--load"]:
        desired, observed = settled(10_000)
        until = time.monotonic() + float(sys.argv[2])
        while time.monotonic() < until:
            decide(desired, observed, NOW)
        return
    print("| workloads x 3 replicas | one decision, CPU s | us per replica | steps | peak RSS MB |")
    print("| --- | --- | --- | --- | --- |")
    for count in (1_000, 2_500, 5_000, 10_000):
        spent, steps, peak = measure(count)
        print(f"| {count:,} | {spent:.3f} | {spent * 1e6 / count / REPLICAS:.1f} | {steps} | {peak:.0f} |")


if __name__ == "__main__":
    main()
