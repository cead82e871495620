"""The loop: observe, decide, store, act, report, sleep. It contains no rule of its own. Run by `wire.py`.

`once` runs until time alone changes nothing more; `watch` runs until a signal. An event, a timer or an operator's command only
makes the next look or tick come sooner. Every decision is stored before it is carried out, so a kill at any point loses nothing.
"""

import asyncio
import gc
import logging
import os
import signal
import sys
from dataclasses import replace

from manifests.values.desired import SECOND, Desired, Role
from providers.actions import ChangeRecords
from reconciler.core.actions import asked
from reconciler.core.decide import decide
from reconciler.core.decision import Decision
from reconciler.core.dns import other_writers
from reconciler.core.model.instant import FOREVER, Now, instant
from reconciler.core.model.ledger import Ledger
from reconciler.core.model.ledger_fold import Command, Outcome, OutcomeKind, apply_commands, fold, try_again
from reconciler.core.model.observed import Observed
from reconciler.core.model.step import Step
from reconciler.core.replicas import ends
from reconciler.core.replicas.ends import End
from reconciler.core.rollouts.revisions import quiet
from reconciler.exits import Exit
from reconciler.shell.apply.applier import Applier
from reconciler.shell.apply.evidence import EvidenceCollector
from reconciler.shell.apply.references import References
from reconciler.shell.looks.facts import Looks
from reconciler.shell.looks.triggers import Wake
from reconciler.shell.manifest_reload import ManifestReload
from reconciler.shell.parts import Parts
from reconciler.shell.probing.name_targets import by_endpoint
from reconciler.shell.probing.targets import Probing
from reconciler.shell.pushing.pushes import Pushing
from reconciler.shell.report.reporting import Reporting
from reconciler.shell.report.summary import Summary, pending, summarize
from reconciler.shell.store.ledger_store import LedgerStore

LONGEST_SLEEP = 30 * SECOND
"""The longest sleep (ns): a missed trigger costs at most this."""

FIRST_LOOKS = 5 * SECOND
"""How long (ns) the first tick waits for providers that do not answer: without facts every ledger would count as lost."""

UNREADABLE_TRIES = 3
"""Failed looks after which a single run gives up on a provider."""

SWITCH_SECONDS = 0.0002
"""The interpreter's switch interval in a daemon. Python's default of 5 ms would be added to each answer of a balancer that comes
while the loop or a look computes; a switch takes some µs."""

DONE_KEPT = 10_000
"""Steps that a run keeps for its summary."""


class Loop:
    """One run over one instance."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.desired = parts.desired
        self.clock, self.reporter, self.memory = parts.clock, parts.reporter, parts.memory
        self.wake = Wake()
        self.looks = Looks(parts.providers, parts.runner, parts.clock, self.wake)
        self.manifest_reload = ManifestReload(parts)
        self.probing = Probing(parts.prober, self.looks)
        self.probing.view = self.probing.name_targets.view = parts.view
        self.pushing = Pushing(self.looks, parts.clock, self.wake)
        self.evidence = EvidenceCollector(self.looks, parts.memory, parts.clock, self.probing)
        self.references = References(parts.runner, parts.clock)
        self.applier = Applier(self.looks, parts.memory, parts.runner, parts.clock, self.evidence.take)
        self.reporting = Reporting(parts.reporter, parts.memory)
        self.ledger_store = LedgerStore(parts.memory, parts.reporter)
        self.ledger = Ledger()
        self.stopping: Exit | None = None
        self.done: list[tuple[Step, Outcome]] = []
        self._outcomes: list[tuple[Step, Outcome, Desired]] = []
        self._probe_failed = False
        self._applying: set[asyncio.Task[None]] = set()
        self._engine_retry = 0
        self._prober_fd = -1

    # --- runs -----------------------------------------------------------------------------------------------------

    async def once(self, within: int, wait: bool = True) -> Summary:
        """Converge once.

        Args:
            within: ns after which the run ends, converged or not.
            wait: wait for waits and holds that end in that time; without it, one pass.

        Raises:
            StoreError: the ledger or journal cannot be written; no action is taken without them.
        """
        self._begin()
        self.ledger = try_again(self.ledger)
        end = self.clock.now().steady + within
        try:
            await self._first_looks()
            while True:
                decision = await self._tick()
                if self._finished(decision, end, wait):
                    break
                await self._sleep(decision, end)
            await self._drain()
            final = await self._tick(act=False)
            return summarize(final, tuple(self.done), self.clock.now(), self.stopping, self.probing.name_targets.open())
        finally:
            await self._end()

    async def watch(self) -> Exit:
        """Keep converging until a signal. Raises `StoreError` as `once` does."""
        self._begin()
        sys.setswitchinterval(SWITCH_SECONDS)
        try:
            await self._first_looks()
            self.looks.only_changes = True
            while self.stopping is None:
                decision = await self._tick()
                await self._sleep(decision, None)
            await self._drain()
            return self.stopping
        finally:
            await self._end()

    async def observe_once(self, deadline: int) -> tuple[Decision, Observed, Now]:
        """One look at every provider and one attempt per probe, for a plan: decides, does not act, writes nothing.

        Args:
            deadline: ns that probes have to answer.
        """
        self.probing.network_only = True
        self._begin(write=False)
        if self.parts.view is None:  # else the process beside it tries failed steps again when they are due
            self.ledger = try_again(self.ledger)
        try:
            end = self.clock.now().steady + deadline
            await self.looks.look_due()
            if by_endpoint(self.desired):  # a first decision gives the addresses to probe
                self._decide(self._observed(), self.clock.now())
            await self._retarget()
            while self.probing.unanswered() and self.clock.now().steady < end and self.stopping is None:
                self.wake.take()
                self._take_probes()
                await self._retarget()  # other probes begin once the startup probe has passed
                if self.probing.unanswered():
                    await self.clock.sleep_until(min(end, self.clock.now().steady + SECOND), self.wake.event)
            await self.looks.look_due()  # read again what became old meanwhile
            now, observed = self.clock.now(), self._observed()
            return self._decide(observed, now), observed, now
        finally:
            await self._end()

    def stop(self, exit_code: Exit) -> None:
        """End after the current actions. A second call ends the process at once, which is safe at every point."""
        if self.stopping is not None:
            os._exit(int(exit_code))
        self.stopping = exit_code
        self.reporter.note("stopping after the current actions; send the signal again to stop at once")
        self.wake.set("stop requested")

    def _begin(self, write: bool = True) -> None:
        loop = asyncio.get_running_loop()
        for number, exit_code in ((signal.SIGTERM, Exit.TERMINATED), (signal.SIGINT, Exit.INTERRUPTED)):
            try:
                loop.add_signal_handler(number, self.stop, exit_code)
            except (ValueError, RuntimeError):
                break  # not the main thread: the caller uses `stop`
        self.ledger = self.ledger_store.load()
        self.reporting.begin(self.ledger)
        if self.parts.approve:  # a plan that is made with an approval shows what it allows
            given = Command("approve", self.parts.approve, at=instant(self.clock.now()))
            self.ledger = apply_commands(self.ledger, (given,))
        if write:
            for message in self.memory.close_open_entries():
                self.reporter.note(message, level=logging.WARNING)
        self.looks.remembered = self.parts.remembered | self.ledger.zones
        self.looks.owned = self.ledger.owned
        self.looks.set_desired(self.desired)
        self.pushing.set_desired(self.desired)
        self.pushing.restore(self.ledger, self.clock.now())
        self.manifest_reload.begin(self.clock.now())
        self._listen()
        if write:
            self.looks.listen()

    async def _first_looks(self) -> None:
        """Look at every provider once before the first tick; a provider that does not answer in time is unknown."""
        end = self.clock.now().steady + FIRST_LOOKS
        self.looks.start_due()
        while not all(self.looks.attempts.values()) and self.stopping is None:
            if self.clock.now().steady >= end:
                return
            self.wake.take()
            await self.clock.sleep_until(end, self.wake.event)

    def _listen(self) -> None:
        """Wake the loop when the probe engine has results."""
        loop = asyncio.get_running_loop()
        number = self.parts.prober.fileno()
        if number == self._prober_fd:
            return
        if self._prober_fd >= 0:
            loop.remove_reader(self._prober_fd)
        if number >= 0:
            loop.add_reader(number, self._on_results)
        self._prober_fd = number

    def _on_results(self) -> None:
        if self._take_probes():
            self.wake.set("a probe verdict changed")

    def _take_probes(self) -> bool:
        changed, failed = self.probing.read()
        self._probe_failed |= failed
        return changed

    def _look_at_failed(self) -> None:
        """Look at the runtimes early after a failed probe: the container may be gone. Called after its weight change was sent."""
        for name in self.looks.providers.runtimes if self._probe_failed else ():
            self.looks.look_soon(Role.RUNTIME, name)
        self._probe_failed = False

    async def _drain(self) -> None:
        """Wait for the calls under way; every call has a deadline."""
        while self._applying:
            await asyncio.gather(*self._applying)
            self._applying = {task for task in self._applying if not task.done()}
        self.reporting.flush()
        await self.looks.settle()

    async def _end(self) -> None:
        if self._prober_fd >= 0:
            asyncio.get_running_loop().remove_reader(self._prober_fd)
            self._prober_fd = -1
        for task in self._applying:
            task.cancel()
        await asyncio.gather(*self._applying, return_exceptions=True)
        await self.looks.settle()

    # --- one tick -------------------------------------------------------------------------------------------------

    async def _tick(self, act: bool = True) -> Decision:
        """Decide from the known facts, store the result, and begin the steps that are due."""
        self.wake.take()
        for task in [task for task in self._applying if task.done()]:
            self._applying.discard(task)
            task.result()
        now = self.clock.now()
        commands = tuple(self.memory.commands())
        self.ledger = (
            apply_commands(self.ledger, tuple(command for _, command in commands)) if commands else self.ledger
        )
        await self._fold_outcomes(now)
        await self._reread(now)
        self._check_engine(now)
        self._take_probes()
        self.looks.start_due()
        await asyncio.sleep(0)
        await self._retarget()
        now = self.clock.now()
        self.ledger = self.pushing.fold(self.ledger, now)
        decision = self._decide(self._observed(), now)
        if decision.ledger.history_lost is not None and self.ledger.history_lost is None:
            self.reporter.note(
                "the ledger is empty although objects of this instance exist, or a node cannot be read: health restarts are "
                "paused until the restart history is complete, and nothing is pruned; to prune now, use --take-over",
                level=logging.WARNING,
            )
        ended = self._ends(decision)
        self.ledger = decision.ledger
        self.looks.remembered = self.parts.remembered | self.ledger.zones
        self.looks.owned = self.ledger.owned
        self.ledger_store.save(self.ledger, tuple(number for number, _ in commands))
        self.reporting.commands_read(command.verb for _, command in commands)
        self._keep_evidence(ended)
        self.reporting.ended(ended, now)
        if act and decision.steps and self.stopping is None:
            self._act(decision.steps)
            # Two turns of the event loop start the calls on their threads (or journal them), before disk and reports take time.
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        self.memory.sync()
        self.pushing.saved()
        self._look_at_failed()
        if all(self.looks.attempts.values()):
            self.reporting.decided(decision, self.desired, now, acts=act and self.stopping is None)
        if not self._applying:
            self.reporting.flush()
        return decision

    def _decide(self, observed: Observed, now: Now) -> Decision:
        """Decide with the garbage collector off: a full collection over all facts costs more than the decision."""
        gc.disable()
        try:
            decision = decide(self.desired, observed, now)
        finally:
            gc.enable()
        if self.probing.name_targets.follow(self.desired, decision.status.roster, decision.ledger.checks):
            self.wake.set("target addresses of names changed")
        return decision

    def _observed(self) -> Observed:
        looks, view = self.looks, self.parts.view
        return Observed(
            runtimes=dict(looks.runtimes),
            pools=dict(looks.pools),
            zones=dict(looks.zones),
            probes=dict(self.probing.verdicts),
            pushes=self.pushing.facts() if view is None else view.pushes,
            ledger=self.ledger,
            source_read_at=self.manifest_reload.read_at,
            source_problem=self.manifest_reload.problem,
            busy=looks.providers.busy() - self.applier.busy if view is None else view.busy,
            contexts=self.probing.label_contexts.contexts,
            under_way=frozenset(self.applier.busy) if view is None else view.under_way,
            target_answers=dict(self.probing.name_targets.verdicts),
            references=dict(self.references.digests),
            trials={generation: dict(answers) for generation, answers in self.probing.trials.items()},
        )

    async def _fold_outcomes(self, now: Now) -> None:
        """Take the outcomes of steps into the ledger; a failure with what was asked, and under which manifests."""
        done, ended = OutcomeKind.DONE, self._outcomes
        self._outcomes = []
        if self.ledger.step_failures or any(outcome.kind is not done for _, outcome, _ in ended):
            await self.references.refresh(self.desired)
        references = self.references.digests
        outcomes = tuple(
            outcome
            if outcome.kind is done
            else outcome._replace(object=step.object, asked=asked.digest(step.action, desired, references))
            for step, outcome, desired in ended
        )
        self.ledger = fold(self.ledger, outcomes, now)
        written = [
            step.action for step, outcome, _ in ended if outcome.kind is done and isinstance(step.action, ChangeRecords)
        ]
        rows = other_writers.confirm(self.ledger.written, written) if written else self.ledger.written
        if rows is not self.ledger.written:
            self.ledger = replace(self.ledger, written=rows)

    def _act(self, steps: tuple[Step, ...]) -> None:
        desired = self.desired

        def finished(step: Step, outcome: Outcome) -> None:
            self._outcomes.append((step, outcome, desired))
            self.evidence.add_end(step)
            if len(self.done) < DONE_KEPT:
                self.done.append((step, outcome))
            self.reporting.done((step, outcome, self.clock.now()), self.desired.revision)
            self.reporter.finished(step, outcome)
            self.wake.set(f"{step.id} ended")

        task = asyncio.create_task(
            self.applier.run(steps, self.reporter.started, finished, lambda: self.stopping is None)
        )
        task.add_done_callback(lambda _: self.wake.set("steps ended"))
        self._applying.add(task)

    def _ends(self, decision: Decision) -> tuple[End, ...]:
        """The ends of containers that this decision is the first to know."""
        sight = decision.status.sight
        return () if sight is None else ends.between(self.ledger.owned, decision.ledger.owned, sight.runtimes)

    def _keep_evidence(self, ended: tuple[End, ...]) -> None:
        for task in self.evidence.keep(ended):
            task.add_done_callback(lambda _: self.wake.set("evidence is kept"))
            self._applying.add(task)

    async def _retarget(self) -> None:
        suspended = quiet(self.desired, self.ledger, self.clock.now())
        await self.probing.retarget(self.desired, self.applier.busy, suspended, self.ledger)

    def _check_engine(self, now: Now) -> None:
        """Restart a probe engine that died or does not answer; until it answers, all verdicts are unknown."""
        problem = self.parts.prober.silent()
        if not problem or now.steady < self._engine_retry:
            return
        self._engine_retry = now.steady + 5 * SECOND
        self.probing.forget()
        self.reporter.note(f"probe results are unknown: {problem}; restarting the probe engine", level=logging.WARNING)
        self.parts.prober.restart()
        self._listen()

    # --- the source -----------------------------------------------------------------------------------------------

    async def _reread(self, now: Now) -> bool:
        """Read the manifests again when it is due, and put a new revision in force. Whether there is one, or another problem."""
        problem = self.manifest_reload.problem
        desired = await self.manifest_reload.read(now)
        if desired is None:
            return self.manifest_reload.problem != problem
        if self.parts.providers_for is not None and desired.providers != self.desired.providers:
            await self._drain()
            old = self.looks.providers
            self.looks.replace_providers(self.parts.providers_for(desired))
            old.close()
            self.looks.listen()
        self.desired = desired
        self.looks.set_desired(desired)
        self.pushing.set_desired(desired)
        self.reporting.manifests(desired, self.manifest_reload.commit, now)
        return True

    def source_changed(self) -> None:
        """Read the source at the next tick: something hints at a change."""
        self.manifest_reload.read_soon()

    # --- waiting --------------------------------------------------------------------------------------------------

    async def _sleep(self, decision: Decision, end: int | None) -> None:
        """Sleep until another decision may differ from this one.

        Looks and reads that become due meanwhile are only started; they wake the loop if they find a change. Before `wake_at`
        the same facts lead to the same decision, and with ten thousand workloads one decision costs more than everything else
        in an idle loop.
        """
        if self.stopping is not None and not self._applying:
            return
        self.manifest_reload.prove(decision)
        until = min(decision.wake_at, self.clock.now().steady + LONGEST_SLEEP, FOREVER if end is None else end)
        while True:
            await self.reporting.after_calls(self._applying, self.wake)
            failing = bool(decision.ledger.step_failures)
            upcoming = min(until, self.looks.next_due(), self.manifest_reload.due, self.references.due_at(failing))
            await self.clock.sleep_until(upcoming, self.wake.event)
            now = self.clock.now()
            if await self._reread(now) or self.wake.asked or now.steady >= until:
                return
            if failing and await self.references.refresh(self.desired):
                return
            self.wake.take()
            self._check_engine(now)
            self.looks.start_due()

    def _finished(self, decision: Decision, end: int, wait: bool) -> bool:
        """Whether a single run is over."""
        if self._applying or self._outcomes:
            return False
        if self.stopping is not None:
            return True
        now = self.clock.now().steady
        if now >= end:
            return True
        if not all(self.looks.attempts.values()):
            return False
        if not wait:
            return not decision.steps and not decision.unsettled
        return not self.probing.name_targets.undecided() and not pending(
            decision, end, self.looks.tried_enough(UNREADABLE_TRIES)
        )
