"""Every field of Workload, Service and DNSPolicy, found by reflection over the models, and other values for each of them.

A new field is covered by itself: without a value of its type here, and without a reason in `EXEMPT`, a test names it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from manifests.kinds import KINDS
from manifests.problems import ManifestErrors
from manifests.types.durations import Duration
from manifests.types.numbers import Percent
from tests.sim.documents import ROLLOUTS, Document, Documents, probe, secret, shop
from tests.sim.manifest import POOLS, VIRTUAL

ABSENT = object()
"""The field is removed."""

ASKED = ("Workload", "Service", "DNSPolicy")


@dataclass(frozen=True)
class Field:
    """One field: its kind, its path with `[]` for the items of a list, and what the model says of it."""

    kind: str
    path: str
    info: FieldInfo

    def __str__(self) -> str:
        return f"{self.kind} {self.path}"


EXEMPT = {
    "apiVersion": "it has one value",
    "kind": "it is another object then",
    "metadata.name": "the earlier object is deleted",
    "Workload spec.nodes": "asks for other nodes: the replicas move",
    "Workload spec.template.spec.containers[].ports[].hostPort": "stop-first: two containers cannot have one port of the host",
    "Workload spec.template.spec.containers[].ports[].hostIP": "stop-first, as hostPort",
    "Workload spec.template.spec.volumes[].accessMode": "stop-first: two containers cannot share the volume",
    "Workload spec.template.spec.volumes[].name": "valid only together with the mount of this name",
    "Workload spec.template.spec.containers[].volumeMounts[].name": "valid only together with the volume of this name",
    "Workload spec.template.spec.containers[].livenessProbe.successThreshold": "it has one value",
    "Workload spec.template.spec.containers[].startupProbe.successThreshold": "it has one value",
    "Workload spec.template.spec.containers[].readinessProbe.terminationGracePeriodSeconds": "a readiness probe has none",
    "Workload spec.template.spec.containers[].envFile[].required": "it counts only while the file is missing",
    "Workload spec.template.spec.volumes[].files.allowCiphertext": "it says only what is valid",
    "Service spec.address.from": "stop-first: the host's address needs a hostPort",
    "Service spec.balancers[].slots": "pools in memory have no slots",
    "Service spec.selector": "asks for less: the earlier containers are not selected any more",
    "Service spec.balancers[].provider": "a simulated world has one balancer",
    "DNSPolicy spec.host": "the earlier name is deleted",
    "DNSPolicy spec.provider": "a simulated world has one DNS server",
    "DNSPolicy spec.zone": "the earlier name is deleted",
    "DNSPolicy spec.targets[].service.name": "asks for other targets",
    "DNSPolicy spec.targets[].addresses": "asks for other targets",
    "DNSPolicy spec.targets[].hostname": "asks for other targets",
    "DNSPolicy spec.targets[].default": "exactly one place has it: valid only together with another target",
    "DNSPolicy spec.targets[].force": "takes the target out by order",
}
"""Fields whose change may take something, with the reason. Values that alone ask for less are not in `VALUES`."""

_LOCAL = "its programs and identities are of local documents; the rules ask every kind of reference the same as `secret.file`"
EXEMPT_ENDS = {
    **dict.fromkeys(("secret.command", "secret.sops.file", "secret.sops.key"), _LOCAL),
    **dict.fromkeys(("secret.age.file", "secret.age.identity"), _LOCAL),
    "secret.credential": "a service manager gives it; the rules ask every kind of reference the same as `secret.file`",
}
"""Likewise, by the end of the path: these fields are in every place that takes a secret."""

EXEMPT_STARTS = {
    "Workload spec.imagePolicies[]": "what runs changes with the image that it finds, by a commit or a choice"
}
"""Likewise, by the beginning of the path."""

VALUES: dict[str, tuple[Any, ...]] = {
    "replicas": (3, 5),
    "labels": ({"app": "web", "tier": "front"},),
    "drift.networks": ("report", "ignore"),
    "drift.image": ("correct", "ignore"),
    "files.from": ("other",),
    "items[].key": ("more.conf",),
    "items[].path": ("conf.d/the.conf",),
    "files.signal": ("SIGHUP", ABSENT),
    "envFile[].path": ("other.env",),
    "networks": (["back"], ["back", "edge"], ["edge", "back"], ABSENT),
    "volumes[].named": ("other-data",),
    "hostPath.path": ("/srv/other",),
    "sizeLimit": ("2Mi", ABSENT),
    "containers[].name": ("main",),
    "image": ("shop/web:2",),
    "command": (["serve", "--loud"],),
    "args": (["--slow"],),
    "env[].name": ("TEMPER",),
    "env[].value": ("wild",),
    "secret.env": ("HOME",),
    "secret.file": (secret("other-key"), "/srv/missing-key"),
    "workingDir": ("/opt",),
    "ports[].name": ("www",),
    "containerPort": (9090,),
    "mountPath": ("/other",),
    "cpu": ("750m", ABSENT),
    "memory": ("128Mi", ABSENT),
    "runAsUser": (1001,),
    "runAsGroup": (1001,),
    "capabilities.add": (["SYS_TIME"],),
    "capabilities.drop": (["ALL"],),
    "soft": (512,),
    "hard": (4096,),
    "stopSignal": ("SIGINT",),
    "driver": ("journald",),
    "options": ({"max-size": "2m"},),
    "dependsOn": (ABSENT,),
    "hostConfig": ({"OomScoreAdj": 20},),
    "maxUnavailable": (2, "50%", 0),
    "minAvailable": (2,),
    "activateAt": ("2020-01-02T00:00:00Z", "2090-01-01T00:00:00Z"),
    "activationDelay": ("1m", "5s"),
    "names": (["foreign"],),
    "adopt.labels": ({"owner": "compose"},),
    "drain.min": ("4s", "11s"),
    "drain.max": ("30s",),
    "Service spec.port": ("admin", 8081),
    "address.network": ("edge",),
    "weight": (200,),
    "steps[].weight": ("30%",),
    "minShare": ("10%", "50%"),
    "pool": ("other",),
    "balancers[].addresses": (["203.0.113.11"],),
    "publish": ("endpoints",),
    "httpGet.path": ("/other", "/readiness"),
    "httpGet.port": ("admin", 8081),
    "httpGet.host": ("shop.example.test",),
    "httpHeaders[].name": ("X-Other",),
    "httpHeaders[].value": ("other",),
    "additionalHeaders[].name": ("X-Other",),
    "additionalHeaders[].value": ("other",),
    "expectedStatuses": ([200], [204], ["200-299"]),
    "caFile": ("other.pem",),
    "serverName": ("shop.example.test",),
    "tcpSocket.port": ("admin", 8081),
    "exec.command": (["check", "--other"],),
    "grpc.port": ("admin", 8081),
    "grpc.service": ("other",),
    "healthCheck.host": ("shop.example.test",),
    "healthCheck.path": ("/other",),
    "healthCheck.port": (8443,),
    "expectedResponses": ([200], [503]),
    "whenAllUnhealthy": ("closed", "freeze", "publishAll"),
    "targets[].name": ("every",),
    "targets[].geo": ("EU",),
    "adopt.replace": (True,),
    "targets[].healthCheck": ("gateway",),
    "targets[].weight": (200,),
    "routing": ("weighted", "simple", ABSENT),
    "strategy": ("rolling", "activate", "canary", ABSENT),
    "terminationGracePeriodSeconds": (9, 1),
    "successThreshold": (3,),
}
"""Other values by the end of the path; the longest end counts. Other fields get values of their type."""


_POD = "Workload spec.template.spec"
_PROBES = (ABSENT, probe("tcpSocket"), probe("httpGet", "/other"), probe("exec"), probe("grpc"))
PARTS: dict[str, tuple[Any, ...]] = {
    **{f"{_POD}.containers[].{name}Probe": _PROBES for name in ("startup", "liveness", "readiness")},
    f"{_POD}.containers[].ports": ([{"name": "http", "containerPort": 8080}],),
    f"{_POD}.containers[].env": (ABSENT, [{"name": "MODE", "value": "calm"}, {"name": "MORE", "value": "1"}]),
    f"{_POD}.containers[].ulimits": (ABSENT, [{"name": "core", "soft": 0, "hard": 0}]),
    f"{_POD}.containers[].logging": (ABSENT,),
    f"{_POD}.containers[].securityContext": (ABSENT, {"runAsUser": 7}),
    f"{_POD}.containers[].resources": (ABSENT, {"limits": {"memory": "32Mi"}}),
    "Workload spec.rollout": (ABSENT, *ROLLOUTS.values()),
    "Workload spec.restarts": (ABSENT, {"limit": 0}, {"mode": "observe"}),
    "Workload spec.availability": (ABSENT,),
    "Workload spec.push": (ABSENT, {}),
    "Workload spec.adopt": (ABSENT, {"names": ["foreign"], "replace": True}),
    "Service spec.ramp": (ABSENT, {"duration": "1m"}),
    "Service spec.panic": ({"mode": "closed"}, {"threshold": "100%", "mode": "spread"}),
    "Service spec.balancers": (
        [{"provider": POOLS, "pool": name, "addresses": [VIRTUAL]} for name in ("web", "web1", "web2")],
    ),
    "DNSPolicy spec.healthCheck": (ABSENT, {}, {"protocol": "HTTP", "port": 8080}),
    "DNSPolicy spec.treeTTL": (ABSENT, {"host": "1m"}),
}
"""Whole parts of a manifest, and other contents of them: what has no single value is added, replaced and removed."""

GROWS = ("spec.replicas", "spec.drain.min", "spec.drain.max", "weight")
"""Fields of which less asks for less: only larger values are tried."""


def fields() -> tuple[Field, ...]:
    """All fields that hold values, in the order of the models; then the parts that consist of several."""
    leaves = [Field(kind, path, info) for kind in ASKED for path, info in _leaves(KINDS[kind], "")]
    return (*leaves, *(Field(*name.split(" "), FieldInfo()) for name in PARTS))


def exempt(field: Field) -> str:
    """Why a change of this field may take something; empty: it may not."""
    by_end = next((why for end, why in EXEMPT_ENDS.items() if field.path.endswith(f".{end}")), "")
    by_start = next((why for start, why in EXEMPT_STARTS.items() if str(field).startswith(f"{start}.")), "")
    return EXEMPT.get(field.path) or EXEMPT.get(str(field)) or by_end or by_start


def _leaves(model: type[BaseModel], prefix: str) -> Iterator[tuple[str, FieldInfo]]:
    for name, info in model.model_fields.items():
        path = f"{prefix}{info.alias or name}"
        inner, many = _model_in(info.annotation)
        if inner is None:
            yield path, info
        else:
            yield from _leaves(inner, f"{path}{'[]' if many else ''}.")


def _model_in(annotation: Any) -> tuple[type[BaseModel] | None, bool]:
    """The model inside an annotation, and whether it is in a list."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation, False
    if get_origin(annotation) not in (Annotated, Union, UnionType, tuple):
        return None, False
    inner = next((model for argument in get_args(annotation) if (model := _model_in(argument)[0])), None)
    many = get_origin(annotation) is tuple or any(_model_in(argument)[1] for argument in get_args(annotation))
    return inner, inner is not None and many


def values(field: Field, old: Any) -> Iterator[Any]:
    """Other values for a field whose value is `old` (ABSENT: not written). They need not be valid."""
    if str(field) in PARTS:
        yield from (value for value in PARTS[str(field)] if value != old)
        return
    known = [end for end in VALUES if str(field).endswith(f".{end}") or str(field) == end or f" {end}" in str(field)]
    if known:
        yield from (value for value in VALUES[max(known, key=len)] if value != old)
        return
    yield from _of_type(field.info.annotation, field.info, old)
    if old is not ABSENT and not field.info.is_required():
        yield ABSENT


def _of_type(annotation: Any, info: FieldInfo, old: Any) -> Iterator[Any]:
    if get_origin(annotation) in (Annotated, Union, UnionType):
        for argument in get_args(annotation):
            yield from _of_type(argument, info, old)
    elif get_origin(annotation) is Literal:
        default = None if info.is_required() else info.default
        yield from (value for value in get_args(annotation) if value != (default if old is ABSENT else old))
    elif annotation is bool:
        yield (not (info.default if old is ABSENT else old))
    elif annotation in (int, float):
        number = info.default if old is ABSENT else old
        yield from (number + 1, max(0, number - 1)) if isinstance(number, int | float) else (1,)
    elif annotation is Duration:
        yield from ("90s", "3s", "10m")
    elif annotation is Percent:
        yield from ("20%", "80%")


# --- changes -----------------------------------------------------------------------------------------------------------------

FLAVOURS: dict[str, Documents] = {
    "plain": shop(),
    "files": shop(files=True, probes=("startup", "liveness", "readiness")),
    "rich": shop(rich=True, probes=("startup", "liveness", "readiness")),
    "started": shop(probes=("startup", "liveness", "readiness")),
    "tcp": shop(asks="tcpSocket", probes=("startup", "liveness", "readiness")),
    "exec": shop(asks="exec", probes=("startup", "liveness", "readiness")),
    "grpc": shop(asks="grpc", probes=("startup", "liveness", "readiness")),
    "activate": shop("activate"),
    "canary": shop("canary"),
    "ramp": shop(ramp=True, replicas=3),
    "secret": shop(asks="https", probes=("startup", "liveness", "readiness")),
    "grpcs": shop(asks="grpcs", probes=("startup", "liveness", "readiness")),
    "fixed time": shop("activate at"),
    "adopting": shop(adopt=True),
    "least": shop(least=True, replicas=3),
    "places": shop(check=True, places=True),
    "balancer": shop(publish="balancer", pools=2),
    "checked": shop(check=True),
}
"""Manifests in which the fields are changed: each field in the first that has a valid change for it."""


@dataclass(frozen=True)
class Change:
    """Manifests, and the same with one field changed."""

    field: str
    value: str
    before: Documents
    after: Documents


def changes(field: Field, before: Documents) -> tuple[Change, ...]:
    """All valid changes of one field of these manifests that are not without effect."""
    made: list[Change] = []
    for index in product(range(3), repeat=field.path.count("[]")):
        old = _get(before.of(field.kind), field.path, index) if _has(before, field.kind) else None
        if old is None:
            continue
        for value in values(field, old):
            if field.path.endswith(GROWS) and old is not ABSENT and _number(value) < _number(old):
                continue
            after = before.copy()
            if not _set(after.of(field.kind), field.path, value, index):
                continue
            shown = "absent" if value is ABSENT else repr(value)
            if any(change.after == after for change in made) or not _valid(before, after):
                continue
            made.append(Change(str(field), shown, before, after))
    return tuple(made)


def _number(value: Any) -> float:
    """The number at the beginning of a value such as `30s`."""
    return float(str(value).rstrip("%sm"))


def written(before: Documents, kind: str, path: str, value: Any) -> Documents:
    """The same documents with a value at a path, in the first item of each list."""
    after = before.copy()
    _set(after.of(kind), path, value, (0,) * path.count("[]"))
    return after


def _has(documents: Documents, kind: str) -> bool:
    return any(item["kind"] == kind for item in documents.all)


def _get(document: Document, path: str, index: tuple[int, ...]) -> Any:
    """The value at a path; ABSENT where it is not written; None where a list on the way has no such item."""
    at: Any = document
    places = iter(index)
    for key in path.split("."):
        name = key.removesuffix("[]")
        if name not in at:
            return None if "[]" in path[path.index(key) :] else ABSENT
        at = at[name]
        if key.endswith("[]"):
            place = next(places)
            if place >= len(at):
                return None
            at = at[place]
    return at


def _set(document: Document, path: str, value: Any, index: tuple[int, ...]) -> bool:
    """Write a value at a path, in these items of its lists; False when there is nothing to remove."""
    *way, last = path.split(".")
    at: Any = document
    places = iter(index)
    for key in way:
        name = key.removesuffix("[]")
        at = at[name][next(places)] if key.endswith("[]") else at.setdefault(name, {})
    if value is ABSENT:
        return at.pop(last, None) is not None
    at[last] = value
    return True


def _valid(before: Documents, after: Documents) -> bool:
    try:
        return replace(after.desired(), revision="") != replace(before.desired(), revision="")
    except ManifestErrors:
        return False


@cache
def covered(field: Field) -> tuple[Change, ...]:
    """The changes of one field in the first of `FLAVOURS` that has any."""
    return next((made for before in FLAVOURS.values() if (made := changes(field, before))), ())
