"""Random worlds for `decide`: any mixture of containers, members, records, verdicts and ledgers, some of them unknown."""

from dataclasses import replace
from functools import cache

from hypothesis import strategies as st

from manifests.values.desired import SECOND, Desired, Guard, MassChange, MiddleZone, OnSecretChange, Push, Strategy
from manifests.values.limits import Held, Mode, RestartLimits, Window
from manifests.values.pod import Live
from manifests.values.traffic import Panic, PanicMode, Ramp
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
from reconciler.core.model.ledger import Escalation, Failures, Grant, Ledger, Outbreak, StepFailure
from reconciler.core.model.observed import Observed
from reconciler.core.model.override import Force, Override
from reconciler.core.model.push_fact import PushEvent, PushFact
from reconciler.core.model.reasons import Reason
from reconciler.core.model.weight_memory import Cut, Ready
from tests.builders import NOW, ago
from tests.sim.manifest import INSTANCE, NAMES, NODE, POOLS, ZONE, Shop, Spec

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
    (Reason.DRAIN_DEADLINE, False),
    (Reason.DRAIN_DEADLINE, True),
]
LIVE = (Live("main", 0, 0, "unless-stopped"),)
NIGHTS = Window("nights", frozenset(Held), "0 */2 * * *", 3600 * SECOND, "Europe/Berlin")


OVERRIDES = [
    {"workload/web/0": Override(Force.DRAIN, ago(30), "ann", "looking", NOW.wall + 40 * SECOND)},
    {"workload/web/1": Override(Force.UP, ago(30))},
    {f"workload/web/{n}": Override(Force.DRAIN, ago(30 - n), waits=True) for n in range(2)},
    {f"endpoint/{POOLS}/web/127.77.0.1:8080": Override(Force.DOWN, ago(30), until_wall=NOW.wall + 3 * SECOND)},
]
OUTBREAKS = [
    {"workload/web": Outbreak(ago(100))},
    {"workload/web": Outbreak(ago(100), "workload/web/1")},
    {"workload/web": Outbreak(ago(900), "", 2, ago(30))},
    {f"node/{NODE}": Outbreak(ago(900), "", 1, ago(299), ago(599))},
]


FLIP = st.booleans()
KINDS = st.lists(
    st.tuples(
        st.sampled_from(["web", "web", "api"]),
        st.integers(0, 3),
        st.sampled_from(["v1", "v2"]),
        st.sampled_from([NODE, NODE, "node-b"]),
    ),
    max_size=6,
    unique=True,
)
UNKNOWN = st.sets(st.sampled_from([NODE, "node-b", "web", "api", NAMES]), max_size=2)


@cache
def index(count: int) -> st.SearchStrategy[int]:
    return st.integers(0, count - 1)


def pick(draw, values):
    """One of these values, drawn by its index: creating a strategy for each draw would cost more than the draw."""
    return values[draw(index(len(values)))]


@st.composite
def verdict(draw) -> ProbeFact | None:
    value = pick(draw, [*VALUES, None])
    if value is None:
        return None
    age = draw(index(21))
    return ProbeFact(value, value, 3, 3, NOW.steady - (age + 5) * SECOND, NOW.steady - age * SECOND, 16 * SECOND)


VERDICT = verdict()


@st.composite
def observed(draw) -> tuple[Desired, Observed]:
    """Manifests and observed facts: two workloads, one of which may have no manifest, with containers of two revisions."""
    web = Spec(
        replicas=draw(index(4)),
        image=pick(draw, ["v1", "v2"]),
        startup=draw(FLIP),
        readiness=draw(FLIP),
        min_ready=pick(draw, [0, 10 * SECOND]),
        nodes=pick(draw, [(NODE,), (NODE, "node-b")]),
    )
    api = Spec(name="api", replicas=1, pools=("api",))
    guard = Guard(
        mass_change=MassChange(100, 50),
        restarts=RestartLimits(pick(draw, list(Mode)), in_flight=pick(draw, (1, 2))),
        windows=pick(draw, [(), (), (NIGHTS,)]),
    )
    shop = Shop((web, api) if draw(FLIP) else (web,), prune=draw(FLIP), guard=guard)
    desired = shop.desired()
    settings = {
        "strategy": pick(draw, list(Strategy)),
        "on_secret_change": pick(draw, list(OnSecretChange)),
        "max_unavailable": draw(index(4)),
    }
    settings["push"] = pick(draw, [None, Push(), Push(middle_zone=MiddleZone.HOLD)])
    desired = replace(desired, workloads=tuple(replace(workload, **settings) for workload in desired.workloads))
    traffic = {
        "ramp": pick(draw, [None, None, Ramp(30 * SECOND, 10)]),
        "panic": Panic(pick(draw, [50, 50, 0, 100]), pick(draw, list(PanicMode))),
    }
    desired = replace(desired, services=tuple(replace(service, **traffic) for service in desired.services))
    pushes: dict[Generation, PushFact] = {}
    ready: dict[str, Ready] = {}
    facts: dict[str, list[ContainerFact]] = {NODE: [], "node-b": []}
    probes: dict[Generation, Probes] = {}
    members: dict[str, list[MemberFact]] = {"web": [], "api": []}
    grants: dict[str, Grant] = {}
    step_failures: dict[str, StepFailure] = {}
    published: dict[str, list[str]] = {"web": [], "api": []}
    for number, (name, ordinal, image, node) in enumerate(draw(KINDS), start=1):
        mark = Mark(INSTANCE, name, ordinal, Spec(name=name, image=image).revision)
        state = pick(draw, [*[ContainerState.RUNNING] * 4, *ContainerState])
        up = state in {ContainerState.RUNNING, ContainerState.PAUSED}
        address = f"127.77.0.{number}"
        fact = ContainerFact(
            node,
            container_name(mark),
            f"id-{number}",
            state,
            NOW.wall - 100 * SECOND if state is not ContainerState.CREATED else 0,
            NOW.steady - pick(draw, [5, 100]) * SECOND if up else 0,
            address,
            (PortFact(8080, address, 8080),),
            mark,
            exit_code=None if up else 1,
            exit_cause=None if up else pick(draw, list(ExitCause)),
            exited_at=0 if up else NOW.steady - 3 * SECOND,
            stale_secrets=pick(draw, [(), (), (), ("main/PASSWORD",)]),
            healer=pick(draw, ["", "", "", "autoheal"]),
            live=pick(draw, [(), (), LIVE]),
            restarts=pick(draw, [0, 0, 9]),
        )
        facts[node].append(fact)
        probes[fact.generation] = Probes(draw(VERDICT), draw(VERDICT), draw(VERDICT))
        weight = pick(draw, [None, 0, 100, 100, 50])
        if weight is not None:
            flight = pick(draw, [None, 0, 0, 2])
            members[name].append(MemberFact(Endpoint(address, 8080), weight, True, fact.name, flight))
        if up and draw(index(3)) == 0:
            received = NOW.steady - pick(draw, [1, 29, 30, 45, 60, 61, 200, 590, 601]) * SECOND
            pushes[fact.generation] = PushFact(pick(draw, list(PushEvent)), received, received, "boot", 1)
        if fact.started_at and draw(FLIP):
            born = fact.started_at - pick(draw, [0, 0, 0, 1])
            full = pick(draw, [(), (f"{POOLS}/{name}",)])
            ready[fact.id] = Ready(born, ago(pick(draw, [2, 90])), draw(FLIP), full=full)
        if draw(FLIP):
            published[name].append(address)
        if draw(index(4)) == 0:
            seconds_out = pick(draw, [None, 5, 40])
            cause, recreate = pick(draw, GRANTS)
            at = None if seconds_out is None else ago(seconds_out)
            container = pick(draw, [fact.id, fact.id, f"gone-{number}"])
            grants[container] = Grant(
                f"workload/{name}/{ordinal}", fact.generation, cause, ago(60), at, 30 * SECOND, at, True, recreate
            )
        if draw(index(6)) == 0:
            step_failures[f"start {fact.name}"] = StepFailure(2, ago(1), draw(FLIP), "refused")
    members["web"].append(MemberFact(Endpoint("192.0.2.1", 80), 10, False))
    if draw(FLIP):
        members["web"].append(MemberFact(Endpoint("127.77.0.99", 8080), 100, True, "shop-web-gone-9"))
    records, owners = {RecordKey(f"by-hand.{ZONE}", "A"): RecordSet(60, ("192.0.2.9",))}, {}
    for name, values in published.items():
        if values:
            key = RecordKey(f"{name}.{ZONE}", "A")
            records[key] = RecordSet(30, tuple(sorted(values)))
            if draw(index(6)):
                owners[key] = f"{INSTANCE}/dnspolicy/{name}"
    observed_at = NOW.steady - draw(index(5)) * SECOND
    ledger = Ledger(
        grants=grants,
        step_failures=step_failures,
        failures=pick(draw, [{}, {"workload/web/0": Failures(2, ago(3), Generation("id-1", NOW.wall - 100 * SECOND))}]),
        attempts=pick(draw, [{}, {"workload/web/1": tuple(ago(n) for n in (200, 150, 100, 50, 20))}]),
        escalations=pick(
            draw, [{}] + [{"workload/web/0": Escalation(tries, web.revision, ago(300))} for tries in (1, 3, 7)]
        ),
        outbreaks=pick(draw, [{}, *OUTBREAKS]),
        restarted=pick(draw, [{}, {f"{NODE}|workload/web": (ago(70), ago(10))}]),
        ready=ready,
        overrides=pick(draw, [{}, {}, *OVERRIDES]),
        cuts=pick(draw, [{}, {f"{POOLS}/web": (Cut("id-1", ago(4)),)}]),
        panics=pick(draw, [{}, {f"{POOLS}/web": ago(20)}]),
        source=desired.source,
        zones=frozenset({f"{NAMES}/{ZONE}"}),
    )
    unknown = draw(UNKNOWN)

    def maybe(name: str, value: object) -> object:
        return Unknown("switched off", name, observed_at) if name in unknown else Known(value, name, observed_at)

    world = Observed(
        runtimes={node: maybe(node, tuple(containers)) for node, containers in facts.items()},  # type: ignore[misc]
        pools={(POOLS, name): maybe(name, PoolFact(name, tuple(of))) for name, of in members.items()},  # type: ignore[misc]
        zones={(NAMES, ZONE): maybe(NAMES, ZoneFact(ZONE, 1, records, owners))},  # type: ignore[dict-item]
        probes=probes,
        pushes=pushes,
        ledger=ledger,
        source_read_at=NOW.steady,
    )
    return desired, world


def settled(desired: Desired, world: Observed) -> Observed:
    """The same world with the ledger that repeated decisions lead to."""
    for _ in range(8):
        decision = decide(desired, world, NOW)
        if decision.ledger == world.ledger:
            break
        world = replace(world, ledger=decision.ledger)
    return world
