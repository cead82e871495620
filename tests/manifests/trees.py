"""A small valid tree, provider types to resolve it with, and helpers that load variations of it."""

from pathlib import Path
from typing import ClassVar

from pydantic import BaseModel, ConfigDict

from manifests.load import load, load_tree
from manifests.problems import ManifestErrors, Problem
from manifests.values.desired import Desired, Role
from manifests.values.pod import ENGINE_FIELDS, RELATIVE_WORKING_DIR


class RuntimeSettings(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    slots: int = 4


class PoolSettings(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    path: str
    mode: str = "plain"


class CloudSettings(PoolSettings):
    """A DNS provider that cannot hold every type of records."""

    record_types: ClassVar[frozenset[str]] = frozenset({"A", "AAAA", "CNAME", "TXT"})


TYPES: dict[str, tuple[Role, type[BaseModel]]] = {
    "process": (Role.RUNTIME, RuntimeSettings),
    "engine": (Role.RUNTIME, RuntimeSettings),
    "file": (Role.ENDPOINTS, PoolSettings),
    "zonefile": (Role.DNS, PoolSettings),
    "cloud": (Role.DNS, CloudSettings),
}

INSTANCE = """\
apiVersion: reconciler/v1
kind: Instance
metadata: {name: this}
spec: {id: demo}
"""

PROVIDERS = """\
apiVersion: reconciler/v1
kind: Provider
metadata: {name: here}
spec: {type: process}
---
apiVersion: reconciler/v1
kind: Provider
metadata: {name: edge}
spec: {type: file, settings: {path: pools.json}}
---
apiVersion: reconciler/v1
kind: Provider
metadata: {name: zones}
spec:
  type: zonefile
  settings:
    path: example.zone
"""

ENGINE_PROVIDERS = PROVIDERS.replace("type: process", "type: engine")
"""The same providers, with a runtime that has images."""

WORKLOAD = """\
apiVersion: reconciler/v1
kind: Workload
metadata:
  name: web
spec:
  replicas: 3
  template:
    metadata:
      labels: {app: web}
    spec:
      containers:
        - name: app
          command: [python3, server.py]
          args: [--verbose]
          env:
            - {name: MODE, value: production}
          ports:
            - {name: http, containerPort: 8080}
          livenessProbe:
            httpGet: {path: /live, port: http}
          readinessProbe:
            tcpSocket: {port: 8080}
            periodSeconds: 0.5
"""

SERVICE = """\
apiVersion: reconciler/v1
kind: Service
metadata: {name: web}
spec:
  selector: {app: web}
  port: http
  balancers:
    - {provider: edge, pool: be_web, addresses: [203.0.113.10]}
"""

POLICY = """\
apiVersion: reconciler/v1
kind: DNSPolicy
metadata: {name: app}
spec:
  host: app.example.com
  zone: example.com
  targets:
    - {name: main, service: {name: web}}
"""

GUARD = """\
apiVersion: reconciler/v1
kind: Guard
metadata: {name: limits}
spec: {deny: [workload/web]}
"""

HEALTH_CHECK = """\
apiVersion: reconciler/v1
kind: HealthCheck
metadata: {name: elsewhere}
spec:
  address: backup.example.net
  path: /live
  additionalHeaders:
    - {name: Authorization, valueFrom: {secret: {env: CHECK_TOKEN}}}
"""

RECORD = """\
apiVersion: reconciler/v1
kind: Record
metadata: {name: mail}
spec:
  host: example.com
  zone: example.com
  type: MX
  values: [10 mail.example.com]
"""

RECORD_LIST = """\
apiVersion: reconciler/v1
kind: RecordList
metadata: {name: rest}
spec:
  zone: example.com
  names:
    a.example.com: {A: 192.0.2.1, TXT: [one, two]}
    b.example.com: {AAAA: {ttl: 1m, values: "2001:db8::1"}}
"""

NETWORKED = """\
apiVersion: reconciler/v1
kind: Workload
metadata: {name: web}
spec:
  ADOPT
  template:
    metadata: {labels: {app: web}}
    spec:
      networks: [edge, back]
      containers:
        - name: app
          image: shop/web:1
          ports: [{name: http, containerPort: 8080PORT}]
"""
"""A workload on networks. The words in capitals are replaced."""

GOOD: dict[str, str | bytes] = {
    "instance.yaml": INSTANCE,
    "providers.yaml": PROVIDERS,
    "web.yaml": WORKLOAD,
    "service.yml": SERVICE,
    "dns.yaml": POLICY,
}


def settings_model(name: str) -> tuple[Role, type[BaseModel]] | None:
    return TYPES.get(name)


def template_support(name: str) -> tuple[frozenset[str], frozenset[str]] | None:
    return {
        "process": (frozenset({RELATIVE_WORKING_DIR}), frozenset({"command"})),
        "engine": (ENGINE_FIELDS, frozenset({"image"})),
    }.get(name)


def known_types() -> list[str]:
    return sorted(TYPES)


def write(root: Path, files: dict[str, str | bytes]) -> Path:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return root


def load_path(path: Path, instance_file: Path | None = None, environment: str | None = None) -> Desired:
    return load(
        path,
        instance_file=instance_file,
        environment=environment,
        settings_model=settings_model,
        known_types=known_types,
        template_support=template_support,
    )


def load_files(root: Path, files: dict[str, str | bytes]) -> Desired:
    return load_path(write(root, files))


def problems_at(
    path: Path, instance_file: Path | None = None, *, check_files: bool = False, environment: str | None = None
) -> tuple[Problem, ...]:
    """Everything that loading reports: the problems of an invalid tree, or the warnings of a valid one."""
    try:
        resolved = load_tree(
            path,
            instance_file=instance_file,
            environment=environment,
            settings_model=settings_model,
            known_types=known_types,
            template_support=template_support,
            check_files=check_files,
        )
    except ManifestErrors as errors:
        return errors.problems
    return resolved.warnings


def problems_of(root: Path, files: dict[str, str | bytes]) -> tuple[Problem, ...]:
    return problems_at(write(root, files))


def networked(adopt: str = "replicas: 1", port: str = "", address: str = "") -> dict[str, str | bytes]:
    """A tree with `NETWORKED`: with a line in its spec, an option of its port, and the address of its service."""
    web = NETWORKED.replace("ADOPT", adopt).replace("PORT", port)
    service = SERVICE.replace("  port: http\n", f"  port: http\n  address: {address}\n") if address else SERVICE
    return {**GOOD, "providers.yaml": ENGINE_PROVIDERS, "web.yaml": web, "service.yml": service}
