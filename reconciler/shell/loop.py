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
from collections.abc import Sequence
from dataclasses import replace

from manifests.values.desired import SECOND, Desired, Role
from providers.actions import ChangeRecords, SetWeight
from providers.facts import fingerprint
from reconciler.core.actions import asked
from reconciler.core.decide import decide
from reconciler.core.decision import Decision
from reconciler.core.dns import other_writers
from reconciler.core.limits import commits
from reconciler.core.model.instant import FOREVER, Now, instant
from reconciler.core.model.ledger import Ledger
from reconciler.core.model.ledger_fold import Command, Outcome, OutcomeKind, apply_commands, fold, try_again
from reconciler.core.model.observed import Observed
from reconciler.core.model.reasons import Hold, Rule
from reconciler.core.model.step import Step
from reconciler.core.model.waiting_revision import WaitingRevision
from reconciler.core.replicas import ends
from reconciler.core.replicas.ends import End, Removal
from reconciler.core.rollouts.revisions import quiet
from reconciler.exits import Exit
from reconciler.shell.apply.applier import Applier
from reconciler.shell.apply.evidence import EvidenceCollector
from reconciler.shell.apply.references import References
from reconciler.shell.faults import RETRY, FailedDecisions, Faults
from reconciler.shell.kept_files import KeptFiles
from reconciler.shell.log_context import Reconciles
from reconciler.shell.looks.facts import Looks
from reconciler.shell.looks.triggers import Wake
from reconciler.shell.looks.wake_pipe import COMMAND, SHOW
from reconciler.shell.manifest_reload import READ_SOURCE, ManifestReload
from reconciler.shell.monitor import Tick
from reconciler.shell.parts import Parts
from reconciler.shell.probing.name_targets import by_endpoint
from reconciler.shell.probing.targets import Probing
from reconciler.shell.providers import Providers
from reconciler.shell.pushing.pushes import Pushing
from reconciler.shell.report.origins import Origins
from reconciler.shell.report.reporting import Reporting
from reconciler.shell.report.summary import Summary, pending, summarize
from reconciler.shell.secret_watch import SecretWatch
from reconciler.shell.store.directory import StoreError
from reconciler.shell.store.ledger_store import LedgerStore
from reconciler.shell.store.lock import Locked
from reconciler.shell.store.patient import PatientMemory
from reconciler.shell.webhook import Webhook

log = logging.getLogger(__name__)

INSTANCE = "instance"
"""The object of holds that concern everything."""

TICK_AGAIN = SECOND
"""Time (ns) until the next tick after one that failed unexpectedly."""

LONGEST_SLEEP = 30 * SECOND
"""The longest sleep (ns): a missed trigger costs at most this."""

FIRST_LOOKS = 5 * SECOND
"""How long (ns) the first tick waits for providers that do not answer: without facts every ledger would count as lost."""

STALE = SECOND // 4
"""Time (ns) to store a decision after which news are taken into another one before its steps begin."""

FIRST_SECRETS = 30.0
"""Seconds that a single run waits for the first look at secrets: it sees only with them which containers have old values."""

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
        self.clock, self.reporter, self.memory = parts.clock, parts.reporter, PatientMemory(parts.memory, parts.clock)
        self.wake = Wake()
        self.faults = Faults()
        self.stays = False
        self.looks = Looks(parts.providers, parts.runner, parts.clock, self.wake)
        self.manifest_reload = ManifestReload(parts, self.wake, self._held_back)
        self.probing = Probing(parts.prober, self.looks)
        self.secrets = SecretWatch(parts.runner, parts.clock, self.wake, self.looks)
        self.probing.view = self.probing.name_targets.view = parts.view
        self.kept_files = KeptFiles(parts.files, parts.runner)
        self.pushing = Pushing(self.looks, parts.clock, self.wake)
        self.evidence = EvidenceCollector(self.looks, self.memory, parts.clock, self.probing)
        self.references = References(parts.runner, parts.clock)
        self.origins = Origins(lambda: self.manifest_reload.commit, lambda: parts.places(self.desired.revision))
        self._origin: dict[int, str] = {}
        self.applier = Applier(
            self.looks,
            self.memory,
            parts.runner,
            parts.clock,
            self.evidence.take,
            lambda step: self._origin.get(id(step), ""),
        )
        self.reporting = Reporting(parts.reporter, self.memory, self.origins.at)
        self.webhook = Webhook(parts.clock, self.hurry, self.reporting.happened)
        self.ledger_store = LedgerStore(self.memory, parts.reporter)
        self.ledger = Ledger()
        self.stopping: Exit | None = None
        self.done: list[tuple[Step, Outcome]] = []
        self._outcomes: list[tuple[Step, Outcome, Desired]] = []
        self._probe_failed = False
        self._reconciles = Reconciles()
        self._applying: set[asyncio.Task[None]] = set()
        self._amending: set[asyncio.Task[None]] = set()
        self._retired: list[tuple[Providers, frozenset[asyncio.Task[None]]]] = []
        self._closing: set[asyncio.Task[None]] = set()
        self._basis = 0
        self._decided: Decision | None = None
        self._unsure: tuple[tuple[int, Command], ...] = ()
        self._failed = FailedDecisions()
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
        await self._begin()
        self.ledger = try_again(self.ledger)
        end = self.clock.now().steady + within
        try:
            await self.secrets.follow(self.desired, FIRST_SECRETS)
            await self._first_looks()
            while True:
                decision = await self._tick()
                if self._finished(decision, end, wait):
                    break
                await self._sleep(decision, end)
            await self._drain()
            final = await self._tick(act=False)
            await self.reporting.close()
            return summarize(final, tuple(self.done), self.clock.now(), self.stopping, self.probing.name_targets.open())
        finally:
            await self._end()

    async def watch(self) -> Exit:
        """Keep converging until a signal.

        Raises:
            StoreError: the store cannot be used at the start.
            Locked: another process holds the instance: the lock was lost with its file.
        """
        await self._begin()
        self.stays = self.memory.stays = True
        sys.setswitchinterval(SWITCH_SECONDS)
        try:
            await self._first_looks()
            self.looks.only_changes = True
            while self.stopping is None:
                try:
                    decision = await self._tick()
                    self.faults.end(Rule.DECISION_FAILED)
                    await self._sleep(decision, None)
                except Locked:
                    raise
                except Exception as error:  # noqa: BLE001  (whatever fails, the next tick may succeed)
                    self.faults.begin(self._failed.hold(error, self.clock.now()))
                    self.parts.monitor.failed(self.clock.now().steady)
                    await self.clock.sleep_until(self.clock.now().steady + TICK_AGAIN, asyncio.Event())
            await self._drain()
            await self.reporting.close()
            return self.stopping
        finally:
            await self._end()

    async def observe_once(self, deadline: int) -> tuple[Decision, Observed, Now]:
        """One look at every provider and one attempt per probe, for a plan: decides, does not act, writes nothing.

        Args:
            deadline: ns that probes have to answer.
        """
        self.probing.network_only = True
        await self._begin(write=False)
        # Orders that no process has taken yet: the run that this plan is of reads them first.
        self.ledger = apply_commands(self.ledger, tuple(command for _, command in await self.memory.commands()))
        if self.parts.view is None:  # else the process beside it tries failed steps again when they are due
            self.ledger = try_again(self.ledger)
        try:
            end = self.clock.now().steady + deadline
            await self.secrets.follow(self.desired, deadline / SECOND)
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

    async def _begin(self, write: bool = True) -> None:
        loop = asyncio.get_running_loop()
        for number, exit_code in ((signal.SIGTERM, Exit.TERMINATED), (signal.SIGINT, Exit.INTERRUPTED)):
            try:
                loop.add_signal_handler(number, self.stop, exit_code)
            except (ValueError, RuntimeError):
                break  # not the main thread: the caller uses `stop`
        self.ledger = await self.ledger_store.load(self.clock.now())
        await self.reporting.begin(self.ledger)
        self.origins.manifests(self.parts.before, self.desired)
        given = self._given()
        self.ledger = apply_commands(self.ledger, given)  # a plan that is made with an approval shows what it allows
        if write:
            self.reporting.commands_read(given, self.clock.now())
            for message in await self.memory.close_open_entries():
                self.reporter.note(message, level=logging.WARNING)
        self.looks.remembered = self.parts.remembered | self.ledger.zones
        self.looks.owned = self.ledger.owned
        self.looks.set_desired(self.desired)
        self.kept_files.offer(self.desired)
        self.pushing.set_desired(self.desired)
        self.webhook.set_desired(self.desired)
        self.pushing.restore(self.ledger, self.clock.now())
        self.manifest_reload.begin(self.clock.now())
        self._listen()
        if write:
            self.looks.listen()

    def _given(self) -> tuple[Command, ...]:
        """What the operator who started this run ordered beyond the manifests."""
        at, who = instant(self.clock.now()), self.parts.who
        given = [Command("approve", self.parts.approve, who, at=at)] if self.parts.approve else []
        if self.parts.approves:
            items, text = self.parts.approves, self.parts.approves_text
            given.append(Command("approve", fingerprint(*sorted(items)), who, text, at=at, items=items))
        given += [Command("destroy", "*", who, at=at)] if self.desired.destroy else []
        given += [Command("take-over", "*", who, at=at)] if self.desired.take_over else []
        return tuple(given)

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
        self._prober_fd = self.parts.prober.fileno()
        if self._prober_fd >= 0:
            asyncio.get_running_loop().add_reader(self._prober_fd, self._on_results)

    def _unlisten(self) -> None:
        """Before the engine's descriptor is closed: the next one may have the same number."""
        if self._prober_fd >= 0:
            asyncio.get_running_loop().remove_reader(self._prober_fd)
        self._prober_fd = -1

    def _on_results(self) -> None:
        if self._take_probes():
            self.wake.set("a probe verdict changed")
        if self.parts.prober.silent():
            self._unlisten()  # its end stays readable for ever
            self.wake.set("the probe engine ended")

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
        await asyncio.gather(*self._amending)
        await self.reporting.flush()
        await self.looks.settle()

    async def _end(self) -> None:
        self._unlisten()
        for task in self._applying:
            task.cancel()
        await asyncio.gather(*self._applying, *self._amending, *self._closing, return_exceptions=True)
        await self.looks.settle()
        await self.manifest_reload.settle()
        await self.kept_files.settle()
        await self.references.settle()
        await self.secrets.settle()
        await self.probing.settle()
        await self.memory.close()
        for providers, _ in self._retired:
            providers.close()

    # --- one tick -------------------------------------------------------------------------------------------------

    async def _tick(self, act: bool = True) -> Decision:
        """Decide from the known facts, store the result, and begin the steps that are due. Waits for no look and no call.

        It waits for the store, but only so long (`TICK_WAIT`). Meanwhile probes, looks, pushes and outcomes are taken, and only a
        tick reads them into the ledger. If they ask for another decision before a slow disk has this one, it is made again first.
        """
        reasons = self.wake.take()
        self._reconciles.begin(self.desired.revision, self.manifest_reload.commit)
        began = self.clock.now().steady
        self._collect()
        now = self.clock.now()
        await self._recover(now, at_once=COMMAND in reasons)
        await self._fold_outcomes(now)
        before = self.ledger
        commands = tuple(await self.memory.commands())
        if commands:
            self.ledger = apply_commands(self.ledger, tuple(command for _, command in commands))
            self._basis += any(command.verb != SHOW for _, command in commands)
        self._reread(now)
        self._check_engine(now)
        self._take_probes()
        self.looks.start_due()
        await self.secrets.follow(self.desired)
        self.secrets.start(now.steady)
        await asyncio.sleep(0)
        await self._retarget()
        now = self.clock.now()
        self.ledger = self.pushing.fold(self.ledger, now)
        decision = self._decide(self._observed(), now)
        deciding = self.clock.now().steady - now.steady
        stored = Rule.LEDGER_UNWRITABLE not in self.faults and await self._save(decision.ledger, commands)
        if stored and self.wake.asked and self.clock.now().steady >= now.steady + STALE:
            self.ledger = decision.ledger
            now = self.clock.now()
            self._take_probes()
            self.ledger = self.pushing.fold(self.ledger, now)
            decision = self._decide(self._observed(), now)
            stored = await self._save(decision.ledger, ())
            if not stored:
                await self._recover(now)
                decision = self._decide(self._observed(), self.clock.now())
        elif not stored and Rule.LEDGER_UNWRITABLE not in self.faults:
            # Orders that could not be recorded are neither obeyed nor acknowledged; grants are not given.
            await self._recover(now)
            self.ledger, commands = replace(before, pushes=self.ledger.pushes), ()
            now = self.clock.now()
            decision = self._decide(self._observed(), now)
        owned = before.owned
        if decision.ledger.history_lost is not None and before.history_lost is None:
            self.reporter.note(
                "the ledger is empty although objects of this instance exist, or a node cannot be read: health restarts are "
                "paused until the restart history is complete, and nothing is pruned; to prune now, use --take-over",
                level=logging.WARNING,
            )
        if not self._applying:
            self.origins.settled(decision)
        ended, removals = self._ends(before, decision), self._removals(before, decision)
        self.ledger = decision.ledger
        self.looks.remembered = self.parts.remembered | self.ledger.zones
        self.looks.owned = self.ledger.owned
        self.reporting.commands_read((command for _, command in commands), now)
        self._keep_evidence(ended)
        self.reporting.ended(ended, removals, now)
        if act and decision.steps and self.stopping is None:
            self._act(decision)
            # Two turns of the event loop start the calls on their threads (or journal them), before disk and reports take time.
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        commanded = self.clock.now().steady
        complete = all(self.looks.attempts.values())
        if complete:
            self.reporting.decided(decision, self.desired, now, acts=act and self.stopping is None)
        # A report that is queued waits for the disk anyway. An answer to a push must not wait for a report.
        if (self.pushing.waiting or not self.reporting.queued) and await self._synced():
            self.pushing.saved()
        self._look_at_failed()
        if act and complete:
            self.kept_files.ticked(decision, self.desired, self._observed)
        if not self._applying:
            await self.reporting.flush()
            if self.memory.error is None:
                self.pushing.saved()
        if self.memory.error is not None and Rule.LEDGER_UNWRITABLE not in self.faults:
            self.wake.set("the state directory cannot be written")
        done, source_at = self.clock.now().steady, self.manifest_reload.read_at
        commit, newest = self.manifest_reload.commit, self.manifest_reload.newest
        tick = Tick(
            decision, self.desired, now, began, deciding, owned, commanded, done, source_at, complete, commit, newest
        )
        self.parts.monitor.ticked(tick)
        return decision

    def _collect(self) -> None:
        """Forget the tasks that have ended, and close providers that no call uses any more."""
        for task in [task for task in self._applying if task.done()]:
            self._applying.discard(task)
            error = None if task.cancelled() else task.exception()
            if error is not None and not (self.stays and isinstance(error, Exception)):
                raise error
            if error is not None:
                log.error("steps ended with an unexpected error", exc_info=error)
        for retired in [pair for pair in self._retired if not pair[0].busy() and all(task.done() for task in pair[1])]:
            self._retired.remove(retired)
            closing = asyncio.create_task(self._close(retired[0]))
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    async def _close(self, providers: Providers) -> None:
        try:
            await self.parts.runner.run(providers.close)
        except Exception as error:
            log.warning("the providers of the manifests before did not close", exc_info=error)

    # --- the store --------------------------------------------------------------------------------------------------

    async def _save(self, ledger: Ledger, commands: Sequence[tuple[int, Command]], force: bool = False) -> bool:
        """Store the ledger, with the orders that are folded into it. Whether that succeeded; a single run raises StoreError."""
        try:
            await self.ledger_store.save(ledger, tuple(number for number, _ in commands), force)
        except StoreError:
            if not self.stays:
                raise
            self._unsure += tuple(commands)
            return False
        return True

    async def _synced(self) -> bool:
        """Wait until the ledger is on disk. Whether it is; a single run raises StoreError."""
        if Rule.LEDGER_UNWRITABLE in self.faults:
            return False
        try:
            await self.memory.sync()
        except StoreError:
            if not self.stays:
                raise
            return False
        return True

    async def _recover(self, now: Now, at_once: bool = False) -> None:
        """While the store cannot be written: hold what must be remembered, and try again. The ledger is written before anything else.

        The try runs beside the ticks, because a disk that hangs does not answer it either.

        Raises:
            StoreError: in a single run.
            Locked: another process holds the instance now.
        """
        rule = Rule.LEDGER_UNWRITABLE
        if self.memory.error is None:
            return
        if not self.stays:
            raise self.memory.error
        if rule in self.faults:
            answers = self.memory.recovered()
            if answers and await self._written_again():
                self.faults.end(rule)
                self.reporter.note("the state directory can be written again; everything goes on")
            elif answers is not None:
                self.faults.again(rule, now.steady + RETRY)
            elif at_once or self.faults.due(rule, now.steady):
                self.faults.again(rule, now.steady + RETRY)
                self._try_again()
            return
        error = self.memory.error
        hold = Hold(
            INSTANCE,
            "write the ledger",
            rule,
            f"{error.target}: {error.cause}; only weights follow health and facts until it can be written",
            until=now.steady + RETRY,
            next_step=f"{error.next_step}; it is retried automatically",
        )
        self.faults.begin(hold)
        self.reporter.note(f"{hold.message}; next step: {hold.next_step}", level=logging.WARNING)
        if self.memory.late:
            self._try_again()  # it begins when the late call has ended

    def _try_again(self) -> None:
        self.memory.begin_recovery(lambda: self.wake.set("the state directory was tried again"))

    async def _written_again(self) -> bool:
        """Write the ledger, then what was kept. Whether that succeeded.

        A save that failed, or was not awaited, may be on the disk all the same. Then its orders are not in the inbox any more: they
        count as given.
        """
        waiting = {number for number, _ in await self.memory.commands()} if self._unsure else set()
        if self.memory.error is not None:
            return False
        taken = tuple(command for number, command in self._unsure if number not in waiting)
        ledger = apply_commands(self.ledger, taken)
        if not await self._save(ledger, (), force=True):
            return False
        self._basis += bool(taken)
        self.ledger, self._unsure = ledger, ()
        self.reporting.commands_read(taken, self.clock.now())
        await self.memory.write_kept()
        return self.memory.error is None

    def _decide(self, observed: Observed, now: Now) -> Decision:
        """Decide with the garbage collector off: a full collection over all facts costs more than the decision.

        When a rule fails, a daemon does nothing until it succeeds.
        """
        gc.disable()
        try:
            decision = decide(self.desired, observed, now)
        except Exception as error:
            if not self.stays:
                raise
            return self._failed.decision(error, self._decided, self.ledger, self.faults.holds(), now)
        finally:
            gc.enable()
        self._decided = decision if self.stays else None
        if self.probing.name_targets.follow(self.desired, decision.status.roster, decision.ledger.checks):
            self.wake.set("target addresses of names changed")
        return decision

    def _busy(self) -> frozenset[str]:
        """The objects that a call of an earlier decision still holds, also with the providers of the manifests before."""
        retired = (old.busy() for old, _ in self._retired)
        return self.looks.providers.busy().union(*retired) - self.applier.busy

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
            waiting=self.manifest_reload.waiting,
            busy=self._busy() if view is None else view.busy,
            contexts=self.probing.label_contexts.contexts,
            under_way=frozenset(self.applier.busy) if view is None else view.under_way,
            target_answers=dict(self.probing.name_targets.verdicts),
            references=dict(self.references.digests),
            faults=self.faults.holds(),
            secrets=dict(self.secrets.problems),
            trials={generation: dict(answers) for generation, answers in self.probing.trials.items()},
            booted=self.parts.booted,
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
            step.action
            for step, outcome, _ in ended
            if (outcome.kind is done or outcome.overwritten) and isinstance(step.action, ChangeRecords)
        ]
        rows = other_writers.confirm(self.ledger.written, written) if written else self.ledger.written
        if rows is not self.ledger.written:
            self.ledger = replace(self.ledger, written=rows)

    def _act(self, decision: Decision) -> None:
        desired, basis, steps = self.desired, self._basis, decision.steps
        self._origin.update((id(step), self.origins.of(step, decision)) for step in steps)

        def held(step: Step, *, recorded: bool = False) -> str:
            """Why a step of this decision must not begin any more."""
            if self.stopping is not None:
                return "reconcile is stopping"
            if basis != self._basis:
                return "the manifests or an operator's order changed meanwhile; decided again"
            if not recorded and Rule.LEDGER_UNWRITABLE in self.faults and not isinstance(step.action, SetWeight):
                return "the state directory cannot be written"
            return ""

        def finished(step: Step, outcome: Outcome) -> None:
            self._outcomes.append((step, outcome, desired))
            self.kept_files.ended(step)
            amending = self.evidence.add_end(step)
            if amending is not None:
                self._amending.add(amending)
                amending.add_done_callback(self._amending.discard)
            if len(self.done) < DONE_KEPT:
                self.done.append((step, outcome))
            origin = self._origin.pop(id(step), "")
            self.reporting.done((step, outcome, self.clock.now()), self.desired.revision, origin)
            self.reporter.finished(step, outcome)
            self.wake.set(f"{step.id} ended")

        task = asyncio.create_task(self.applier.run(steps, self.reporter.started, finished, held))
        task.add_done_callback(lambda _: self.wake.set("steps ended"))
        self._applying.add(task)

    def _ends(self, before: Ledger, decision: Decision) -> tuple[End, ...]:
        """The ends of containers that this decision is the first to know; `before` is the ledger of the tick before."""
        sight = decision.status.sight
        return () if sight is None else ends.between(before.owned, decision.ledger.owned, sight.runtimes)

    def _removals(self, before: Ledger, decision: Decision) -> tuple[Removal, ...]:
        """The containers that this decision is the first to miss, and that another program removed."""
        sight, instance = decision.status.sight, self.desired.instance.id
        return () if sight is None else ends.removed(before, decision.ledger, instance, sight.runtimes)

    def _keep_evidence(self, ended: tuple[End, ...]) -> None:
        for task in self.evidence.keep(ended):
            task.add_done_callback(lambda _: self.wake.set("evidence is kept"))
            self._applying.add(task)

    async def _retarget(self) -> None:
        suspended = quiet(self.desired, self.ledger, self.clock.now())
        await self.probing.retarget(self.desired, self.applier.busy, suspended, self.ledger)
        for change in self.probing.log.take():
            self.reporter.event("probe", change.object, change.action, "", change.outcome, change.message)

    def _check_engine(self, now: Now) -> None:
        """Restart a probe engine that died or does not answer; until it answers, all verdicts are unknown."""
        problem = self.parts.prober.silent()
        if not problem:
            if self.faults.end(Rule.PROBE_ENGINE):
                self.reporter.note("the probe engine runs again")
            return
        if now.steady < self._engine_retry:
            return
        self._engine_retry = now.steady + RETRY
        self.probing.forget()
        if Rule.PROBE_ENGINE not in self.faults:
            self.reporter.note(
                f"probe results are unknown: {problem}; restarting the probe engine", level=logging.WARNING
            )
        self._unlisten()
        try:
            self.parts.prober.restart()
        except (OSError, RuntimeError) as error:
            hold = Hold(
                INSTANCE,
                "probe",
                Rule.PROBE_ENGINE,
                f"probe results are unknown: the probe engine cannot be started: {error}",
                until=self._engine_retry,
                next_step="raise the limits of processes and files of this user, or end some; it is retried automatically",
            )
            if self.faults.begin(hold):
                self.reporter.note(f"{hold.message}; next step: {hold.next_step}", level=logging.WARNING)
        self._listen()

    # --- the source -----------------------------------------------------------------------------------------------

    def _reread(self, now: Now) -> None:
        """Start to read the manifests when it is due, and put new ones in force that were read. Waits for nothing."""
        source = self.manifest_reload
        for text in source.take_news():
            self.reporting.source(text, now)
        desired = source.take()
        if desired is not None:
            self._put_in_force(desired, now)
        source.start(now)
        if source.unreadable:
            until = now.steady + READ_SOURCE if source.due >= FOREVER else source.due
            next_step = "make the manifests readable; it is retried automatically"
            self.faults.begin(
                Hold(INSTANCE, "read the manifests", Rule.SOURCE_UNREADABLE, source.unreadable, until, next_step)
            )
        else:
            self.faults.end(Rule.SOURCE_UNREADABLE)

    def _held_back(self, waiting: WaitingRevision) -> bool:
        """Whether a valid revision has to wait. Called on the thread that reads the source too: it only reads values."""
        return bool(commits.holds(waiting, self.ledger, self.clock.now()))

    def _put_in_force(self, desired: Desired, now: Now) -> None:
        """Use these manifests from now on. Calls under way go on with the providers of the manifests before."""
        if self.parts.providers_for is not None and desired.providers != self.desired.providers:
            try:
                providers = self.parts.providers_for(desired)
            except Exception as error:
                if not self.stays:
                    raise
                log.warning("the providers of the new manifests cannot be used", exc_info=error)
                self.manifest_reload.keep(desired, f"the providers of the new manifests cannot be used: {error}")
                return
            self._retired.append((self.looks.providers, frozenset(self._applying)))
            self.looks.replace_providers(providers)
            self.looks.listen()
        self._basis += 1
        self.origins.manifests(self.desired, desired)
        self.desired = desired
        self.kept_files.offer(desired)
        self.looks.set_desired(desired)
        self.pushing.set_desired(desired)
        self.webhook.set_desired(desired)
        self._reconciles.manifests(desired.revision, self.manifest_reload.commit)
        self.reporting.manifests(desired, self.manifest_reload.commit, now)

    def source_changed(self) -> None:
        """Read the source at the next tick: something hints at a change."""
        self.manifest_reload.read_soon()

    def hurry(self, reason: str) -> None:
        """Ask the source now, whatever its interval."""
        self.manifest_reload.read_soon()
        self.wake.set(reason)

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
            if not self.reporting.queued and self.memory.error is None:
                self.pushing.saved()
            if self.memory.error is not None and Rule.LEDGER_UNWRITABLE not in self.faults:
                return
            failing = bool(decision.ledger.step_failures)
            upcoming = min(
                until,
                self.looks.next_due(),
                self.manifest_reload.due,
                self.references.due_at(failing),
                self.secrets.due,
            )
            await self.clock.sleep_until(upcoming, self.wake.event)
            now = self.clock.now()
            self.manifest_reload.start(now)
            self.secrets.start(now.steady)
            if self.wake.asked or now.steady >= until:
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
        return not self.probing.name_targets.undecided() and not pending(decision, end)
