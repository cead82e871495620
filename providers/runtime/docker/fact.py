"""From a pod to one `ContainerFact`. No I/O but the clocks'. Called by `observe.py`.

The fact is the main container's. It says RUNNING only while every member runs and is younger than the network namespace that
it joined; a pod with a dead member is EXITED, and the next start starts what is missing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from manifests.values.pod import Live
from providers.facts import ContainerFact, ContainerStart, ContainerState, EndFact, ExitCause, PortFact, Setup
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
from providers.runtime.docker.ends import OOM_SPAN, Ends
from providers.runtime.docker.own_stops import OwnStop
from providers.runtime.docker.ports import published
from providers.runtime.docker.timestamps import SECOND, boot_wall, to_steady, wall

SETTLE = 30 * SECOND
"""How long after its own start an engine may take to restart its containers."""


@dataclass(frozen=True, slots=True)
class NodeContext:
    """What is the same for all containers of a node: its name, our own stops by container id, the engine's daemon, whether it
    is Podman, the address under which others reach the host (empty: none), and what the engine's events say of ends."""

    node: str
    stops: Mapping[str, OwnStop]
    daemon: Daemon
    podman: bool
    address: str = ""
    ends: Ends = field(default_factory=Ends)


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
        files=main.files,
        last_end=_last_end(pod, state, context),
        oom_at=_oom_at(pod, context) if state is ContainerState.RUNNING else 0,
    )


def _last_end(pod: Pod, state: ContainerState, context: NodeContext) -> EndFact | None:
    """The last end of any container of a pod, also if that one runs again."""
    container = max((pod.main, *pod.members), key=lambda container: container.finished_at)
    finished = container.finished_at
    if finished <= 0 or pod.headless:
        return None
    code = _exit_code(container, context)
    if state is ContainerState.EXITED:
        return EndFact(finished, code, _exit_cause(pod, container, context))
    engine_start = _engine_start(context)
    with_engine = finished < engine_start and (container.state not in UP or container.started_at >= engine_start)
    return EndFact(finished, code, ExitCause.HOST_RESTARTED if with_engine else _cause(container, code, context))


def _exit_code(container: EngineContainer, context: NodeContext) -> int | None:
    """The exit code of a container's last run. The inspection has it as long as the container is down."""
    if container.state in (ContainerState.EXITED, ContainerState.RESTARTING):
        return container.exit_code
    return context.ends.code(container.id, container.finished_at)


def _oom_at(pod: Pod, context: NodeContext) -> int:
    """When a process of a pod was last killed at its memory limit, while the container ran on."""
    return max(context.ends.oom_at(each.id, each.started_at, wall()) for each in (pod.main, *pod.members))


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
    if down.finished_at < _engine_start(context) and not down.oom_killed:
        return ExitCause.HOST_RESTARTED
    return _cause(down, down.exit_code, context)


def _engine_start(context: NodeContext) -> int:
    """When the engine started (wall ns); without a daemon, when the host did."""
    return boot_wall() + context.daemon.started if context.daemon.started else boot_wall()


def _cause(container: EngineContainer, code: int | None, context: NodeContext) -> ExitCause:
    """How the last run of a container ended by itself.

    Its end is one for lack of memory also when only a child was killed and the main process then gave up. The engine marks every
    later end of a container as well, also one with code 0; so where its events show kills, only a recent one counts.
    """
    if code is None:
        return ExitCause.UNKNOWN
    finished, down = container.finished_at, container.state is ContainerState.EXITED
    if code != 0:
        recent = context.ends.oom_at(container.id, finished - OOM_SPAN, finished + OOM_SPAN)
        earlier = context.ends.oom_at(container.id, 0, finished - OOM_SPAN)
        if recent or (down and container.oom_killed and not earlier):
            return ExitCause.OOM_KILLED
    return ExitCause.SIGNALLED if 128 < code <= 128 + 64 else ExitCause.EXITED
