"""Looks at one engine: one list, one request for events, and an inspection of each container that these do not prove unchanged.

The engine's list has no start time, so a container that was restarted between two looks may look the same. It is proven
unchanged when its state, id and addresses are as before and the age in the list reaches back before the last look. A younger
one is unchanged when the engine reports no event of it; the engine keeps the last 256 events only, so an answer of that many
proves nothing. A container with a health check of its own is inspected when its next result is due: these results appear neither
in the list nor in the events.

Foreign containers are observed in the same way. A foreign container that cannot be inspected is reported as the list shows it:
it must not hide our own. Called by `DockerRuntime`.
"""

import json
import re
import threading
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from providers.errors import Gone, ProviderError, Rejected, Unreachable
from providers.facts import (
    LABEL_HASH_VERSION,
    LABEL_INSTANCE,
    ContainerFact,
    ContainerState,
    Setup,
    container_name,
    mark_labels,
)
from providers.lib.clock import boottime
from providers.runtime.docker.client import CONNECT_SECONDS, EngineClient
from providers.runtime.docker.container import (
    LABEL_CONTAINER,
    UP,
    EngineContainer,
    Pod,
    belongs,
    headless_pod,
    make_pod,
)
from providers.runtime.docker.daemon import Daemon, find_daemon
from providers.runtime.docker.digest import Digests
from providers.runtime.docker.ends import Ends
from providers.runtime.docker.exit_watch import ExitWatch
from providers.runtime.docker.fact import NodeContext, container_fact
from providers.runtime.docker.inspection import listed_container, read_addresses, read_container, read_setup
from providers.runtime.docker.own_stops import OwnStops
from providers.runtime.docker.secrets import Secrets
from providers.runtime.docker.timestamps import SECOND, age_span, wall

EVENTS_KEPT = 256
"""How many events Docker keeps (moby's `eventsLimit`)."""

EVENTS_COMPLETE = EVENTS_KEPT // 2
"""An answer with more events may lack some: events during the request displace older ones and are not in the answer."""

ROUNDING = 2 * SECOND
"""How far the ages in the list may differ from our own clock."""

OVERLAP = SECOND // 10
"""How far before the last look the requested events begin: the engine and this program read one clock at different moments."""

EVENTS_BACK = 3600 * SECOND
"""How far back the first look asks for events, so that the cause of an end before the start of this program is known too."""

RECENT = 60 * SECOND
"""How long after an end its exit code is asked for, where no event of it is known."""

FULL_EVERY = 300 * SECOND
"""While the events are incomplete, everything is inspected after this time: some settings do not appear in the list."""

MAX_EVENTS_BYTES = 4 * 1024 * 1024

_QUIET = frozenset(
    {"exec_create", "exec_start", "exec_die", "top", "attach", "resize", "archive-path", "export", "copy"}
)
"""Events that change nothing about a container; each exec probe causes three of them."""

_EXITED = frozenset({"exited", "stopped", "dead", "restarting"})
"""States whose age in the list counts from the exit of the container."""


@dataclass(slots=True)
class _Last:
    """The last look at the whole node: when it began, by both clocks; the daemon; when all containers were inspected."""

    steady: int = 0
    wall: int = 0
    daemon: Daemon = field(default_factory=Daemon)
    full: int = 0


class _InvalidInspection(Unreachable):
    """The engine's answer about one container is invalid."""


class Observer:
    """Observes one node and remembers its containers. Thread-safe.

    Args:
        client: the engine.
        stops: our own stops.
        address: the address under which others reach the host; empty = none.
        compare_secrets: resolve the secrets that containers were created with, and compare their values.
        setups: also say how the instance's own containers were created.

    Attributes:
        exits: reports exits before the engine does; None until `DockerRuntime.watch`.
    """

    def __init__(
        self,
        client: EngineClient,
        stops: OwnStops,
        address: str = "",
        *,
        compare_secrets: bool = True,
        setups: bool = False,
    ) -> None:
        self._client, self._stops, self._address = client, stops, address
        self._compare_secrets, self._setups = compare_secrets, setups
        self._secrets, self._digests = Secrets(), Digests(client)
        self._on_failure: dict[str, str] = {}
        self._ends = Ends()
        self._lock = threading.Lock()
        self._containers: dict[str, EngineContainer] = {}
        self._last = _Last()
        self._podman: bool | None = None
        self._podman_daemon: Daemon | None = None
        self._exit_seen = False
        self.exits: ExitWatch | None = None

    # --- for DockerRuntime --------------------------------------------------------------------------------------

    def all(self) -> tuple[ContainerFact, ...]:
        """Every replica and every foreign container, sorted by name. Raises Unreachable, Rejected."""
        with self._lock:
            containers = self._look()
        mains = [container for container in containers if not container.member or container.owner is None]
        by_id, by_name = {main.id: main for main in mains}, {main.name: main for main in mains}
        members: dict[str, list[EngineContainer]] = {}
        headless: dict[str, list[EngineContainer]] = {}
        alone: list[EngineContainer] = []
        for container in containers:
            if not container.member or container.owner is None:
                continue
            main = by_id.get(container.joined) or by_name.get(container.base)
            if main is not None and belongs(container, main):
                members.setdefault(main.id, []).append(container)
            elif container.mark[0] is not None:
                headless.setdefault(container.base, []).append(container)
            else:
                alone.append(container)
        pods = [make_pod(main, members.get(main.id, ())) for main in mains]
        pods += [headless_pod(orphans) for orphans in headless.values()]
        pods += [make_pod(container, ()) for container in alone]
        return self._facts(sorted(pods, key=lambda pod: pod.main.name), self._last.daemon)

    def take_exit_hint(self) -> bool:
        """Whether a look since the last call reported an exit that the engine does not report yet: then look again soon."""
        with self._lock:
            hint, self._exit_seen = self._exit_seen, False
            return hint

    def named(self, names: Collection[str]) -> tuple[ContainerFact, ...]:
        """The containers of these names, or ids of renamed ones, inspected now, with or without a mark.

        Raises Unreachable, Rejected.
        """
        daemon = self.daemon()
        pods = (self.pod(name) for name in set(names))
        asked = (pod for pod in pods if pod is not None and (pod.main.name in names or pod.main.claim is not None))
        by_id = {pod.main.id: pod for pod in asked}
        return self._facts(sorted(by_id.values(), key=lambda pod: pod.main.name), daemon)

    def pod(self, name: str) -> Pod | None:
        """One replica, by its name or the id of its main container, inspected now; None when none of its containers exists.

        Raises Unreachable.
        """
        main = self.container(name)
        if main is None or (main.name != name and main.member):
            members = self._members_of(name)
            return headless_pod(members) if members else None
        if main.owner is None or not main.members:
            return make_pod(main, ())
        first = container_name(main.owner)
        inspected = [self.container(f"{first}-{member}") for member in main.members]
        members = [member for member in inspected if member is not None]
        if any(not belongs(member, main) for member in members) or len(members) < len(main.members):
            members += self._renamed_members(main, {member.id for member in members})
        return make_pod(main, members)

    def expected(self, name: str, container_id: str, adopted: bool) -> Pod | None:
        """The replica that an action means: the one with this id, under whatever name it has now; else the one with this name.

        A container without our labels is meant only if the action is for an adopted one. Raises Unreachable.
        """
        main = self.container(container_id)
        if main is None or main.member or (main.owner is None and not adopted):
            return self.pod(name)
        return self.pod(container_id)

    def _renamed_members(self, main: EngineContainer, known: Collection[str]) -> list[EngineContainer]:
        """The members of a replica that do not have their own names any more."""
        owner = main.owner
        if owner is None:
            return []
        labels = [f"{label}={value}" for label, value in mark_labels(owner, 0).items() if label != LABEL_HASH_VERSION]
        filters = json.dumps({"label": [*labels, LABEL_CONTAINER]})
        listed = self._client.containers(main.name, filters=filters)
        inspected = [self._inspect(str(entry["Id"])) for entry in listed if str(entry["Id"]) not in known]
        return [container for container in inspected if container is not None and container.member]

    def _members_of(self, name: str) -> list[EngineContainer]:
        """The members of a replica whose main container does not exist."""
        filters = json.dumps({"label": [LABEL_INSTANCE, LABEL_CONTAINER], "name": [f"^/?{re.escape(name)}-"]})
        listed = self._client.containers(name, filters=filters)
        inspected = [self._inspect(str(entry["Id"])) for entry in listed]
        return [
            container
            for container in inspected
            if container is not None and container.member and container.base == name and container.mark[0] is not None
        ]

    def container(self, name: str) -> EngineContainer | None:
        """One container by its full name or full id, inspected now; None when it does not exist. Raises Unreachable."""
        container = self._inspect(name)
        # The engine also accepts the beginning of an id.
        return container if container is not None and name in (container.name, container.id) else None

    def daemon(self) -> Daemon:
        """The daemon that serves the socket. Raises Unreachable."""
        try:
            return find_daemon(self._client.path, CONNECT_SECONDS)
        except OSError as error:
            cause = f"cannot reach the engine at {self._client.path}: {error.strerror or error}"
            raise Unreachable(self._client.node, cause, "start the engine, or correct the provider's socket") from error

    def podman(self) -> bool:
        """Whether the engine is Podman. Asked once per daemon process. Raises Unreachable."""
        daemon = self.daemon()
        if self._podman is None or daemon != self._podman_daemon:
            components = self._client.version().get("Components") or []
            self._podman = any("podman" in str(component.get("Name", "")).lower() for component in components)
            self._podman_daemon = daemon
        return self._podman

    # --- inside -------------------------------------------------------------------------------------------------

    def _facts(self, pods: Iterable[Pod], daemon: Daemon) -> tuple[ContainerFact, ...]:
        pods = tuple(pods)
        self._learn_ends(container for pod in pods for container in (pod.main, *pod.members))
        context = NodeContext(self._client.node, self._stops.all(), daemon, self.podman(), self._address, self._ends)
        secrets = self._secrets.look()
        return tuple(
            container_fact(
                pod,
                context,
                secrets.stale(pod) if self._compare_secrets else (),
                self._digests_of(pod),
                self._image_setup_of(pod),
            )
            for pod in pods
        )

    def _learn_ends(self, containers: Iterable[EngineContainer]) -> None:
        """Ask for the events again if a container has just ended and runs again, after the events of this look were read."""
        now = wall()
        recent = [
            container.finished_at
            for container in containers
            if container.state in UP
            and now - container.finished_at < RECENT
            and self._ends.code(container.id, container.finished_at) is None
        ]
        if recent:
            self._events(min(recent), now)

    def _digests_of(self, pod: Pod) -> tuple[tuple[str, str], ...]:
        """The image digest of each container of our own replica, by member name."""
        if pod.main.owner is None or pod.headless:
            return ()
        digests = (
            (container.member, self._digests.of(container.image_id, container.requested_image))
            for container in (pod.main, *pod.members)
        )
        return tuple(sorted(pair for pair in digests if pair[1]))

    def _image_setup_of(self, pod: Pod) -> Setup | None:
        """What the image of a running foreign container gives to its containers."""
        if pod.main.setup is None or pod.main.state not in UP:
            return None
        return self._digests.setup_of(pod.main.image_id)

    def _inspect(self, name: str) -> EngineContainer | None:
        try:
            inspection = self._client.get(f"/containers/{name}/json", name)
        except Gone:
            return None
        return self._read(inspection, name)

    def _read(self, inspection: Any, name: str) -> EngineContainer:
        try:
            container = read_container(inspection, self._podman_health_action(inspection))
            if self._setups and container.setup is None:
                container = replace(container, setup=read_setup(inspection))
            claim = container.claim
            if claim is not None and claim == self._digests.mark_of(container.image_id):
                return replace(container, inherited=True)
            return container
        except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
            cause = f"the engine's inspection of it is invalid: {error!r}"
            raise _InvalidInspection(name, cause, "retried automatically") from error

    def _podman_health_action(self, inspection: Any) -> str:
        """What Podman does when a container's health check fails; only its own API says it. Asked once per container."""
        if not (inspection["State"].get("Health") or {}).get("Status") or not self.podman():
            return ""
        container_id = str(inspection["Id"])
        if container_id not in self._on_failure:
            config = self._client.libpod(f"/containers/{container_id}/json", container_id).get("Config") or {}
            self._on_failure[container_id] = str(config.get("HealthcheckOnFailureAction") or "")
        return self._on_failure[container_id]

    def _listed(self, entry: dict[str, Any]) -> EngineContainer | None:
        """One container of the list, inspected; None when it was removed meanwhile."""
        try:
            return self._inspect(str(entry["Id"]))
        except ProviderError as error:
            marked = LABEL_INSTANCE in (entry.get("Labels") or {})
            if marked or (type(error) is not ProviderError and not isinstance(error, _InvalidInspection)):
                raise
            return listed_container(entry)

    def _look(self) -> list[EngineContainer]:
        last, began, began_wall = self._last, boottime(), wall()
        daemon = self.daemon()
        listed = self._client.containers(self._client.node)
        if not isinstance(listed, list):
            raise Unreachable(self._client.node, "the engine's list of containers is invalid", "retried automatically")
        stepped = abs((began_wall - last.wall) - (began - last.steady)) > ROUNDING
        fresh = not last.steady or daemon != last.daemon or stepped
        touched = self._events(wall() - EVENTS_BACK if fresh else last.wall, wall())
        touched = set() if fresh else touched
        full = fresh or (touched is None and began - last.full >= FULL_EVERY)
        containers: dict[str, EngineContainer] = {}
        for entry in listed:
            container_id = str(entry["Id"])
            known = None if full else self._containers.get(container_id)
            if known is not None and self._has_exited(known) and known.status == str(entry.get("State") or "").lower():
                containers[container_id] = _stopping(known)  # an inspection would wait until the engine has cleaned up
                self._exit_seen = True
                continue
            if known is None or not _unchanged(entry, known, touched, began - last.steady) or _health_due(known, began):
                known = self._listed(entry)
            if known is not None:  # it may have been removed after the list was made
                containers[container_id] = _stopping(known) if self._has_exited(known) else known
        self._containers = containers
        self._watch_exits()
        self._ends.keep(containers)
        self._digests.keep({container.image_id for container in containers.values()})
        self._on_failure = {key: action for key, action in self._on_failure.items() if key in containers}
        self._last = _Last(began, began_wall, daemon, began if full else last.full)
        return list(containers.values())

    def _has_exited(self, container: EngineContainer) -> bool:
        """Whether the main process of a container has exited, although the engine reports it as running."""
        if self.exits is None or container.state is not ContainerState.RUNNING:
            return False
        return self.exits.has_exited(container.id, container.pid)

    def _watch_exits(self) -> None:
        """Watch our main containers until the engine reports their exit."""
        if self.exits is not None:
            running = (ContainerState.RUNNING, ContainerState.STOPPING)
            self.exits.watch(
                (container.id, container.pid)
                for container in self._containers.values()
                if container.owner is not None
                and not container.member
                and container.state in running
                and container.pid > 0
            )

    def _events(self, since: int, until: int) -> set[str] | None:
        """Ids of containers with events in this time; None when the events may be incomplete."""
        if self.podman():
            return None  # its events come from a log that may be switched off
        params = {"since": _stamp(since - OVERLAP), "until": _stamp(until)}
        try:
            with self._client.stream("GET", "/events", self._client.node, params=params) as answer:
                raw = b""
                for chunk in answer.iter_content(64 * 1024):
                    raw += chunk
                    if len(raw) > MAX_EVENTS_BYTES:
                        return None
        except (Unreachable, Rejected):
            return None
        except OSError:  # the errors of `requests` while a stream is read are OSErrors
            return None
        lines = raw.splitlines()
        try:
            events = [json.loads(line) for line in lines]
            for event in events:
                self._ends.note(event)
            touched = {_touched(event) for event in events}
        except (ValueError, TypeError, AttributeError):
            return None
        return touched if len(lines) <= EVENTS_COMPLETE else None


def _touched(event: dict[str, Any]) -> str:
    action = str(event.get("Action", "")).partition(":")[0]
    if event.get("Type") == "network":
        return str(((event.get("Actor") or {}).get("Attributes") or {}).get("container", ""))
    if event.get("Type") != "container" or action in _QUIET:
        return ""
    return str((event.get("Actor") or {}).get("ID", ""))


def _stopping(container: EngineContainer) -> EngineContainer:
    """A container whose main process has exited before the engine reports it."""
    return replace(container, status="stopping", running_since=0, health=None)


def _health_due(known: EngineContainer, now: int) -> bool:
    """Whether the engine's own health check of a container may have had a result since it was inspected."""
    health = known.health
    return health is not None and now >= (health.last_at or known.running_since) + health.interval


def _stamp(timestamp: int) -> str:
    return f"{timestamp // SECOND}.{timestamp % SECOND:09d}"


def _unchanged(entry: dict[str, Any], known: EngineContainer, touched: set[str] | None, elapsed: int) -> bool:
    """Whether the list, and the events where they are complete, prove that a container is as it was at the last look."""
    addresses = read_addresses((entry.get("NetworkSettings") or {}).get("Networks") or {})
    status = str(entry.get("State") or "").lower()
    names = [str(name).removeprefix("/") for name in entry.get("Names") or ()]
    if status != known.status or addresses != dict(known.addresses) or known.name not in names:
        return False
    if touched is not None and known.id in touched:
        return False
    span = age_span(str(entry.get("Status") or ""))
    if span is None:
        return touched is not None or status in ("created", "configured")
    low, high = span
    age = wall() - (known.finished_at if status in _EXITED else known.started_at)
    if not low - ROUNDING <= age <= high + ROUNDING:
        return False
    return touched is not None or low >= elapsed + ROUNDING
