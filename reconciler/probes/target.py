"""What to probe, as the shell says it, and its translation for the child process.

The shell builds `Target`s from manifests and observed facts at every tick; `engine.py` compares them with what runs.
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

_CUT = "..."
"""How `printable` ends a text that it has cut."""

_UNCUT = 1 << 20

NAMES = ("startup", "liveness", "readiness")


class Given(NamedTuple):
    """What a probe needs and its manifest only names, as it is now.

    `secrets` are the values of those headers that are secrets, in the order of the headers; `ca` is the text of the file
    of trusted authorities. `problem` says why something is missing: then the probe cannot be run.
    """

    secrets: tuple[Secret, ...] = ()
    ca: str = ""
    problem: str = ""

    def equals(self, other: "Given") -> bool:
        """Whether both are the same in value; secrets have no comparison of their own."""
        mine, theirs = [secret.reveal() for secret in self.secrets], [secret.reveal() for secret in other.secrets]
        return mine == theirs and self.ca == other.ca and self.problem == other.problem

    def masked(self, text: str) -> str:
        """A text that came from the target, without these secrets: a server may echo what it was sent.

        The text was made printable and may have been cut, so a secret may be there in that form, or as its beginning only.
        """
        for secret in self.secrets:
            for form in (secret.reveal(), printable(secret.reveal(), _UNCUT)):
                text = text.replace(form, SHOWN) if form else text
                kept = text.removesuffix(_CUT)
                if kept == text:
                    continue
                begun = next((size for size in range(len(form) - 1, 0, -1) if kept.endswith(form[:size])), 0)
                text = kept[: len(kept) - begun] + (SHOWN if begun else "") + _CUT
        return text


NOTHING_GIVEN = Given()


class Target(NamedTuple):
    """One probe of one generation, or of a leaf of a name.

    `name` is startup, liveness or readiness. `address` and `port` are where the container's port was observed (a
    `PortFact`); for exec they are not used. `started` is the steady instant (ns) at which the generation started: the
    initial delay counts from there. `exec` says how to run an exec probe, None when that is not known. `published` says
    that the address is the host's: something of the runtime's accepts there, whoever listens behind it.

    For a leaf `generation` stands for what is asked there (see `reconciler/shell/probing/name_targets.py`), `address` may be a host name with
    its final dot, and `allowed` holds the networks it may lead to whatever they are; None = a container, at an observed address.
    """

    generation: Generation
    name: str
    probe: Probe
    address: str
    port: int
    started: int
    exec: ExecTarget | None = None
    published: bool = False
    given: Given = NOTHING_GIVEN
    allowed: tuple[str, ...] | None = None

    @property
    def key(self) -> tuple[Generation, str]:
        """What results are reported under."""
        return (self.generation, self.name)


def same(target: Target, other: Target) -> bool:
    """Whether the second target is the first one.

    `started` is not compared: it only places the first probe, and two looks may compute it a little differently.
    """
    return succeeds(target, other) and (target.given is other.given or target.given.equals(other.given))


def succeeds(target: Target, other: Target) -> bool:
    """Whether the second target goes on with the first one's streak: only what its manifest names by reference changed.

    A secret that is rotated must not take a replica out of service until it has passed again as often as it must.
    """
    return (
        target.probe == other.probe
        and target[3:5] == other[3:5]
        and target.exec == other.exec
        and target.published == other.published
        and target.allowed == other.allowed
    )


def valid_for(probe: Probe) -> int:
    """How long one result counts, ns: three periods, and the time that the fourth probe may take to answer."""
    return 3 * probe.period + probe.timeout


def specify(target: Target, number: int, now: int, *, phase: bool, together: int) -> Spec:
    """The target as the child reads it.

    Args:
        target: what to probe.
        number: its id, never used before.
        now: steady instant, ns.
        phase: keep a stable phase within the period; otherwise probe at once and keep that cadence.
        together: how many targets are added at the same time.
    """
    probe = target.probe
    period = max(1, probe.period)
    offset = phase_of(_identity(target), period) if phase else NO_PHASE
    common = Spec(
        id=number,
        kind=messages.BROKEN,
        address=target.address,
        port=target.port,
        period=period,
        timeout=max(1, probe.timeout),
        success=probe.success_threshold,
        failure=probe.failure_threshold,
        valid_for=valid_for(probe),
        first=first_due(now, target.started, probe.initial_delay, period, offset, together),
        phase=offset,
    )
    if probe.kind is ProbeKind.EXEC:
        return _exec(common, target)
    problem = target.given.problem or _address_problem(target)
    if problem:
        return common._replace(note=problem)
    if target.address.endswith("."):
        common = common._replace(address="", name=target.address[:-1], allowed=target.allowed or ())
    if probe.kind is ProbeKind.TCP:
        return common._replace(kind=messages.PUBLISHED if target.published else messages.TCP)
    if probe.kind is ProbeKind.HTTP:
        return _http(common, target)
    if probe.kind is ProbeKind.GRPC:
        return _grpc(common, target)
    return common._replace(note=f"a probe of kind {probe.kind} is not asked, its result is read from the runtime")


def _http(common: Spec, target: Target) -> Spec:
    probe = target.probe
    secrets = iter(target.given.secrets)
    headers: list[tuple[str, str]] = []
    plain: list[tuple[str, str]] = []
    for name, value in probe.headers:
        if isinstance(value, str):
            plain.append((name, value))
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
    named = probe.host or server_name(tuple(plain))
    return _over_tls(common._replace(kind=messages.TLS), target, probe.tls or ProbeTLS(), named)


def _grpc(common: Spec, target: Target) -> Spec:
    probe = target.probe
    library = _library()
    if not library:
        return common._replace(note="grpc probes need the Python package h2: install reconciler with its extra grpc")
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


def _over_tls(common: Spec, target: Target, tls: ProbeTLS, named: str) -> Spec:
    """With the name to ask for; a certificate that is verified must be good for that name, or for the address."""
    name = tls.server_name or named
    if tls.verify and not name:
        name = target.address.partition("%")[0].removesuffix(".")
    return common._replace(sni=name, verify=tls.verify, ca=target.given.ca)


@cache
def _library() -> str:
    """The directory that holds the HTTP/2 library; empty when it is not installed. Nothing is imported."""
    found = find_spec("h2")
    return str(Path(found.origin).parents[1]) if found is not None and found.origin else ""


def _exec(common: Spec, target: Target) -> Spec:
    if target.exec is None:
        return common._replace(note="the runtime does not say how to run a command in this container")
    if not target.exec.argv:
        return common._replace(note="the command is empty")
    how = target.exec
    if any("\0" in text for text in (*how.argv, how.cwd, *(part for pair in how.env for part in pair))):
        return common._replace(note="the command, its environment or its directory holds a NUL character")
    return common._replace(kind=messages.EXEC, argv=how.argv, env=how.env, cwd=how.cwd)


def _identity(target: Target) -> str:
    """What stays the same over generations of one container: not its start, so a restart keeps the phase."""
    return f"{target.generation.container_id} {target.name} {target.address} {target.port}"


def _address_problem(target: Target) -> str:
    """Why nothing can be probed there; empty when it can. The name of a leaf is judged when it is resolved."""
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
