"""A zone in virtual time: each decision is written action by action, and after each write no name may dangle."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from manifests.values.desired import SECOND, Desired, Guard, Instance
from manifests.values.dns import AllUnhealthy, Check, DNSPolicy, HealthCheck, Publish, Record, Routing, Target
from manifests.values.geo import GeoKind
from providers.actions import ChangeRecords
from providers.capabilities import Alias, DNSCapabilities
from providers.facts import Known, ProbeFact, ProbeValue, RecordKey, RecordSet, ZoneFact
from reconciler.core.decide import decide
from reconciler.core.decision import Decision
from reconciler.core.dns import other_writers
from reconciler.core.dns.records import points_at
from reconciler.core.dns.target_health import target_probes
from reconciler.core.effects import fold
from reconciler.core.model.instant import FOREVER, Now, instant
from reconciler.core.model.ledger import Ledger
from reconciler.core.model.ledger_codec import from_rows, to_rows
from reconciler.core.model.ledger_fold import Command, apply_commands
from reconciler.core.model.observed import Observed
from reconciler.core.model.target_probe import TargetProbe

ZONE, HOST, NAMES, INSTANCE = "example.test.", "app.example.test.", "names", "shop"
ABLE = DNSCapabilities(weight=(0, 255), geo=frozenset(GeoKind), alias=Alias.ZONE)
"""What Route 53 supports, as far as it matters here."""

CHECK = Check(host="app.example.test")
A1, A2, B1, X = "198.51.100.1", "198.51.100.2", "203.0.113.1", "lb.example.net."
TARGETS = (
    Target("gw1", Publish.ADDRESSES, addresses=(A1, A2), geo="EU", default=True),
    Target("gw3", Publish.ADDRESSES, addresses=(B1,), geo="US"),
    Target("x", Publish.HOSTNAME, hostname=X, geo="EU", default=True),
)
ALL = frozenset({A1, A2, B1, X})
PASS, FAIL, UNKNOWN = ProbeValue.PASS, ProbeValue.FAIL, ProbeValue.UNKNOWN
START = Now(1_800_000_000 * SECOND, 1_000_000 * SECOND, "boot")


def policy(*targets: Target, **changes: object) -> DNSPolicy:
    """A geo policy over these targets; the fields are those of `DNSPolicy`."""
    plain = DNSPolicy("dnspolicy/app", "app", HOST, NAMES, ZONE, targets or TARGETS, routing=Routing.GEO_WEIGHTED)
    checked = replace(plain, check=CHECK, all_unhealthy=AllUnhealthy.PUBLISH_ALL)
    return replace(checked, **changes)  # type: ignore[arg-type]


def answer(value: ProbeValue, at: int) -> ProbeFact:
    return ProbeFact(value, value, 5, 5, at, at, FOREVER // 2, "as given")


@dataclass
class World:
    """One zone, the health of target addresses, and the ledger."""

    policies: tuple[DNSPolicy, ...]
    health: dict[str, ProbeValue] = field(default_factory=dict)
    can: DNSCapabilities = ABLE
    records: tuple[Record, ...] = ()
    checks: tuple[HealthCheck, ...] = ()
    prune: bool = False
    guard: Guard = field(default_factory=Guard)
    zone: Known[ZoneFact] = field(init=False)
    ledger: Ledger = field(default_factory=Ledger)
    now: Now = START
    writes: int = 0
    revision: str = "r1"

    def __post_init__(self) -> None:
        self.zone = Known(ZoneFact(ZONE, 1, {}, {}, self.can), NAMES, self.now.steady)

    @property
    def sets(self) -> Mapping[RecordKey, RecordSet]:
        return self.zone.value.records

    def desired(self) -> Desired:
        return Desired(
            source="git:names",
            revision=self.revision,
            root="/srv",
            complete=True,
            instance=Instance(INSTANCE),
            guard=self.guard,
            providers=(),
            workloads=(),
            services=(),
            policies=self.policies,
            checks=self.checks,
            records=self.records,
            prune=self.prune,
        )

    def observed(self) -> Observed:
        answers: dict[TargetProbe, ProbeFact] = {
            probe: answer(self.health[probe.address], self.now.steady - SECOND)
            for probe in target_probes(self.desired())
            if probe.address in self.health
        }
        zone = replace(self.zone, observed_at=self.now.steady)
        return Observed(
            zones={(NAMES, ZONE): zone},
            ledger=self.ledger,
            source_read_at=self.now.steady,
            target_answers=answers,
        )

    def decide(self) -> Decision:
        decision = decide(self.desired(), self.observed(), self.now)
        self.ledger = decision.ledger
        return decision

    def write(self, decision: Decision, most: int = 1_000_000) -> None:
        """Do the first steps of a decision; after each write no name dangles and no record set is empty."""
        for step in decision.steps[:most]:
            assert isinstance(step.action, ChangeRecords)
            observed = fold(self.observed(), step, self.now)
            zone = observed.zones[NAMES, ZONE]
            assert isinstance(zone, Known)
            self.zone = zone
            self.ledger = replace(self.ledger, written=other_writers.confirm(self.ledger.written, [step.action]))
            self.writes += 1
            self.sound()

    def sound(self) -> None:
        names = {key.name for key in self.sets}
        for key, record in self.sets.items():
            assert record.values, f"{key} is empty"
            for name in points_at(key, record):
                assert name in names or not name.endswith("." + ZONE), f"{key} points at {name}, which does not exist"
        kinds: dict[str, set[tuple[str, bool]]] = {}
        for key in self.sets:
            kinds.setdefault(key.name, set()).add((key.type, bool(key.set_id)))
        for name, forms in kinds.items():
            assert len(forms) == 1 or not any(kind == "CNAME" for kind, _ in forms), f"{name} has {forms}"

    def approve(self, shown: str) -> None:
        """An operator approves a hash."""
        self.ledger = apply_commands(self.ledger, (Command("approve", shown, at=instant(self.now)),))

    def pass_time(self, seconds: float) -> None:
        step = int(seconds * SECOND)
        self.now = Now(self.now.wall + step, self.now.steady + step, self.now.lineage)

    def crash(self) -> None:
        """The process dies and restarts with what it had stored."""
        self.ledger = from_rows(to_rows(self.ledger))

    def settle(self, rounds: int = 200) -> None:
        """Decide and write, and let waits pass, until nothing is left to do."""
        for _ in range(rounds):
            decision = self.decide()
            if decision.steps:
                self.write(decision)
                self.pass_time(0.01)
                continue
            later = [due.until for due in (*decision.waits, *decision.holds) if due.until is not None]
            if not later:
                return
            self.pass_time((decision.wake_at - self.now.steady) / SECOND)
        raise AssertionError("the world never settles")

    def set_health(self, **health: ProbeValue) -> None:
        """Set probe results by the short names of `TARGETS`: a1, a2, b1, x."""
        for name, value in health.items():
            self.health[{"a1": A1, "a2": A2, "b1": B1, "x": X}[name]] = value

    def lines(self) -> list[str]:
        """The zone in short: `name TYPE/member value…`, sorted; names without the zone."""
        short = f".{ZONE}"
        lines = []
        for key, record in sorted(self.sets.items()):
            member = f"/{key.set_id}" if key.set_id else ""
            values = " ".join(value.removesuffix(short) for value in record.values)
            weight = "" if record.weight is None else f" weight {record.weight}"
            lines.append(f"{key.name.removesuffix(short)} {key.type}{member} {record.ttl} {values}{weight}")
        return lines


def geo_world(**changes: object) -> World:
    """The tree of the vectors: EU (default) = gw1 {a1, a2} and an outside host x; US = gw3 {b1}. All healthy, all published."""
    world = World((policy(**changes),))
    world.set_health(a1=PASS, a2=PASS, b1=PASS, x=PASS)
    world.settle()
    return world
