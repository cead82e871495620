"""From checked probes to `desired.Probe`, with resolved ports and warnings. Called by `pod.py` and `probe_context.py`.

A probe may use any port that a container of the pod declares, by number or name.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from importlib.util import find_spec

from manifests import kinds
from manifests.kinds.pod import ContainerPort, PodSpec
from manifests.kinds.probe import GRPC, TLS, HTTPGet, HTTPHeader, Probe
from manifests.kinds.validate import Declared, Path
from manifests.problems import Code, did_you_mean
from manifests.resolve.references import Scope
from manifests.values import desired
from manifests.values.desired import SECOND
from manifests.values.secret_sources import SecretSource

GRPC_LIBRARY = "h2"
"""The HTTP/2 library of the extra `grpc`, which probes of kind grpc need."""

EXEC_OFTEN = 5
"""Seconds; commands with a shorter period get a warning: each costs the engine tens of milliseconds of CPU."""


def probe(declared: Declared, scope: Scope, spec: PodSpec, given: Probe | None, path: Path) -> desired.Probe | None:
    """One probe of the main container; None where there is none. `path` leads to it in the document."""
    if given is None:
        return None
    untimed = _untimed(declared, scope, spec, given, path)
    return replace(
        untimed,
        initial_delay=round(given.initial_delay_seconds * SECOND),
        period=round(given.period_seconds * SECOND),
        timeout=round(given.timeout_seconds * SECOND),
        success_threshold=given.success_threshold,
        failure_threshold=given.failure_threshold,
        grace=(given.termination_grace_period_seconds or 0) * SECOND,
    )


def _untimed(declared: Declared, scope: Scope, spec: PodSpec, given: Probe, path: Path) -> desired.Probe:
    """The probe without its timing; the model ensures that it has exactly one kind."""
    if given.http_get is not None:
        port = _port(declared, scope, spec, given.http_get.port, (*path, "httpGet", "port"))
        return _http(given.http_get, port)
    if given.tcp_socket is not None:
        port = _port(declared, scope, spec, given.tcp_socket.port, (*path, "tcpSocket", "port"))
        return desired.Probe(desired.ProbeKind.TCP, port)
    if given.grpc is not None:
        return _grpc(declared, scope, spec, given.grpc, (*path, "grpc"))
    if given.runtime_health is not None:
        return desired.Probe(desired.ProbeKind.RUNTIME)
    _warn(declared, scope, spec, given, path)
    command = given.exec.command if given.exec is not None else ()
    return desired.Probe(desired.ProbeKind.EXEC, command=command)


def _http(get: HTTPGet, port: int) -> desired.Probe:
    return desired.Probe(
        desired.ProbeKind.HTTP,
        port,
        get.path,
        get.scheme,
        tuple((header.name, _value(header)) for header in get.http_headers),
        host=get.host or "",
        follow=get.follows(),
        expected=get.expected_statuses,
        max_body=get.max_body_bytes,
        tls=_tls(get.tls),
    )


def _value(header: HTTPHeader) -> str | SecretSource:
    return header.value_from.secret.source() if header.value_from is not None else header.value or ""


def _grpc(declared: Declared, scope: Scope, spec: PodSpec, given: GRPC, path: Path) -> desired.Probe:
    if find_spec(GRPC_LIBRARY) is None:
        message = f"{declared.key}: grpc probes need the Python package {GRPC_LIBRARY}, which is not installed"
        hint = "run pip install 'reconciler-gitops[grpc]', or use tcpSocket"
        scope.report(declared, path, Code.NOT_INSTALLED, message, hint)
    port = _port(declared, scope, spec, given.port, (*path, "port"))
    return desired.Probe(desired.ProbeKind.GRPC, port, tls=_tls(given.tls), service=given.service)


def _tls(given: TLS | None) -> desired.ProbeTLS | None:
    return None if given is None else desired.ProbeTLS(given.verify, given.ca_file or "", given.server_name or "")


def _warn(declared: Declared, scope: Scope, spec: PodSpec, given: Probe, path: Path) -> None:
    """Warn about costly commands, and about processes that nothing reaps."""
    container = spec.containers[0]
    if given.period_seconds < EXEC_OFTEN:
        message = f"{declared.key}: an exec probe every {given.period_seconds:g}s loads the container engine"
        hint = f"use httpGet, tcpSocket or grpc, or set periodSeconds to at least {EXEC_OFTEN}"
        scope.report(declared, (*path, "exec"), Code.COSTLY_PROBE, message, hint)
    if container.image is not None and not container.init:
        message = f"{declared.key}: the container has no init to reap processes that the exec probe leaves behind"
        scope.report(declared, (*path, "exec"), Code.NO_INIT, message, "add init: true to the container")


# --- ports ------------------------------------------------------------------------------------------------------------


def _port(declared: Declared, scope: Scope, spec: PodSpec, ref: int | str, path: Path) -> int:
    ports = all_ports(spec)
    number = port_number(ref, ports)
    if number:
        return number
    message = f"{declared.key}: container '{spec.containers[0].name}' declares no port {ref!r}"
    scope.report(declared, path, Code.UNKNOWN_PORT, message, ports_hint(ref, ports))
    return 0


def all_ports(spec: PodSpec) -> tuple[ContainerPort, ...]:
    """The ports of all containers of a pod, in the order in which they are declared."""
    if len(spec.containers) == 1:
        return spec.containers[0].ports
    return tuple(port for container in spec.containers for port in container.ports)


def port_number(ref: int | str, ports: Iterable[ContainerPort]) -> int:
    """The number of a declared TCP port, by number or name; 0 when it is not declared."""
    tcp = (port for port in ports if port.protocol == "TCP")
    return next((port.container_port for port in tcp if ref in (port.container_port, port.name)), 0)


def ports_hint(ref: int | str, ports: Sequence[ContainerPort]) -> str:
    """A hint for a port that is not declared."""
    names = [port.name for port in ports if port.name]
    guess = did_you_mean(str(ref), names, "declared ports") if isinstance(ref, str) else ""
    numbers = ", ".join(str(port.container_port) for port in ports)
    return guess or (f"declared ports: {numbers}" if numbers else "add it to the ports of the container")


# --- allowed commands -------------------------------------------------------------------------------------------------


def check_commands(declared: Declared, scope: Scope, allowed: Sequence[Sequence[str]]) -> None:
    """Report the exec probes of a workload whose command begins with none of the `allowed` argument lists."""
    manifest = declared.manifest
    if not isinstance(manifest, kinds.Workload):
        return
    container = manifest.spec.template.spec.containers[0]
    probes = (
        ("startupProbe", container.startup_probe),
        ("livenessProbe", container.liveness_probe),
        ("readinessProbe", container.readiness_probe),
    )
    for name, given in probes:
        if given is None or given.exec is None:
            continue
        command = given.exec.command
        if any(command[: len(prefix)] == tuple(prefix) for prefix in allowed):
            continue
        path = ("spec", "template", "spec", "containers", 0, name, "exec", "command")
        message = f"{declared.key}: the Guard does not allow the exec probe '{command[0][:60]}' with these arguments"
        scope.report(
            declared,
            path,
            Code.NOT_ALLOWED,
            message,
            "use httpGet or tcpSocket, or add the command to execCommands of the Guard",
        )
