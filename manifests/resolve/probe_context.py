"""Probe contexts: the JSON on a label by which the owner of a container asks for liveness restarts. Called by the shell, once per text.

The text comes from whoever started the container. So it may not refer to secrets or files of ours, only to what is in the text,
and a command must be one that the Guard allows.
"""

import json
from collections.abc import Sequence
from typing import Any

from pydantic import TypeAdapter, ValidationError

from manifests.kinds.base import Model
from manifests.kinds.pod import PodSpec
from manifests.kinds.probe import Probe, SingleSuccess
from manifests.kinds.validate import Declared, explain
from manifests.problems import Problem
from manifests.resolve.probe import probe
from manifests.resolve.references import Scope
from manifests.values import desired
from manifests.yaml.read import read_file

MAX_TEXT = 16 * 1024
"""Characters of a context: far more than probes need."""

MAX_ENTRIES = 32
"""Containers that one context may name."""


class Entry(Model):
    """The probe of one container."""

    name: str
    liveness_probe: SingleSuccess


_ENTRIES = TypeAdapter(list[Entry])


def parse_context(text: str, allowed: Sequence[Sequence[str]] | None) -> tuple[tuple[str, desired.Probe], ...]:
    """The probes in a context, by the name of their container.

    Args:
        text: the value of the label.
        allowed: beginnings of argument lists that exec probes may run; None = any.

    Raises:
        ValueError: the text is no valid context; the message says what is wrong where.
    """
    if len(text) > MAX_TEXT:
        raise ValueError(f"it has {len(text)} characters, at most {MAX_TEXT} are read")
    try:
        value = json.loads(text, object_pairs_hook=_once, parse_constant=_no_constant)
        again = json.dumps({"probes": value}).encode()
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"it is no JSON: {error}") from None
    if not isinstance(value, list):
        example = '[{"name": "web", "livenessProbe": {"httpGet": {"port": 8080}}}]'
        raise ValueError(f"it must be a list, such as {example}")  # noqa: TRY004  (one kind of error for whatever is wrong)
    if len(value) > MAX_ENTRIES:
        raise ValueError(f"it names {len(value)} containers, at most {MAX_ENTRIES} are read")
    documents, flaws = read_file("label", again)
    if not documents:  # how deep the first reading went depends on Python's version
        raise ValueError("; ".join(_told(flaw) for flaw in flaws[:5]))
    document = documents[0]
    try:
        entries = _ENTRIES.validate_python(value)
    except ValidationError as error:
        problems = list(explain(document, error, Entry, ("probes",), "label"))
        raise ValueError("; ".join(_told(problem) for problem in problems[:5])) from None
    names = [entry.name for entry in entries]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"it has two entries named {name[:80]}")
    return tuple(
        (entry.name, _resolved(entry, Declared(document, "Container", entry.name, None), allowed)) for entry in entries
    )


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key is there twice in one object")
    return found


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON number")


def _told(problem: Problem) -> str:
    message = problem.message.removeprefix("label: ").removeprefix("probes")
    return f"{message} ({problem.hint})" if problem.hint else message


def _resolved(entry: Entry, declared: Declared, allowed: Sequence[Sequence[str]] | None) -> desired.Probe:
    """The probe as a value. What would reach for things of ours, or is not allowed, is refused."""
    given = entry.liveness_probe
    _check_own(entry.name, given)
    command = given.exec.command if given.exec is not None else ()
    if command and allowed is not None and not any(command[: len(one)] == tuple(one) for one in allowed):
        raise ValueError(f"{entry.name}: the Guard does not allow '{command[0][:60]}' with these arguments as a probe")
    asked = given.http_get or given.tcp_socket or given.grpc
    ports = []
    if asked is not None:
        if not isinstance(asked.port, int):
            raise ValueError(f"{entry.name}: port {asked.port!r} is a name; ports have none here, write the number")
        ports = [{"containerPort": asked.port}]
    container = {"name": "container", "image": "image", "init": True, "ports": ports}
    spec = PodSpec.model_validate({"containers": [container]})
    scope = Scope((), (), lost=False)
    found = probe(declared, scope, spec, given, ("probes",))
    wrong = [problem for problem in scope.problems if not problem.is_warning]
    if wrong or found is None:
        raise ValueError("; ".join(_told(one) for one in wrong) or f"{entry.name}: it has no probe")
    return found


def _check_own(name: str, given: Probe) -> None:
    """Refuse secrets and files of this host: the text is not from who may use them."""
    if given.http_get is not None and any(header.value_from is not None for header in given.http_get.http_headers):
        raise ValueError(f"{name}: headers on a label cannot come from secrets; write their value")
    for asked in (given.http_get, given.grpc):
        if asked is not None and asked.tls is not None and asked.tls.ca_file:
            raise ValueError(f"{name}: a label cannot name a caFile; leave it out")
