"""Probe targets as the shell declares them, and their translation for the child process.

`reconciler/shell/probing` builds `Target`s from manifests and observed facts at every tick; `engine.py` compares them with the
running ones.
"""

import socket
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from manifests.values.desired import Probe, ProbeKind, ProbeTLS
from providers.facts import Generation
from providers.lib.secrets import SHOWN, Secret
from providers.spi import ExecTarget
from reconciler.probes import messages
from reconciler.probes.messages import Spec
from reconciler.probes.off_limits import refusal
from reconciler.probes.request import authority, http_request, server_name
from reconciler.probes.schedule import NO_PHASE, first_due, phase_of
from reconciler.probes.slot import printable

_ELLIPSIS = "..."
"""The end of a text that `printable` has cut."""

_NO_LIMIT = 1 << 20

NAMES = ("startup", "liveness", "readiness")


class ResolvedInputs(NamedTuple):
    """The current values of the secrets and files that a probe's manifest refers to.

    `secrets` are the values of the headers that are secrets, in the order of the headers; `ca` is the text of the file of trusted
    authorities. `problem` says why a value is missing; the probe cannot run then.
    """

    secrets: tuple[Secret, ...] = ()
    ca: str = ""
    problem: str = ""

    def equals(self, other: "ResolvedInputs") -> bool:
        """Whether both have the same values; `Secret` has no comparison of its own."""
        mine, theirs = [secret.reveal() for secret in self.secrets], [secret.reveal() for secret in other.secrets]
        return mine == theirs and self.ca == other.ca and self.problem == other.problem

    def masked(self, text: str) -> str:
        """A text from the target with these secrets masked: a server may echo its request.

        `printable` made the text and may have cut it, so it may contain a secret in that form or only its beginning.
        """
        for secret in self.secrets:
            for form in (secret.reveal(), printable(secret.reveal(), _NO_LIMIT)):
                text = text.replace(form, SHOWN) if form else text
                uncut = text.removesuffix(_ELLIPSIS)
                if uncut == text:
                    continue
                size = next((size for size in range(len(form) - 1, 0, -1) if uncut.endswith(form[:size])), 0)
                text = uncut[: len(uncut) - size] + (SHOWN if size else "") + _ELLIPSIS
        return text


NO_INPUTS = ResolvedInputs()


class Target(NamedTuple):
    """One probe of one generation, or of one target address of a DNSPolicy or HealthCheck.

    `name` is startup, liveness or readiness. `address` and `port` are the observed ones of the container's port (a `PortFact`); exec
    probes ignore them. `started` is the steady instant (ns) at which the generation started: the initial delay counts from there.
    `exec` says how to run an exec probe, None when that is unknown. `published` says that the address is the host's: the runtime's
    proxy accepts there even when the container does not listen.

    For a target address, `generation` stands for the address and its check (see `reconciler/shell/probing/name_targets.py`),
    `address` may be a host name with its final dot, and `allowed` are the networks that it may lead to even if they are off limits.
    None = a container at an observed address.
    """

    generation: Generation
    name: str
    probe: Probe
    address: str
    port: int
    started: int
    exec: ExecTarget | None = None
    published: bool = False
    inputs: ResolvedInputs = NO_INPUTS
    allowed: tuple[str, ...] | None = None

    @property
    def key(self) -> tuple[Generation, str]:
        """The key of this target's results."""
        return (self.generation, self.name)


def same_target(target: Target, other: Target) -> bool:
    """Whether both are the same target.

    `started` is not compared: it only sets the time of the first probe, and two looks may compute slightly different values.
    """
    return keeps_streak(target, other) and (target.inputs is other.inputs or target.inputs.equals(other.inputs))


def keeps_streak(target: Target, other: Target) -> bool:
    """Whether the second target keeps the streak of the first: only secrets or authorities changed.

    Rotating a secret must not take a replica out of service until it has passed `successThreshold` times again.
    """
    return (
        target.probe == other.probe
        and target[3:5] == other[3:5]
        and target.exec == other.exec
        and target.published == other.published
        and target.allowed == other.allowed
    )


def valid_for(probe: Probe) -> int:
    """How long one result counts, ns: three periods and the time-out of the fourth probe."""
    return 3 * probe.period + probe.timeout


def to_spec(target: Target, number: int, now: int, *, phase: bool, together: int) -> Spec:
    """The target as the child reads it.

    Args:
        target: what to probe.
        number: its id, never used before.
        now: steady instant, ns.
        phase: keep a stable phase within the period; without it, probe at once and keep that cadence.
        together: how many targets are added at the same time.
    """
    probe = target.probe
    period = max(1, probe.period)
    offset = phase_of(_identity(target), period) if phase else NO_PHASE
    common = Spec(
        id=number,
        kind=messages.INVALID,
        address=target.address,
        port=target.port,
        period=period,
        timeout=max(1, probe.timeout),
        success=probe.success_threshold,
        failure=probe.failure_threshold,
        valid_for=valid_for(probe),
        first=first_due(now, target.started, probe.initial_delay, period, offset, together),
        phase=offset,
        allowed=target.allowed,
    )
    if probe.kind is ProbeKind.EXEC:
        return _exec(common, target)
    problem = target.inputs.problem or _address_problem(target)
    if problem:
        return common._replace(note=problem)
    if target.address.endswith("."):
        common = common._replace(address="", name=target.address[:-1])
    if probe.kind is ProbeKind.TCP:
        return common._replace(kind=messages.PUBLISHED if target.published else messages.TCP)
    if probe.kind is ProbeKind.HTTP:
        return _http(common, target)
    if probe.kind is ProbeKind.GRPC:
        return _grpc(common, target)
    return common._replace(note=f"the result of a {probe.kind} probe is read from the runtime")


def _http(common: Spec, target: Target) -> Spec:
    probe = target.probe
    secrets = iter(target.inputs.secrets)
    headers: list[tuple[str, str]] = []
    public: list[tuple[str, str]] = []
    for name, value in probe.headers:
        if isinstance(value, str):
            public.append((name, value))
            headers.append((name, value))
            continue
        secret = next(secrets, None)
        if secret is None:
            return common._replace(note=f"the secret of header {name} was not read")
        headers.append((name, secret.reveal()))
    try:
        request = http_request(target.address, target.port, probe.path, tuple(headers), probe.host)
    except ValueError as error:
        return common._replace(note=str(error))
    common = common._replace(
        kind=messages.HTTP, request=request, expected=probe.expected, max_body=probe.max_body, follow=probe.follow
    )
    if probe.scheme != "HTTPS":
        return common
    host = probe.host or server_name(tuple(public))
    return _over_tls(common._replace(kind=messages.TLS), target, probe.tls or ProbeTLS(), host)


def _grpc(common: Spec, target: Target) -> Spec:
    probe = target.probe
    library = _library()
    if not library:
        return common._replace(
            note="the Python package h2 is missing; next step: pip install 'reconciler-gitops[grpc]'"
        )
    name = probe.tls.server_name if probe.tls is not None else ""
    common = common._replace(
        kind=messages.GRPC,
        service=probe.service,
        http2=library,
        authority=name or authority(target.address, target.port),
    )
    if probe.tls is None:
        return common
    return _over_tls(common._replace(secure=True), target, probe.tls, "")


def _over_tls(common: Spec, target: Target, tls: ProbeTLS, host: str) -> Spec:
    """Add the server name. A verified certificate must be valid for that name, or without one for the address."""
    name = tls.server_name or host
    if tls.verify and not name:
        name = target.address.partition("%")[0].removesuffix(".")
    return common._replace(sni=name, verify=tls.verify, ca=target.inputs.ca)


@cache
def _library() -> str:
    """The directory of the HTTP/2 library, empty when it is not installed. Imports nothing."""
    module = find_spec("h2")
    return str(Path(module.origin).parents[1]) if module is not None and module.origin else ""


def _exec(common: Spec, target: Target) -> Spec:
    if target.exec is None:
        return common._replace(note="the runtime does not say how to run a command in this container")
    if not target.exec.argv:
        return common._replace(note="the command is empty")
    command = target.exec
    if any("\0" in text for text in (*command.argv, command.cwd, *(part for pair in command.env for part in pair))):
        return common._replace(note="the command, its environment or its directory contains a NUL character")
    return common._replace(kind=messages.EXEC, argv=command.argv, env=command.env, cwd=command.cwd)


def _identity(target: Target) -> str:
    """The identity over all generations of one container, without its start, so that a restart keeps the phase."""
    return f"{target.generation.container_id} {target.name} {target.address} {target.port}"


def _address_problem(target: Target) -> str:
    """Why this address cannot be probed; empty when it can. A host name is checked when it is resolved."""
    address, port = target.address, target.port
    if not 0 < port < 65536:
        return f"port {port} is not between 1 and 65535: the container's port was not observed"
    if target.allowed is not None and address.endswith("."):
        return ""
    try:
        socket.getaddrinfo(address, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except (OSError, UnicodeError):
        return f"{address!r} is not an IP address: the container's address was not observed"
    return "" if target.allowed is None else refusal(address, target.allowed)
