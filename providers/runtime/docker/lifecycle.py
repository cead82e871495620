"""Starts, stops, removes and updates replicas. Called by `DockerRuntime`.

Each action inspects the whole pod first, compares its generation with the expected one, and returns when the engine has carried
the request out. A stop waits for the grace period of the action: members get half of it, the main container the rest. The
engine's own restart request is never used: a restart is a stop and a start, each with its own outcome.
"""

import time
from collections.abc import Callable
from contextlib import suppress

from providers.actions import RemoveContainer, StartContainer, StopContainer, UpdateContainer
from providers.errors import Conflict, Gone, ProviderError, Rejected, Unreachable
from providers.facts import ContainerState, Generation
from providers.runtime.docker.client import EngineClient, is_gone
from providers.runtime.docker.container import UP, EngineContainer, Pod, expected_networks, missing_networks
from providers.runtime.docker.inspection import policy_body
from providers.runtime.docker.logs import last_lines
from providers.runtime.docker.observe import Observer
from providers.runtime.docker.own_stops import OwnStop, OwnStops
from providers.runtime.docker.spec import limits

SECOND = 1_000_000_000
REMOVAL_SECONDS = 10.0
"""How long the engine may take for a removal that it has accepted."""


class Lifecycle:
    """Acts on the replicas of one node. `ensure_network(target, name, instance)` creates a network that does not exist."""

    def __init__(
        self, client: EngineClient, observer: Observer, stops: OwnStops, ensure_network: Callable[[str, str, str], None]
    ) -> None:
        self._client, self._observer, self._stops = client, observer, stops
        self._ensure_network = ensure_network

    def _pod(self, action: StartContainer | StopContainer | RemoveContainer | UpdateContainer) -> Pod | None:
        """The replica that an action means, by its id: an operator may rename a container at any time."""
        return self._observer.expected(action.name, action.expect.container_id, action.adopted)

    # --- start --------------------------------------------------------------------------------------------------

    def start(self, action: StartContainer) -> None:
        """Start the containers of a pod that do not run. Raises Gone, Conflict, ProviderError with the last log lines."""
        pod = self._pod(action)
        if pod is None:
            raise Gone(action.name, f"container does not exist on {action.node}", "retried automatically")
        if pod.main.id != action.expect.container_id:
            raise _changed(action.name, action.expect, pod.generation)
        state = pod.state
        if state in (ContainerState.RUNNING, ContainerState.PAUSED):
            return
        if pod.generation != action.expect:
            raise _changed(action.name, action.expect, pod.generation)
        if state in (ContainerState.RESTARTING, ContainerState.STOPPING):
            raise Conflict(action.name, f"is {pod.main.status} and cannot be started now", "retried automatically")
        if pod.missing or pod.headless:
            self._discard(pod)
        main = pod.main
        if main.state is not ContainerState.RUNNING:
            self._connect(main)
            self._restore_policy(pod)
            self._start_main(main)
            main = self._inspect_again(main)
        for member in pod.members:
            if member.state is ContainerState.RUNNING and member.started_at >= main.started_at:
                continue
            if member.state in UP:  # it is still in the network namespace of an earlier run of the main container
                self._stop_one(member, min(member.stop_timeout, 5))
            self._start_one(member)

    def _discard(self, pod: Pod) -> None:
        """Remove an incomplete pod, so that it is created again: members cannot be created without the template."""
        if _up(pod):
            self._stop_pod(pod, pod.main.stop_timeout * SECOND)
        self._remove_pod(pod)
        missing = "main container" if pod.headless else f"containers {', '.join(pod.missing)}"
        cause = f"was removed because its {missing} did not exist; it is created again"
        raise Conflict(pod.main.name, cause, "retried automatically")

    def _connect(self, main: EngineContainer) -> None:
        """Create its networks and connect it to the missing ones: one may be removed by hand, or left out by a kill."""
        owner = main.owner
        if owner is None:
            return
        networks = self._networks(main)
        if not self._observer.podman():
            for name in networks:
                self._ensure_network(main.name, name, owner.instance)
        for name in missing_networks(networks, self._inspect_again(main).connected):
            self._client.post(f"/networks/{name}/connect", main.name, {"Container": main.id})

    def _networks(self, main: EngineContainer) -> tuple[str, ...]:
        return expected_networks(main.network_mode, main.further_networks, self._observer.podman())

    def _restore_policy(self, pod: Pod) -> None:
        """Restore the restart policy that our stop of this generation removed.

        A policy that an update set to `no`, or that another writer removed later, is not restored.
        """
        main, stop = pod.main, self._stops.all().get(pod.main.id)
        if stop is None or stop.started_at != pod.started_at:
            return
        if stop.restart not in ("", "no") and main.restart in ("", "no"):
            self._set(main, {"RestartPolicy": policy_body(stop.restart)})

    def _start_main(self, main: EngineContainer) -> None:
        try:
            self._start_one(main)
        except Gone as error:
            if "network" not in error.cause or main.owner is None:
                raise
            # Its networks were created again, and the engine still has their old ids.
            for name in self._networks(main):
                with suppress(Gone, Rejected, Conflict):
                    self._client.post(f"/networks/{name}/disconnect", main.name, {"Container": main.id, "Force": True})
                self._client.post(f"/networks/{name}/connect", main.name, {"Container": main.id})
            self._start_one(main)

    def _start_one(self, container: EngineContainer) -> None:
        try:
            self._client.post(f"/containers/{container.id}/start", container.name, patience=5.0)
        except ProviderError as error:
            lines = last_lines(self._client, container.id, 5)
            if not lines:
                raise
            cause = f"{error.cause}; last output: {' | '.join(lines)[:400]}"
            raise type(error)(error.target, cause, error.next_step) from error

    def _inspect_again(self, container: EngineContainer) -> EngineContainer:
        current = self._observer.container(container.id)
        if current is None:
            raise Conflict(container.name, "was removed by another writer", "retried automatically")
        return current

    # --- stop ---------------------------------------------------------------------------------------------------

    def stop(self, action: StopContainer) -> None:
        """Stop a pod, members first, or one member of it. Does nothing when it is down. Raises Conflict, OutcomeUnknown."""
        pod = self._pod(action)
        if pod is None or not _up(pod):
            return
        if action.only:
            self._stop_member(action, pod)
            return
        if pod.generation != action.expect:
            raise _changed(action.name, action.expect, pod.generation)
        self._stop_pod(pod, action.grace)
        after = self._pod(action)
        if after is not None and after.generation == action.expect and _up(after):
            raise Unreachable(action.name, f"is still {after.main.status} after its stop", "retried automatically")

    def _stop_member(self, action: StopContainer, pod: Pod) -> None:
        """Stop one member; the main container keeps running and keeps its restart policy."""
        member = _member(pod, action.only)
        if member is None:
            raise Conflict(action.name, f"has no container {action.only}", "retried automatically")
        if member.state not in UP:
            return
        if pod.generation != action.expect:
            raise _changed(action.name, action.expect, pod.generation)
        self._stops.put(pod.main.id, OwnStop(pod.started_at, ""))
        self._stop_one(member, -int(-action.grace // SECOND))
        after = self._observer.container(member.id)
        if after is not None and after.started_at == member.started_at and after.state in UP:
            raise Unreachable(member.name, f"is still {after.status} after its stop", "retried automatically")

    def _stop_pod(self, pod: Pod, grace: int) -> None:
        """Stop members in reverse order within half of the grace period, then the main container within the rest."""
        main = pod.main
        if main.state in UP:
            policy = main.restart
            self._stops.put(main.id, OwnStop(pod.started_at, "" if policy in ("", "no") else policy))
            self._remove_policy(main)
        end = time.monotonic() + grace / SECOND
        half = end - grace / SECOND / 2
        for member in reversed(pod.members):
            if member.state in UP:
                self._stop_one(member, max(0, round(half - time.monotonic())))
        if main.state in UP:
            self._stop_one(main, max(0, -int(-(end - time.monotonic()) // 1)))
            self._remove_policy(self._inspect_again(main))

    def _remove_policy(self, main: EngineContainer) -> None:
        """Set the restart policy to `no`: some policies restart what was stopped, at the latest when the daemon starts again.

        A container that exits at this moment cannot be updated; the update is repeated after the stop.
        """
        if main.restart in ("", "no") or self._observer.podman():
            return
        try:
            self._set(main, {"RestartPolicy": {"Name": "no"}})
        except ProviderError as error:
            if main.state not in UP or type(error) is not ProviderError:
                raise

    def _stop_one(self, container: EngineContainer, seconds: int) -> None:
        is_gone(
            lambda: self._client.post(
                f"/containers/{container.id}/stop", container.name, patience=seconds + 10.0, t=str(seconds)
            )
        )

    # --- remove -------------------------------------------------------------------------------------------------

    def remove(self, action: RemoveContainer) -> None:
        """Remove a pod that is down. Does nothing when it is gone. Raises Conflict."""
        pod = self._pod(action)
        if pod is None:
            return
        if pod.generation != action.expect:
            raise _changed(action.name, action.expect, pod.generation)
        if pod.state in UP:
            raise Conflict(action.name, f"is {pod.state} and cannot be removed", "stop it first")
        if _up(pod):  # incomplete, so it counts as down; its other containers are stopped now
            self._stop_pod(pod, pod.main.stop_timeout * SECOND)
        self._remove_pod(pod)

    def _remove_pod(self, pod: Pod) -> None:
        """Remove the main container last: as long as it exists, a look finds the rest."""
        for member in reversed(pod.members):
            self._remove_one(member)
        self._remove_one(pod.main)
        self._stops.drop(pod.main.id)

    def _remove_one(self, container: EngineContainer) -> None:
        """Remove a container with its anonymous volumes."""
        try:
            if is_gone(lambda: self._client.delete(f"/containers/{container.id}", container.name, v="1")):
                return
        except Conflict as error:
            if "already in progress" not in error.cause:
                raise
        end = time.monotonic() + REMOVAL_SECONDS
        while self._observer.container(container.id) is not None:
            if time.monotonic() > end:
                raise Unreachable(container.name, "is still being removed", "retried automatically")
            # The engine does not report the end of a removal that another client began; REMOVAL_SECONDS bounds this.
            time.sleep(0.02)

    # --- change in place ----------------------------------------------------------------------------------------

    def update(self, action: UpdateContainer) -> None:
        """Update limits and send signals while the pod runs; restart policy and networks in any state. Raises Conflict, Rejected."""
        if action.live and self._observer.podman():
            raise Rejected(action.name, "Podman containers cannot be updated in place", "replace the container")
        pod = self._pod(action)
        if pod is None:
            raise Gone(action.name, f"container does not exist on {action.node}", "retried automatically")
        if pod.generation != action.expect:
            raise _changed(action.name, action.expect, pod.generation)
        containers = {container.member: container for container in (pod.main, *pod.members)}
        for live in action.live:
            container = containers.get(live.container)
            if container is None:
                raise Conflict(action.name, f"has no container {live.container}", "retried automatically")
            change: dict[str, object] = {}
            if (container.cpu, container.memory) != (live.cpu, live.memory):
                if container.state is not ContainerState.RUNNING:
                    cause = f"is {container.status}; limits can be updated only while it runs"
                    raise Conflict(action.name, cause, "retried automatically")
                change.update({key: value for key, value in limits(live).items() if value})
            if (container.restart or "no") != live.restart:
                change["RestartPolicy"] = policy_body(live.restart)
            if not live.container:
                self._forget_policy(container)
            if change:
                self._set_now(container, change)
        if action.join:
            self._connect(pod.main)
        for signal in dict.fromkeys(signal for _, _, signal in action.files):
            self._signal(pod.main, signal)

    def _signal(self, main: EngineContainer, signal: str) -> None:
        """Send a signal to the main process. Raises Conflict for a container that does not run."""
        if main.state is not ContainerState.RUNNING:
            raise Conflict(main.name, f"is {main.status} and cannot get {signal} now", "retried automatically")
        self._client.post(f"/containers/{main.id}/kill", main.name, signal=signal)

    def _set_now(self, container: EngineContainer, change: dict[str, object]) -> None:
        try:
            self._set(container, change)
        except ProviderError as error:
            if "stopped container" not in error.cause:
                raise
            raise Conflict(container.name, "exited during the update", "retried automatically") from error

    def _forget_policy(self, main: EngineContainer) -> None:
        """Do not restore the policy of an earlier stop: from now on the updated policy holds."""
        stop = self._stops.all().get(main.id)
        if stop is not None and stop.restart:
            self._stops.put(main.id, stop._replace(restart=""))

    def _set(self, container: EngineContainer, change: dict[str, object]) -> None:
        self._client.post(f"/containers/{container.id}/update", container.name, change)


def _member(pod: Pod, name: str) -> EngineContainer | None:
    return next((member for member in pod.members if member.member == name), None)


def _up(pod: Pod) -> bool:
    return any(container.state in UP for container in (pod.main, *pod.members))


def _changed(name: str, expected: Generation, current: Generation) -> Conflict:
    cause = f"its generation has changed: expected {tuple(expected)}, found {tuple(current)}"
    return Conflict(name, cause, "retried automatically")
