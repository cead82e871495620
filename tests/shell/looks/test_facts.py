"""Which looks wake the loop: in a daemon only those that may change the decision."""

import asyncio
from collections.abc import Collection
from dataclasses import replace

import pytest

from manifests.values.desired import SECOND, Role
from providers.errors import ProviderError, Unreachable
from providers.facts import ContainerFact, ContainerState, Endpoint, Known, MemberFact, PoolFact, Unknown, ZoneFact
from reconciler.core.health.belief import CADENCES
from reconciler.shell.looks.facts import RETRY, Looks
from reconciler.shell.looks.triggers import Wake
from reconciler.shell.providers import Providers
from tests.inline_runner import InlineRunner
from tests.sim.clock import VirtualClock
from tests.sim.manifest import NAMES, NODE, POOLS, ZONE, shop

CADENCE = {Role.RUNTIME: 15 * SECOND, Role.ENDPOINTS: SECOND, Role.DNS: 30 * SECOND}

FIRST = {
    Role.RUNTIME: (ContainerFact(NODE, "shop-web-0", "1", ContainerState.RUNNING),),
    Role.ENDPOINTS: (PoolFact("web", (MemberFact(Endpoint("192.0.2.1", 80), 100, ours=True),)),),
    Role.DNS: (ZoneFact(ZONE, 1, {}, {}),),
}
OTHER = {
    Role.RUNTIME: (ContainerFact(NODE, "shop-web-0", "1", ContainerState.EXITED),),
    Role.ENDPOINTS: (PoolFact("web", (MemberFact(Endpoint("192.0.2.1", 80), 0, ours=True),)),),
    Role.DNS: (ZoneFact(ZONE, 2, {}, {}),),
}


class Answers:
    """A provider of any role with given facts, or a given error."""

    def __init__(self, facts: object) -> None:
        self.facts: object = facts
        self.error: ProviderError | None = None

    def observe(self, asked: Collection[str] | None = None) -> object:
        if self.error is not None:
            raise self.error
        return self.facts


class Watcher:
    """Looks at one provider, and reports for each look whether it woke the loop."""

    def __init__(self, role: Role, *, only_changes: bool) -> None:
        self.role, self.provider, self.clock, self.wake = role, Answers(FIRST[role]), VirtualClock(), Wake()
        named = {Role.RUNTIME: NODE, Role.ENDPOINTS: POOLS, Role.DNS: NAMES}[role]
        providers_of: dict[Role, dict[str, Answers]] = {other: {} for other in Role} | {role: {named: self.provider}}
        providers = Providers(providers_of[Role.RUNTIME], providers_of[Role.ENDPOINTS], providers_of[Role.DNS])  # type: ignore[arg-type]
        self.looks = Looks(providers, InlineRunner(), self.clock, self.wake)
        self.looks.set_desired(replace(shop(), look_pools=SECOND).desired())
        self.looks.only_changes = only_changes

    def wakes(self, after: int | None = None) -> bool:
        """Make the look that is due `after` ns, by default one cadence, and report whether it woke the loop."""
        self.clock.advance(CADENCE[self.role] if after is None else after)
        asyncio.run(self.looks.look_due())
        return bool(self.wake.take())


ROLES = pytest.mark.parametrize("role", Role)


@ROLES
def test_only_a_look_that_finds_a_change_wakes_a_daemon(role):
    watcher = Watcher(role, only_changes=True)
    assert watcher.wakes(0)
    assert not any(watcher.wakes() for _ in range(5))
    watcher.provider.facts = OTHER[role]
    assert watcher.wakes()
    assert not watcher.wakes()
    watcher.provider.facts = ()
    assert watcher.wakes() is (role is not Role.DNS), "a zone that the server does not return keeps its facts"


@ROLES
def test_every_look_wakes_a_single_run(role):
    watcher = Watcher(role, only_changes=False)
    assert all(watcher.wakes() for _ in range(3))


@ROLES
def test_the_first_of_equal_failures_and_the_next_success_wake_a_daemon(role):
    watcher = Watcher(role, only_changes=True)
    watcher.wakes(0)
    watcher.provider.error = Unreachable("it", "no answer")
    assert watcher.wakes()
    assert not watcher.wakes()
    watcher.provider.error = Unreachable("it", "the connection was refused")
    assert watcher.wakes()
    assert not watcher.wakes()
    watcher.provider.error = None
    assert watcher.wakes()
    assert not watcher.wakes()


@ROLES
def test_unchanged_facts_wake_a_daemon_after_they_had_expired(role):
    watcher = Watcher(role, only_changes=True)
    watcher.wakes(0)
    assert not watcher.wakes(CADENCES * CADENCE[role] - 1)
    assert watcher.wakes(CADENCES * CADENCE[role])


def test_the_first_look_at_a_server_without_zones_wakes_the_loop():
    watcher = Watcher(Role.DNS, only_changes=True)
    watcher.looks.set_desired(shop(publish=None).desired())
    assert watcher.wakes(0)
    assert not watcher.wakes()


def test_a_pool_that_is_being_loaded_is_unknown_while_the_others_are_known():
    watcher = Watcher(Role.ENDPOINTS, only_changes=True)
    watcher.wakes(0)
    loading = PoolFact("web", unknown="pool web: nginx has not loaded it yet")
    watcher.provider.facts = (loading, PoolFact("api"))
    assert watcher.wakes()
    began = watcher.clock.now().steady
    assert not watcher.wakes()
    web, api = (watcher.looks.pools[POOLS, pool] for pool in ("web", "api"))
    assert web == Unknown(loading.unknown, POOLS, began)
    assert isinstance(api, Known)
    with pytest.raises(Unreachable, match="not loaded it yet"):
        asyncio.run(watcher.looks.read_pool(POOLS, "web"))
    watcher.provider.facts = FIRST[Role.ENDPOINTS]
    assert watcher.wakes()


class Zones:
    """A DNS provider that reads several zones; those in `broken` make the whole call fail, as in every provider."""

    def __init__(self, zones: Collection[str]) -> None:
        self.broken: set[str] = set()
        self.serials = dict.fromkeys(zones, 1)
        self.calls: list[tuple[str, ...]] = []

    def observe(self, asked: Collection[str]) -> object:
        self.calls.append(tuple(asked))
        for zone in asked:
            if zone in self.broken:
                raise Unreachable(f"zone {zone}", "line 7 is not a record")
        return tuple(ZoneFact(zone, self.serials[zone], {}, {}) for zone in asked)


def watched(*zones: str) -> tuple[Watcher, Zones]:
    watcher, provider = Watcher(Role.DNS, only_changes=True), Zones([ZONE, *zones])
    watcher.looks.providers.dns[NAMES] = provider  # type: ignore[index]
    watcher.looks.remembered = frozenset(f"{NAMES}/{zone}" for zone in zones)
    watcher.wakes(0)
    return watcher, provider


def test_a_zone_that_cannot_be_read_leaves_the_others_known():
    watcher, provider = watched("a.test.", "b.test.", "c.test.")
    provider.broken = {"b.test."}
    provider.serials["c.test."] = 2
    assert watcher.wakes()
    facts = {zone: watcher.looks.zones[NAMES, zone] for zone in provider.serials}
    assert {zone for zone, fact in facts.items() if isinstance(fact, Unknown)} == {"b.test."}
    assert facts["b.test."].reason == "zone b.test.: line 7 is not a record"  # type: ignore[union-attr]
    assert facts["c.test."].value.serial == 2  # type: ignore[union-attr]
    provider.calls.clear()
    assert not watcher.wakes(RETRY), "nothing is new"
    assert provider.calls == [("b.test.",)], "only the broken zone is read again soon"
    provider.calls.clear()
    assert not watcher.wakes()
    assert provider.calls == [("a.test.", "c.test.", ZONE), ("b.test.",)], "the others are read on their cadence"
    provider.broken = set()
    assert watcher.wakes(RETRY)
    assert all(isinstance(watcher.looks.zones[NAMES, zone], Known) for zone in provider.serials)


def test_a_silent_server_costs_a_bounded_time():
    names = [f"z{number}.test." for number in range(40)]
    watcher, provider = watched(*names)
    answer = provider.observe

    def slow(asked: Collection[str]) -> object:
        watcher.clock.advance(5 * SECOND)
        return answer(asked)

    provider.broken, provider.observe = set(provider.serials), slow  # type: ignore[method-assign]
    began = watcher.clock.now().steady
    assert watcher.wakes()
    assert watcher.clock.now().steady - began - CADENCE[Role.DNS] <= 20 * SECOND
    unknown = [fact for fact in watcher.looks.zones.values() if isinstance(fact, Unknown)]
    assert len(unknown) == len(provider.serials)
    tried = {zone for call in provider.calls for zone in call if len(call) == 1}
    watcher.wakes(RETRY)
    again = {zone for call in provider.calls for zone in call if len(call) == 1} - tried
    assert again, "zones that were not tried come first in the next look"
