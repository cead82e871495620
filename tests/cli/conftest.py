import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

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
    Provider,
    Role,
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
    Unknown,
    container_name,
)
from reconciler.cli.app import run
from reconciler.core.decide import decide
from reconciler.core.decision import Decision
from reconciler.core.model.instant import Instant
from reconciler.core.model.ledger import Ledger, Suspension
from reconciler.core.model.ledger_codec import to_rows
from reconciler.core.model.observed import Observed
from reconciler.shell.clock import SystemClock
from reconciler.shell.report.summary import decision_document
from reconciler.shell.store.state_db import AuditRow, Store

TREE = """\
apiVersion: reconciler/v1
kind: Instance
metadata: {name: this}
spec: {id: small}
---
apiVersion: reconciler/v1
kind: Provider
metadata: {name: local}
spec: {type: process}
---
apiVersion: reconciler/v1
kind: Provider
metadata: {name: pool}
spec: {type: file}
---
apiVersion: reconciler/v1
kind: Provider
metadata: {name: zone}
spec: {type: zonefile}
---
apiVersion: reconciler/v1
kind: Workload
metadata: {name: web}
spec:
  replicas: 2
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
        - name: web
          command: [sleep, "60"]
          env: [{name: TOKEN, value: sentinel-of-the-manifest}]
          ports: [{name: http, containerPort: 8080}]
          readinessProbe: {tcpSocket: {port: http}}
---
apiVersion: reconciler/v1
kind: Service
metadata: {name: web}
spec:
  selector: {app: web}
  port: http
  balancers: [{provider: pool, pool: web}]
---
apiVersion: reconciler/v1
kind: DNSPolicy
metadata: {name: app}
spec:
  host: app.example.test
  zone: example.test
  targets: [{name: local, service: {name: web, publish: endpoints}}]
"""


class Done(NamedTuple):
    """How one command line ended."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict:
        return json.loads(self.out)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The place below which instances keep their state."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("SUDO_USER", "ada")
    return tmp_path / "home" / "reconciler"


@pytest.fixture
def reconcile(home: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    """Run one command line in this process."""

    def call(*words: object) -> Done:
        capsys.readouterr()
        code = run([str(word) for word in words])
        return Done(code, *capsys.readouterr())

    return call


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A small, valid directory of manifests."""
    path = tmp_path / "manifests"
    path.mkdir()
    (path / "all.yaml").write_text(TREE)
    return path


# --- a stored decision --------------------------------------------------------------------------------------------

PROBE = Probe(ProbeKind.HTTP, port=8080)
WEB = Workload(
    "workload/web",
    "web",
    ("local",),
    3,
    Template(
        (("app", "web"),),
        Container("web", ("web",), ports=(Port("http", 8080),), readiness=PROBE),
        revision="0123456789abcdef",
    ),
)
DESIRED = Desired(
    source="/srv/manifests",
    revision="f" * 64,
    root="/srv/manifests",
    complete=True,
    instance=Instance("small"),
    guard=Guard(),
    providers=(
        Provider("provider/local", "local", "process", Role.RUNTIME, {}),
        Provider("provider/pool", "pool", "file", Role.ENDPOINTS, {}),
        Provider("provider/zone", "zone", "zonefile", Role.DNS, {}),
    ),
    workloads=(WEB,),
    services=(Service("service/web", "web", (Backend("workload/web", 8080),), (Balancer("pool", "web"),)),),
    policies=(
        DNSPolicy(
            "dnspolicy/app",
            "app",
            "app.example.test.",
            "zone",
            "example.test.",
            (Target("local", Publish.ENDPOINTS, "service/web"),),
        ),
    ),
    services_of={"workload/web": (("service/web", 8080),)},
)


def _replica(ordinal: int, address: str, now: int) -> ContainerFact:
    mark = Mark("small", "web", ordinal, WEB.template.revision)
    name = container_name(mark)
    ports = (PortFact(8080, address, 8080),)
    return ContainerFact("local", name, f"id-{ordinal}", ContainerState.RUNNING, 5, now - SECOND, address, ports, mark)


def last_decision(clock: SystemClock) -> Decision:
    """Replica 0 ready and in the pool, 1 fails its readiness, 2 is missing; the zone cannot be read; the workload is suspended."""
    now = clock.now()
    fresh = now.steady - SECOND
    facts = (_replica(0, "127.0.0.10", now.steady), _replica(1, "127.0.0.11", now.steady))
    ready = ProbeFact(ProbeValue.PASS, ProbeValue.PASS, 4, 1, fresh, fresh, 60 * SECOND)
    broken = ProbeFact(ProbeValue.FAIL, ProbeValue.FAIL, 3, 3, fresh, fresh, 60 * SECOND, "HTTP 503")
    pool = PoolFact("web", (MemberFact(Endpoint("127.0.0.10", 8080), 100, True, facts[0].name),))
    then = Instant(now.wall - 60 * SECOND, now.steady - 60 * SECOND, now.lineage)
    ledger = Ledger(
        attempts={"workload/web/1": (then,)},
        suspensions={"workload/web": Suspension("ada", "looking into a leak", 0)},
        source=DESIRED.source,
    )
    observed = Observed(
        runtimes={"local": Known(facts, "local", fresh)},
        pools={("pool", "web"): Known(pool, "pool", now.steady)},
        zones={("zone", "example.test."): Unknown("permission denied", "zone", fresh)},
        probes={Generation("id-0", 5): Probes(readiness=ready), Generation("id-1", 5): Probes(readiness=broken)},
        ledger=ledger,
        source_read_at=now.steady,
    )
    return decide(DESIRED, observed, now)


@pytest.fixture
def decided() -> Callable[[SystemClock], Decision]:
    """Makes the decision of a run that could not finish; its instants are real."""
    return last_decision


EVIDENCE = json.dumps(
    {
        "container": "small-web-01234567-1",
        "cause": "LivenessFailed",
        "generation": {"id": "id-1", "started_at": 5},
        "probes": {
            "liveness": {
                "verdict": "fail",
                "last": "fail",
                "streak": "3/3",
                "checked_wall": 0,
                "detail": "no answer within 1s",
            }
        },
        "log": ["too many open files", "giving up"],
        "log_missing": None,
        "end": {"exit_code": 137, "cause": "oom-killed"},
    }
)
"""What was left of the replica when it was restarted."""


@pytest.fixture
def stored(home: Path) -> Path:
    """The state directory of instance `small` after a run that could not finish."""
    state = home / "small"
    clock = SystemClock()
    decision = last_decision(clock)
    with Store.open(state, clock) as store:
        store.save_ledger(to_rows(decision.ledger))
        store.put_decision(decision_document(decision, DESIRED, clock.now()))
        container = _replica(1, "", 0).name
        entry = store.begin(
            f"start {container}", "workload/web/1", f"start {container}", "id-1@5", "Crashed", clock.now()
        )
        store.end(entry, "done")
        evidence = AuditRow(
            clock.now().wall, "reconcile --once", "f", "", f"stop {container}", "LivenessFailed", "kept", "evidence"
        )
        store.put_evidence(
            evidence._replace(object="workload/web/1", message="liveness fail 3/3, 2 log lines"), EVIDENCE
        )
        store.audit(
            [
                AuditRow(
                    clock.now().wall,
                    "reconcile --once",
                    "f",
                    "",
                    f"start {container}",
                    "Crashed",
                    "done",
                    "step",
                    "workload/web/1",
                    "ended with exit code 1",
                )
            ]
        )
    return state
