"""Facts, beliefs and scenes (the facts of one look) for the tests of several rooms."""

from dataclasses import replace

from manifests.values.desired import SECOND, Desired
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
from reconciler.core.health.belief import Belief, Sight
from reconciler.core.model.instant import FOREVER, Instant, Now
from reconciler.core.model.ledger import Absence, Ledger
from reconciler.core.model.observed import Observed
from reconciler.core.model.reasons import Reason
from reconciler.core.model.revision import RevisionMark, revision_key
from reconciler.core.replicas.roster import Roster
from reconciler.core.replicas.snapshot import Snapshot
from reconciler.core.replicas.specs import declared as declared_spec
from tests.sim.manifest import INSTANCE, NAMES, NODE, POOLS, ZONE, Shop, Spec

NOW = Now(1_800_000_000 * SECOND, 10_000 * SECOND, "boot")
SEEN = NOW.steady


def ago(seconds: int) -> Instant:
    """An instant this many seconds before NOW."""
    return Instant(NOW.wall - seconds * SECOND, NOW.steady - seconds * SECOND, NOW.lineage)


def probe(value: ProbeValue, since: int = 50, age: int = 1) -> ProbeFact:
    """A verdict reached `since` seconds ago, with its latest result `age` seconds ago."""
    streak = 2 if value is ProbeValue.FAIL else 1
    return ProbeFact(value, value, streak, streak, SEEN - since * SECOND, SEEN - age * SECOND, 16 * SECOND)


PASS, FAIL = probe(ProbeValue.PASS), probe(ProbeValue.FAIL)


def container(spec: Spec, ordinal: int, **changes: object) -> ContainerFact:
    """A running container of a spec's revision on its node; its address follows from workload and ordinal."""
    mark = Mark(INSTANCE, spec.name, ordinal, spec.revision)
    name = container_name(mark)
    address = f"10.0.{sum(map(ord, spec.name)) % 256}.{ordinal + 1}"
    fact = ContainerFact(
        NODE,
        name,
        f"id-{name}",
        ContainerState.RUNNING,
        NOW.wall - 100 * SECOND,
        SEEN - 100 * SECOND,
        address,
        (PortFact(8080, address, 8080),),
        mark,
    )
    return replace(fact, **changes)


def down(fact: ContainerFact, cause: ExitCause = ExitCause.EXITED, code: int | None = 1) -> ContainerFact:
    """The same container after its end."""
    return replace(
        fact, state=ContainerState.EXITED, running_since=0, exit_cause=cause, exit_code=code, exited_at=SEEN - SECOND
    )


def belief(fact: ContainerFact, ready: ProbeValue = ProbeValue.PASS, since: int = 50) -> Belief:
    """A live container that has been `ready` for so many seconds."""
    return Belief(fact, ProbeValue.PASS, ready, SEEN - since * SECOND, FOREVER, Reason.READY)


class Scene:
    """The facts of one look: all replicas of the specs exist and are healthy, until a test changes them."""

    def __init__(self, *specs: Spec) -> None:
        self.specs = specs
        self.facts: list[ContainerFact] = []
        self.probes: dict[Generation, Probes] = {}
        self.pools: dict[str, list[MemberFact]] = {}
        self.records: dict[RecordKey, RecordSet] = {}
        self.owners: dict[RecordKey, str] = {}
        self.unknown: set[str] = set()
        self.ledger = Ledger(source="git:shop", zones=frozenset({f"{NAMES}/{ZONE}"}))
        for spec in specs:
            for ordinal in range(spec.replicas):
                self.add(spec, container(spec, ordinal))
            for pool in spec.pools:
                self.pools.setdefault(pool, [])
            if spec.publish is not None:
                key = RecordKey(f"{spec.name}.{ZONE}", "A")
                values = tuple(
                    sorted(fact.address for fact in self.facts if fact.mark and fact.mark.workload == spec.name)
                )
                self.records[key], self.owners[key] = RecordSet(spec.ttl, values), f"{INSTANCE}/dnspolicy/{spec.name}"
        self.ledger = replace(self.ledger, revisions={spec.key: RevisionMark(1, spec.revision) for spec in specs})
        self.remember(Shop(tuple(specs)).desired())

    def remember(self, desired: Desired) -> None:
        """Let the ledger have the specs of these manifests."""
        services = {service.key: service for service in desired.services}
        known = {
            revision_key(workload.key, workload.template.revision): declared_spec(
                workload.template, desired.services_of.get(workload.key, ()), services
            )
            for workload in desired.workloads
        }
        self.ledger = replace(self.ledger, specs=known)

    def add(self, spec: Spec, fact: ContainerFact, weight: int = 100) -> None:
        """Add a container that is ready and has weight in all pools of its spec."""
        self.facts.append(fact)
        self.probes[fact.generation] = Probes(None, PASS, PASS)
        for pool in spec.pools:
            member = MemberFact(Endpoint(fact.address, 8080), weight, True, fact.name)
            self.pools.setdefault(pool, []).append(member)

    def change(self, number: int, fact: ContainerFact) -> None:
        """Replace one container."""
        self.facts[number] = fact

    def sick(self, number: int, probe_name: str = "liveness") -> None:
        """Let one probe of one container fail."""
        generation = self.facts[number].generation
        self.probes[generation] = self.probes[generation]._replace(**{probe_name: FAIL})

    def observed(self) -> Observed:
        """The facts as `decide` gets them."""

        def known(name: str, value: object) -> object:
            return Unknown("no answer", name, SEEN - SECOND) if name in self.unknown else Known(value, name, SEEN)

        return Observed(
            runtimes={NODE: known(NODE, tuple(self.facts))},  # type: ignore[dict-item]
            pools={(POOLS, pool): known(POOLS, PoolFact(pool, tuple(members))) for pool, members in self.pools.items()},  # type: ignore[misc]
            zones={(NAMES, ZONE): known(NAMES, ZoneFact(ZONE, 7, self.records, self.owners))},  # type: ignore[dict-item]
            probes=self.probes,
            ledger=self.ledger,
            source_read_at=SEEN,
        )


def gone(shop: Shop, scene: Scene, proven: bool = True) -> tuple[Desired, Observed]:
    """A shop that lacks some objects of the scene; with `proven`, equal reads have shown that for long enough."""
    desired = shop.desired()
    absent = ["dnspolicy/old", "pool/old", "workload/old"]
    if proven:
        absences = {key: Absence(ago(120), desired.revision) for key in absent}
        scene.ledger = replace(scene.ledger, absences=absences)
    return desired, scene.observed()


def snapshot(roster: Roster, now: Now = NOW) -> Snapshot:
    """A snapshot of which only the roster and the instant matter."""
    desired = Shop((Spec("web"),)).desired()
    sight = Sight({}, {}, {}, {}, {}, {}, FOREVER)
    return Snapshot(desired, Observed(), sight, roster, now)
