"""Compares what is reported with what the simulated world then does: every event, hold and status line, as an operator reads it.

`Truth` watches one world. It keeps the true history (weights, published addresses, containers, writes) and reads events and the stored
decision as text and JSON only, so that it shares no code with the reports. Used by `test_truth.py`.
"""

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from manifests.values.desired import SECOND
from providers.actions import (
    Action,
    ChangeRecords,
    CreateContainer,
    RemoveContainer,
    RemoveEndpoint,
    SetWeight,
    StartContainer,
    StopContainer,
)
from providers.facts import ContainerState
from reconciler.core.model.step import Step, target_of
from reconciler.probes.streak import PASS
from reconciler.shell.store.audit import Event
from tests.sim.manifest import POOLS, Spec
from tests.sim.world import World

UNSEEN = 31 * SECOND
"""How long a change by another writer may be unknown: the longest time between two looks."""

_URGENT = {"LivenessFailed", "StartupFailed", "RestartsDidNotHelp"}

_STEP = re.compile(r"(startup|liveness|readiness) of (\S+)")
_WEIGHT = re.compile(r"(?:^|, )weight (\d+) in (\S+?)(?=,|$)")
_REMOVED = re.compile(r"removed from (\S+?)(?=,|$)")
_WITHDRAWN = re.compile(r"address withdrawn from (\S+?)(?=,|$)")
_PUBLISHED = re.compile(r"address published at (\S+?)(?=,|$)")
_STAYS = re.compile(r"its weight in (\S+) is still (\d+)")
_KEEPS = re.compile(r"keeps? its weight in (\S+?)(?=,|$)")
_HOLDS = re.compile(r"holds? its weight in (\S+?)(?=,|$)")
_NAME_KEEPS = re.compile(r"(?:its address stays in|keeps? its address in) (\S+?)(?=,|$)")
_IN_LIMIT = re.compile(r"reached its limit of (\d+) restarts in (\d+)s")
_LAST = re.compile(r"^(\S+) \(\S+\) keeps weight (\d+): no other endpoint of pool (\S+) is ready and carries weight")
_BUDGET = re.compile(r"(\d+) of (\d+) replicas would be available, at least (\d+) must be")
_PANIC = re.compile(r"(\d+) of (\d+) endpoints are ready, below (\d+)%")
_OPEN = re.compile(r"(\S+) has (\d+) open disruptions?, at most")


class Moment(NamedTuple):
    """The world at one instant: weights by (pool, address), published addresses, and containers by name."""

    at: int
    weights: dict[tuple[str, str], int]
    published: dict[str, frozenset[str]]
    addresses: dict[str, str]
    running: frozenset[str]


class Stated(NamedTuple):
    """A hold with its next try, as it was stored at the wall-clock instant `at` (ns)."""

    at: int
    object: str
    action: str
    rule: str
    until: int


class Truth:
    """Watches one world. `lies` has a sentence for every statement that was not true."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.lies: list[str] = []
        self.compared = 0
        self.history: list[Moment] = []
        self.acts: list[tuple[int, Action, str]] = []
        """(wall, action, cause) of every write."""
        self.granted: list[tuple[int, str, str]] = []
        self.stated: dict[tuple[str, str, str, int], Stated] = {}
        self.incidents: list[int] = []
        self.foreign_at = 0
        self.held: set[tuple[str, str, str]] = set()
        self.requested: dict[str, int] = {}
        self.down: set[tuple[int, str]] = set()
        self._causes: dict[str, str] = {}
        world.tape.watch = self._begun
        world.checks.append(self._wrote)
        self.look()

    # --- the true history -------------------------------------------------------------------------------------------

    @property
    def wall(self) -> int:
        return self.world.clock.now().wall

    def _begun(self, step: Step) -> None:
        self._causes[step.target] = step.cause.value

    def _wrote(self, action: Action) -> None:
        self.acts.append((self.wall, action, self._causes.get(target_of(action), "")))
        self.look()

    def look(self) -> None:
        """Keep how the world is now."""
        outside, world = self.world.outside, self.world
        weights = {
            (pool, endpoint.address): member.weight
            for pool, members in outside.pools.get(POOLS, {}).items()
            for endpoint, member in members.items()
        }
        hosts = {f"{spec.name}.example.test." for spec in world.shop.specs}
        containers = world.containers()
        moment = Moment(
            self.wall,
            weights,
            {host: frozenset(world.published(host)) for host in hosts},
            {name: item.address for name, item in containers.items()},
            frozenset(name for name, item in containers.items() if item.state is ContainerState.RUNNING),
        )
        if not self.history or self.history[-1] != moment:
            self.history.append(moment)

    def during(self, at: int) -> list[Moment]:
        """How the world was at an instant: as it was when it began, and after each write in it."""
        inside = [moment for moment in self.history if moment.at == at]
        before = [moment for moment in self.history if moment.at < at]
        return [*before[-1:], *inside]

    def run(self, seconds: int) -> None:
        """Let time pass, and check everything that is reported meanwhile."""
        for _ in range(seconds):
            self.world.run(SECOND)
            self.look()
            events = list(self.world.memory.events)
            self.down |= {(event.wall, event.object) for event in events if event.kind == "exit"}
            for event in events:
                self.event(event)
            self.world.memory.events.clear()
            self._holds()

    def incident(self, *, foreign: bool = False) -> None:
        """Something outside has changed: statements about the time to come may be overtaken.

        `foreign`: another writer changed a pool or a zone, which no report can know before the next look.
        """
        self.incidents.append(self.wall)
        self.foreign_at = self.wall if foreign else self.foreign_at
        self.look()

    def lie(self, text: str, *details: object) -> None:
        """Note a statement that is not true."""
        self.lies.append(" | ".join([text, *(str(detail) for detail in details)]))

    # --- events -----------------------------------------------------------------------------------------------------

    def event(self, event: Event) -> None:
        """Check one event."""
        self.compared += 1
        match event.kind:
            case "verdict":
                self._verdict(event)
            case "exit":
                self._exit(event)
            case "removed":
                self._removed(event)
            case "request":
                self._request(event)
            case "held":
                self.held.add((event.object, event.step, event.cause))
            case "released":
                if (event.object, event.step, event.cause) not in self.held:
                    self.lie("a hold ends that never began", event)

    def _exit(self, event: Event) -> None:
        """An end of a container: it was down then, or runs again in another generation."""
        name = event.step.removeprefix("end ")
        if event.outcome == "it is down" and all(name in moment.running for moment in self.during(event.wall)):
            self.lie(f"{name} was not down", event)

    def _removed(self, event: Event) -> None:
        """A container that another program removed: the last write on its name was no removal of ours."""
        name = event.step.removeprefix("removal of ")
        kinds = (CreateContainer, RemoveContainer)
        ours = [
            write.action for write in self.world.traffic.writes if write.effective and isinstance(write.action, kinds)
        ]
        last = next((action for action in reversed(ours) if action.name == name), None)
        if isinstance(last, RemoveContainer):
            self.lie(f"reconcile itself removed {name}", event)

    def _request(self, event: Event) -> None:
        """A replica that is done was started after the request."""
        if event.outcome.startswith("requested by"):
            self.requested.setdefault(event.step, event.wall)
        elif event.outcome == "done" and event.step in self.requested:
            ordinal = int(event.object.rpartition("/")[2])
            started = [
                item.started_at
                for item in self.world.containers().values()
                if item.mark is not None and item.mark.ordinal == ordinal
            ]
            # A request is folded at the next tick, so it is at most one second older than its event.
            if started and max(started) < self.requested[event.step] - SECOND:
                self.lie("a replica is done that was not started again", event, started)

    def _verdict(self, event: Event) -> None:
        match = _STEP.match(event.step)
        assert match is not None, event
        probe, name = match.groups()
        moments = self.during(event.wall)
        address = next((moment.addresses[name] for moment in moments if name in moment.addresses), "")
        if not address:
            return self.lie("a verdict of a container that does not exist", event)
        head, _, body = event.outcome.partition(": ")
        if head not in {"acted on", "not acted on"} or not body:
            return self.lie("no answer", event)
        done, _, rest = body.partition("; ") if head == "acted on" else ("", "", body)
        self._done(event, done, address, moments)
        if event.wall - self.foreign_at > UNSEEN and (event.wall, event.object) not in self.down:
            self._kept(event, rest, address, moments)
        acts = list(self._acts_on(name, address, event.wall))
        crashed = (event.wall, event.object) in self.down
        retried = any(words in rest for words in ("failed (", "not done", "not known whether", "is not published at"))
        passed = event.cause.endswith("-> pass") and all("Restarting" in act for act in acts)
        if head == "not acted on" and acts and not (crashed or passed or retried):
            self.lie("'not acted on', but", event, acts)
        failing = event.cause.endswith("-> fail")
        if failing and not rest and not done.startswith("restart") and probe == "readiness":
            self._left(event, address, moments[-1])
        return None

    def _done(self, event: Event, done: str, address: str, moments: list[Moment]) -> None:
        """What the event says was done."""
        for weight, pool in _WEIGHT.findall(done):
            key = pool.partition("/")[2], address
            if not any(moment.weights.get(key) == int(weight) for moment in moments):
                self.lie(f"weight {weight} was never in {pool}", event, [moment.weights for moment in moments])
        for pool in _REMOVED.findall(done):
            if not any((pool.partition("/")[2], address) not in moment.weights for moment in moments):
                self.lie(f"it was not removed from {pool}", event)
        for host in _WITHDRAWN.findall(done):
            if not any(address not in moment.published.get(host, ()) for moment in moments):
                self.lie(f"the address was not withdrawn from {host}", event)
        for host in _PUBLISHED.findall(done):
            if not any(address in moment.published.get(host, ()) for moment in moments):
                self.lie(f"the address was not published at {host}", event)
        for verb, _, cause in re.findall(r"(restart|exit) (granted) \((\w+)\)", done):
            name = event.step.rpartition(" ")[2]
            self.granted.append((event.wall, name, cause))
            grants = self.world.memory.ledger().grants
            ids = {item.id for item in self.world.containers().values() if item.name == name}
            stopped = any(
                act.name == name for at, act, _ in self.acts if at >= event.wall and isinstance(act, StopContainer)
            )
            if not ids & grants.keys() and not stopped and self.wall - event.wall < 2 * SECOND:
                self.lie(f"no {verb} is granted", event)

    def _kept(self, event: Event, rest: str, address: str, moments: list[Moment]) -> None:
        """What the event says stayed as it was: as long as its own instant lasted, because the next tick may come in the same one."""
        last = moments[-1]
        for pool, weight in _STAYS.findall(rest):
            if not any(moment.weights.get((pool.partition("/")[2], address), 0) == int(weight) for moment in moments):
                self.lie(f"the weight in {pool} was not {weight}", event, last.weights)
        for pool in _KEEPS.findall(rest):
            if not any(moment.weights.get((pool.partition("/")[2], address)) for moment in moments):
                self.lie(f"no weight was kept in {pool}", event, last.weights)
        for pool in _HOLDS.findall(rest):
            if all(moment.weights.get((pool.partition("/")[2], address)) for moment in moments):
                self.lie(f"its weight in {pool} was not held at 0", event, last.weights)
        for host in _NAME_KEEPS.findall(rest):
            if not any(address in moment.published.get(host, ()) for moment in moments):
                self.lie(f"its address did not stay in {host}", event, last.published)

    def _left(self, event: Event, address: str, last: Moment) -> None:
        """A failed readiness of which no event says what kept weight or address: then there must be none left."""
        kept = [pool for (pool, of), weight in last.weights.items() if of == address and weight]
        hosts = [host for host, addresses in last.published.items() if address in addresses]
        if kept or hosts:
            self.lie("it does not say why a failing replica keeps what it has", event, kept, hosts)

    def _acts_on(self, name: str, address: str, wall: int) -> Iterator[str]:
        for at, action, cause in self.acts:
            if at != wall or cause in _OTHER_CAUSES:
                continue  # a container that is down loses its weight for that, whatever its probes said before
            if isinstance(action, SetWeight | RemoveEndpoint):
                if action.endpoint.address == address:
                    yield f"{action} {cause}"
            elif isinstance(action, ChangeRecords):
                for change in action.changes:
                    before, after = (
                        set(record.values) if record else set() for record in (change.before, change.after)
                    )
                    if address in before ^ after:
                        yield str(change)
            elif isinstance(action, StopContainer) and action.name == name and cause in _URGENT:
                yield str(action)

    # --- holds ------------------------------------------------------------------------------------------------------

    def _holds(self) -> None:
        """Keep every stored hold with its next try, and check those whose action has happened."""
        if not self.world.memory.decision:
            return
        stored = json.loads(self.world.memory.decision)
        for hold in stored["holds"]:
            if hold["until_wall"] is not None:
                key = hold["object"], hold["action"], hold["rule"], hold["until_wall"]
                self.stated.setdefault(key, Stated(stored["at_wall"], *key))
            elif not hold["next_step"]:
                self.lie("a hold without a next try or a next step", hold)
            self._numbers(hold, stored)

    def _numbers(self, hold: dict[str, Any], stored: dict[str, Any]) -> None:
        at = stored["at_wall"]
        if match := _IN_LIMIT.search(hold["message"]):
            limit, window = int(match[1]), int(match[2]) * SECOND
            name = hold["action"].rpartition(" ")[2]
            begun = [
                when
                for when, action, cause in self.acts
                if isinstance(action, StartContainer | RemoveContainer) and cause in _URGENT and action.name == name
            ]
            recent = [when for when in begun if at - window - 60 * SECOND <= when <= at]
            if len(recent) < limit:
                self.lie(f"{len(recent)} restarts, not {limit}", hold, begun)
        if match := _LAST.search(hold["message"]):
            name, weight, pool = match[1], int(match[2]), match[3]
            moments = self.during(at)
            address = next((moment.addresses.get(name, "") for moment in moments if name in moment.addresses), "")
            seen = at - self.foreign_at > UNSEEN
            if seen and address and not any(moment.weights.get((pool, address)) == weight for moment in moments):
                self.lie(f"{name} has no weight {weight} in {pool}", hold, moments[-1].weights)
        # An unsettled decision is followed by another one at once.
        settled = self.world.tape.last is not None and not self.world.tape.last.unsettled
        if (match := _OPEN.search(hold["message"])) and at == self.wall and settled:
            open_grants = [
                grant
                for grant in self.world.tape.last.ledger.grants.values()
                if grant.object.startswith(f"{match[1]}/")
            ]
            if len(open_grants) != int(match[2]):
                self.lie(f"{len(open_grants)} disruptions are open", hold)

    def kept_promises(self) -> None:
        """No held action happened before its next try, unless something else changed first."""
        for stated in self.stated.values():
            verb, _, name = stated.action.partition(" ")
            if verb not in {"restart", "recreate", "start"} or stated.rule not in _TIMED:
                continue
            for at, action, cause in self.acts:
                if not stated.at < at < stated.until or self._overtaken(stated.at, at):
                    continue
                healed = isinstance(action, StopContainer) and cause in _URGENT and verb != "start"
                started = isinstance(action, StartContainer) and verb == "start"
                if (healed or started) and getattr(action, "name", "") == name:
                    self.lie("a held action happened before its next try", stated, at, action)

    def _overtaken(self, since: int, at: int) -> bool:
        return any(since <= incident <= at for incident in self.incidents)

    # --- status -----------------------------------------------------------------------------------------------------

    def status(self) -> None:
        """Check every line of the status of a world that nothing has disturbed for a while."""
        self.world.memory.say("show", "*")
        self.run(1)
        stored = json.loads(self.world.memory.decision)
        if stored["status"]["unknown"]:
            return
        moment = self.history[-1]
        for workload in stored["status"]["workloads"]:
            spec = next(spec for spec in self.world.shop.specs if spec.key == workload["key"])
            for replica in workload["replicas"]:
                self._replica(spec, replica, moment)
            for name in workload["missing"]:
                if name in moment.addresses:
                    self.lie("a container that exists is missing", name)
            self._workload(spec, workload, moment)
        for hold in stored["holds"]:
            self._held_now(hold)
        for name in stored["status"]["names"]:
            if name["published"] is not None and set(name["published"]) != moment.published.get(name["host"], set()):
                self.lie("another set of addresses is published", name["published"], moment.published)
        for endpoint in stored["status"]["endpoints"]:
            weight = moment.weights.get((endpoint["pool"], endpoint["address"]))
            if endpoint["readable"] and endpoint["weight"] != weight:
                self.lie(f"weight {endpoint['weight']} of an endpoint is {weight}", endpoint)

    def _held_now(self, hold: dict[str, Any]) -> None:
        """A hold in an undisturbed world: what it holds is due, and its numbers are those of the world."""
        self.compared += 1
        containers, ledger = self.world.containers(), self.world.memory.ledger()
        [spec] = self.world.shop.specs
        name = hold["action"].rpartition(" ")[2]
        if hold["action"] == f"restart {name}" and name in containers and not (ledger.requests or ledger.overrides):
            up = containers[name].state is ContainerState.RUNNING
            if up and self._ready(spec, name):
                self.lie(f"the restart of {name} is held, which is healthy", hold)
        running = [name for name, item in containers.items() if item.state is ContainerState.RUNNING]
        ready = sum(self._ready(spec, name) for name in running)
        if match := _BUDGET.search(hold["message"]):
            left, wanted = int(match[1]), int(match[2])
            if wanted != spec.replicas or left > ready:
                self.lie(f"{ready} of {spec.replicas} are ready", hold)
        if match := _PANIC.search(hold["message"]):
            sound, considered, threshold = map(int, match.groups())
            if not (sound <= considered <= len(containers) and sound * 100 < (threshold + 10) * considered):
                self.lie("numbers that do not fit each other", hold)
            if sound > ready + len(ledger.outbreaks) * len(running):
                self.lie(f"{ready} are ready", hold)

    def _answers(self, name: str, probe: str) -> bool:
        """Whether the application answers this probe now."""
        item, now = self.world.containers()[name], self.world.clock.now().steady
        return self.world.apps.answer(name, item.generation, probe, now - item.running_since, now) == PASS

    def _ready(self, spec: Spec, name: str) -> bool:
        """Whether a running application passes all its probes."""
        return self._answers(name, "liveness") and (not spec.readiness or self._answers(name, "readiness"))

    def _replica(self, spec: Spec, replica: dict[str, Any], moment: Moment) -> None:
        name = replica["container"]
        item = self.world.containers().get(name)
        if item is None:
            return self.lie("a replica that does not exist", replica)
        self.compared += 1
        if replica["runtime"] != item.state.value:
            self.lie(f"{name} is {item.state.value}", replica)
        up = item.state is ContainerState.RUNNING
        weights = {pool: moment.weights.get((pool, item.address)) for pool in spec.pools}
        if replica["weight"] is not None and replica["weight"] not in weights.values():
            self.lie(f"{name} has weights {weights}", replica)
        for probe in ("liveness", "readiness"):
            verdict = replica["probes"].get(probe)
            if verdict is None or not up or verdict["verdict"] not in {"pass", "fail"}:
                continue
            if (verdict["verdict"] == "pass") != self._answers(name, probe):
                self.lie(f"{probe} of {name} answers {self._answers(name, probe)}", replica)
        ready = up and self._ready(spec, name)
        serves = ready and any(weights.values())
        state = replica["state"]
        if state == "Ready" and not ready:
            self.lie(f"{name} is not ready", replica)
        if state in {"NotReady", "Pending"} and ready and not self.world.memory.ledger().overrides:
            self.lie(f"{name} is ready", replica)
        if state == "Held" and serves and not self.world.memory.ledger().overrides:
            self.lie(f"{name} serves, and is shown as held", replica)
        if state in {"Restarting", "Leaving"}:
            grants = self.world.memory.ledger().grants.values()
            if replica["replica"] not in {grant.object for grant in grants}:
                self.lie(f"{name} is not disrupted", replica)
        return None

    def _workload(self, spec: Spec, workload: dict[str, Any], moment: Moment) -> None:
        self.compared += 1
        if any(
            probe and probe["verdict"] == "unknown" for row in workload["replicas"] for probe in row["probes"].values()
        ):
            return  # a verdict is being reached right now
        containers = self.world.containers()
        mine = {replica["container"] for replica in workload["replicas"]} & containers.keys()
        ready = {name for name in mine if name in moment.running and self._ready(spec, name)}
        if workload["condition"] == "Ready" and len(ready) < spec.replicas:
            self.lie(f"{len(ready)} of {spec.replicas} replicas are ready", workload)
        if workload["wanted"] != spec.replicas:
            self.lie("another number of replicas is wanted", workload)
        if workload["available"] > len(ready) and not self.world.memory.ledger().overrides:
            self.lie(f"only {sorted(ready)} are ready", workload)
        serving = {revision["revision"] for revision in workload.get("serving") or ()}
        carrying = {
            containers[name].mark.revision
            for name in mine & moment.running
            for pool in spec.pools
            if moment.weights.get((pool, containers[name].address))
        }
        if spec.pools and serving != carrying:
            self.lie(f"revisions {carrying} have the traffic", workload)


_OTHER_CAUSES = {"NotRunning", "Paused", "Gone", "Draining", "Inactive", "Moved", "Pruned"}
"""Causes of weights that are no reaction to a verdict of the same container."""

_TIMED = {"BackOff", "RestartLimit", "RestartRate", "Suspended"}
"""Rules whose next try is an instant that only an operator or a new incident may move."""
