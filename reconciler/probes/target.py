"""What to probe, as the shell says it, and its translation for the child process.

The shell builds `Target`s from manifests and observed facts at every tick; `engine.py` compares them with what runs.
"""

import socket
from typing import NamedTuple

from manifests.desired import Probe, ProbeKind
from providers.facts import Generation
from providers.spi import ExecTarget
from reconciler.probes import messages
from reconciler.probes.messages import Spec
from reconciler.probes.request import http_request, server_name
from reconciler.probes.schedule import NO_PHASE, first_due, phase_of

NAMES = ("startup", "liveness", "readiness")


class Target(NamedTuple):
    """One probe of one generation.

    `name` is startup, liveness or readiness. `address` and `port` are where the container's port was observed (a
    `PortFact`); for exec they are not used. `started` is the steady instant (ns) at which the generation started: the
    initial delay counts from there. `exec` says how to run an exec probe, None when that is not known.
    """

    generation: Generation
    name: str
    probe: Probe
    address: str
    port: int
    started: int
    exec: ExecTarget | None = None

    @property
    def key(self) -> tuple[Generation, str]:
        """What results are reported under."""
        return (self.generation, self.name)


def same(one: Target, other: Target) -> bool:
    """Whether the second target may go on with the first one's streak.

    `started` is not compared: it only places the first probe, and two looks may compute it a little differently.
    """
    return one.probe == other.probe and one[3:5] == other[3:5] and one.exec == other.exec


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
    problem = _address_problem(target.address, target.port)
    if problem:
        return common._replace(note=problem)
    if probe.kind is ProbeKind.TCP:
        return common._replace(kind=messages.TCP)
    try:
        request = http_request(target.address, target.port, probe.path, probe.headers)
    except ValueError as error:
        return common._replace(note=str(error))
    if probe.scheme == "HTTPS":
        return common._replace(kind=messages.TLS, request=request, sni=server_name(probe.headers))
    return common._replace(kind=messages.HTTP, request=request)


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


def _address_problem(address: str, port: int) -> str:
    """Why nothing can be probed there; empty when it can. Names are never resolved: containers have addresses."""
    if not 0 < port < 65536:
        return f"port {port} is not between 1 and 65535: the container's port was not observed"
    try:
        socket.getaddrinfo(address, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except (OSError, UnicodeError):
        return f"{address!r} is not an IP address: the container's address was not observed"
    return ""
