"""What differs between two templates of a workload, field by field, and which of it needs a new container.

The values are those of the manifests, under the names that a manifest gives them. Values of secrets are not known here, and what names
a secret is only said to have changed. Called by `templates`, `forecast` and `shell/report/origins`.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from manifests.values.desired import SECOND, ProbeKind, Template
from manifests.values.pod import RuntimeRestart
from reconciler.core.model import value_json
from reconciler.core.replicas.field_changes import (
    EMPTY,
    SECRET,
    SET,
    Effect,
    FieldChange,
    Flat,
    camel,
    differing,
    flat,
    secret,
)

Pins = tuple[tuple[str, str], ...]
"""(container of the pod, digest of its image), as in `image_pins`."""

_NAMES = {
    "args": "args",
    "argv": "command",
    "cap_add": "securityContext.capabilities.add",
    "cap_drop": "securityContext.capabilities.drop",
    "grace": "terminationGracePeriodSeconds",
    "liveness": "livenessProbe",
    "log_driver": "logging.driver",
    "log_options": "logging.options",
    "number": "containerPort",
    "host_ip": "hostIP",
    "pull": "imagePullPolicy",
    "read_only_root": "securityContext.readOnlyRootFilesystem",
    "readiness": "readinessProbe",
    "run_as_non_root": "securityContext.runAsNonRoot",
    "secret_env": "env",
    "startup": "startupProbe",
}
"""Fields of values that a manifest calls otherwise; all others differ in their capitals only."""

_OF_PROBE = {
    "initial_delay": "initialDelaySeconds",
    "period": "periodSeconds",
    "timeout": "timeoutSeconds",
    "grace": "terminationGracePeriodSeconds",
}
"""Fields of a probe that are times."""

_OF_REQUEST = {
    "command": "command",
    "expected": "expectedStatuses",
    "follow": "redirects",
    "headers": "httpHeaders",
    "host": "host",
    "max_body": "maxBodyBytes",
    "path": "path",
    "port": "port",
    "scheme": "scheme",
    "service": "service",
    "tls": "tls",
}
"""Fields of a probe that are part of its request."""

_IRRELEVANT = {
    ProbeKind.HTTP.value: {"service", "command"},
    ProbeKind.GRPC.value: {"path", "scheme", "headers", "expected", "follow", "host", "max_body", "command"},
    ProbeKind.TCP.value: {"path", "scheme", "headers", "expected", "follow", "host", "max_body", "service", "command"},
    ProbeKind.EXEC.value: {"path", "scheme", "headers", "expected", "follow", "host", "max_body", "service", "port"},
    ProbeKind.RUNTIME.value: set(_OF_REQUEST) | {*_OF_PROBE, "success_threshold", "failure_threshold"},
}
"""Fields of a probe that mean nothing for a kind."""

_INNER = frozenset({"revision", "hash_version", "live", "files", "single"})
"""Fields that are made from the others; `live`, whose parts have names elsewhere; and the files of a volume, which `file_diffs` compares
with their contents."""

_PAIRS = frozenset({"env", "secret_env", "log_options"})
"""Lists of (name, value)."""

_PROBES = frozenset({"startup", "liveness", "readiness"})

_OF_CONTAINER = re.compile(r"containers\[[^\]]*\]\.(.*)", re.DOTALL)

_ZERO_IS_NONE = frozenset({"host_port", "size"})


def changes(before: Template | None, after: Template, pins: Pins = (), new_pins: Pins = ()) -> tuple[FieldChange, ...]:
    """The fields that differ, in the order of their names.

    Args:
        before: None lists every field that `after` gives.
        pins: the digests of the images of the containers before. new_pins: those of `after`, as far as they are known.
    """
    old = EMPTY if before is None else fields_of(before, pins)
    new = fields_of(after, new_pins)
    replaced = before is not None and before.revision != after.revision
    health = before is not None and _reads_runtime_health(before) != _reads_runtime_health(after)
    return tuple(
        FieldChange(name, was, now, Effect.NONE if before is None else _effect(name, replaced=replaced, health=health))
        for name, was, now in differing(old, new)
        if not (name.endswith("].image") and _same_image(was, now))
    )


def given(template: Template) -> tuple[FieldChange, ...]:
    """What a template gives, for a workload that is new. Of its variables only the names: a reader looks for what it is, and values are long."""
    rows = changes(None, template)
    return tuple(row._replace(after=SET) if ".env[" in row.field and row.after != SECRET else row for row in rows)


def _same_image(before: str, after: str) -> bool:
    """Whether two texts of an image differ only because the digest of one of them is not known yet."""
    (old, _, known), (new, _, pulled) = before.partition(" ("), after.partition(" (")
    return old == new and not (known and pulled)


def fields_of(template: Template, pins: Pins = ()) -> Flat:
    """All fields of a template by their names in a manifest."""
    full = dict(_template(json.loads(value_json.write(template)), dict(pins), template))
    given = dict(_template(json.loads(value_json.write_short(template)), dict(pins), template))
    if given.get("runtimeRestart") == RuntimeRestart.UNLESS_STOPPED.value:
        del given["runtimeRestart"]
    return flat(full.items(), given)


def _effect(name: str, *, replaced: bool, health: bool) -> Effect:
    """What a change of a field takes. The rule is that of `resolve/template_revision.py`, which makes the hash of a revision."""
    of_container = _OF_CONTAINER.match(name)
    part = of_container[1] if of_container is not None else name
    if part.startswith("resources.") or name == "runtimeRestart":
        return Effect.IN_PLACE
    if part.startswith(("livenessProbe.", "readinessProbe.", "startupProbe.")):
        return Effect.NEW_CONTAINER if health and replaced and part.endswith(".runtimeHealth") else Effect.NO_CONTAINER
    if name == "terminationGracePeriodSeconds" or part == "imagePullPolicy" or part.endswith("].accessMode"):
        return Effect.NO_CONTAINER
    # With the same revision no container is replaced, whatever differs.
    return Effect.NEW_CONTAINER if replaced else Effect.NO_CONTAINER


def _reads_runtime_health(template: Template) -> bool:
    main = template.container
    probes = (main.startup, main.liveness, main.readiness)
    return any(probe is not None and probe.kind is ProbeKind.RUNTIME for probe in probes)


# --- names -------------------------------------------------------------------------------------------------------------------


def _template(value: Mapping[str, Any], pins: Mapping[str, str], template: Template) -> Iterator[tuple[str, Any]]:
    """Every field of a template as (its name in a manifest, its value)."""
    main = template.container.name
    for name, inner in value.items():
        if name == "container":
            # The main container has the name "" in lists of the runtime.
            yield from _container(main, inner, pins.get("", pins.get(main, "")))
        elif name == "sidecars":
            for sidecar in inner:
                yield from _container(sidecar["name"], sidecar, pins.get(sidecar["name"], ""))
        elif name == "labels":
            for key, text in inner:
                yield f"labels[{key}]", text
        elif name == "grace":
            yield _NAMES["grace"], _seconds(inner)
        elif name not in _INNER:
            yield from _any(name, inner, "")
    for live in template.live:
        at = f"containers[{live.container or main}].resources.limits"
        yield f"{at}.cpu", f"{live.cpu}m" if live.cpu else None
        yield f"{at}.memory", size_text(live.memory) if live.memory else None
        if not live.container:
            yield "runtimeRestart", live.restart


def _container(name: str, value: Mapping[str, Any], digest: str) -> Iterator[tuple[str, Any]]:
    at = f"containers[{name}]."
    engine = value.get("engine") or {}
    for field, inner in (
        *((key, item) for key, item in value.items() if key not in ("name", "engine")),
        *engine.items(),
    ):
        if field == "image":
            yield f"{at}image", image_text(inner, digest)
        elif field in _PROBES:
            yield from _probe(f"{at}{_NAMES[field]}.", inner)
        elif field == "ports":
            for port in inner:
                number = f"{port['number']}/{port.get('protocol', 'TCP')}"
                yield from _rest(f"{at}ports[{port['name'] or number}].", port)
        elif field == "mounts":
            for mount in inner:
                yield from _mount(at, mount)
        elif field == "user":
            user, _, group = inner.partition(":")
            yield f"{at}securityContext.runAsUser", user
            yield f"{at}securityContext.runAsGroup", group
        elif field == "no_new_privileges":
            yield f"{at}securityContext.allowPrivilegeEscalation", not inner
        elif field == "host_config":
            members = json.loads(inner) if inner else {}
            for member, text in members.items() if isinstance(members, dict) else ():
                yield f"{at}docker.hostConfig.{member}", text
        elif field == "working_dir":
            yield f"{at}workingDir", inner if inner != "." else None
        else:
            yield from _any(field, inner, at)


def _any(field: str, inner: Any, at: str) -> Iterator[tuple[str, Any]]:
    """A field that needs no words of its own, also one that a newer version of the program adds."""
    name = f"{at}{_name(field)}"
    if field in _PAIRS and isinstance(inner, list):
        for key, value, *_ in inner:
            yield f"{name}[{key}]", secret(value) if field == "secret_env" or not isinstance(value, str) else value
    elif isinstance(inner, Mapping):
        yield from _rest(f"{name}.", inner)
    elif isinstance(inner, list) and inner and all(isinstance(item, Mapping) and item.get("name") for item in inner):
        for item in inner:
            # The volumes of a template are those with files; all others are in the mounts.
            yield from _rest(f"{name}[{item['name']}].{'files.' if field == 'volumes' else ''}", item)
    else:
        yield name, None if field in _ZERO_IS_NONE and not inner else inner


def _rest(at: str, value: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for field, inner in value.items():
        if field != "name" and field not in _INNER:
            yield from _any(field, inner, at)


def _mount(at: str, mount: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """A volume in a container: its source and whether it is read-only as one text, and every other field by its name."""
    name = f"{at}volumeMounts[{mount['target']}]"
    source, kind = mount.get("source", ""), mount["kind"]
    text = f"{'volume' if kind == 'named' else 'hostPath' if kind == 'bind' else kind} {source}".rstrip()
    yield name, f"{text} read-only" if mount.get("read_only") else text
    if mount.get("size"):
        yield f"{name}.sizeLimit", size_text(mount["size"])
    if mount.get("exclusive"):
        yield f"{name}.accessMode", "ReadWriteOncePod"
    known = {"kind", "source", "target", "read_only", "size", "exclusive"}
    yield from _rest(f"{name}.", {field: inner for field, inner in mount.items() if field not in known})


def _probe(at: str, probe: Mapping[str, Any] | None) -> Iterator[tuple[str, Any]]:
    if probe is None:
        return
    kind = probe["kind"]
    hidden = _IRRELEVANT[kind]
    if kind == ProbeKind.RUNTIME.value:
        yield f"{at}{kind}", True
    for field, inner in probe.items():
        if field in hidden or field == "kind":
            continue
        if field in _OF_PROBE:
            yield f"{at}{_OF_PROBE[field]}", None if field == "grace" and not inner else _seconds(inner)
        elif field not in _OF_REQUEST:
            yield f"{at}{camel(field)}", inner
        elif field == "headers":
            for key, value in inner:
                yield f"{at}{kind}.httpHeaders[{key}]", value if isinstance(value, str) else secret(value)
        elif field == "expected":
            spans = [f"{low}" if low == high else f"{low}-{high}" for low, high in inner]
            yield f"{at}{kind}.expectedStatuses", ", ".join(spans)
        elif field == "follow":
            yield f"{at}{kind}.redirects", "same-host" if inner else "none"
        elif field == "tls":
            yield from _rest(f"{at}{kind}.tls.", inner or {})
        else:
            yield f"{at}{kind}.{_OF_REQUEST[field]}", inner


def _name(field: str) -> str:
    return _NAMES.get(field) or camel(field)


def _seconds(duration: int) -> str:
    return f"{duration / SECOND:g}s"


def image_text(image: str, digest: str) -> str:
    """An image as written, with the digest that its containers are made from; the first 12 digits of it name it well enough."""
    if not image or not digest or "@" in image:
        return image
    algorithm, _, digits = digest.rpartition("@")[2].rpartition(":")
    return f"{image} ({algorithm or 'sha256'}:{digits[:12]})"


def size_text(size: int) -> str:
    """A number of bytes as a manifest writes it."""
    for unit, factor in (("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10)):
        if size and size % factor == 0:
            return f"{size // factor}{unit}"
    return str(size)
