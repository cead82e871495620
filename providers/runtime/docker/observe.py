"""Looks at one engine: one list, one question for events, and an inspection only where those do not prove that nothing changed.

The engine's list has no start time, so a container that was restarted between two looks may look the same. It is known to be
the same life when its state, id and addresses are as before and the age that the list shows reaches back before the last look.
Younger ones are the same when the engine reports no event of them; it keeps the last 256 events only, so an answer of that
many proves nothing. A container with a health check of its own is inspected when its next result is due: those results leave
no trace in list and events.

Containers of others are looked at in the same way. One of theirs that cannot be inspected is shown as the list has it: it must
not hide ours. Called by `DockerRuntime`.
"""

import json
import re
import threading
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from providers.errors import Gone, ProviderError, Rejected, Unreachable
from providers.facts import LABEL_INSTANCE, ContainerFact, ContainerState, Setup
from providers.runtime.docker.client import CONNECT_SECONDS, Link
from providers.runtime.docker.digest import Digests
from providers.runtime.docker.exits import Ends
from providers.runtime.docker.inspection import listed_life, read_life
from providers.runtime.docker.instants import SECOND, EngineLife, age_span, engine_life, steady, wall
from providers.runtime.docker.life import LABEL_CONTAINER, UP, Life, Pod, Surroundings, fact, headless_pod, make_pod
from providers.runtime.docker.own_stops import Stops
from providers.runtime.docker.secrets import Secrets

EVENTS_KEPT = 256
"""How many events Docker keeps (moby's `eventsLimit`)."""

EVENTS_PROVEN = EVENTS_KEPT // 2
"""With more in an answer others may have been dropped: what happens while it is made displaces older ones, and is not in it."""

ROUNDING = 2 * SECOND
"""How far ages in the list and our own clock may be apart."""

OVERLAP = SECOND // 10
"""How far before the last look events are asked for: engine and we read the same clock, at different moments."""

FULL_EVERY = 300 * SECOND
"""After a gap in the events, settings that leave no trace in the list may be this old before everything is inspected."""

MAX_EVENTS_BYTES = 4 * 1024 * 1024

_QUIET = frozenset(
    {"exec_create", "exec_start", "exec_die", "top", "attach", "resize", "archive-path", "export", "copy"}
)
"""Events that change nothing about a container; exec probes make three of them each time."""


_ENDED = frozenset({"exited", "stopped", "dead", "restarting"})
"""States whose age in the list counts from the end of the container."""


@dataclass(slots=True)
class _Last:
    """What the last whole look left: when it began, by both clocks; the engine's life; when all were inspected."""

    steady: int = 0
    wall: int = 0
    engine: EngineLife = field(default_factory=EngineLife)
    full: int = 0


class _Nonsense(Unreachable):
    """The engine's answer about one container cannot be read."""


class Looks:
    """The looks of one node. Thread-safe; keeps the lives that it has seen. `address` is the host's for others, or empty.

    Attributes:
        ends: who knows of ends before the engine does; None while nobody waits for changes.
    """

    def __init__(self, link: Link, stops: Stops, address: str = "") -> None:
        self._link, self._stops, self._address = link, stops, address
        self._secrets, self._digests = Secrets(), Digests(link)
        self._on_failure: dict[str, str] = {}
        self._lock = threading.Lock()
        self._lives: dict[str, Life] = {}
        self._last = _Last()
        self._podman: bool | None = None
        self._checked: EngineLife | None = None
        self._again = False
        self.ends: Ends | None = None

    # --- for DockerRuntime --------------------------------------------------------------------------------------

    def all(self) -> tuple[ContainerFact, ...]:
        """Every replica and every container of others, in the order of the names. Raises Unreachable, Rejected."""
        with self._lock:
            lives = self._look()
        members: dict[str, list[Life]] = {}
        pods: list[Pod] = []
        for live in lives:
            if live.member and live.mark[0] is not None:
                members.setdefault(live.base, []).append(live)
        for live in lives:
            if not live.member or live.mark[0] is None:
                pods.append(make_pod(live, members.pop(live.name, ())))
        pods += [headless_pod(left) for left in members.values()]
        return self._facts(sorted(pods, key=lambda pod: pod.main.name), self._last.engine)

    def take_again(self) -> bool:
        """Whether a look since the last call took the kernel's word for an end: then the engine is to be asked, too."""
        with self._lock:
            again, self._again = self._again, False
            return again

    def named(self, names: Collection[str]) -> tuple[ContainerFact, ...]:
        """The replicas of these names as they are this moment, mark or not. Raises Unreachable, Rejected."""
        engine = self.engine()
        pods = [self.pod(name) for name in sorted(set(names))]
        return self._facts((pod for pod in pods if pod is not None), engine)

    def pod(self, name: str) -> Pod | None:
        """One replica, inspected now; None when nothing of it is there. Raises Unreachable."""
        main = self.life(name)
        if main is None or main.name != name:
            left = self._left_of(name)
            return headless_pod(left) if left else None
        found = [self.life(f"{name}-{member}") for member in main.members]
        return make_pod(main, [one for one in found if one is not None])

    def _left_of(self, name: str) -> list[Life]:
        """The members of a replica whose main container is not there."""
        filters = json.dumps({"label": [LABEL_INSTANCE, LABEL_CONTAINER], "name": [f"^/?{re.escape(name)}-"]})
        listed = self._link.get("/containers/json", name, all="1", filters=filters)
        found = [self._inspect(str(entry["Id"])) for entry in listed]
        return [one for one in found if one is not None and one.member and one.base == name and one.mark[0] is not None]

    def life(self, name: str) -> Life | None:
        """One container by its full name or full id, inspected now. Raises Unreachable."""
        life = self._inspect(name)
        # The engine also takes the beginning of an id for a name.
        return life if life is not None and name in (life.name, life.id) else None

    def engine(self) -> EngineLife:
        """The daemon that serves the socket. Raises Unreachable."""
        try:
            return engine_life(self._link.path, CONNECT_SECONDS)
        except OSError as error:
            cause = f"cannot reach the engine at {self._link.path}: {error.strerror or error}"
            raise Unreachable(self._link.node, cause, "start the engine, or correct the provider's socket") from error

    def podman(self) -> bool:
        """Whether the engine is Podman. Asked once per life of the daemon. Raises Unreachable."""
        life = self.engine()
        if self._podman is None or life != self._checked:
            components = self._link.version().get("Components") or []
            self._podman = any("podman" in str(component.get("Name", "")).lower() for component in components)
            self._checked = life
        return self._podman

    # --- inside -------------------------------------------------------------------------------------------------

    def _facts(self, pods: Iterable[Pod], engine: EngineLife) -> tuple[ContainerFact, ...]:
        around = Surroundings(self._link.node, self._stops.all(), engine, self.podman(), self._address)
        secrets = self._secrets.look()
        return tuple(
            fact(pod, around, secrets.stale(pod), self._digests_of(pod), self._image_setup_of(pod)) for pod in pods
        )

    def _digests_of(self, pod: Pod) -> tuple[tuple[str, str], ...]:
        """What the containers of a replica of ours are made from."""
        if pod.main.mark[0] is None or pod.headless:
            return ()
        found = ((one.member, self._digests.of(one.image_id, one.asked_for)) for one in (pod.main, *pod.members))
        return tuple(sorted(one for one in found if one[1]))

    def _image_setup_of(self, pod: Pod) -> Setup | None:
        """What the image of somebody else's container that runs says of it."""
        if pod.main.setup is None or pod.main.state not in UP:
            return None
        return self._digests.setup_of(pod.main.image_id)

    def _inspect(self, name: str) -> Life | None:
        try:
            found = self._link.get(f"/containers/{name}/json", name)
        except Gone:
            return None
        return self._read(found, name)

    def _read(self, found: Any, name: str) -> Life:
        try:
            return read_life(found, self._podmans_action(found))
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            raise _Nonsense(name, f"the engine's answer about it makes no sense: {error!r}", "look again") from error

    def _podmans_action(self, found: Any) -> str:
        """What Podman does when a container's health check fails; only its own API says so. Asked once per container."""
        if not (found["State"].get("Health") or {}).get("Status") or not self.podman():
            return ""
        container_id = str(found["Id"])
        if container_id not in self._on_failure:
            config = self._link.libpod(f"/containers/{container_id}/json", container_id).get("Config") or {}
            self._on_failure[container_id] = str(config.get("HealthcheckOnFailureAction") or "")
        return self._on_failure[container_id]

    def _listed(self, entry: dict[str, Any]) -> Life | None:
        """One container of the list, inspected; None when it has gone since."""
        try:
            return self._inspect(str(entry["Id"]))
        except ProviderError as error:
            ours = LABEL_INSTANCE in (entry.get("Labels") or {})
            if ours or (type(error) is not ProviderError and not isinstance(error, _Nonsense)):
                raise
            return listed_life(entry)

    def _look(self) -> list[Life]:
        last, began, began_wall = self._last, steady(), wall()
        engine = self.engine()
        listed = self._link.get("/containers/json", self._link.node, all="1")
        if not isinstance(listed, list):
            raise Unreachable(self._link.node, "the engine's list of containers is no list", "look again")
        stepped = abs((began_wall - last.wall) - (began - last.steady)) > ROUNDING
        fresh = not last.steady or engine != last.engine or stepped
        touched = set() if fresh else self._events(last.wall, wall())
        full = fresh or (touched is None and began - last.full >= FULL_EVERY)
        lives: dict[str, Life] = {}
        for entry in listed:
            container_id = str(entry["Id"])
            known = None if full else self._lives.get(container_id)
            if known is not None and self._has_ended(known) and known.word == str(entry.get("State") or "").lower():
                lives[container_id] = _ending(known)  # an inspection would wait until the engine has tidied up
                self._again = True
                continue
            if known is None or not _same_life(entry, known, touched, began - last.steady) or _health_due(known, began):
                known = self._listed(entry)
            if known is not None:  # it may have gone since the list was made
                lives[container_id] = _ending(known) if self._has_ended(known) else known
        self._lives = lives
        self._watch_ends()
        self._digests.keep({live.image_id for live in lives.values()})
        self._on_failure = {key: action for key, action in self._on_failure.items() if key in lives}
        self._last = _Last(began, began_wall, engine, began if full else last.full)
        return list(lives.values())

    def _has_ended(self, life: Life) -> bool:
        """Whether the kernel says of a container that runs for the engine that its main process has ended."""
        return self.ends is not None and life.state is ContainerState.RUNNING and self.ends.has(life.id, life.pid)

    def _watch_ends(self) -> None:
        """Watch the containers of ours whose end is the end of a replica; until the engine knows of it as well."""
        if self.ends is not None:
            running = (ContainerState.RUNNING, ContainerState.STOPPING)
            ours = (live for live in self._lives.values() if live.mark[0] is not None and not live.member)
            self.ends.watch((member.id, member.pid) for member in ours if member.state in running and member.pid > 0)

    def _events(self, since: int, until: int) -> set[str] | None:
        """Ids of containers that something happened to; None when that cannot be told."""
        if self.podman():
            return None  # its events come from a log that may be off
        params = {"since": _stamp(since - OVERLAP), "until": _stamp(until)}
        try:
            with self._link.request("GET", "/events", self._link.node, params=params, stream=True) as answer:
                raw = b""
                for chunk in answer.iter_content(64 * 1024):
                    raw += chunk
                    if len(raw) > MAX_EVENTS_BYTES:
                        return None
        except (Unreachable, Rejected):
            return None
        except OSError:  # requests raises its own errors, which are OSErrors, while a stream is read
            return None
        lines = raw.splitlines()
        if len(lines) > EVENTS_PROVEN:
            return None
        try:
            return {_touched(json.loads(line)) for line in lines}
        except (ValueError, TypeError, AttributeError):
            return None


def _touched(event: dict[str, Any]) -> str:
    action = str(event.get("Action", "")).partition(":")[0]
    if event.get("Type") == "network":
        return str(((event.get("Actor") or {}).get("Attributes") or {}).get("container", ""))
    if event.get("Type") != "container" or action in _QUIET:
        return ""
    return str((event.get("Actor") or {}).get("ID", ""))


def _ending(life: Life) -> Life:
    """A container whose main process has ended, before the engine says so."""
    return replace(life, word="stopping", since=0, health=None)


def _health_due(known: Life, now: int) -> bool:
    """Whether the engine's own health check of a container may have had a result since it was inspected."""
    health = known.health
    return health is not None and now >= (health.last_at or known.since) + health.interval


def _stamp(instant: int) -> str:
    return f"{instant // SECOND}.{instant % SECOND:09d}"


def _same_life(entry: dict[str, Any], known: Life, touched: set[str] | None, elapsed: int) -> bool:
    """Whether the list, and the events where they are whole, prove that a container is as it was at the last look."""
    networks = (entry.get("NetworkSettings") or {}).get("Networks") or {}
    addresses = {
        name: address
        for name, one in networks.items()
        if (address := one.get("IPAddress") or one.get("GlobalIPv6Address") or "")
    }
    word = str(entry.get("State") or "").lower()
    names = [str(name).removeprefix("/") for name in entry.get("Names") or ()]
    if word != known.word or addresses != dict(known.addresses) or known.name not in names:
        return False
    if touched is not None and known.id in touched:
        return False
    span = age_span(str(entry.get("Status") or ""))
    if span is None:
        return touched is not None or word in ("created", "configured")
    low, high = span
    age = wall() - (known.finished_at if word in _ENDED else known.started_at)
    if not low - ROUNDING <= age <= high + ROUNDING:
        return False
    return touched is not None or low >= elapsed + ROUNDING
