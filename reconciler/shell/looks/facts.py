"""Looks: when each provider is read, and what is kept of the answers.

Every provider has its own cadence; a look that fails leaves Unknown behind, never "nothing there". Looks run beside the ticks:
a tick decides over what is known. After a write only the object written is read back. Called by the loop and by `apply`.
"""

import asyncio
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import replace
from functools import partial

from manifests.values.desired import SECOND, Desired, Role
from providers.errors import ProviderError
from providers.facts import ContainerFact, Known, PoolFact, Unknown, ZoneFact
from reconciler.core.health.belief import CADENCES
from reconciler.core.model.observed import PoolFacts, RuntimeFacts, ZoneFacts
from reconciler.shell.clock import Clock
from reconciler.shell.looks.triggers import Wake
from reconciler.shell.providers import Providers, Runner, innermost

RETRY = SECOND
"""How soon a provider that could not be read is looked at again, at the latest by its cadence."""


def _hint(loop: asyncio.AbstractEventLoop, tell: Callable[[], None]) -> None:
    """Pass a hint on from another thread; one that comes when the run is over is nobody's any more."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(tell)


class Looks:
    """The latest facts of all providers, kept up to date.

    Attributes:
        only_news: a look that finds what is known and was still believed does not wake the loop, because no rule asks how old a
            fact is that is fresh. A single run counts its looks, and so wants to hear of each.
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
        self._due: dict[tuple[Role, str], int] = {}
        self._under_way: dict[tuple[Role, str], asyncio.Task[None]] = {}
        self._again: set[tuple[Role, str]] = set()
        self._believed_until: dict[tuple[Role, str], int] = {}
        self._written: dict[tuple[str, str], int] = {}
        self._desired: Desired | None = None

    def want(self, desired: Desired) -> None:
        """From now on, look at what this set of manifests names. Providers that went are forgotten, new ones are due."""
        self._desired = desired
        keys = [(Role.RUNTIME, name) for name in self.providers.runtimes]
        keys += [(Role.ENDPOINTS, name) for name in self.providers.endpoints]
        keys += [(Role.DNS, name) for name in self.providers.dns]
        now = self.clock.now().steady
        self._due = dict.fromkeys(keys, now)
        self.attempts = {key: self.attempts.get(key, 0) for key in keys}

    def replace_providers(self, providers: Providers) -> None:
        """Use other provider objects; facts of providers that are gone are dropped."""
        self.providers = providers
        self.runtimes = {name: one for name, one in self.runtimes.items() if name in providers.runtimes}
        self.pools = {key: one for key, one in self.pools.items() if key[0] in providers.endpoints}
        self.zones = {key: one for key, one in self.zones.items() if key[0] in providers.dns}

    def _cadence(self, role: Role) -> int:
        assert self._desired is not None  # noqa: S101  (`want` is called before any look)
        instance = self._desired.instance
        return {
            Role.RUNTIME: instance.look_runtime,
            Role.ENDPOINTS: instance.look_endpoints,
            Role.DNS: instance.look_dns,
        }[role]

    def look_soon(self, role: Role, name: str) -> None:
        """Look at this provider now: something hints that it changed."""
        if (role, name) in self._due:
            self._due[role, name] = self.clock.now().steady
        if (role, name) in self._under_way:
            # The look under way may have read before what the hint is about.
            self._again.add((role, name))

    def listen(self) -> None:
        """Let runtimes that can say that something changed make the next look come sooner."""
        loop = asyncio.get_running_loop()
        for name, runtime in self.providers.runtimes.items():
            watch = getattr(innermost(runtime), "watch", None)
            if watch is not None:
                watch(partial(_hint, loop, partial(self._hinted, name)))

    def _hinted(self, name: str) -> None:
        self.look_soon(Role.RUNTIME, name)
        self.wake.set(f"{name} hints at a change")

    def tried_enough(self, tries: int) -> bool:
        """Whether every provider that cannot be read was tried at least this often."""
        facts = [*self.runtimes.values(), *self.pools.values(), *self.zones.values()]
        unknown = {fact.source for fact in facts if isinstance(fact, Unknown)}
        return all(count >= tries for (_, name), count in self.attempts.items() if name in unknown)

    def next_due(self) -> int:
        """The steady instant of the next look that is not under way."""
        return min((due for key, due in self._due.items() if key not in self._under_way), default=2**62)

    def start_due(self) -> None:
        """Begin every look that is due."""
        now = self.clock.now().steady
        for key, due in list(self._due.items()):
            if due <= now and key not in self._under_way:
                self._under_way[key] = asyncio.create_task(self._look(key))

    async def look_due(self) -> None:
        """Make the looks that are due, and wait for all that are under way."""
        self.start_due()
        await self.settle()

    async def settle(self) -> None:
        """Wait for the looks under way; each has its own deadline."""
        while self._under_way:
            await asyncio.gather(*self._under_way.values())

    async def _look(self, key: tuple[Role, str]) -> None:
        role, name = key
        began = self.clock.now().steady
        try:
            if role is Role.RUNTIME:
                news = await self._look_runtime(name, began)
            elif role is Role.ENDPOINTS:
                news = await self._look_pools(name, began)
            else:
                news = await self._look_zones(name, began)
            again = self._cadence(role)
        except ProviderError as error:
            news = True
            self._blind(role, name, str(error), began)
            again = min(RETRY, self._cadence(role))
        finally:
            self._under_way.pop(key, None)
        now = self.clock.now().steady
        news = news or now >= self._believed_until.get(key, now)
        self._believed_until[key] = began + CADENCES * self._cadence(role)
        self.attempts[key] = self.attempts.get(key, 0) + 1
        if key in self._due:
            self._due[key] = began + (0 if key in self._again else again)
        self._again.discard(key)
        if news or not self.only_changes:
            self.wake.set(f"looked at {name}")
        else:
            self.wake.stir()  # the next look may be due before the loop would rise

    async def _look_runtime(self, name: str, began: int) -> bool:
        """Read a node; whether it is not as it was."""
        provider = self.providers.runtimes[name]
        facts = await self.runner.run(provider.observe)
        # A look need not show what carries no mark. Who was found under a name that we want stays seen until he is gone.
        strangers = self._strangers(name) - {fact.name for fact in facts}
        if strangers:
            facts = (*facts, *await self.runner.run(lambda: provider.observe(strangers)))
        before = self.runtimes.get(name)
        if isinstance(before, Known):
            # What was read back after a write of ours is newer than a look that began earlier.
            newer = {fact.name: fact for fact in before.value if self._written.get((name, fact.name), 0) >= began}
            removed = {one for (node, one), at in self._written.items() if node == name and at >= began}
            if removed:
                facts = tuple(fact for fact in facts if fact.name not in removed) + tuple(newer.values())
        self._written = {key: at for key, at in self._written.items() if at >= began - 60 * SECOND}
        news = not isinstance(before, Known) or before.value != facts
        self.version += news
        self.runtimes[name] = Known(facts, name, began)
        return news

    def _strangers(self, node: str) -> set[str]:
        """Names of the containers without any mark that were read back on a node."""
        known = self.runtimes.get(node)
        facts = known.value if isinstance(known, Known) else ()
        return {fact.name for fact in facts if fact.mark is None and not fact.foreign_mark}

    async def _look_pools(self, name: str, began: int) -> bool:
        """Read what a balancer is asked for; whether any pool is not as it was."""
        assert self._desired is not None  # noqa: S101
        named = sorted({b.pool for s in self._desired.services for b in s.balancers if b.provider == name})
        provider = self.providers.endpoints[name]
        facts = await self.runner.run(lambda: provider.observe(named))
        found = {(name, fact.pool): fact for fact in facts}
        gone = [key for key in self.pools if key[0] == name and key not in found]
        for key in gone:
            del self.pools[key]
        other = [self._put_pool(key, fact, began) for key, fact in found.items()]
        return bool(gone) or any(other)

    def _put_pool(self, key: tuple[str, str], fact: PoolFact, began: int) -> bool:
        before = self.pools.get(key)
        if isinstance(before, Known) and before.observed_at > began:
            return False
        self.pools[key] = Known(fact, key[0], began)
        return not isinstance(before, Known) or before.value != fact

    async def _look_zones(self, name: str, began: int) -> bool:
        """Read the zones of a DNS server; whether any is not as it was."""
        zones = self._zones_of(name)
        if not zones:
            return False
        provider = self.providers.dns[name]
        facts = await self.runner.run(lambda: provider.observe(zones))
        other = [self._put_zone((name, fact.zone), fact, began) for fact in facts]
        return any(other)

    def _zones_of(self, name: str) -> list[str]:
        """Zones that policies name, and those we have published in before."""
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

    def _blind(self, role: Role, name: str, reason: str, began: int) -> None:
        """A provider that cannot be read: everything it would have told is unknown from here on."""

        def unknown(before: Known[object] | Unknown | None) -> Unknown:
            return Unknown(reason, name, before.since if isinstance(before, Unknown) else began)

        assert self._desired is not None  # noqa: S101
        if role is Role.RUNTIME:
            self.runtimes[name] = unknown(self.runtimes.get(name))  # type: ignore[arg-type]
            self.version += 1
            return
        if role is Role.ENDPOINTS:
            named = {(name, b.pool) for s in self._desired.services for b in s.balancers if b.provider == name}
            # Members of ours may be in pools that no manifest names; without a single key nothing would say that they are unknown.
            known = named | {key for key in self.pools if key[0] == name}
            for pool_key in known or {(name, "")}:
                self.pools[pool_key] = unknown(self.pools.get(pool_key))  # type: ignore[arg-type]
            return
        for zone in self._zones_of(name):
            self.zones[name, zone] = unknown(self.zones.get((name, zone)))  # type: ignore[arg-type]

    # --- read-back of single objects ------------------------------------------------------------------------------

    async def read_container(self, node: str, name: str) -> ContainerFact | None:
        """One container after a write of ours; None when it is not there. Raises `ProviderError`."""
        provider = self.providers.runtimes[node]
        facts = await self.runner.run(lambda: provider.observe({name}))
        found = next((fact for fact in facts if fact.name == name), None)
        self._written[node, name] = self.clock.now().steady
        known = self.runtimes.get(node)
        if isinstance(known, Known):
            others = tuple(fact for fact in known.value if fact.name != name)
            self.runtimes[node] = replace(known, value=(*others, found) if found is not None else others)
            self.version += 1
        return found

    async def read_pool(self, name: str, pool: str) -> PoolFact:
        """One pool after a write of ours. Raises `ProviderError`."""
        began = self.clock.now().steady
        provider = self.providers.endpoints[name]
        facts = await self.runner.run(lambda: provider.observe([pool]))
        fact = next((one for one in facts if one.pool == pool), PoolFact(pool))
        self._put_pool((name, pool), fact, began)
        return fact

    def put_read_back(self, name: str, fact: PoolFact, began: int) -> bool:
        """Take over what a provider read back by itself, in a call that began then.

        False, and nothing is taken over: a look that began later is there already. It may have read before the write, so only
        another look can tell.
        """
        known = self.pools.get((name, fact.pool))
        if isinstance(known, Known) and known.observed_at > began:
            return False
        self.pools[name, fact.pool] = Known(fact, name, began)
        return True

    async def read_zone(self, name: str, zone: str) -> ZoneFact | None:
        """One zone after a write of ours. Raises `ProviderError`."""
        began = self.clock.now().steady
        provider = self.providers.dns[name]
        facts: Collection[ZoneFact] = await self.runner.run(lambda: provider.observe([zone]))
        fact = next((one for one in facts if one.zone == zone), None)
        if fact is not None:
            self._put_zone((name, zone), fact, began)
        return fact
