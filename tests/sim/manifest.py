"""Desired values for simulations, made directly: the resolved manifests of a small shop."""

from dataclasses import dataclass, field, replace

from manifests.values.desired import (
    SECOND,
    Backend,
    Backoff,
    Balancer,
    Container,
    Desired,
    Guard,
    Instance,
    MassChange,
    Port,
    Probe,
    ProbeKind,
    Restarts,
    Service,
    Template,
    Workload,
)
from manifests.values.dns import DNSPolicy, Publish, Target
from manifests.values.pod import Engine, Live, Mount, VolumeKind
from manifests.values.rollouts import DEFAULT_ROLLOUT, Rollout, Strategy
from providers.facts import fingerprint

INSTANCE = "shop"
NODE = "node-a"
POOLS = "edge"
NAMES = "names"
ZONE = "example.test."
HOST = "app.example.test."
VIRTUAL = "203.0.113.10"
"""The address of the balancer for clients."""


def some_nodes(count: int) -> tuple[str, ...]:
    """The names of this many nodes; the first is `NODE`."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    return tuple(f"node-{letters[n // 26 - 1] if n >= 26 else ''}{letters[n % 26]}" for n in range(count))


HTTP = Probe(ProbeKind.HTTP, port=8080, period=5 * SECOND, failure_threshold=2)
STARTUP = replace(HTTP, failure_threshold=20)


@dataclass(frozen=True, slots=True)
class Spec:
    """One workload with a service and a name; the defaults fit most tests."""

    name: str = "web"
    replicas: int = 3
    image: str = "v1"
    nodes: tuple[str, ...] = (NODE,)
    startup: bool = False
    liveness: bool = True
    readiness: bool = True
    min_ready: int = 0
    max_unavailable: int = 1
    drain: int = 10 * SECOND
    limit: int = 5
    window: int = 300 * SECOND
    backoff: Backoff = field(default_factory=Backoff)
    suspend: bool = False
    pools: tuple[str, ...] = ("web",)
    weight: int = 100
    publish: Publish | None = Publish.ENDPOINTS
    ttl: int = 30
    host: str = ""
    strategy: Strategy = Strategy.ROLLING
    rollout: Rollout = DEFAULT_ROLLOUT
    # not part of the revision, which is made from all other fields
    sidecars: tuple[str, ...] = field(default=(), repr=False)
    restart: str = field(default="", repr=False)
    volume: str = field(default="", repr=False)
    """An exclusive volume; its workload has the strategy `recreate`, as the resolver sees to."""
    cpu: int = field(default=0, repr=False)

    @property
    def key(self) -> str:
        return f"workload/{self.name}"

    @property
    def revision(self) -> str:
        return fingerprint(self.name, self.image)

    @property
    def quiet(self) -> int:
        """How long (ns) no request may be in flight before a stop: the whole drain, so that laws can rely on it."""
        return self.drain


def workload(spec: Spec) -> Workload:
    container = Container(
        "main",
        ("serve", spec.image),
        ports=(Port("http", 8080),),
        startup=STARTUP if spec.startup else None,
        liveness=HTTP if spec.liveness else None,
        readiness=HTTP if spec.readiness else None,
        engine=Engine(mounts=(Mount(VolumeKind.NAMED, spec.volume, "/data", exclusive=True),))
        if spec.volume
        else Engine(),
    )
    return Workload(
        spec.key,
        spec.name,
        spec.nodes,
        spec.replicas,
        Template(
            (("app", spec.name),),
            container,
            grace=5 * SECOND,
            revision=spec.revision,
            sidecars=tuple(Container(name, ("serve", name)) for name in spec.sidecars),
            live=(Live("", spec.cpu, restart=spec.restart),) if spec.restart or spec.cpu else (),
        ),
        min_ready=spec.min_ready,
        max_unavailable=spec.max_unavailable,
        restarts=Restarts(spec.limit, spec.window, spec.backoff),
        drain_max=spec.drain,
        drain_min=spec.quiet,
        suspend=spec.suspend,
        strategy=Strategy.RECREATE if spec.volume else spec.strategy,
        rollout=spec.rollout,
    )


def service(spec: Spec) -> Service:
    balancers = tuple(Balancer(POOLS, pool, (VIRTUAL,)) for pool in spec.pools)
    return Service(f"service/{spec.name}", spec.name, (Backend(spec.key, 8080),), balancers, spec.weight)


def policy(spec: Spec) -> DNSPolicy:
    assert spec.publish is not None
    host = spec.host or f"{spec.name}.{ZONE}"
    target = Target("all", spec.publish, f"service/{spec.name}")
    return DNSPolicy(f"dnspolicy/{spec.name}", spec.name, host, NAMES, ZONE, (target,), spec.ttl)


@dataclass(frozen=True, slots=True)
class Shop:
    """All manifests of a simulation. `revision` is made from all other fields."""

    specs: tuple[Spec, ...] = (Spec(),)
    prune: bool = False
    complete: bool = True
    destroy: bool = False
    take_over: bool = False
    source: str = "git:shop"
    guard: Guard = field(default_factory=lambda: Guard(mass_change=MassChange(100, 50)))
    look_pools: int = 15 * SECOND

    def desired(self) -> Desired:
        specs = sorted(self.specs, key=lambda spec: spec.name)
        declared = () if self.destroy else tuple(specs)
        instance = Instance(INSTANCE, self.prune, 15 * SECOND, self.look_pools, 30 * SECOND)
        return Desired(
            source=self.source,
            revision=fingerprint(repr(self)),
            root="/srv/shop",
            complete=self.complete,
            instance=instance,
            guard=self.guard,
            providers=(),
            workloads=tuple(workload(spec) for spec in declared),
            services=tuple(service(spec) for spec in declared),
            policies=tuple(policy(spec) for spec in declared if spec.publish is not None),
            services_of={spec.key: ((f"service/{spec.name}", 8080),) for spec in declared},
            prune=self.prune,
            destroy=self.destroy,
            take_over=self.take_over,
            former={spec.key: workload(spec) for spec in specs} if self.destroy else {},
        )


def shop(**fields: object) -> Shop:
    """A shop with one workload; the fields are those of `Spec`."""
    return Shop((Spec(**fields),))  # type: ignore[arg-type]
