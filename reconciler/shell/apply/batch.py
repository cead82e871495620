"""Which steps of one decision go to their provider in one call, and in which order those do that go alone. Called by `apply`.

A provider of endpoints that can do many actions at once saves a look and a conversation for each of them: a thousand weights
cost little more than one. A step waits for nothing by going with others, because only those go together that may begin now.
"""

import asyncio
from collections.abc import Mapping
from typing import NamedTuple

from providers.actions import Action, CutSessions, EndpointAction, RemoveEndpoint, SetWeight
from providers.errors import ProviderError
from providers.facts import PoolFact
from providers.spi import Batching, ReadingBack
from reconciler.core.model.step import Step
from reconciler.shell.providers import Providers

_TOGETHER = (SetWeight, RemoveEndpoint, CutSessions)

FEWEST = 2
"""A single step is called alone: a batch of one would save nothing."""

RAISES_FIRST = 5.0
"""Seconds that a cut waits for the raises of its pool: long for a balancer that works, short beside the drain that may follow."""


class Batch(NamedTuple):
    """Steps for one call, with their actions, both in the order of the decision. No target comes twice."""

    provider: Batching
    steps: tuple[Step, ...]
    actions: tuple[EndpointAction, ...]

    def perform(self) -> tuple[tuple[ProviderError | None, ...], tuple[PoolFact, ...]]:
        """The call: what came of each action, and the pools that the provider read back by itself. Raises `ProviderError`."""
        if isinstance(self.provider, ReadingBack):
            return self.provider.perform_and_read(self.actions)
        return self.provider.perform_all(self.actions), ()


def batches(steps: tuple[Step, ...], targets: Mapping[str, str], providers: Providers) -> tuple[Batch, ...]:
    """The batches of one decision: at most one for each endpoint provider that can, of at least `FEWEST` steps.

    A step that follows another one of the decision, or comes second on its target (which `targets` has by step), is in none.
    """
    seen: set[str] = set()
    found: dict[str, tuple[list[Step], list[EndpointAction]]] = {}
    for step in steps:
        action = step.action
        target = targets[step.id]
        first = target not in seen
        seen.add(target)
        # A tuple, because a union would be built anew for each of thousands.
        if (
            not first
            or not isinstance(action, _TOGETHER)
            or (step.follows and not targets.keys().isdisjoint(step.follows))
        ):
            continue
        if action.provider not in found:
            found[action.provider] = ([], [])
        chosen, actions = found[action.provider]
        chosen.append(step)
        actions.append(action)
    made = []
    for name, (chosen, actions) in found.items():
        provider = providers.endpoints.get(name)
        if len(chosen) >= FEWEST and isinstance(provider, Batching):
            made.append(Batch(provider, tuple(chosen), tuple(actions)))
    return tuple(made)


class Raises:
    """Keeps a pool from having less weight than before and after, where its weights do not go in one call.

    What loses weight there begins when all that gain some have ended, however they did, and after `RAISES_FIRST` in any case: a
    raise that fails or hangs is no reason to go on sending requests to what should get none.
    """

    def __init__(self) -> None:
        self._raises: dict[tuple[str, str], set[asyncio.Task[object]]] = {}
        self._ends: dict[tuple[str, str], asyncio.Task[object]] = {}

    def add(self, action: Action, call: asyncio.Task[object]) -> None:
        """Note that this call does this action."""
        if isinstance(action, SetWeight) and action.weight > (action.before or 0):
            self._raises.setdefault((action.provider, action.pool), set()).add(call)

    def before(self, action: Action) -> asyncio.Task[object] | None:
        """The end of the raises noted so far that this action has to wait for; None when there are none."""
        if not isinstance(action, SetWeight) or action.weight > (action.before or 0):
            return None
        pool = action.provider, action.pool
        if pool in self._raises and pool not in self._ends:
            self._ends[pool] = asyncio.create_task(asyncio.wait(self._raises[pool], timeout=RAISES_FIRST))
        return self._ends.get(pool)
