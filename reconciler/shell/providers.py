"""The providers of one run, by role and name, and how they are called.

`wire.py` fills `Providers`, with every decorator in place; `looks` and `apply` use it. Providers block, so `ThreadRunner` calls
them on threads; simulations in virtual time have a runner that calls them in place.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from providers.actions import ChangeRecords, RuntimeAction
from providers.errors import Unreachable
from providers.spi import DNSProvider, EndpointProvider, Provider, RuntimeProvider

log = logging.getLogger("reconciler")

T = TypeVar("T")


class Runner(Protocol):
    """Makes blocking calls for the loop."""

    async def run(self, call: Callable[[], T]) -> T:
        """The call's result. Errors of the call are raised here."""

    def close(self) -> None:
        """End the threads."""


WORKERS = 256
"""Calls at a time. Each provider has limits of its own (`wrappers/limited.py`, `apply/applier.py`), so this many are never needed:
long actions do not keep looks and reads of the manifests waiting."""


class ThreadRunner:
    """Calls on its own threads, not on the event loop's shared ones, which name resolution needs."""

    def __init__(self, workers: int = WORKERS) -> None:
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="call")

    async def run(self, call: Callable[[], T]) -> T:
        """The call's result. Errors of the call are raised here.

        Raises:
            Unreachable: no thread can be started, so the call has not begun and never will.
        """
        future: Future[T] = Future()

        def work() -> None:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(call())
                except BaseException as error:  # noqa: BLE001  (raised where the result is awaited)
                    future.set_exception(error)

        try:
            self._pool.submit(work)
        except RuntimeError as error:
            # The pool has queued the call before it failed to start a thread, so another thread may take it yet.
            if future.cancel():
                next_step = (
                    "raise the limit of processes and threads of this user, or end some; it is retried automatically"
                )
                raise Unreachable("this host", f"no thread can be started: {error}", next_step) from error
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        """End the threads; running calls end at their own deadlines."""
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
        """Targets of calls whose outcome is unknown, as `Step.target`."""
        targets: set[str] = set()
        for runtime in self.runtimes.values():
            targets |= _busy(runtime)
        for group in (self.endpoints, self.dns):
            for name, provider in group.items():
                targets |= {f"{name}/{target}" for target in _busy(provider)}
        return frozenset(targets)

    def progress(self) -> tuple[str, ...]:
        """The progress texts of all providers, each after the provider's name. No server is called.

        A provider that fails is left out: a progress line must not end a run.
        """
        return tuple(f"{provider.name}: {text}" for provider in self.all() for text in _progress(provider))

    def close(self) -> None:
        """Close them all."""
        for provider in self.all():
            provider.close()


def innermost(provider: object) -> object:
    """The provider without its decorators: only it has optional methods such as `check`, `watch` and `progress`."""
    while (inner := getattr(provider, "inner", None)) is not None:
        provider = inner
    return provider


def _progress(provider: object) -> tuple[str, ...]:
    ask: Callable[[], tuple[str, ...]] | None = getattr(innermost(provider), "progress", None)
    if ask is None:
        return ()
    try:
        return tuple(ask())
    except Exception as error:  # noqa: BLE001  (third-party code, and only for a progress line)
        log.debug("a provider failed to report its progress: %s", type(error).__name__)
        return ()


def _busy(provider: object) -> frozenset[str]:
    """The busy objects of a provider; only the `limited` decorator has some after a call."""
    ask: Callable[[], frozenset[str]] | None = getattr(provider, "busy", None)
    return frozenset() if ask is None else ask()


def perform(providers: Providers, action: RuntimeAction | ChangeRecords) -> Callable[[], None] | None:
    """The call that does an action; None without a provider of that name. Weights go in batches instead."""
    if isinstance(action, ChangeRecords):
        zone = providers.dns.get(action.provider)
        return None if zone is None else lambda: zone.perform(action)
    runtime = providers.runtimes.get(action.node)
    return None if runtime is None else lambda: runtime.perform(action)
