"""The providers of one run, by role and name, and how calls to them are made.

`wire.py` fills it, with every decorator in place; `observe` and `apply` use it. Providers block, so `ThreadRunner` calls
them on threads; simulations in virtual time have a runner that calls them in place.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from providers.actions import ChangeRecords, RuntimeAction
from providers.spi import DNSProvider, EndpointProvider, Provider, RuntimeProvider

log = logging.getLogger("reconciler")

T = TypeVar("T")


class Runner(Protocol):
    """Makes blocking calls for the loop."""

    async def run(self, call: Callable[[], T]) -> T:
        """The call's result; what it raises is raised here."""

    def close(self) -> None:
        """Let go of threads."""


class ThreadRunner:
    """Calls on threads of its own, never on the event loop's shared ones, which name resolution needs."""

    def __init__(self, workers: int = 32) -> None:
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="call")

    async def run(self, call: Callable[[], T]) -> T:
        """The call's result; what it raises is raised here."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, call)

    def close(self) -> None:
        """Let go of threads; calls under way end at their own deadlines."""
        self._pool.shutdown(wait=False, cancel_futures=True)


@dataclass(frozen=True, slots=True)
class Providers:
    """All providers of one set of manifests."""

    runtimes: Mapping[str, RuntimeProvider] = field(default_factory=dict)
    endpoints: Mapping[str, EndpointProvider] = field(default_factory=dict)
    dns: Mapping[str, DNSProvider] = field(default_factory=dict)

    def all(self) -> tuple[Provider, ...]:
        """Every provider, in the order of roles and names."""
        groups = (self.runtimes, self.endpoints, self.dns)
        return tuple(group[name] for group in groups for name in sorted(group))

    def busy(self) -> frozenset[str]:
        """Targets with a call whose outcome is not known, in the words of `Step.target`."""
        found: set[str] = set()
        for runtime in self.runtimes.values():
            found |= _busy(runtime)
        for group in (self.endpoints, self.dns):
            for name, provider in group.items():
                found |= {f"{name}/{one}" for one in _busy(provider)}
        return frozenset(found)

    def progress(self) -> tuple[str, ...]:
        """What is under way in providers that say so, each with the provider's name before it. Asks no server.

        One that fails says nothing: a sign of life must not end a run.
        """
        return tuple(f"{one.name}: {text}" for one in self.all() for text in _progress(one))

    def close(self) -> None:
        """Close them all."""
        for provider in self.all():
            provider.close()


def innermost(provider: object) -> object:
    """The provider without its decorators: only it knows its own configuration, and hears of its own changes."""
    while (inner := getattr(provider, "inner", None)) is not None:
        provider = inner
    return provider


def _progress(provider: object) -> tuple[str, ...]:
    ask: Callable[[], tuple[str, ...]] | None = getattr(innermost(provider), "progress", None)
    if ask is None:
        return ()
    try:
        return tuple(ask())
    except Exception as error:  # noqa: BLE001  (code of somebody else, asked only for the sake of people)
        log.debug("a provider cannot say its progress: %s", type(error).__name__)
        return ()


def _busy(provider: object) -> frozenset[str]:
    """Providers without a deadline of their own are never busy beyond their calls."""
    ask: Callable[[], frozenset[str]] | None = getattr(provider, "busy", None)
    return frozenset() if ask is None else ask()


def perform(providers: Providers, action: RuntimeAction | ChangeRecords) -> Callable[[], None] | None:
    """The call that does an action; None when no provider of that name is there. Weights go in batches instead."""
    if isinstance(action, ChangeRecords):
        zone = providers.dns.get(action.provider)
        return None if zone is None else lambda: zone.perform(action)
    runtime = providers.runtimes.get(action.node)
    return None if runtime is None else lambda: runtime.perform(action)
