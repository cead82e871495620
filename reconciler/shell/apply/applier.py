"""Apply: one provider action per step, journalled, read back. Decides nothing.

The target of a step is busy from before its call until its outcome is known; steps on the same target go one after another,
all others at once; see `batch.py` for those that share a call. A step that comes after one that failed is skipped; everything
else goes on. Called by the loop.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping

from manifests.values.desired import Role
from providers.actions import (
    Action,
    ChangeRecords,
    CreateContainer,
    CutSessions,
    EndpointAction,
    RemoveContainer,
    RemoveEndpoint,
    RuntimeAction,
    SetWeight,
    StartContainer,
    StopContainer,
    UpdateContainer,
)
from providers.errors import OutcomeUnknown, ProviderError, Retry
from providers.facts import ContainerState, Endpoint, MemberFact, PoolFact
from providers.spi import Performed
from reconciler.core.decision import describe, spelled_out
from reconciler.core.model.ledger import Outcome, OutcomeKind
from reconciler.core.model.step import Step, target_of
from reconciler.shell.apply.batch import Batch, Raises, alone, batches
from reconciler.shell.clock import Clock
from reconciler.shell.looks.facts import Looks
from reconciler.shell.providers import Runner, perform
from reconciler.shell.store.ports import Journal

WEIGHTS_FIRST = 0.005
"""Seconds that names wait for the weights of the same decision: a weight acts at once, a name when its TTL is over, and both
need the interpreter. Weights that take longer are not waited for."""


Witness = Callable[[Step], Awaitable[None]]
"""Is told of a step right before its call, and keeps evidence of what the call takes away; bounded, and raises nothing."""

_DOWN = {ContainerState.CREATED, ContainerState.EXITED}


def _kind(error: ProviderError) -> OutcomeKind:
    if isinstance(error, OutcomeUnknown):
        return OutcomeKind.UNKNOWN
    return {
        Retry.LATER: OutcomeKind.FAILED,
        Retry.STOP: OutcomeKind.REJECTED,
        Retry.LOOK_AGAIN: OutcomeKind.CONFLICT,
    }[error.retry]


def _generation(action: Action) -> str:
    if isinstance(action, StartContainer | StopContainer | RemoveContainer | UpdateContainer):
        return f"{action.expect.container_id}@{action.expect.started_at}"
    return ""


def _outcome(step: str, failed: ProviderError | None, wrong: str | ProviderError) -> Outcome:
    """What came of a step: from what its call raised, and what was read back instead of what was wanted (or why not)."""
    if isinstance(wrong, ProviderError):
        if failed is None:
            return Outcome(step, OutcomeKind.UNKNOWN, f"done, but it cannot be read back: {wrong}")
        return Outcome(step, _kind(failed), str(failed))
    if failed is not None and not (isinstance(failed, OutcomeUnknown) and not wrong):
        return Outcome(step, _kind(failed), str(failed))
    if wrong:
        return Outcome(step, OutcomeKind.FAILED, f"done, but read back as {wrong}")
    return Outcome(step, OutcomeKind.DONE)


def _not_configured(step: Step) -> Outcome:
    return Outcome(step.id, OutcomeKind.REJECTED, "its provider is not configured")


Members = Mapping[Endpoint, MemberFact]


def _members(fact: PoolFact) -> Members:
    return {member.endpoint: member for member in fact.members}


def _wrong(action: EndpointAction, members: Members) -> str:
    """What a pool says instead of what was wanted; empty when it is as wanted."""
    member = members.get(action.endpoint)
    if isinstance(action, CutSessions):
        return f"{member.in_flight} in flight" if member is not None and member.in_flight else ""
    weight = None if member is None else member.weight
    wanted = action.weight if isinstance(action, SetWeight) else None
    return "" if weight == wanted else f"weight {'absent' if weight is None else weight}"


class Applier:
    """Carries out steps and keeps count of what is under way."""

    def __init__(
        self, looks: Looks, journal: Journal, runner: Runner, clock: Clock, witness: Witness | None = None
    ) -> None:
        self.looks, self.journal, self.runner, self.clock = looks, journal, runner, clock
        self.witness = witness
        self.busy: set[str] = set()

    async def run(
        self,
        steps: tuple[Step, ...],
        started: Callable[[Step], None],
        finished: Callable[[Step, Outcome], None],
        may_go: Callable[[], bool],
    ) -> None:
        """Do these steps. `may_go` is asked before each: once it says no, nothing new is begun.

        Raises:
            StoreError: the journal cannot be written; nothing is done without it.
        """
        target = {step.id: target_of(step.action) for step in steps}
        left = Counter(target.values())
        self.busy.update(left)
        turns: dict[str, asyncio.Lock] = {}
        tasks: dict[str, asyncio.Task[Outcome]] = {}
        shared: dict[str, asyncio.Task[dict[str, Outcome]]] = {}
        first: list[asyncio.Task[object]] = []
        raises = Raises()
        followed = {name for step in steps for name in step.follows}

        async def together(batch: Batch) -> dict[str, Outcome]:
            """The call of a batch, and the end of those of its steps that nothing else waits for: no task for each."""
            alone = [step for step in batch.steps if step.id not in tasks]
            try:
                outcomes = await self._together(batch, started, may_go)
            finally:
                self.busy.difference_update(target[step.id] for step in alone)
            for step in alone:
                finished(step, outcomes[step.id])
            return outcomes

        async def one(step: Step, before: list[Awaitable[Outcome]], higher: asyncio.Task[object] | None) -> Outcome:
            try:
                earlier = [await outcome for outcome in before]
                if higher is not None:
                    await asyncio.wait((higher,))
                if first and isinstance(step.action, ChangeRecords):
                    await asyncio.wait(first, timeout=WEIGHTS_FIRST)
                async with turns.setdefault(step.target, asyncio.Lock()):
                    if step.id in shared:
                        outcome = (await shared[step.id])[step.id]
                    else:
                        outcome = await self._one(step, earlier, started, may_go)
            finally:
                left[step.target] -= 1
                if not left[step.target]:
                    self.busy.discard(step.target)
            finished(step, outcome)
            return outcome

        for batch in batches(steps, target, self.looks.providers):
            call = asyncio.create_task(together(batch))
            shared.update((step.id, call) for step in batch.steps)
            first.append(call)
        if len(shared) < len(steps):  # else nothing is there that would wait for a raise
            for step in steps:
                if step.id in shared:
                    raises.add(step.action, shared[step.id])
        for step in steps:
            if step.id in shared and step.id not in followed and left[target[step.id]] == 1:
                continue
            before: list[Awaitable[Outcome]] = [tasks[name] for name in step.follows if name in tasks]
            higher = None if step.id in shared else raises.before(step.action)
            tasks[step.id] = task = asyncio.create_task(one(step, before, higher))
            raises.add(step.action, task)
            if isinstance(step.action, SetWeight) and not before:
                first.append(task)
        results = await asyncio.gather(*tasks.values(), *set(shared.values()), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def _one(
        self, step: Step, before: list[Outcome], started: Callable[[Step], None], may_go: Callable[[], bool]
    ) -> Outcome:
        bad = next((one for one in before if one.kind is not OutcomeKind.DONE), None)
        if bad is not None:
            return Outcome(step.id, OutcomeKind.SKIPPED, f"it comes after {bad.step}, which is {bad.kind.value}")
        if not may_go():
            return Outcome(step.id, OutcomeKind.SKIPPED, "asked to stop")
        action = step.action
        if isinstance(action, SetWeight | RemoveEndpoint | CutSessions):
            batch = alone(step, action, self.looks.providers)
            if batch is None:
                return _not_configured(step)
            return (await self._together(batch, started, may_go))[step.id]
        call = perform(self.looks.providers, action)
        if call is None:
            return _not_configured(step)
        if self.witness is not None:
            await self.witness(step)
        entry = self._begin(step)
        started(step)
        outcome = await self._call(step, action, call)
        self._end(entry, outcome)
        return outcome

    async def _together(
        self, batch: Batch, started: Callable[[Step], None], may_go: Callable[[], bool]
    ) -> dict[str, Outcome]:
        """Do the steps of a batch in one call, then read each of their pools back once. Answers by step id."""
        if not may_go():
            return {step.id: Outcome(step.id, OutcomeKind.SKIPPED, "asked to stop") for step in batch.steps}
        entries = [self._begin(step) for step in batch.steps]
        for step in batch.steps:
            started(step)
        began = self.clock.now().steady
        try:
            performed = await self.runner.run(lambda: batch.provider.perform(batch.actions))
        except ProviderError as nothing_begun:
            performed = Performed((nothing_begun,) * len(batch.steps))
        read = await self._read_pools(batch, performed.pools, began)
        outcomes: dict[str, Outcome] = {}
        done = OutcomeKind.DONE
        for step, action, entry, error in zip(batch.steps, batch.actions, entries, performed.errors, strict=True):
            members = read[action.pool]
            wrong = members if isinstance(members, ProviderError) else _wrong(action, members)
            fine = error is None and not wrong
            outcome = Outcome(step.id, done) if fine else self._judge(step, error, wrong)
            outcomes[step.id] = outcome
            if entry:
                self._end(entry, outcome)
        return outcomes

    async def _read_pools(
        self, batch: Batch, told: tuple[PoolFact, ...], began: int
    ) -> dict[str, Members | ProviderError]:
        """The members of each pool of a batch after its call: as its provider told them, else by a look at the pool."""
        read: dict[str, Members | ProviderError] = {}
        for fact in told:
            if self.looks.put_read_back(batch.provider.name, fact, began):
                read[fact.pool] = _members(fact)
        unread = sorted({action.pool for action in batch.actions} - read.keys())
        looks = (self._look_at(batch.provider.name, pool) for pool in unread)
        return {**read, **dict(zip(unread, await asyncio.gather(*looks), strict=True))}

    def _begin(self, step: Step) -> int:
        """The step's entry in the journal; 0 when it needs none. Only weights go out before the disk has the ledger."""
        if not step.journal:
            if not isinstance(step.action, SetWeight):
                self.journal.sync()
            return 0
        action = "\n".join([describe(step.action), *spelled_out(step.action)])
        generation = _generation(step.action)
        return self.journal.begin(step.id, step.object, action, generation, step.cause.value, self.clock.now())

    def _end(self, entry: int, outcome: Outcome) -> None:
        if entry:
            self.journal.end(entry, outcome.kind.value, outcome.message)

    async def _call(self, step: Step, action: RuntimeAction | ChangeRecords, call: Callable[[], None]) -> Outcome:
        """Make the call, then look at what it was about, whether it said yes or not."""
        failed: ProviderError | None = None
        try:
            await self.runner.run(call)
        except ProviderError as error:
            failed = error
        wrong: str | ProviderError
        try:
            wrong = await self._read_back(action)
        except ProviderError as error:
            wrong = error
        return self._judge(step, failed, wrong)

    def _judge(self, step: Step, failed: ProviderError | None, wrong: str | ProviderError) -> Outcome:
        """The outcome of a step; see `_outcome`. Unless it is as wanted, its provider is looked at soon."""
        outcome = _outcome(step.id, failed, wrong)
        if outcome.kind is not OutcomeKind.DONE:
            self._hurry(step.action)
        return outcome

    def _hurry(self, action: Action) -> None:
        if isinstance(action, ChangeRecords):
            self.looks.look_soon(Role.DNS, action.provider)
        elif isinstance(action, SetWeight | RemoveEndpoint | CutSessions):
            self.looks.look_soon(Role.ENDPOINTS, action.provider)
        else:
            self.looks.look_soon(Role.RUNTIME, action.node)

    async def _look_at(self, provider: str, pool: str) -> Members | ProviderError:
        """The members of a pool, or why it cannot be read."""
        try:
            return _members(await self.looks.read_pool(provider, pool))
        except ProviderError as error:
            return error

    async def _read_back(self, action: RuntimeAction | ChangeRecords) -> str:
        """What is there instead of what was wanted; empty when it is as wanted."""
        if isinstance(action, ChangeRecords):
            zone = await self.looks.read_zone(action.provider, action.zone)
            if zone is None:
                return "no such zone"
            for change in action.changes:
                if zone.records.get(change.key) != change.after:
                    return f"{change.key.name} {change.key.type} {zone.records.get(change.key)}"
            return ""
        fact = await self.looks.read_container(action.node, action.name)
        if isinstance(action, RemoveContainer):
            return "" if fact is None or fact.id != action.expect.container_id else f"{fact.state.value}"
        if fact is None:
            return "absent"
        if isinstance(action, CreateContainer):
            return ""
        if isinstance(action, UpdateContainer):
            lost = [name for name in action.join if name in fact.unjoined]
            if lost:
                return f"not connected to {', '.join(lost)}"
            return "" if not action.live or fact.live == action.live else f"other settings: {fact.live}"
        if isinstance(action, StopContainer):
            return "" if fact.state in _DOWN or fact.generation != action.expect else fact.state.value
        # Started and ended at once is still started: the next look says that it crashed.
        return "" if fact.generation != action.expect else fact.state.value
