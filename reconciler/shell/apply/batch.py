"""Groups the weights of one decision into calls of endpoint providers, and orders those that go later. Called by the applier.

A thousand weights in one call cost little more than one. A batch delays no step, because it has only steps that may begin now.
"""

import asyncio
from collections.abc import Mapping
from typing import NamedTuple

from providers.actions import Action, CutSessions, EndpointAction, RemoveEndpoint, SetWeight
from providers.spi import EndpointProvider
from reconciler.core.model.step import Step
from reconciler.shell.providers import Providers


def goes_first(step: Step) -> bool:
    """Whether the step does not wait for the disk: only weights are sent before the ledger is on it."""
    return isinstance(step.action, SetWeight) and not step.journal


_TOGETHER = (SetWeight, RemoveEndpoint, CutSessions)

RAISES_FIRST = 5.0
"""Seconds that a cut waits for the raises of its pool: long for a working balancer, short compared with a drain."""


class Batch(NamedTuple):
    """Steps for one call, and their actions in the same order. No target comes twice."""

    provider: EndpointProvider
    steps: tuple[Step, ...]
    actions: tuple[EndpointAction, ...]


class _Gathered(NamedTuple):
    """The steps and actions of one provider: those that raise a weight, and all others."""

    raises: list[tuple[Step, EndpointAction]]
    others: list[tuple[Step, EndpointAction]]


def batches(steps: tuple[Step, ...], targets: Mapping[str, str], providers: Providers) -> tuple[Batch, ...]:
    """The batches of one decision: for each endpoint provider at most one that waits for the disk, after one that does not.

    A step that follows another step of the decision, or is the second on its target (`targets` has the target by step id), is in
    none. Raises come first, so that a provider that does one action after another never leaves a pool with less weight than before
    and after. Otherwise the order is that of the decision.
    """
    taken: set[str] = set()
    gathered: dict[tuple[str, bool], _Gathered] = {}
    for step in steps:
        action = step.action
        target = targets[step.id]
        first = target not in taken
        taken.add(target)
        # A tuple, because a union would be made again for each of thousands.
        if (
            not first
            or not isinstance(action, _TOGETHER)
            or (step.follows and not targets.keys().isdisjoint(step.follows))
        ):
            continue
        key = action.provider, not goes_first(step)
        if key not in gathered:
            gathered[key] = _Gathered([], [])
        raises, others = gathered[key]
        gains = type(action) is SetWeight and action.weight > (action.before or 0)
        (raises if gains else others).append((step, action))
    made = []
    for (name, _), (raises, others) in sorted(gathered.items(), key=lambda item: item[0][1]):
        provider = providers.endpoints.get(name)
        if provider is not None:
            chosen, actions = zip(*raises, *others, strict=True)
            made.append(Batch(provider, chosen, actions))
    return tuple(made)


def alone(step: Step, action: EndpointAction, providers: Providers) -> Batch | None:
    """A step in a call of its own; None without a provider of that name."""
    provider = providers.endpoints.get(action.provider)
    return None if provider is None else Batch(provider, (step,), (action,))


class RaisesFirst:
    """Keeps the weight of a pool from falling below what it is before and after, where its weights go in several calls.

    A cut begins when all raises of its pool have ended, also by an error, and after `RAISES_FIRST` seconds in any case: a raise
    that hangs must not keep requests on an endpoint that should get none.
    """

    def __init__(self) -> None:
        self._raises: dict[tuple[str, str], set[asyncio.Task[object]]] = {}
        self._ends: dict[tuple[str, str], asyncio.Task[object]] = {}

    def add(self, action: Action, call: asyncio.Task[object]) -> None:
        """Remember that this call does this action."""
        if isinstance(action, SetWeight) and action.weight > (action.before or 0):
            self._raises.setdefault((action.provider, action.pool), set()).add(call)

    def before(self, action: Action) -> asyncio.Task[object] | None:
        """The end of the raises so far that this action has to wait for; None without raises."""
        if not isinstance(action, SetWeight) or action.weight > (action.before or 0):
            return None
        pool = action.provider, action.pool
        if pool in self._raises and pool not in self._ends:
            self._ends[pool] = asyncio.create_task(asyncio.wait(self._raises[pool], timeout=RAISES_FIRST))
        return self._ends.get(pool)
