"""Manifests of a simulation as documents, resolved by the program itself, so that one field of one document can change.

`Documents` stands in for `sim.manifest.Shop` where a law is about manifests as people write them.
"""

import copy
import json
import os
import tempfile
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from manifests.load import load_tree
from manifests.values.desired import Desired, Role
from manifests.values.pod import ENGINE_FIELDS
from tests.sim.manifest import INSTANCE, NAMES, NODE, POOLS, VIRTUAL, ZONE

Document = dict[str, Any]

FILE = "all.yaml"


class _NoSettings(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


SECRETS = [
    {"name": "Authorization", "valueFrom": {"secret": {"env": "PATH"}}},
    {"name": "X-Key", "valueFrom": {"secret": {"file": "/srv/key"}}},
]
"""Headers whose values are secrets: one that every process has, and one that is nowhere."""

_ROLES = {"engine": Role.RUNTIME, "pools": Role.ENDPOINTS, "names": Role.DNS}


@dataclass(frozen=True)
class Documents:
    """All documents of one revision of the manifests."""

    all: tuple[Document, ...]
    specs: tuple[()] = ()
    """Always empty: the watchdog of other laws reads the specs of a `Shop`."""

    def of(self, kind: str, name: str = "") -> Document:
        """The document of this kind, and name if one is given."""
        return next(item for item in self.all if item["kind"] == kind and name in ("", item["metadata"]["name"]))

    def copy(self) -> "Documents":
        """The same documents, to be changed."""
        return Documents(copy.deepcopy(self.all))

    def text(self) -> str:
        """All of them, as one file."""
        return "\n---\n".join(json.dumps(item) for item in self.all) + "\n"

    def desired(self) -> Desired:
        """Their resolved value. Raises ManifestErrors."""
        resolved = load_tree(
            _directory(),
            settings_model=lambda name: (_ROLES[name], _NoSettings) if name in _ROLES else None,
            known_types=lambda: list(_ROLES),
            template_support=lambda name: (ENGINE_FIELDS, frozenset({"image"})) if name == "engine" else None,
            edited={FILE: self.text().encode()},
        )
        return replace(resolved.desired, root="/srv/shop", providers=())


_NAMES_ALL_FILES = {
    "apiVersion": "reconciler/v1",
    "kind": "Workload",
    "spec": {
        "template": {
            "spec": {
                "volumes": [{"files": {"from": name}} for name in ("conf", "other")],
                "containers": [{"envFile": ["app.env", "other.env"]}],
            }
        }
    },
}
"""What is replaced at each use: with it all files are read."""

CONTENTS = {
    FILE: json.dumps(_NAMES_ALL_FILES),
    "conf/app.conf": "level: 1\n",
    "conf/more.conf": "level: 2\n",
    "other/app.conf": "level: 3\n",
    "app.env": "LEVEL=1\n",
    "other.env": "LEVEL=2\n",
    "key": "a-key\n",
    "other-key": "another-key\n",
}
"""The files beside the manifests: those that containers get, and those that are secrets."""


@cache
def _directory() -> Path:
    """A directory whose file of manifests is replaced at each use: all revisions have the same source."""
    directory = Path(tempfile.gettempdir()) / f"reconciler-documents-{os.getuid()}"
    for name, content in CONTENTS.items():
        path = directory / name
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.touch(mode=0o600)
        if path.read_text() != content:
            path.write_text(content)
    return directory


def secret(name: str) -> str:
    """The path of a file with a secret, by its name in `CONTENTS`."""
    return str(_directory() / name)


def document(kind: str, name: str, **spec: Any) -> Document:
    """One document."""
    return {"apiVersion": "reconciler/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def probe(asks: str, path: str = "/ready") -> Document:
    """A probe of this kind, with short times."""
    tls = {"verify": True, "serverName": "web.example.test"}
    what: dict[str, Document] = {
        "httpGet": {"path": path, "port": "http", "httpHeaders": [{"name": "X-From", "value": "probe"}]},
        "tcpSocket": {"port": "http"},
        "exec": {"command": ["check", path]},
        "grpc": {"port": "http", "service": path},
        "https": {"path": path, "port": "http", "scheme": "HTTPS", "tls": tls, "httpHeaders": SECRETS},
        "grpcs": {"port": "http", "service": path, "tls": tls},
    }
    times = {"periodSeconds": 5, "timeoutSeconds": 2, "failureThreshold": 2, "initialDelaySeconds": 1}
    return {{"https": "httpGet", "grpcs": "grpc"}.get(asks, asks): what[asks], **times}


STAGED = {"activationDelay": "10s", "precheck": "5s", "pendingGrace": "2m", "bake": "20s", "rollbackWindow": "40s"}
ROLLOUTS: dict[str, Document] = {
    "rolling": {"strategy": "rolling"},
    "activate": {"strategy": "activate", **STAGED},
    "activate at": {"strategy": "activate", "activateAt": "2020-01-01T00:00:00Z"},
    "canary": {
        "strategy": "canary",
        **STAGED,
        "canary": {"steps": [{"weight": "20%", "pause": "20s"}, {"weight": "60%", "pause": "20s"}]},
    },
}


def shop(
    strategy: str = "rolling",
    asks: str = "httpGet",
    probes: tuple[str, ...] = ("liveness", "readiness"),
    replicas: int = 2,
    publish: str = "endpoints",
    pools: int = 1,
    rich: bool = False,
    ramp: bool = False,
    check: bool = False,
    slowly: bool = False,
    far: bool = True,
    places: bool = False,
    least: bool = False,
    adopt: bool = False,
    files: bool = False,
) -> Documents:
    """A small shop.

    Args:
        strategy: a key of `ROLLOUTS`.
        asks: the kind of its probes, and which it has.
        publish: what its name publishes; empty: it has no name.
        pools: how many pools its service has.
        rich: every optional field of the container is written, and the pod has two sidecars.
        ramp: weights grow slowly.
        check: its name has a health check.
        slowly: that check passes an address later than its probes do.
        far: beside the check its name has a second target with fixed addresses.
        places: its targets are for the clients of two places.
        adopt: it takes over a container that does not exist.
        files: its containers get files of the repository.
        least: its budget is the number of replicas that stay.
    """
    main: Document = {
        "name": "app",
        "image": "shop/web:1",
        "env": [{"name": "MODE", "value": "calm"}],
        "ports": [{"name": "http", "containerPort": 8080}, {"name": "admin", "containerPort": 8081}],
        **{f"{name}Probe": probe(asks, f"/{name}") for name in probes},
    }
    for name in {"liveness", "startup"}.intersection(probes):
        main[f"{name}Probe"]["terminationGracePeriodSeconds"] = 5
    pod: Document = {"terminationGracePeriodSeconds": 5, "networks": ["edge"], "containers": [main]}
    if rich:
        _enrich(main, pod)
    if files:
        _mount_files(main, pod)
    workload = document(
        "Workload",
        "web",
        replicas=replicas,
        template={"metadata": {"labels": {"app": "web"}}, "spec": pod},
        availability={"minAvailable": 1} if least else {"maxUnavailable": 1},
        rollout=copy.deepcopy(ROLLOUTS[strategy]),
        drain={"min": "2s", "max": "5s"},
        **({"push": {}} if rich else {}),
        **({"adopt": {"names": ["foreign"]}} if adopt else {}),
    )
    balancers = [{"provider": POOLS, "pool": f"web{number or ''}", "addresses": [VIRTUAL]} for number in range(pools)]
    service = document("Service", "web", selector={"app": "web"}, port="http", balancers=balancers)
    if ramp:
        service["spec"]["ramp"] = {"duration": "20s", "minShare": "20%"}
    made = [
        document("Instance", "shop", id=INSTANCE, push={}, intervals={"endpoints": "5s"}),
        document("Provider", NODE, type="engine"),
        document("Provider", POOLS, type="pools"),
        document("Provider", NAMES, type="names"),
        document("HealthCheck", "gateway", address=VIRTUAL),
        workload,
        service,
    ]
    if publish:
        target: Document = {"name": "all", "service": {"name": "web", "publish": publish}}
        policy = document("DNSPolicy", "web", host=f"web.{ZONE}"[:-1], zone=ZONE[:-1], ttl="10s", targets=[target])
        if check:
            policy["spec"]["healthCheck"] = {"additionalHeaders": [{"name": "X-From", "value": "check"}, *SECRETS]}
            policy["spec"]["treeTTL"] = {"host": "10s", "balancer": "10s", "geo": "10s"}
            if slowly:
                policy["spec"]["healthCheck"]["successThreshold"] = 3
            if far:
                policy["spec"]["targets"].append({"name": "far", "addresses": ["192.0.2.7"], "weight": 50})
        if places:
            for item, place in zip(policy["spec"]["targets"], ("EU", "NA"), strict=True):
                item["geo"] = place
            policy["spec"]["targets"][0]["default"] = True
        made.append(policy)
    return Documents(tuple(made))


def _enrich(main: Document, pod: Document) -> None:
    main["env"].append({"name": "TOKEN", "valueFrom": {"secret": {"env": "PATH"}}})
    main["env"].append({"name": "KEY", "valueFrom": {"secret": {"file": secret("key")}}})
    main["args"] = ["--fast"]
    main["volumeMounts"] = [{"name": "data", "mountPath": "/data", "readOnly": False}]
    main["volumeMounts"] += [{"name": "host", "mountPath": "/host"}, {"name": "fast", "mountPath": "/fast"}]
    main["resources"] = {"limits": {"cpu": "500m", "memory": "64Mi"}}
    main["securityContext"] = {"runAsUser": 1000, "runAsGroup": 1000, "capabilities": {"add": ["NET_ADMIN"]}}
    main["ulimits"] = [{"name": "nofile", "soft": 1024, "hard": 2048}]
    main["logging"] = {"driver": "json-file", "options": {"max-size": "1m"}}
    main["docker"] = {"hostConfig": {"OomScoreAdj": 10}}
    pod["volumes"] = [
        {"name": "data", "named": "web-data"},
        {"name": "host", "hostPath": {"path": "/srv/data"}},
        {"name": "fast", "tmpfs": {"sizeLimit": "1Mi"}},
    ]
    pod["containers"] += [
        {"name": "side", "image": "shop/side:1"},
        {"name": "log", "image": "shop/log:1", "dependsOn": ["side"]},
    ]


def _mount_files(main: Document, pod: Document) -> None:
    main["envFile"] = [{"path": "app.env"}]
    pod["volumes"] = [
        {"name": "conf", "files": {"from": "conf"}},
        {"name": "one", "files": {"from": "conf", "items": [{"key": "app.conf", "path": "the.conf"}]}},
        {"name": "live", "files": {"from": "conf", "onChange": "signal", "signal": "SIGUSR1"}},
    ]
    main["volumeMounts"] = [{"name": volume["name"], "mountPath": f"/{volume['name']}"} for volume in pod["volumes"]]
