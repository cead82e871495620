"""Carries out the steps of a decision: journal, call, read-back. Called by the loop.

The target of a step is busy from before its call until its outcome is known. Steps on the same target go one after another, all
others at once; `batch.py` says which ones share a call. A step that follows a failed one is skipped, and everything else goes on.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

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
from providers.errors import Conflict, OutcomeUnknown, Overwritten, ProviderError, Retry
from providers.facts import ContainerState, Endpoint, MemberFact, PoolFact
from providers.spi import Performed
from providers.wrappers.limited import WORKERS
from reconciler.core.model.ledger_fold import Outcome, OutcomeKind
from reconciler.core.model.step import Step, target_of
from reconciler.core.plan_text import describe, spelled_out
from reconciler.shell.apply.batch import RAISES_FIRST, Batch, RaisesFirst, alone, batches, goes_first
from reconciler.shell.clock import Clock
from reconciler.shell.looks.facts import Looks
from reconciler.shell.providers import Runner, perform
from reconciler.shell.secrets import SECRETS
from reconciler.shell.store.directory import StoreError
from reconciler.shell.store.ports import Journal

log = logging.getLogger(__name__)

WEIGHTS_FIRST = 0.005
"""Seconds that DNS changes wait for the weights of the same decision. A weight takes effect at once, a DNS change after the TTL,
and both need the interpreter. DNS changes do not wait longer for slow weights."""


TakeEvidence = Callable[[Step], Awaitable[None]]
"""Called right before the call of a step, to keep evidence that the call destroys. It is bounded in time and raises nothing."""


class WhyNot(Protocol):
    """Says why a step must not begin any more; empty when it may. Called right before it."""

    def __call__(self, step: Step, *, recorded: bool = False) -> str:
        """`recorded`: the journal has the step, so the store has done its part."""


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


def _outcome(step: str, failed: ProviderError | None, mismatch: str | ProviderError) -> Outcome:
    """The outcome of a step, from the error of its call and the mismatch that was read back, or the error of the read-back."""
    if isinstance(mismatch, ProviderError):
        if failed is None:
            return Outcome(step, OutcomeKind.UNKNOWN, f"done, but reading it back failed: {mismatch}")
        return Outcome(step, _kind(failed), str(failed), wait=failed.wait, whole=failed.whole)
    if failed is not None and not (isinstance(failed, OutcomeUnknown) and not mismatch):
        overwritten = isinstance(failed, Overwritten)
        return Outcome(step, _kind(failed), str(failed), wait=failed.wait, whole=failed.whole, overwritten=overwritten)
    if mismatch:
        return Outcome(step, OutcomeKind.FAILED, f"done, but read back as {mismatch}")
    return Outcome(step, OutcomeKind.DONE)


CHANGED = Conflict("this target", "the settings of its provider changed during the call", "it is observed again")
"""Why a call is not read back: another provider answers now."""


def _not_begun(step: Step, why: str) -> Outcome:
    return Outcome(step.id, OutcomeKind.SKIPPED, f"not begun: {why}")


def _unexpected(step: Step, error: Exception) -> Outcome:
    log.error("%s: the step %s failed unexpectedly", step.object, step.id, exc_info=error)
    return Outcome(step.id, OutcomeKind.UNKNOWN, f"unexpected {type(error).__name__}; the log has the traceback")


def _not_configured(step: Step) -> Outcome:
    return Outcome(step.id, OutcomeKind.REJECTED, "its provider is not configured")


Members = Mapping[Endpoint, MemberFact]


def _members(fact: PoolFact) -> Members:
    return {member.endpoint: member for member in fact.members}


def _mismatch(action: EndpointAction, members: Members) -> str:
    """How a pool differs from what the action asked for; empty when it does not."""
    member = members.get(action.endpoint)
    if isinstance(action, CutSessions):
        count = 0 if member is None else member.in_flight or 0
        return f"{count} request{'' if count == 1 else 's'} in flight" if count else ""
    weight = None if member is None else member.weight
    desired = action.weight if isinstance(action, SetWeight) else None
    return "" if weight == desired else f"weight {'absent' if weight is None else weight}"


class Applier:
    """Carries out steps and knows which targets are busy. `origin_of`: where a step comes from, for the journal (`report/origins`)."""

    def __init__(
        self,
        looks: Looks,
        journal: Journal,
        runner: Runner,
        clock: Clock,
        take_evidence: TakeEvidence | None = None,
        origin_of: Callable[[Step], str] = lambda _: "",
    ) -> None:
        self.looks, self.journal, self.runner, self.clock = looks, journal, runner, clock
        self.take_evidence, self.origin_of = take_evidence, origin_of
        self.busy: set[str] = set()
        self._slots: dict[tuple[bool, str], asyncio.Semaphore] = {}

    async def run(
        self,
        steps: tuple[Step, ...],
        started: Callable[[Step], None],
        finished: Callable[[Step, Outcome], None],
        held: WhyNot,
    ) -> None:
        """Do these steps. `held` is called right before each; a step that it holds is skipped, and so is one that the journal refuses."""
        target = {step.id: target_of(step.action) for step in steps}
        left = Counter(target.values())
        self.busy.update(left)
        turns: dict[str, asyncio.Lock] = {}
        tasks: dict[str, asyncio.Task[Outcome]] = {}
        shared: dict[str, asyncio.Task[dict[str, Outcome]]] = {}
        first: list[asyncio.Task[object]] = []
        raises = RaisesFirst()
        followed = {name for step in steps for name in step.follows}

        async def call_batch(batch: Batch, earlier: asyncio.Task[dict[str, Outcome]] | None) -> dict[str, Outcome]:
            """Call a batch and finish those of its steps that have no task of their own. Raises are in the earlier one of its provider."""
            without_task = [step for step in batch.steps if step.id not in tasks]
            try:
                if earlier is not None:
                    await asyncio.wait((earlier,), timeout=RAISES_FIRST)
                outcomes = await self._do_batch(batch, started, held)
            except Exception as error:  # noqa: BLE001  (one step that fails unexpectedly must not end the others)
                outcomes = {step.id: _unexpected(step, error) for step in batch.steps}
            finally:
                self.busy.difference_update(target[step.id] for step in without_task)
            for step in without_task:
                finished(step, outcomes[step.id])
            return outcomes

        async def do_step(step: Step, before: list[Awaitable[Outcome]], higher: asyncio.Task[object] | None) -> Outcome:
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
                        outcome = await self._do_step(step, earlier, started, held)
            except Exception as error:  # noqa: BLE001  (as above)
                outcome = _unexpected(step, error)
            finally:
                left[step.target] -= 1
                if not left[step.target]:
                    self.busy.discard(step.target)
            finished(step, outcome)
            return outcome

        earlier: dict[str, asyncio.Task[dict[str, Outcome]]] = {}
        for batch in batches(steps, target, self.looks.providers):
            call = asyncio.create_task(call_batch(batch, earlier.get(batch.provider.name)))
            earlier[batch.provider.name] = call
            shared.update((step.id, call) for step in batch.steps)
            if goes_first(batch.steps[0]):
                first.append(call)
        if len(shared) < len(steps):  # otherwise no step waits for a raise
            for step in steps:
                if step.id in shared:
                    raises.add(step.action, shared[step.id])
        for step in steps:
            if step.id in shared and step.id not in followed and left[target[step.id]] == 1:
                continue
            before: list[Awaitable[Outcome]] = [tasks[name] for name in step.follows if name in tasks]
            higher = None if step.id in shared else raises.before(step.action)
            tasks[step.id] = task = asyncio.create_task(do_step(step, before, higher))
            raises.add(step.action, task)
            if isinstance(step.action, SetWeight) and not before:
                first.append(task)
        results = await asyncio.gather(*tasks.values(), *set(shared.values()), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def _do_step(
        self, step: Step, before: list[Outcome], started: Callable[[Step], None], held: WhyNot
    ) -> Outcome:
        unfinished = next((outcome for outcome in before if outcome.kind is not OutcomeKind.DONE), None)
        if unfinished is not None:
            message = f"it follows step {unfinished.step!r}, which is {unfinished.kind.value}"
            return Outcome(step.id, OutcomeKind.SKIPPED, message)
        action = step.action
        if isinstance(action, SetWeight | RemoveEndpoint | CutSessions):
            batch = alone(step, action, self.looks.providers)
            if batch is None:
                return _not_configured(step)
            return (await self._do_batch(batch, started, held))[step.id]
        place = action.provider if isinstance(action, ChangeRecords) else action.node
        # A turn of its own before the last check: what waits for one may be held meanwhile.
        async with self._slots.setdefault((type(action) is ChangeRecords, place), asyncio.Semaphore(WORKERS)):
            why = held(step)
            call = perform(self.looks.providers, action)
            if why:
                return _not_begun(step, why)
            if call is None:
                return _not_configured(step)
            if self.take_evidence is not None:
                await self.take_evidence(step)
            # Evidence takes time too.
            why = held(step)
            if why:
                return _not_begun(step, why)
            try:
                entry = await self._begin(step)
            except StoreError as error:
                return _not_begun(step, str(error))
            # And so does the disk.
            why = held(step, recorded=True)
            call = perform(self.looks.providers, action)
            if why or call is None:
                outcome = _not_begun(step, why) if why else _not_configured(step)
            else:
                started(step)
                outcome = await self._call(step, action, call)
            await self._end(entry, outcome)
            return outcome

    async def _do_batch(self, batch: Batch, started: Callable[[Step], None], held: WhyNot) -> dict[str, Outcome]:
        """Do the steps of a batch in one call, then read each pool back once. Returns the outcomes by step id."""
        outcomes: dict[str, Outcome] = {}
        begun: list[tuple[Step, EndpointAction, int]] = []
        for step, action in zip(batch.steps, batch.actions, strict=True):
            why = held(step)
            try:
                if not why:
                    begun.append((step, action, await self._begin(step)))
            except StoreError as unwritable:
                why = str(unwritable)
            if why:
                outcomes[step.id] = _not_begun(step, why)
        for step, action, entry in () if goes_first(batch.steps[0]) else tuple(begun):
            why = held(step, recorded=True)  # the disk took time
            if why:
                begun.remove((step, action, entry))
                outcomes[step.id] = _not_begun(step, why)
                await self._end(entry, outcomes[step.id])
        if not begun:
            return outcomes
        if outcomes:
            batch = batch._replace(
                steps=tuple(step for step, _, _ in begun), actions=tuple(action for _, action, _ in begun)
            )
        for step in batch.steps:
            started(step)
        providers, began = self.looks.providers, self.clock.now().steady
        try:
            performed = await self.runner.run(lambda: batch.provider.perform(batch.actions))
        except ProviderError as nothing_begun:
            performed = Performed((nothing_begun,) * len(batch.steps))
        changed = self.looks.providers is not providers
        read = {} if changed else await self._read_pools(batch, performed.pools, began)
        done = OutcomeKind.DONE
        for (step, action, entry), error in zip(begun, performed.errors, strict=True):
            members = CHANGED if changed else read[action.pool]
            mismatch = members if isinstance(members, ProviderError) else _mismatch(action, members)
            fine = error is None and not mismatch
            outcome = Outcome(step.id, done) if fine else self._judge(step, error, mismatch)
            outcomes[step.id] = outcome
            await self._end(entry, outcome)
        return outcomes

    async def _read_pools(
        self, batch: Batch, facts: tuple[PoolFact, ...], began: int
    ) -> dict[str, Members | ProviderError]:
        """The members of each pool of a batch after its call: from the provider's read-back, else from a look."""
        read: dict[str, Members | ProviderError] = {}
        for fact in facts:
            if self.looks.put_read_back(batch.provider.name, fact, began):
                read[fact.pool] = _members(fact)
        unread = sorted({action.pool for action in batch.actions} - read.keys())
        looks = (self._look_at(batch.provider.name, pool) for pool in unread)
        return {**read, **dict(zip(unread, await asyncio.gather(*looks), strict=True))}

    async def _begin(self, step: Step) -> int:
        """Begin the step's journal entry; 0 if it needs none. Only weights are sent before the ledger is on disk."""
        if not step.journal:
            if not goes_first(step):
                await self.journal.sync()
            return 0
        action = "\n".join([describe(step.action), *spelled_out(step.action)])
        generation = _generation(step.action)
        cause, now = step.cause.value, self.clock.now()
        return await self.journal.begin(step.id, step.object, action, generation, cause, now, self.origin_of(step))

    async def _end(self, entry: int, outcome: Outcome) -> None:
        if entry:
            await self.journal.end(entry, outcome.kind.value, outcome.message)

    async def _call(self, step: Step, action: RuntimeAction | ChangeRecords, call: Callable[[], None]) -> Outcome:
        """Make the call, then read its target back, also after an error."""
        failed: ProviderError | None = None
        providers = self.looks.providers
        try:
            await self.runner.run(call)
        except ProviderError as error:
            failed = error
        mismatch: str | ProviderError
        try:
            mismatch = CHANGED if self.looks.providers is not providers else await self._read_back(action)
        except ProviderError as error:
            mismatch = error
        return self._judge(step, failed, mismatch)

    def _judge(self, step: Step, failed: ProviderError | None, mismatch: str | ProviderError) -> Outcome:
        """The outcome of a step; see `_outcome`. Unless it is done, its provider is observed soon."""
        outcome = _outcome(step.id, failed, mismatch)
        outcome = outcome._replace(message=SECRETS.mask(outcome.message)) if outcome.message else outcome
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
        """How the target differs from what the action asked for; empty when it does not."""
        if isinstance(action, ChangeRecords):
            zone = await self.looks.read_zone(action.provider, action.zone)
            if zone is None:
                return "no such zone"
            for change in action.changes:
                if zone.records.get(change.key) != change.after:
                    return f"{change.key.name} {change.key.type} {zone.records.get(change.key)}"
            return ""
        expected = "" if isinstance(action, CreateContainer | RemoveContainer) else action.expect.container_id
        fact = await self.looks.read_container(action.node, action.name, expected)
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
            known = dict(fact.files)
            unseen = [volume for volume, digest, _ in action.files if known.get(volume) != digest]
            if unseen:
                return f"earlier files in {', '.join(unseen)}"
            return "" if not action.live or fact.live == action.live else f"other settings: {fact.live}"
        if isinstance(action, StopContainer):
            return "" if fact.state in _DOWN or fact.generation != action.expect else fact.state.value
        # A container that started and exited at once counts as started: the next look finds the crash.
        return "" if fact.generation != action.expect else fact.state.value
