"""Random worlds as `decide` sees them: any mixture of containers, members, records, verdicts and ledgers, some unknown."""

from dataclasses import replace

from hypothesis import strategies as st

from manifests.desired import SECOND, Desired, Guard, MassChange, MiddleZone, OnSecretChange, Push, Strategy
from manifests.limits import Held, Mode, RestartLimits, Window
from manifests.pod import Live
from manifests.traffic import Panic, PanicMode, Ramp
from providers.facts import (
    ContainerFact,
    ContainerState,
    Endpoint,
    ExitCause,
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
from reconciler.core.instant import Instant, Now
from reconciler.core.ledger import Escalation, Failures, Grant, Ledger, Outbreak, StepFailure
from reconciler.core.observed import Observed
from reconciler.core.pushes import PushEvent, PushFact
from reconciler.core.traffic import Cut, Force, Override, Ready
from reconciler.core.verdict import Reason
from sim.manifest import INSTANCE, NAMES, NODE, POOLS, ZONE, Shop, Spec

NOW = Now(1_800_000_000 * SECOND, 10_000 * SECOND, "boot")
VALUES = list(ProbeValue)
GRANTS = [
    (Reason.LIVENESS_FAILED, False),
    (Reason.RECREATE, True),
    (Reason.REQUESTED, False),
    (Reason.SECRET_CHANGED, True),
    (Reason.SURPLUS, False),
    (Reason.TEMPLATE_CHANGED, False),
    (Reason.TEMPLATE_CHANGED, True),
    (Reason.PRUNED, False),
]
LIVE = (Live("main", 0, 0, "unless-stopped"),)
NIGHTS = Window("nights", frozenset(Held), "0 */2 * * *", 3600 * SECOND, "Europe/Berlin")


def ago(seconds: int) -> Instant:
    return Instant(NOW.wall - seconds * SECOND, NOW.steady - seconds * SECOND, NOW.boot)


ORDERS = [
    {"workload/web/0": Override(Force.DRAIN, ago(30), "ann", "looking", NOW.wall + 40 * SECOND)},
    {"workload/web/1": Override(Force.UP, ago(30))},
    {f"endpoint/{POOLS}/web/127.77.0.1:8080": Override(Force.DOWN, ago(30), until_wall=NOW.wall + 3 * SECOND)},
]
OUTBREAKS = [
    {"workload/web": Outbreak(ago(100))},
    {"workload/web": Outbreak(ago(100), "workload/web/1")},
    {"workload/web": Outbreak(ago(900), "", 2, ago(30))},
    {f"node/{NODE}": Outbreak(ago(900), "", 1, ago(299), ago(599))},
]


@st.composite
def verdict(draw) -> ProbeFact | None:
    value = draw(st.sampled_from([*VALUES, None]))
    if value is None:
        return None
    age = draw(st.integers(0, 20))
    return ProbeFact(value, value, 3, 3, NOW.steady - (age + 5) * SECOND, NOW.steady - age * SECOND, 16 * SECOND)


@st.composite
def observed(draw) -> tuple[Desired, Observed]:
    """Manifests and everything seen: two workloads, of which one may be gone, with containers of two revisions."""
    web = Spec(
        replicas=draw(st.integers(0, 3)),
        image=draw(st.sampled_from(["v1", "v2"])),
        startup=draw(st.booleans()),
        readiness=draw(st.booleans()),
        min_ready=draw(st.sampled_from([0, 10 * SECOND])),
        nodes=draw(st.sampled_from([(NODE,), (NODE, "node-b")])),
    )
    api = Spec(name="api", replicas=1, pools=("api",))
    guard = Guard(
        mass_change=MassChange(100, 50),
        restarts=RestartLimits(draw(st.sampled_from(list(Mode))), in_flight=draw(st.integers(1, 2))),
        windows=draw(st.sampled_from([(), (), (NIGHTS,)])),
    )
    shop = Shop((web, api) if draw(st.booleans()) else (web,), prune=draw(st.booleans()), guard=guard)
    desired = shop.desired()
    manners = {
        "strategy": draw(st.sampled_from(list(Strategy))),
        "on_secret_change": draw(st.sampled_from(list(OnSecretChange))),
        "max_unavailable": draw(st.integers(0, 3)),
    }
    manners["push"] = draw(st.sampled_from([None, Push(), Push(middle_zone=MiddleZone.HOLD)]))
    desired = replace(desired, workloads=tuple(replace(one, **manners) for one in desired.workloads))
    traffic = {
        "ramp": draw(st.sampled_from([None, None, Ramp(30 * SECOND, 10)])),
        "panic": Panic(draw(st.sampled_from([50, 50, 0, 100])), draw(st.sampled_from(list(PanicMode)))),
    }
    desired = replace(desired, services=tuple(replace(one, **traffic) for one in desired.services))
    pushes: dict[Generation, PushFact] = {}
    ready: dict[str, Ready] = {}
    facts: dict[str, list[ContainerFact]] = {NODE: [], "node-b": []}
    probes: dict[Generation, Probes] = {}
    members: dict[str, list[MemberFact]] = {"web": [], "api": []}
    grants: dict[str, Grant] = {}
    step_failures: dict[str, StepFailure] = {}
    published: dict[str, list[str]] = {"web": [], "api": []}
    kinds = st.tuples(
        st.sampled_from(["web", "web", "api"]),
        st.integers(0, 3),
        st.sampled_from(["v1", "v2"]),
        st.sampled_from([NODE, NODE, "node-b"]),
    )
    for number, (name, ordinal, image, node) in enumerate(draw(st.lists(kinds, max_size=6, unique=True)), start=1):
        mark = Mark(INSTANCE, name, ordinal, Spec(name=name, image=image).revision)
        state = draw(st.sampled_from([*[ContainerState.RUNNING] * 4, *ContainerState]))
        up = state in {ContainerState.RUNNING, ContainerState.PAUSED}
        address = f"127.77.0.{number}"
        fact = ContainerFact(
            node,
            container_name(mark),
            f"id-{number}",
            state,
            NOW.wall - 100 * SECOND if state is not ContainerState.CREATED else 0,
            NOW.steady - draw(st.sampled_from([5, 100])) * SECOND if up else 0,
            address,
            (PortFact(8080, address, 8080),),
            mark,
            exit_code=None if up else 1,
            exit_cause=None if up else draw(st.sampled_from(list(ExitCause))),
            exited_at=0 if up else NOW.steady - 3 * SECOND,
            stale_secrets=draw(st.sampled_from([(), (), (), ("main/PASSWORD",)])),
            healer=draw(st.sampled_from(["", "", "", "autoheal"])),
            live=draw(st.sampled_from([(), (), LIVE])),
            restarts=draw(st.sampled_from([0, 0, 9])),
        )
        facts[node].append(fact)
        probes[fact.generation] = Probes(draw(verdict()), draw(verdict()), draw(verdict()))
        weight = draw(st.sampled_from([None, 0, 100, 100, 50]))
        if weight is not None:
            flight = draw(st.sampled_from([None, 0, 0, 2]))
            members[name].append(MemberFact(Endpoint(address, 8080), weight, True, fact.name, flight))
        if up and draw(st.integers(0, 2)) == 0:
            heard = NOW.steady - draw(st.sampled_from([1, 29, 30, 45, 60, 61, 200])) * SECOND
            pushes[fact.generation] = PushFact(draw(st.sampled_from(list(PushEvent))), heard, heard, "boot", 1)
        if fact.started_at and draw(st.booleans()):
            born = fact.started_at - draw(st.sampled_from([0, 0, 0, 1]))
            ready[fact.id] = Ready(born, ago(draw(st.sampled_from([2, 90]))), draw(st.booleans()))
        if draw(st.booleans()):
            published[name].append(address)
        if draw(st.integers(0, 3)) == 0:
            out = draw(st.sampled_from([None, 5, 40]))
            cause, recreate = draw(st.sampled_from(GRANTS))
            at = None if out is None else ago(out)
            container = draw(st.sampled_from([fact.id, fact.id, f"gone-{number}"]))
            grants[container] = Grant(
                f"workload/{name}/{ordinal}", fact.generation, cause, ago(60), at, 30 * SECOND, at, True, recreate
            )
        if draw(st.integers(0, 5)) == 0:
            step_failures[f"start {fact.name}"] = StepFailure(2, ago(1), draw(st.booleans()), "refused")
    members["web"].append(MemberFact(Endpoint("192.0.2.1", 80), 10, False))
    if draw(st.booleans()):
        members["web"].append(MemberFact(Endpoint("127.77.0.99", 8080), 100, True, "shop-web-gone-9"))
    records, owners = {RecordKey(f"by-hand.{ZONE}", "A"): RecordSet(60, ("192.0.2.9",))}, {}
    for name, values in published.items():
        if values:
            key = RecordKey(f"{name}.{ZONE}", "A")
            records[key] = RecordSet(30, tuple(sorted(values)))
            if draw(st.integers(0, 5)):
                owners[key] = f"{INSTANCE}/dnspolicy/{name}"
    seen_at = NOW.steady - draw(st.integers(0, 4)) * SECOND
    ledger = Ledger(
        grants=grants,
        step_failures=step_failures,
        failures=draw(
            st.sampled_from([{}, {"workload/web/0": Failures(2, ago(3), Generation("id-1", NOW.wall - 100 * SECOND))}])
        ),
        attempts=draw(st.sampled_from([{}, {"workload/web/1": tuple(ago(n) for n in (200, 150, 100, 50, 20))}])),
        escalations=draw(
            st.sampled_from(
                [{}] + [{"workload/web/0": Escalation(tries, web.revision, ago(300))} for tries in (1, 3, 7)]
            )
        ),
        outbreaks=draw(st.sampled_from([{}, *OUTBREAKS])),
        restarted=draw(st.sampled_from([{}, {f"{NODE}|workload/web": (ago(70), ago(10))}])),
        ready=ready,
        overrides=draw(st.sampled_from([{}, {}, *ORDERS])),
        cuts=draw(st.sampled_from([{}, {f"{POOLS}/web": (Cut("id-1", ago(4)),)}])),
        panics=draw(st.sampled_from([{}, {f"{POOLS}/web": ago(20)}])),
        source=desired.source,
        zones=frozenset({f"{NAMES}/{ZONE}"}),
    )
    unknown = draw(st.sets(st.sampled_from([NODE, "node-b", "web", "api", NAMES]), max_size=2))

    def maybe(name: str, value: object) -> object:
        return Unknown("switched off", name, seen_at) if name in unknown else Known(value, name, seen_at)

    world = Observed(
        runtimes={node: maybe(node, tuple(those)) for node, those in facts.items()},  # type: ignore[misc]
        pools={(POOLS, name): maybe(name, PoolFact(name, tuple(those))) for name, those in members.items()},  # type: ignore[misc]
        zones={(NAMES, ZONE): maybe(NAMES, ZoneFact(ZONE, 1, records, owners))},  # type: ignore[dict-item]
        probes=probes,
        pushes=pushes,
        ledger=ledger,
        source_read_at=NOW.steady,
    )
    return desired, world


def settled(desired: Desired, world: Observed) -> Observed:
    """The same world with the ledger that deciding over it leads to."""
    for _ in range(8):
        decision = decide(desired, world, NOW)
        if decision.ledger == world.ledger:
            break
        world = replace(world, ledger=decision.ledger)
    return world
