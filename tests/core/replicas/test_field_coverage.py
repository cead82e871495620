"""Every field of a template and of the settings shows in a plan when it changes, and says what it takes."""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from typing import Any

import pytest

from manifests.problems import Where
from manifests.values.desired import (
    SECOND,
    AddressFrom,
    Adopt,
    Backend,
    Balancer,
    Container,
    Mode,
    Probe,
    ProbeKind,
    ProbeTLS,
    Push,
    Restarts,
    Service,
    Strategy,
    Template,
    Workload,
)
from manifests.values.dns import Check, DNSPolicy, HealthCheck, Publish, Target
from manifests.values.nodes import Nodes
from manifests.values.pod import Engine, Live, Mount, SecretSource, VolumeKind
from manifests.values.rollouts import CanaryStep, Rollout
from manifests.values.traffic import Panic, Ramp
from reconciler.core.replicas import setting_changes, template_changes
from reconciler.core.replicas.field_changes import Effect
from tests.core.replicas.test_templates import FULL

NOT_SHOWN = {
    "env_origins",  # where variables stand, as `where`
    "revision",
    "hash_version",
    "key",
    "name",
    "where",
    "forbidden",
    "restart_only",
    "image_choices",
    "template",
    "backends",
    "kind",
}
"""Fields that follow from others, identify the object, or are shown elsewhere."""


STRUCTURED = {"ports", "mounts", "ulimits", "headers", "secret_env", "env", "log_options", "sidecars", "steps"}
"""Lists of more than texts."""


def other(value: Any) -> Any:
    """Another value of the same type."""
    match value:
        case bool():
            return not value
        case Enum():
            return next(item for item in type(value) if item is not value)
        case int():
            return value + SECOND
        case str():
            return f"{value}x"
        case None:
            return None
        case Nodes():
            return Nodes((*value, "more"))
        case tuple():
            return value[:-1] if value else ("more",)
    raise TypeError(value)


def variants(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """(path, the value with one field changed), for every field at any depth."""
    for field in fields(value):
        inner, at = getattr(value, field.name), f"{path}{field.name}"
        if field.name in NOT_SHOWN:
            continue
        if is_dataclass(inner):
            yield from ((name, replace(value, **{field.name: new})) for name, new in variants(inner, f"{at}."))
            continue
        if isinstance(inner, tuple) and inner and all(map(is_dataclass, inner)):
            for index, item in enumerate(inner):
                for name, new in variants(item, f"{at}[{index}]."):
                    yield name, replace(value, **{field.name: (*inner[:index], new, *inner[index + 1 :])})
            continue
        if inner == () and field.name in STRUCTURED:
            continue  # the same field of another value here is not empty
        if field.name in ("labels", "env", "log_options", "headers") and inner:
            yield at, replace(value, **{field.name: ((inner[0][0], "another"), *inner[1:])})
            continue
        if field.name == "secret_env" and inner:
            yield at, replace(value, **{field.name: ((inner[0][0], SecretSource(env="ANOTHER")),)})
            continue
        if field.name == "live":
            yield at, replace(value, live=(Live("", 7, 8, "no"), *inner[1:]))
            continue
        if field.name == "host_config":
            yield at, replace(value, host_config='{"ShmSize": 1}')
            continue
        if field.name in ("expected",) and inner:
            yield at, replace(value, **{field.name: inner[:-1]})
            continue
        if (new := other(inner)) is not None:
            yield at, replace(value, **{field.name: new})


HTTP = Probe(
    ProbeKind.HTTP,
    8080,
    headers=(("Accept", "*/*"),),
    tls=ProbeTLS(True, "ca.pem", "name"),
    host="h",
    expected=((200, 299), (304, 304)),
)
RICH = replace(
    FULL,
    container=replace(
        FULL.container,
        argv=("serve", "x"),
        startup=HTTP,
        liveness=replace(HTTP, kind=ProbeKind.EXEC, command=("true", "x")),
        readiness=replace(HTTP, kind=ProbeKind.GRPC, service="s"),
        engine=replace(
            FULL.container.engine,
            mounts=(Mount(VolumeKind.NAMED, "data", "/data"), Mount(VolumeKind.TMPFS, "", "/tmp", size=1)),
        ),
    ),
    sidecars=(Container("log", ("a", "b"), engine=Engine("log:1")),),
)
IRRELEVANT = {
    "container.startup": {"command", "service"},
    "container.liveness": {
        "port",
        "path",
        "scheme",
        "headers",
        "host",
        "follow",
        "expected",
        "max_body",
        "tls",
        "service",
    },
    "container.readiness": {"path", "scheme", "headers", "host", "follow", "expected", "max_body", "command"},
}
"""Fields that the kind of a probe does not have."""


def means_something(path: str) -> bool:
    probe = ".".join(path.split(".")[:2])
    return path.split(".")[2] not in IRRELEVANT[probe] if probe in IRRELEVANT and path.count(".") > 1 else True


@pytest.mark.parametrize(
    ("path", "changed"),
    [pair for pair in variants(RICH) if means_something(pair[0])],
    ids=lambda item: item if isinstance(item, str) else "",
)
def test_a_changed_field_of_a_template_is_shown(path: str, changed: Template):
    (row, *more) = template_changes.changes(RICH, replace(changed, revision="other"))
    in_place = path == "live"
    # The rule of manifests/resolve/template_revision.py.
    kept = any(part in path for part in (".startup.", ".liveness.", ".readiness.")) or path in (
        "grace",
        "container.engine.pull",
    )
    kept = kept or path.endswith((".pull", ".exclusive"))
    wanted = Effect.IN_PLACE if in_place else Effect.NO_CONTAINER if kept else Effect.NEW_CONTAINER
    assert {item.effect for item in (row, *more)} == {wanted}, (row, *more)
    assert row.before != row.after


def test_a_field_that_a_newer_version_adds_is_shown_under_its_name():
    value = {"mounts": [{"kind": "files", "source": "conf", "target": "/etc/x", "digest": "sha256:abc"}]}
    shown = dict(template_changes._container("web", value, ""))
    assert shown == {
        "containers[web].volumeMounts[/etc/x]": "files conf",
        "containers[web].volumeMounts[/etc/x].digest": "sha256:abc",
    }


WORKLOAD = Workload(
    "workload/web", "web", ("a", "b"), 3, RICH, restarts=Restarts(mode=Mode.OBSERVE), strategy=Strategy.CANARY,
    rollout=Rollout(activate_at=5 * SECOND, steps=(CanaryStep(10, 5),)), push=Push(), adopt=Adopt(("x",), (("a", "b"),)),
)  # fmt: skip
SERVICE = Service(
    "service/web", "web", (Backend("workload/web", 80),), (Balancer("edge", "web", ("192.0.2.1",)),), ramp=Ramp(SECOND),
    address_from=AddressFrom.HOST, network="n", panic=Panic(),
)  # fmt: skip
POLICY = DNSPolicy(
    "dnspolicy/web", "web", "www.example.org.", "names", "example.org.",
    (Target("a", Publish.ADDRESSES, addresses=("192.0.2.1",)),), check=Check(headers=(("Accept", "x"),)),
)  # fmt: skip
CHECK = HealthCheck("healthcheck/a", "a", "192.0.2.1", Check())


@pytest.mark.parametrize(
    ("item", "path", "changed"),
    [(item, path, changed) for item in (WORKLOAD, SERVICE, POLICY, CHECK) for path, changed in variants(item)],
    ids=lambda item: item if isinstance(item, str) else "",
)
def test_a_changed_setting_is_shown(item, path, changed):
    (row, *_) = setting_changes.changes(item, replace(changed, where=Where("other.yaml", 1, 1)))
    assert row.before != row.after
    in_steps = path.split(".")[0] in ("replicas", "nodes", "suspend", "adopt")
    assert row.effect is (Effect.NO_CONTAINER if isinstance(item, Workload) and not in_steps else Effect.NONE)


def test_a_document_that_moved_has_no_changes():
    for item in (WORKLOAD, SERVICE, POLICY, CHECK):
        assert setting_changes.changes(item, replace(item, where=Where("moved.yaml", 7, 1))) == ()
    moved = replace(WORKLOAD, env_origins=(("web", "A", "a.env:2"),))
    assert setting_changes.changes(WORKLOAD, moved) == ()
