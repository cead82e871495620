"""Starting, stopping, removing and changing a replica. Called by `DockerRuntime`.

Each begins with an inspection of the whole pod, compares it with what the plan saw, and ends when the engine has carried the
request out. The engine's own restart request is never used: a restart is a stop and a start, each with its own outcome.
"""

import time
from collections.abc import Callable
from contextlib import suppress

from providers.actions import RemoveContainer, StartContainer, StopContainer, UpdateContainer
from providers.errors import Conflict, Gone, ProviderError, Rejected, Unreachable
from providers.facts import ContainerState, Generation
from providers.runtime.docker.client import Link, is_gone
from providers.runtime.docker.inspection import policy_body
from providers.runtime.docker.life import UP, Life, Pod
from providers.runtime.docker.logs import last_lines
from providers.runtime.docker.networks import networks_of, unjoined
from providers.runtime.docker.observe import Looks
from providers.runtime.docker.own_stops import Stop, Stops
from providers.runtime.docker.spec import limits

SECOND = 1_000_000_000
GONE_SECONDS = 10.0
"""How long a removal that the engine has taken on may take."""


class Actor:
    """Acts on the replicas of one node. `network` has a network of that name made: (target, name, instance)."""

    def __init__(self, link: Link, looks: Looks, stops: Stops, network: Callable[[str, str, str], None]) -> None:
        self._link, self._looks, self._stops, self._network = link, looks, stops, network

    # --- start --------------------------------------------------------------------------------------------------

    def start(self, action: StartContainer) -> None:
        """Start what does not run of a pod. Raises Gone, Conflict, ProviderError with the last log lines."""
        pod = self._looks.pod(action.name)
        if pod is None:
            raise Gone(action.name, f"there is no such container on {action.node}", "look again")
        if pod.main.id != action.expect.container_id:
            raise _moved(action.name, action.expect, pod.generation)
        state = pod.state
        if state in (ContainerState.RUNNING, ContainerState.PAUSED):
            return
        if pod.generation != action.expect:
            raise _moved(action.name, action.expect, pod.generation)
        if state in (ContainerState.RESTARTING, ContainerState.STOPPING):
            raise Conflict(action.name, f"is {pod.main.word}, so it cannot be started", "look again")
        if pod.missing or pod.headless:
            self._discard(pod)
        main = pod.main
        if main.state is not ContainerState.RUNNING:
            self._connect(main)
            self._restore_policy(pod)
            self._start_main(main)
            main = self._again(main)
        for member in pod.members:
            if member.state is ContainerState.RUNNING and member.started_at >= main.started_at:
                continue
            if member.state in UP:  # it still lives in the network namespace of an earlier life
                self._stop_one(member, min(member.stop_timeout, 5))
            self._start_one(member)

    def _discard(self, pod: Pod) -> None:
        """Take away a pod that lacks members, so that it is created anew: they cannot be made without the template."""
        if _up(pod):
            self._stop_pod(pod, pod.main.stop_timeout * SECOND)
        self._remove_pod(pod)
        lacked = "its main container" if pod.headless else f"its containers {', '.join(pod.missing)}"
        cause = f"lacked {lacked} and was removed, to be created anew"
        raise Conflict(pod.main.name, cause, "look again")

    def _connect(self, main: Life) -> None:
        """Have its networks, and join those that it is not in: somebody may have removed one, or a kill left one out."""
        mark, _ = main.mark
        if mark is None:
            return
        wanted = self._networks(main)
        if not self._looks.podman():
            for name in wanted:
                self._network(main.name, name, mark.instance)
        for name in unjoined(wanted, self._again(main).joined):
            self._link.post(f"/networks/{name}/connect", main.name, {"Container": main.id})

    def _networks(self, main: Life) -> tuple[str, ...]:
        return networks_of(main.network_mode, main.networks, self._looks.podman())

    def _restore_policy(self, pod: Pod) -> None:
        """Give the engine back the restart policy that our stop of this very generation took away.

        One that was taken away for good, or by somebody else later, stays away.
        """
        main, stop = pod.main, self._stops.all().get(pod.main.id)
        if stop is None or stop.started_at != pod.started_at:
            return
        if stop.restart not in ("", "no") and main.restart in ("", "no"):
            self._set(main, {"RestartPolicy": policy_body(stop.restart)})

    def _start_main(self, main: Life) -> None:
        try:
            self._start_one(main)
        except Gone as error:
            if "network" not in error.cause or main.mark[0] is None:
                raise
            # Its networks have been made anew, and the engine remembers them by the ids that they had.
            for name in self._networks(main):
                with suppress(Gone, Rejected, Conflict):
                    self._link.post(f"/networks/{name}/disconnect", main.name, {"Container": main.id, "Force": True})
                self._link.post(f"/networks/{name}/connect", main.name, {"Container": main.id})
            self._start_one(main)

    def _start_one(self, life: Life) -> None:
        try:
            self._link.post(f"/containers/{life.id}/start", life.name, patience=5.0)
        except ProviderError as error:
            lines = last_lines(self._link, life.id, 5)
            if not lines:
                raise
            cause = f"{error.cause}; its last lines: {' | '.join(lines)[:400]}"
            raise type(error)(error.target, cause, error.next_step) from error

    def _again(self, life: Life) -> Life:
        found = self._looks.life(life.name)
        if found is None or found.id != life.id:
            raise Conflict(life.name, "was removed by somebody else meanwhile", "look again")
        return found

    # --- stop ---------------------------------------------------------------------------------------------------

    def stop(self, action: StopContainer) -> None:
        """Stop a pod, members first, or one member of it. Down already: nothing to do. Raises Conflict, OutcomeUnknown."""
        pod = self._looks.pod(action.name)
        if pod is None or not _up(pod):
            return
        if action.only:
            self._stop_member(action, pod)
            return
        if pod.generation != action.expect:
            raise _moved(action.name, action.expect, pod.generation)
        self._stop_pod(pod, action.grace)
        after = self._looks.pod(action.name)
        if after is not None and after.generation == action.expect and _up(after):
            raise Unreachable(action.name, f"is still {after.main.word} after its stop", "look again")

    def _stop_member(self, action: StopContainer, pod: Pod) -> None:
        """One member alone; the main container keeps running, and its restart policy."""
        member = _member(pod, action.only)
        if member is None:
            raise Conflict(action.name, f"has no container {action.only}", "look again")
        if member.state not in UP:
            return
        if pod.generation != action.expect:
            raise _moved(action.name, action.expect, pod.generation)
        self._stops.put(pod.main.id, Stop(pod.started_at, ""))
        self._stop_one(member, -int(-action.grace // SECOND))
        after = self._looks.life(member.name)
        if after is not None and after.id == member.id and after.started_at == member.started_at and after.state in UP:
            raise Unreachable(member.name, f"is still {after.word} after its stop", "look again")

    def _stop_pod(self, pod: Pod, grace: int) -> None:
        """Members in reverse order get half of the grace together, the main container what is left of it."""
        main = pod.main
        if main.state in UP:
            policy = main.restart
            self._stops.put(main.id, Stop(pod.started_at, "" if policy in ("", "no") else policy))
            self._no_restarts(main)
        end = time.monotonic() + grace / SECOND
        half = end - grace / SECOND / 2
        for member in reversed(pod.members):
            if member.state in UP:
                self._stop_one(member, max(0, round(half - time.monotonic())))
        if main.state in UP:
            self._stop_one(main, max(0, -int(-(end - time.monotonic()) // 1)))
            self._no_restarts(self._again(main))

    def _no_restarts(self, main: Life) -> None:
        """Take the restart policy away: some bring back what was stopped, at the latest when the daemon starts again.

        A container that dies in this very moment cannot be changed; it is asked once more after its stop.
        """
        if main.restart in ("", "no") or self._looks.podman():
            return
        try:
            self._set(main, {"RestartPolicy": {"Name": "no"}})
        except ProviderError as error:
            if main.state not in UP or type(error) is not ProviderError:
                raise

    def _stop_one(self, life: Life, seconds: int) -> None:
        is_gone(
            lambda: self._link.post(f"/containers/{life.id}/stop", life.name, patience=seconds + 10.0, t=str(seconds))
        )

    # --- remove -------------------------------------------------------------------------------------------------

    def remove(self, action: RemoveContainer) -> None:
        """Remove a pod that is down. Gone already: nothing to do. Raises Conflict."""
        pod = self._looks.pod(action.name)
        if pod is None:
            return
        if pod.generation != action.expect:
            raise _moved(action.name, action.expect, pod.generation)
        if pod.state in UP:
            raise Conflict(action.name, f"is {pod.state}, so it cannot be removed", "stop it first")
        if _up(pod):  # not whole, so it counts as down; what is left of it goes now
            self._stop_pod(pod, pod.main.stop_timeout * SECOND)
        self._remove_pod(pod)

    def _remove_pod(self, pod: Pod) -> None:
        """The main container last: as long as it is there, a look shows what is left."""
        for member in reversed(pod.members):
            self._remove_one(member)
        self._remove_one(pod.main)
        self._stops.drop(pod.main.id)

    def _remove_one(self, life: Life) -> None:
        """With its anonymous volumes, which nothing else can use."""
        try:
            if is_gone(lambda: self._link.delete(f"/containers/{life.id}", life.name, v="1")):
                return
        except Conflict as error:
            if "already in progress" not in error.cause:
                raise
        end = time.monotonic() + GONE_SECONDS
        while (found := self._looks.life(life.name)) is not None and found.id == life.id:
            if time.monotonic() > end:
                raise Unreachable(life.name, "is still being removed", "look again")
            # The engine tells nobody when a removal that others began is over; GONE_SECONDS bounds this.
            time.sleep(0.02)

    # --- change in place ----------------------------------------------------------------------------------------

    def update(self, action: UpdateContainer) -> None:
        """Change limits while the pod runs, and its restart policy and networks in any state. Raises Conflict, Rejected."""
        if action.live and self._looks.podman():
            raise Rejected(action.name, "this Podman changes nothing in place", "replace the container")
        pod = self._looks.pod(action.name)
        if pod is None:
            raise Gone(action.name, f"there is no such container on {action.node}", "look again")
        if pod.generation != action.expect:
            raise _moved(action.name, action.expect, pod.generation)
        lives = {one.member: one for one in (pod.main, *pod.members)}
        for live in action.live:
            life = lives.get(live.container)
            if life is None:
                raise Conflict(action.name, f"has no container {live.container}", "look again")
            change: dict[str, object] = {}
            if (life.cpu, life.memory) != (live.cpu, live.memory):
                if life.state is not ContainerState.RUNNING:
                    raise Conflict(action.name, f"is {life.word}, so its limits cannot be changed", "look again")
                change.update({key: value for key, value in limits(live).items() if value})
            if (life.restart or "no") != live.restart:
                change["RestartPolicy"] = policy_body(live.restart)
            if not live.container:
                self._forget_policy(life)
            if change:
                self._set_now(life, change)
        if action.join:
            self._connect(pod.main)

    def _set_now(self, life: Life, change: dict[str, object]) -> None:
        try:
            self._set(life, change)
        except ProviderError as error:
            if "stopped container" not in error.cause:
                raise
            raise Conflict(life.name, "ended in this very moment, so it was not changed", "look again") from error

    def _forget_policy(self, main: Life) -> None:
        """The policy asked for is the one that holds from now on, also after a stop of ours that is being undone."""
        stop = self._stops.all().get(main.id)
        if stop is not None and stop.restart:
            self._stops.put(main.id, stop._replace(restart=""))

    def _set(self, life: Life, change: dict[str, object]) -> None:
        self._link.post(f"/containers/{life.id}/update", life.name, change)


def _member(pod: Pod, name: str) -> Life | None:
    return next((member for member in pod.members if member.member == name), None)


def _up(pod: Pod) -> bool:
    return any(one.state in UP for one in (pod.main, *pod.members))


def _moved(name: str, expect: Generation, found: Generation) -> Conflict:
    return Conflict(name, f"the plan saw generation {tuple(expect)}, now it is {tuple(found)}", "look again")
