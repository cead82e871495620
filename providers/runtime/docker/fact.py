"""From a pod to one `ContainerFact`. No I/O but the clocks'. Called by `observe.py`.

The fact is the main container's. It says RUNNING only while every member runs and is younger than the network namespace that
it joined; a pod with a dead member is EXITED, and the next start starts what is missing.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from manifests.values.pod import Live
from providers.facts import ContainerFact, ContainerStart, ContainerState, ExitCause, PortFact, Setup
from providers.lib.clock import boottime
from providers.runtime.docker.container import (
    UP,
    EngineContainer,
    Pod,
    expected_networks,
    first_network,
    missing_networks,
)
from providers.runtime.docker.daemon import Daemon
from providers.runtime.docker.own_stops import OwnStop
from providers.runtime.docker.ports import published
from providers.runtime.docker.timestamps import SECOND, boot_wall, to_steady

SETTLE = 30 * SECOND
"""How long after its own start an engine may take to restart its containers."""


@dataclass(frozen=True, slots=True)
class NodeContext:
    """What is the same for all containers of a node: its name, our own stops by container id, the engine's daemon, whether it
    is Podman, and the address under which others reach the host (empty: none)."""

    node: str
    stops: Mapping[str, OwnStop]
    daemon: Daemon
    podman: bool
    address: str = ""


def container_fact(
    pod: Pod,
    context: NodeContext,
    stale_secrets: tuple[str, ...] = (),
    digests: tuple[tuple[str, str], ...] = (),
    image_setup: Setup | None = None,
) -> ContainerFact:
    """The fact about one replica, or about one foreign container."""
    main = pod.main
    mark, foreign_mark = main.mark
    owner = main.owner
    state = _settled(pod, context)
    broken = pod.broken_members
    down = broken[0] if main.state is ContainerState.RUNNING and broken else main
    ended = state is ContainerState.EXITED and down.state is ContainerState.EXITED and not pod.headless
    up = state in (ContainerState.RUNNING, ContainerState.PAUSED)
    missing: tuple[str, ...] = ()
    if owner:
        expected = expected_networks(main.network_mode, main.further_networks, context.podman)
        missing = missing_networks(expected, main.connected)
    address = main.address if main.state in UP and first_network(main.network_mode) not in missing else ""
    changeable = (main, *pod.members) if not context.podman else ()
    return ContainerFact(
        node=context.node,
        name=main.name,
        id=main.id,
        state=state,
        started_at=pod.started_at,
        running_since=max(main.running_since, *(member.running_since for member in pod.members), 0) if up else 0,
        address=address,
        ports=tuple(PortFact(number, address, number) for number in main.ports) if address else (),
        mark=mark,
        foreign_mark=foreign_mark,
        claim=main.claim,
        exit_code=down.exit_code if ended else None,
        exit_cause=_exit_cause(pod, down, context) if state is ContainerState.EXITED else None,
        exited_at=to_steady(down.finished_at) if ended else 0,
        live=tuple(
            sorted(
                Live(container.member if owner else "", container.cpu, container.memory, container.restart)
                for container in changeable
            )
        ),
        published=published(main.bindings, context.address) if main.state in UP else (),
        restarts=main.restarts,
        healer=main.healer,
        health=main.health,
        labels=tuple(sorted(main.labels.items())) if mark is None else (),
        stale_secrets=stale_secrets,
        image=main.requested_image,
        digests=digests,
        addresses=tuple(sorted(main.addresses.items())) if main.state in UP else (),
        starts=_starts(pod),
        setup=main.setup,
        image_setup=image_setup,
        unjoined=missing,
    )


def _starts(pod: Pod) -> tuple[ContainerStart, ...]:
    """When each container of a pod with members was started."""
    if not pod.members or pod.headless:
        return ()
    return tuple(
        ContainerStart(
            container.member,
            container.started_at,
            container.running_since if container.state is ContainerState.RUNNING else 0,
        )
        for container in (pod.main, *pod.members)
    )


def _settled(pod: Pod, context: NodeContext) -> ContainerState:
    """The pod's state; RESTARTING while an engine that has just started may still restart it."""
    state = pod.state
    if state is not ContainerState.EXITED or pod.main.state is not ContainerState.EXITED or context.podman:
        return state
    young = context.daemon.started and boottime() - context.daemon.started < SETTLE
    return ContainerState.RESTARTING if young and pod.main.restart not in ("no", "") else state


def _exit_cause(pod: Pod, down: EngineContainer, context: NodeContext) -> ExitCause:
    if pod.headless:
        return ExitCause.UNKNOWN
    stop = context.stops.get(pod.main.id)
    if stop is not None and stop.started_at == pod.started_at:
        return ExitCause.STOPPED_BY_US
    if down.state is not ContainerState.EXITED:
        return ExitCause.UNKNOWN
    if down.oom_killed:  # also when only a child was killed and the first process then gave up
        return ExitCause.OOM_KILLED
    engine_start = boot_wall() + context.daemon.started if context.daemon.started else boot_wall()
    if down.finished_at < engine_start:
        return ExitCause.HOST_RESTARTED
    return ExitCause.SIGNALLED if 128 < down.exit_code <= 128 + 64 else ExitCause.EXITED
