"""The laws that hold at every single write. The watchdog checks the real state of the world after each call."""

from manifests.values.desired import SECOND
from providers.actions import (
    Action,
    ChangeRecords,
    CreateContainer,
    RemoveEndpoint,
    SetWeight,
    StartContainer,
    StopContainer,
)
from providers.dns.common.ownership import mark_key
from providers.facts import ContainerState, Generation, RecordKey
from reconciler.core.exits.grants import URGENT, returns
from reconciler.core.model.instant import Instant, instant
from reconciler.core.model.reasons import Reason
from reconciler.core.model.step import Step, target_of
from tests.sim.manifest import INSTANCE, NAMES, POOLS, ZONE
from tests.sim.world import World


class Watchdog:
    """Watches one world. `restarts` has (true instant, replica, generation) of every health restart."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.steps: dict[str, Step] = {}
        self.restarts: list[tuple[int, str, Generation]] = []
        self.last_weight: dict[str, int] = {}
        self.last_named: dict[str, int] = {}
        self.given: dict[str, Generation] = {}
        self.granted_at: dict[Generation, Instant] = {}
        self.forgotten: set[Generation] = set()
        self.true_time = 0
        self.foreign = self._foreign()
        world.tape.watch = self._announced
        world.checks.append(self.after)

    def _announced(self, step: Step) -> None:
        self.steps[step.target] = step

    def time(self) -> int:
        """The time that really passed (ns), independent of clock changes. Called at every write and look."""
        self.true_time, now = self.world.true_time(), self.world.clock.now()
        # Also when the clock is corrected afterwards: restarts whose window seemed to be over are forgotten by then.
        for spec in self.world.shop.specs:
            self.forgotten |= {
                generation for generation, since in self.granted_at.items() if leapt(since, instant(now), spec.window)
            }
        return self.true_time

    # --- the laws -----------------------------------------------------------------------------------------------

    def after(self, action: Action) -> None:
        """All laws after one write."""
        self.time()
        step = self.steps.get(target_of(action))
        if isinstance(action, StopContainer) and step is not None and step.cause in URGENT:
            self._restarted(step, action)
        if isinstance(action, StopContainer) and step is not None and step.cause not in URGENT:
            self._left(action)
        if isinstance(action, SetWeight):
            self._weighed(action, step)
        if isinstance(action, ChangeRecords):
            self._named(action)
        if isinstance(action, CreateContainer | StartContainer):
            self._crowd(action)
        self._untouched()
        if isinstance(action, RemoveEndpoint):
            self.last_weight.pop(action.endpoint.address, None)
        if isinstance(action, StartContainer):
            # A container that lost its weight before its restart, and has had none since, has no requests in flight.
            # It may have another name by now.
            for container in self.world.outside.nodes[action.node].values():
                if container.id == action.expect.container_id:
                    self.last_weight.pop(container.address, None)

    def _restarted(self, step: Step, action: StopContainer) -> None:
        """Health restarts stay within their limit in every window, and no generation is restarted twice."""
        assert (step.object, action.expect) not in {(o, g) for _, o, g in self.restarts}, "one generation, one restart"
        # Counted from the grant, which may precede the stop by some time.
        grant, now = self.world.memory.ledger().grants.get(action.expect.container_id), self.world.now()
        granted = self.true_time - (now.steady - grant.at.steady if grant and grant.at.lineage == now.lineage else 0)
        self.restarts.append((granted, step.object, action.expect))
        host = self.world.clock.now()
        wall, booted = (grant.at.wall, grant.at.steady >= self.world.life.clock.booted) if grant else (host.wall, True)
        self.granted_at[action.expect] = Instant(wall, host.steady, host.lineage if booted else "an earlier boot")
        for spec in self.world.shop.specs:
            if step.object.startswith(f"{spec.key}/"):
                recent = [
                    at
                    for at, o, generation in self.restarts
                    if o == step.object and at > granted - spec.window and generation not in self.forgotten
                ]
                assert len(recent) <= spec.limit, f"{step.object}: {len(recent)} restarts in its window"

    def _left(self, action: StopContainer) -> None:
        """A planned stop: weight 0 in every pool, drained; out of every name, TTL over."""
        name, item = action.name, self.world.outside.nodes[action.node].get(action.name)
        spec = next((spec for spec in self.world.shop.specs if f"-{spec.name}-" in name), None)
        if item is None or spec is None or item.unjoined:
            return  # a container without its network gets no traffic, whatever its weight
        pools = self.world.outside.pools.get(POOLS, {}).values()
        weights = [member.weight for of in pools for end, member in of.items() if end.address == item.address]
        assert not any(weights), f"{name} was stopped with weight {weights}"
        if item.address in self.last_weight:
            waited = self.true_time - self.last_weight[item.address]
            assert waited >= spec.quiet, f"{name} was stopped {waited / SECOND} s after its weight became 0"
        published = self.world.published(f"{spec.name}.{ZONE}")
        grant = self.world.memory.ledger().grants.get(item.id)
        kept = grant is not None and returns(grant) and spec.max_unavailable >= spec.replicas
        if grant is not None and grant.cause is Reason.DRAIN_DEADLINE:
            kept = not any(member.weight for of in pools for member in of.values())  # a name keeps its last address
        assert kept or item.address not in published, f"{name} was stopped and is still published"

    def _weighed(self, action: SetWeight, step: Step | None) -> None:
        """A pool never becomes empty for health: only a fact, a granted restart or an operator's command may empty it."""
        address = action.endpoint.address
        containers = (item for of in self.world.outside.nodes.values() for item in of.values())
        item = next((container for container in containers if container.address == address), None)
        if action.weight > 0:
            if item is not None:
                self.given[address] = item.generation
            return
        if action.before:
            # A paused container serves no requests and needs no drain; it was paused at the time of the look.
            if step is not None and step.cause is Reason.PAUSED:
                self.last_weight.pop(address, None)
            else:
                self.last_weight[address] = self.true_time
        members = self.world.outside.pools[POOLS][action.pool]
        if any(m.weight for m in members.values() if m.owner == INSTANCE):
            return
        up = item is not None and item.state is ContainerState.RUNNING and not item.unjoined
        if item is None or not up or item.generation != self.given.get(address):
            return  # a fact: it does not run, has no network, or was restarted and has not been ready since
        if step is not None and step.cause is Reason.PAUSED:
            return  # a fact at the time of the look; it has been unpaused since
        if step is not None and step.cause is Reason.PUSHED_DRAINING:
            return  # its own claim
        if self.world.shop.destroy or all(s.replicas == 0 for s in self.world.shop.specs if action.pool in s.pools):
            return
        if action.pool not in {pool for spec in self.world.shop.specs for pool in spec.pools}:
            return
        grant = self.world.memory.ledger().grants.get(item.id)
        spec = next((spec for spec in self.world.shop.specs if f"-{spec.name}-" in action.name), None)
        allowed = spec is not None and spec.max_unavailable >= spec.replicas
        restart = grant is not None and (grant.cause in URGENT or (allowed and returns(grant)))
        assert restart, f"{action.pool} became empty: {action.name} {step.cause if step else ''}"

    def _named(self, action: ChangeRecords) -> None:
        """A name that had addresses keeps some, unless no manifest declares it."""
        for change in action.changes:
            hosts = {f"{spec.name}.{ZONE}" for spec in self.world.shop.specs if spec.publish is not None}
            if change.key.name in hosts and not self.world.shop.destroy and change.before is not None:
                assert self.world.published(change.key.name), f"{change.key.name} became empty"

    def _crowd(self, action: CreateContainer | StartContainer) -> None:
        """There are never two containers of one revision for one replica."""
        mine = [item.mark for item in self.world.containers().values() if item.mark is not None]
        ours = [(m.workload, m.ordinal, m.revision) for m in mine if m.instance == INSTANCE]
        alone = len(self.world.nodes) == 1  # a replica that moves exists on both nodes for a while
        assert not alone or len(ours) == len(set(ours)), f"two containers for one replica: {sorted(ours)}"

    def _untouched(self) -> None:
        """Objects without an owner mark of this instance never change."""
        assert self.foreign == self._foreign()

    def replant(self) -> None:
        """Record a foreign change: the new state of foreign objects must not change."""
        self.foreign = self._foreign()

    def _foreign(self) -> object:
        outside = self.world.outside
        containers = [
            (name, item.state, item.started_at)
            for name, item in sorted(self.world.containers().items())
            if (mark := item.mark or item.claim) is None or mark.instance != INSTANCE
        ]
        members = sorted(
            (pool, endpoint, m.weight, m.owner)
            for pool, of in outside.pools.get(POOLS, {}).items()
            for endpoint, m in of.items()
            if m.owner != INSTANCE
        )
        zone = outside.zones.get(NAMES, {}).get(ZONE)
        ours = {f"{spec.name}.{ZONE}" for spec in self.world.shop.specs} | {f"old.{ZONE}"}
        marks = {mark_key(RecordKey(member, "A")) for member in ours}
        records = sorted(
            (key, record)
            for key, record in (zone.records.items() if zone else ())
            if key.name not in ours and key not in marks
        )
        return containers, members, records


def leapt(since: Instant, until: Instant, window: int) -> bool:
    """Whether a window seems to be over because the clock was set forward before a reboot, which no clock can detect."""
    return since.lineage != until.lineage and until.wall - since.wall >= window
