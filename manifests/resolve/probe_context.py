"""Probe contexts: the JSON on a label with which the owner of a container asks for liveness restarts.

Called by `reconciler/shell/probing/label_contexts.py`, once per text. The text comes from the user that started the container,
so it must not refer to secrets or files of the reconciler, and the Guard must allow its commands.
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
"""Most characters of a context: far more than probes need."""

MAX_ENTRIES = 32
"""Most containers in one context."""


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
        ValueError: the text is not a valid context; the message names place and cause.
    """
    if len(text) > MAX_TEXT:
        raise ValueError(f"the label has {len(text)} characters, at most {MAX_TEXT} are allowed")
    try:
        value = json.loads(text, object_pairs_hook=_once, parse_constant=_no_constant)
        again = json.dumps({"probes": value}).encode()
    except RecursionError:
        raise ValueError("the label is nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"the label is not JSON: {error}") from None
    if not isinstance(value, list):
        example = '[{"name": "web", "livenessProbe": {"httpGet": {"port": 8080}}}]'
        raise ValueError(f"the label must be a list, such as {example}")  # noqa: TRY004  (one type for all errors)
    if len(value) > MAX_ENTRIES:
        raise ValueError(f"the label names {len(value)} containers, at most {MAX_ENTRIES} are allowed")
    documents, flaws = read_file("label", again)
    if not documents:  # the depth limit of json.loads depends on the version of Python
        raise ValueError("; ".join(_text(flaw) for flaw in flaws[:5]))
    document = documents[0]
    try:
        entries = _ENTRIES.validate_python(value)
    except ValidationError as error:
        problems = list(explain(document, error, Entry, ("probes",), "label"))
        raise ValueError("; ".join(_text(problem) for problem in problems[:5])) from None
    names = [entry.name for entry in entries]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"the label has two entries for {name[:80]}")
    return tuple(
        (entry.name, _resolved(entry, Declared(document, "Container", entry.name, None), allowed)) for entry in entries
    )


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        raise ValueError("an object has the same key twice")
    return value


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not a JSON number")


def _text(problem: Problem) -> str:
    message = problem.message.removeprefix("label: ").removeprefix("probes")
    return f"{message} ({problem.hint})" if problem.hint else message


def _resolved(entry: Entry, declared: Declared, allowed: Sequence[Sequence[str]] | None) -> desired.Probe:
    """The probe as a value. Secrets, files and commands that are not allowed are refused."""
    given = entry.liveness_probe
    _check_no_secrets(entry.name, given)
    command = given.exec.command if given.exec is not None else ()
    if command and allowed is not None and not any(command[: len(prefix)] == tuple(prefix) for prefix in allowed):
        raise ValueError(
            f"{entry.name}: the Guard does not allow the exec probe '{command[0][:60]}' with these arguments"
        )
    over_network = given.http_get or given.tcp_socket or given.grpc
    ports = []
    if over_network is not None:
        if not isinstance(over_network.port, int):
            raise ValueError(f"{entry.name}: port {over_network.port!r} is a name; write the number")
        ports = [{"containerPort": over_network.port}]
    container = {"name": "container", "image": "image", "init": True, "ports": ports}
    spec = PodSpec.model_validate({"containers": [container]})
    scope = Scope((), (), incomplete=False)
    resolved = probe(declared, scope, spec, given, ("probes",))
    wrong = [problem for problem in scope.problems if not problem.is_warning]
    if wrong or resolved is None:
        raise ValueError("; ".join(_text(problem) for problem in wrong) or f"{entry.name} has no probe")
    return resolved


def _check_no_secrets(name: str, given: Probe) -> None:
    """Refuse secrets and files of this host: the author of a label has no right to use them."""
    if given.http_get is not None and any(header.value_from is not None for header in given.http_get.http_headers):
        raise ValueError(f"{name}: a label cannot use valueFrom for headers; write value")
    for method in (given.http_get, given.grpc):
        if method is not None and method.tls is not None and method.tls.ca_file:
            raise ValueError(f"{name}: a label cannot use caFile; remove it")
