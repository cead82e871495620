"""Looks: reads each provider on its cadence and keeps the latest facts.

A look that fails results in Unknown, never in "nothing there". Looks run concurrently with the ticks: a tick decides from the
known facts. After a write only the written object is read back. Called by the loop and by `apply`.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Container
from contextlib import suppress
from dataclasses import replace
from functools import partial

from manifests.values.desired import SECOND, Desired, Role
from providers.errors import ProviderError, Unreachable
from providers.facts import ContainerFact, Known, PoolFact, Unknown, ZoneFact
from reconciler.core.health.belief import CADENCES
from reconciler.core.model.observed import PoolFacts, RuntimeFacts, ZoneFacts
from reconciler.core.replicas.identity import recognise
from reconciler.shell.clock import Clock
from reconciler.shell.looks.triggers import Wake
from reconciler.shell.looks.zones import read_zones
from reconciler.shell.providers import Providers, Runner, innermost
from reconciler.shell.secrets import SECRETS, masked_fact

log = logging.getLogger(__name__)

RETRY = SECOND
"""Time (ns) until a provider that could not be read is read again, unless its cadence is shorter."""


def _hint(loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
    """Pass a hint on from another thread; it is dropped when the event loop is closed."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(callback)


class Looks:
    """The latest facts of all providers, kept up to date.

    Attributes:
        only_changes: a look without a change does not wake the loop while the facts before it are still valid, because no rule
            depends on the age of valid facts. A single run counts its looks, so it is woken by each.
        owned: the ids of the containers that the ledger knows as ours; they may have other names by now.
    """

    def __init__(self, providers: Providers, runner: Runner, clock: Clock, wake: Wake) -> None:
        self.providers, self.runner, self.clock, self.wake = providers, runner, clock, wake
        self.runtimes: dict[str, RuntimeFacts] = {}
        self.pools: dict[tuple[str, str], PoolFacts] = {}
        self.zones: dict[tuple[str, str], ZoneFacts] = {}
        self.attempts: dict[tuple[Role, str], int] = {}
        self.version = 0
        self.only_changes = False
        self.remembered: frozenset[str] = frozenset()
        self.owned: Container[str] = frozenset()
        self._due: dict[tuple[Role, str], int] = {}
        self._under_way: dict[tuple[Role, str], asyncio.Task[None]] = {}
        self._again: set[tuple[Role, str]] = set()
        self._believed_until: dict[tuple[Role, str], int] = {}
        self._retries: set[tuple[Role, str]] = set()
        self._zone_tried: dict[tuple[str, str], int] = {}
        self._written: dict[str, dict[str, int]] = {}
        self._desired: Desired | None = None

    def set_desired(self, desired: Desired) -> None:
        """Look at what these manifests name from now on. Removed providers are forgotten, new ones are due."""
        self._desired = desired
        keys = [(Role.RUNTIME, name) for name in self.providers.runtimes]
        keys += [(Role.ENDPOINTS, name) for name in self.providers.endpoints]
        keys += [(Role.DNS, name) for name in self.providers.dns]
        now = self.clock.now().steady
        self._due = dict.fromkeys(keys, now)
        self._retries.clear()
        self.attempts = {key: self.attempts.get(key, 0) for key in keys}

    def replace_providers(self, providers: Providers) -> None:
        """Use other provider objects; facts of removed providers are dropped, and so are looks that the earlier ones still make."""
        self.providers = providers
        for task in self._under_way.values():
            task.cancel()
        self._under_way.clear()
        self._again.clear()
        self.runtimes = {name: facts for name, facts in self.runtimes.items() if name in providers.runtimes}
        self._written = {name: names for name, names in self._written.items() if name in providers.runtimes}
        self.pools = {key: pool for key, pool in self.pools.items() if key[0] in providers.endpoints}
        self.zones = {key: zone for key, zone in self.zones.items() if key[0] in providers.dns}

    def _cadence(self, role: Role) -> int:
        assert self._desired is not None  # noqa: S101  (`set_desired` is called before any look)
        instance = self._desired.instance
        return {
            Role.RUNTIME: instance.look_runtime,
            Role.ENDPOINTS: instance.look_endpoints,
            Role.DNS: instance.look_dns,
        }[role]

    def look_soon(self, role: Role, name: str) -> None:
        """Make a look at this provider due now: something hints at a change."""
        self._retries.discard((role, name))
        if (role, name) in self._due:
            self._due[role, name] = self.clock.now().steady
        if (role, name) in self._under_way:
            # The look under way may have read before the change.
            self._again.add((role, name))

    def listen(self) -> None:
        """Subscribe to hints of the runtimes that have them; a hint makes the next look come sooner."""
        loop = asyncio.get_running_loop()
        for name, runtime in self.providers.runtimes.items():
            watch = getattr(innermost(runtime), "watch", None)
            if watch is not None:
                watch(partial(_hint, loop, partial(self._hinted, name)))

    def _hinted(self, name: str) -> None:
        self.look_soon(Role.RUNTIME, name)
        self.wake.set(f"{name} reported a change")

    def next_due(self) -> int:
        """Steady instant (ns) of the next look that is not under way."""
        return min((due for key, due in self._due.items() if key not in self._under_way), default=2**62)

    def start_due(self) -> None:
        """Start every look that is due."""
        now = self.clock.now().steady
        for key, due in list(self._due.items()):
            if due <= now and key not in self._under_way:
                self._under_way[key] = asyncio.create_task(self._look(key))

    async def look_due(self) -> None:
        """Start the looks that are due, and wait for all looks under way."""
        self.start_due()
        await self.settle()

    async def settle(self) -> None:
        """Wait for the looks under way; each has a deadline."""
        while self._under_way:
            await asyncio.gather(*self._under_way.values())

    async def _look(self, key: tuple[Role, str]) -> None:
        role, name = key
        began = self.clock.now().steady
        again = self._cadence(role)
        try:
            if role is Role.RUNTIME:
                changed = await self._look_runtime(name, began)
            elif role is Role.ENDPOINTS:
                changed = await self._look_pools(name, began)
            else:
                changed, failed = await self._look_zones(name, began)
                again = min(RETRY, again) if failed else again
        except ProviderError as error:
            changed = self._set_unknown(role, name, str(error), began)
            again = min(RETRY, self._cadence(role))
        except Exception as error:
            log.exception("%s: a look failed unexpectedly", name)
            changed = self._set_unknown(
                role, name, f"{name}: unexpected {type(error).__name__}; the log has the traceback", began
            )
            again = self._cadence(role)
        finally:
            if self._under_way.get(key) is asyncio.current_task():
                del self._under_way[key]
        now = self.clock.now().steady
        changed = changed or now >= self._believed_until.get(key, now)
        self._believed_until[key] = began + CADENCES * self._cadence(role)
        self.attempts[key] = self.attempts.get(key, 0) + 1
        if key in self._due:
            self._due[key] = began + (0 if key in self._again else again)
        self._again.discard(key)
        if changed or not self.only_changes:
            self.wake.set(f"looked at {name}")
        else:
            self.wake.end_sleep()  # the next look may be due before the loop wakes up

    async def _look_runtime(self, name: str, began: int) -> bool:
        """Read a node. Whether anything changed."""
        provider = self.providers.runtimes[name]
        facts = await self.runner.run(provider.observe)
        # A look may leave out containers without a mark. Those read back under a desired name are read until they are gone.
        unmarked = self._unmarked(name) - {fact.name for fact in facts}
        if unmarked:
            facts = (*facts, *await self.runner.run(lambda: provider.observe(unmarked)))
        facts = self._recognise(facts)
        before = self.runtimes.get(name)
        if isinstance(before, Known):
            # A read-back after a write is newer than a look that began before the write.
            written = {container for container, at in self._written.get(name, {}).items() if at >= began}
            newer = {fact.name: fact for fact in before.value if fact.name in written}
            if written:
                ids = {fact.id for fact in newer.values()}  # a container may have been renamed in between
                others = tuple(fact for fact in facts if fact.name not in written and fact.id not in ids)
                facts = others + tuple(newer.values())
        if name in self._written:
            recent = {container: at for container, at in self._written.pop(name).items() if at >= began - 60 * SECOND}
            if recent:
                self._written[name] = recent
        changed = not isinstance(before, Known) or before.value != facts
        self.version += changed
        self.runtimes[name] = Known(facts, name, began)
        return changed

    def _recognise(self, facts: tuple[ContainerFact, ...]) -> tuple[ContainerFact, ...]:
        facts = tuple(map(masked_fact, facts))
        return recognise(facts, self._desired.instance.id, self.owned) if self._desired is not None else facts

    def _unmarked(self, node: str) -> set[str]:
        """Names of the known containers of a node without any mark."""
        known = self.runtimes.get(node)
        facts = known.value if isinstance(known, Known) else ()
        return {fact.name for fact in facts if fact.mark is None and not fact.foreign_mark}

    async def _look_pools(self, name: str, began: int) -> bool:
        """Read the desired pools of a balancer. Whether any pool changed."""
        assert self._desired is not None  # noqa: S101
        named = sorted(
            {
                balancer.pool
                for service in self._desired.services
                for balancer in service.balancers
                if balancer.provider == name
            }
        )
        provider = self.providers.endpoints[name]
        facts = await self.runner.run(lambda: provider.observe(named))
        pools = {(name, fact.pool): fact for fact in facts}
        gone = [key for key in self.pools if key[0] == name and key not in pools]
        for key in gone:
            del self.pools[key]
        changed = [self._put_pool(key, fact, began) for key, fact in pools.items()]
        return bool(gone) or any(changed)

    def _put_pool(self, key: tuple[str, str], fact: PoolFact, began: int) -> bool:
        before = self.pools.get(key)
        if isinstance(before, Known) and before.observed_at > began:
            return False
        if fact.unknown:
            since = before.since if isinstance(before, Unknown) else began
            self.pools[key] = Unknown(SECRETS.mask(fact.unknown), key[0], since)
            return before != self.pools[key]
        self.pools[key] = Known(fact, key[0], began)
        return not isinstance(before, Known) or before.value != fact

    async def _look_zones(self, name: str, began: int) -> tuple[bool, bool]:
        """Read the zones of a DNS server. Whether any zone changed, and whether any could not be read.

        A zone that cannot be read is unknown alone, and is read again soon, without the others.
        """
        key, zones = (Role.DNS, name), self._zones_of(name)
        retry = key in self._retries
        self._retries.discard(key)
        doubtful = [zone for zone in zones if isinstance(self.zones.get((name, zone)), Unknown)]
        doubtful.sort(key=lambda zone: self._zone_tried.get((name, zone), 0))
        readable = [
            zone for zone in zones if zone not in doubtful and not (retry and self._is_fresh(name, zone, began))
        ]
        if not readable and not doubtful:
            return False, False
        provider = self.providers.dns[name]

        async def observe(some: Collection[str]) -> Collection[ZoneFact]:
            self._zone_tried.update(((name, zone), began) for zone in some if len(some) == 1)
            return await self.runner.run(lambda: provider.observe(some))

        facts, reasons = await read_zones(observe, readable, doubtful, self.clock)
        changed = [self._put_zone((name, fact.zone), fact, began) for fact in facts]
        changed += [self._put_unknown_zone((name, zone), reason, began) for zone, reason in reasons.items()]
        if reasons:
            self._retries.add(key)
        return any(changed), bool(reasons)

    def _is_fresh(self, name: str, zone: str, now: int) -> bool:
        """Whether a zone was read within the last cadence."""
        known = self.zones.get((name, zone))
        return isinstance(known, Known) and now - known.observed_at < self._cadence(Role.DNS)

    def _put_unknown_zone(self, key: tuple[str, str], reason: str, began: int) -> bool:
        before = self.zones.get(key)
        if isinstance(before, Known) and before.observed_at > began:
            return False
        self.zones[key] = Unknown(SECRETS.mask(reason), key[0], before.since if isinstance(before, Unknown) else began)
        return before != self.zones[key]

    def _zones_of(self, name: str) -> list[str]:
        """Zones that policies name, and zones with earlier publications."""
        assert self._desired is not None  # noqa: S101
        named = {zone for provider, zone in self._desired.zones if provider == name}
        known = {zone for provider, zone in self.zones if provider == name}
        remembered = {zone.partition("/")[2] for zone in self.remembered if zone.startswith(f"{name}/")}
        return sorted(named | known | remembered)

    def _put_zone(self, key: tuple[str, str], fact: ZoneFact, began: int) -> bool:
        before = self.zones.get(key)
        if isinstance(before, Known) and before.observed_at > began:
            return False
        self.zones[key] = Known(fact, key[0], began)
        return not isinstance(before, Known) or before.value != fact

    def _set_unknown(self, role: Role, name: str, reason: str, began: int) -> bool:
        """Make all facts of a runtime or balancer unknown, because it could not be read. Whether that is new."""

        def unknown(before: Known[object] | Unknown | None) -> Unknown:
            return Unknown(SECRETS.mask(reason), name, before.since if isinstance(before, Unknown) else began)

        assert self._desired is not None  # noqa: S101
        if role is Role.RUNTIME:
            before = self.runtimes.get(name)
            self.runtimes[name] = unknown(before)  # type: ignore[arg-type]
            changed = before != self.runtimes[name]
            self.version += changed
            return changed
        changed = role is Role.DNS
        if role is Role.ENDPOINTS:
            named = {
                (name, balancer.pool)
                for service in self._desired.services
                for balancer in service.balancers
                if balancer.provider == name
            }
            # Owned members may be in pools that no manifest names. Without any key nothing would show that they are unknown.
            known = named | {key for key in self.pools if key[0] == name}
            for pool_key in known or {(name, "")}:
                earlier = self.pools.get(pool_key)
                self.pools[pool_key] = unknown(earlier)  # type: ignore[arg-type]
                changed = changed or earlier != self.pools[pool_key]
        return changed

    # --- read-back of single objects ------------------------------------------------------------------------------

    async def read_container(self, node: str, name: str, container_id: str = "") -> ContainerFact | None:
        """Read one container after a write, by its name, or by its id if that name is gone. None when it does not exist.

        Raises `ProviderError`.
        """
        provider = self.providers.runtimes[node]
        facts = await self.runner.run(lambda: provider.observe({name}))
        if not facts and container_id:
            facts = await self.runner.run(lambda: provider.observe({container_id}))
        container = next(iter(self._recognise(facts)), None)
        names = {name} if container is None else {name, container.name}
        self._written.setdefault(node, {}).update(dict.fromkeys(names, self.clock.now().steady))
        known = self.runtimes.get(node)
        if isinstance(known, Known):
            others = tuple(fact for fact in known.value if fact.name not in names)
            self.runtimes[node] = replace(known, value=(*others, container) if container is not None else others)
            self.version += 1
        return container

    async def read_pool(self, name: str, pool: str) -> PoolFact:
        """Read one pool after a write. Raises `ProviderError`."""
        began = self.clock.now().steady
        provider = self.providers.endpoints[name]
        facts = await self.runner.run(lambda: provider.observe([pool]))
        fact = next((fact for fact in facts if fact.pool == pool), PoolFact(pool))
        self._put_pool((name, pool), fact, began)
        if fact.unknown:
            raise Unreachable(f"pool {pool}", fact.unknown.removeprefix(f"pool {pool}: "))
        return fact

    def put_read_back(self, name: str, fact: PoolFact, began: int) -> bool:
        """Take over the facts that a provider read back itself, in a call that began at `began`.

        False when the facts of a later look are known already: they stay. That look may have read before the write, so another
        look is needed.
        """
        known = self.pools.get((name, fact.pool))
        if isinstance(known, Known) and known.observed_at > began:
            return False
        self._put_pool((name, fact.pool), fact, began)
        return True

    async def read_zone(self, name: str, zone: str) -> ZoneFact | None:
        """Read one zone after a write. Raises `ProviderError`."""
        began = self.clock.now().steady
        provider = self.providers.dns[name]
        facts: Collection[ZoneFact] = await self.runner.run(lambda: provider.observe([zone]))
        fact = next((fact for fact in facts if fact.zone == zone), None)
        if fact is not None:
            self._put_zone((name, zone), fact, began)
        return fact
