"""The composition root: it constructs the parts of a run and connects them, and decides nothing. Called by the command line.

With `tree.py` the only module that knows the registry of providers, and the only one that imports both providers and the loop.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from manifests.load import with_choices
from manifests.problems import render
from manifests.values.desired import SECOND, Desired, Role
from providers import registry
from providers.lib.secrets import define, on_resolve
from providers.spi import Context, Provider
from providers.wrappers.calls import Report
from providers.wrappers.limited import Limits, limited
from providers.wrappers.owned import OwnedRuntime, owned
from providers.wrappers.push_credentials import CredentialedRuntime, shares_files
from providers.wrappers.readonly import read_only
from providers.wrappers.recorded import Recorded, recorded
from providers.wrappers.repository_files import RuntimeWithFiles
from providers.wrappers.unasked import unasked
from reconciler import environments
from reconciler.commits.recorder import Recorder
from reconciler.core.decision import Decision, Manifests, Plan
from reconciler.core.forecast import forecast
from reconciler.core.model.instant import Now
from reconciler.core.model.source_problem import named
from reconciler.core.plan_places import placed
from reconciler.exits import Exit
from reconciler.intent import Intent
from reconciler.metrics.beat import beat
from reconciler.metrics.monitoring import Monitoring
from reconciler.notify.attach import attach, forge_client
from reconciler.probes.engine import ProbeEngine
from reconciler.reviews.reviewer import Makers, Reviewer
from reconciler.saved_plan import StalePlan
from reconciler.shell import daemon_view, doctor, file_diffs
from reconciler.shell.clock import SystemClock
from reconciler.shell.daemon_view import DaemonView
from reconciler.shell.doctor import Finding, SecretFinding
from reconciler.shell.host_facts import InstanceTimeProber, InstanceTimeRuntime
from reconciler.shell.instance_clock import InstanceClock
from reconciler.shell.looks.triggers import FileTrigger, Wake
from reconciler.shell.looks.wake_pipe import wake_pipe
from reconciler.shell.loop import Loop
from reconciler.shell.notify import from_environment
from reconciler.shell.parts import Parts, Source, Stopped
from reconciler.shell.probing.targets import Prober
from reconciler.shell.providers import Providers, ThreadRunner
from reconciler.shell.pushing.credentials import Credentials
from reconciler.shell.report.summary import Summary
from reconciler.shell.reporter import ProgressReporter, Reporter
from reconciler.shell.secrets import SECRETS
from reconciler.shell.source import StoredManifests
from reconciler.shell.store.archive import mark_removed
from reconciler.shell.store.file_store import FileStore
from reconciler.shell.store.lock import Lock
from reconciler.shell.store.memory import BlockingMemory, ReadOnlyMemory, StoreMemory, command_of
from reconciler.shell.store.state_db import Store, StoreError
from reconciler.snapshots.snapshot import PastClock, Snapshot, checked, masked, taken
from reconciler.start import (
    StartManifests,
    archive_of,
    field_places,
    held_back,
    in_force_of,
    keep,
    kept,
    last_good_tree,
    last_in_force,
    of_history,
    refused_commit,
    source_of,
    start_manifests,
    stored_places,
    stored_source,
    waits_note,
)
from reconciler.tree import Location, resolve, state_to_read
from reconciler.web.metrics_serving import serve_metrics
from reconciler.web.serving import serve
from reconciler.web.webhook_serving import serve_webhook

WATCH = "reconcile --watch"
"""How a daemon begins its operation in the lock's owner record."""

LOCK_WAIT = 5.0
"""Seconds that a run waits for another run on the same instance to end."""

CLOSE_WAIT = 5.0
"""Seconds that the end of a run waits for the last call of the store."""

log = logging.getLogger("reconciler")

_unclosed: list[ExitStack] = []
"""Stores whose last call hangs, with their locks, until the process is gone."""


def _zones(desired: Desired) -> frozenset[str]:
    return frozenset(f"{provider}/{zone}" for provider, zone in desired.zones)


def build(
    desired: Desired,
    state: Path,
    *,
    may_write: bool,
    offset: int = 0,
    credentials: Credentials | None = None,
    report: Report | None = None,
    untrusted: bool = False,
    files: FileStore | None = None,
    observed: Recorded | None = None,
) -> Providers:
    """All providers that the manifests name, each with its wrappers: ownership inside, deadlines outside.

    `offset` is the steady time of the instance minus that of this host; `credentials` are what new containers push with; `report` gets
    every call. `files` are what new containers mount of the repository; by default those in the state directory. `untrusted`: only local documents' providers are asked. `observed`: facts that take
    the place of all providers, so that none is made.
    """
    define(desired.instance.secret_programs, desired.root)
    by_role: dict[Role, dict[str, Provider]] = {role: {} for role in Role}
    for declared in desired.providers:
        if observed is not None:
            provider = recorded(declared.role, declared.name, observed)
            by_role[declared.role][declared.name] = limited(read_only(provider), Limits())
            continue
        if untrusted and not declared.local:
            by_role[declared.role][declared.name] = unasked(declared.role, declared.name)
            continue
        context = Context(
            desired.instance.id, str(state), declared.local, compare_secrets=not untrusted, setups=not may_write
        )
        provider = registry.create(declared.type, declared.name, declared.settings, context)
        by_role[declared.role][declared.name] = _wrapped(
            provider, desired.instance.id, may_write, offset, credentials, report, files or FileStore(state)
        )
    # The registry has checked that each provider has the role its type promises.
    return Providers(by_role[Role.RUNTIME], by_role[Role.ENDPOINTS], by_role[Role.DNS])  # type: ignore[arg-type]


def _wrapped(
    provider: Provider,
    instance: str,
    may_write: bool,
    offset: int,
    credentials: Credentials | None,
    report: Report | None,
    files: FileStore,
) -> Provider:
    safe: Provider = owned(provider, instance)
    if isinstance(safe, OwnedRuntime):
        if credentials is not None:
            safe = CredentialedRuntime(safe, credentials.prepare, shares_files(provider))
        safe = RuntimeWithFiles(safe, files)
        safe = InstanceTimeRuntime(safe, offset)
    return limited(safe if may_write else read_only(safe), Limits(report=report))


@contextmanager
def _locked_store(
    state: Path,
    operation: str,
    clock: SystemClock,
    reporter: Reporter,
    lock_wait: float = LOCK_WAIT,
    *,
    stays: bool = False,
) -> Iterator[StoreMemory]:
    """The instance's lock, store and clock, held together. `stays`: begin also with a store that can only be read."""
    with ExitStack() as stack:
        lock = stack.enter_context(Lock.acquire(state, operation, clock, lock_wait))

        def opened() -> Store:
            return stack.enter_context((Store.open_or_read if stays else Store.open)(state, clock))

        def lock_again() -> None:
            """Take the lock of the directory that other processes find now. Raises Locked, StoreError."""
            nonlocal lock
            if not state.is_dir():
                # Its file system may come back with everything in it.
                next_step = f"restore it, or make an empty one: mkdir -m 700 {state}"
                raise StoreError(state, "the state directory has vanished", next_step)
            lock = stack.enter_context(Lock.acquire(state, operation, clock))

        def reopened() -> Store:
            """The store again after its files are gone, under a lock that other processes find."""
            if not lock.held():
                lock_again()
            lock.record()
            return opened()

        def alone() -> None:
            if lock.held():
                lock.keep_record()
                return
            if state.is_dir():
                lock_again()  # at once, so that no other process takes it before the store is written again
            raise StoreError(state, "it was removed or replaced while reconcile was using it", "restore it")

        store = opened()
        if store.recovered:
            reporter.note(store.recovered)
        memory = StoreMemory(BlockingMemory(store, operation, reopened, alone), note=reporter.note)
        try:
            yield memory
        finally:
            if not memory.close(CLOSE_WAIT):
                # The call may still write. The kernel frees the lock when this process is gone, and not before.
                _unclosed.append(stack.pop_all())
                log.warning("%s hangs; the instance stays locked until this process is gone", memory.place)


@contextmanager
def _machinery(
    desired: Desired,
    state: Path,
    *,
    may_write: bool,
    phase: bool,
    offset: int,
    credentials: Credentials | None = None,
    report: Report | None = None,
    untrusted: bool = False,
    files: FileStore | None = None,
    observed: Recorded | None = None,
) -> Iterator[tuple[Providers, ProbeEngine, Prober, ThreadRunner]]:
    """Providers, probe engine and threads of one run. All of them end with the run; containers keep running.

    The engine comes twice: itself, for its counters, and as the loop uses it, in the time of the instance.
    """
    with ExitStack() as stack:
        stack.enter_context(on_resolve(SECRETS.add))
        providers = build(
            desired,
            state,
            may_write=may_write,
            offset=offset,
            credentials=credentials,
            report=report,
            untrusted=untrusted,
            files=files,
            observed=observed,
        )
        stack.callback(providers.close)
        runner = ThreadRunner()
        stack.callback(runner.close)
        engine = ProbeEngine(phase=phase)
        stack.callback(engine.close)
        yield providers, engine, InstanceTimeProber(engine, offset), runner


async def run_once(
    location: Location,
    *,
    intent: Intent,
    within: int,
    wait: bool,
    reporter: ProgressReporter,
    operation: str = "reconcile --once",
    stored: StartManifests | None = None,
    monitoring: Monitoring | None = None,
) -> Summary:
    """Converge once.

    Args:
        location: the manifests and the state directory.
        intent: what the run may do.
        within: ns after which the run ends, converged or not.
        wait: wait for what ends within that time.
        reporter: is called with what happens.
        operation: the run's name in the lock's owner record.
        stored: use these stored manifests, and read none.
        monitoring: takes the metrics of the run.

    Raises:
        ManifestErrors, Locked, StoreError, StalePlan
    """
    host = SystemClock()
    start = stored or start_manifests(location, host, stored=False, destroy=intent.destroy, take_over=intent.take_over)
    loaded = start.desired
    state = location.state_of(loaded.instance.id)
    if intent.revision and loaded.revision != intent.revision:
        raise StalePlan(["the manifests have changed since the plan was compared with them"])
    desired = location.at_work(intent.applied_to(loaded), state)
    credentials = Credentials(state, host, desired.instance.push)
    files = FileStore(state)
    lock_wait = min(LOCK_WAIT, within / SECOND)
    monitoring = monitoring or Monitoring(host)
    monitoring.instance = desired.instance.id
    with (
        _locked_store(state, f"{operation} {location.path}", host, reporter, lock_wait) as memory,
        _machinery(
            desired,
            state,
            may_write=True,
            phase=False,
            offset=memory.clock.offset,
            credentials=credentials,
            report=monitoring.called,
            files=files,
        ) as (providers, engine, prober, runner),
    ):
        reporter.follow(providers.progress)
        clock = memory.clock
        make = partial(
            build, state=state, may_write=True, offset=clock.offset, credentials=credentials, report=monitoring.called
        )
        monitoring.follow_clock(clock)
        before, _ = last_in_force(state, start.sources, loaded)
        source: Source = (
            kept(location, intent, start, state, memory.blocking, clock, reporter)
            if stored is None
            else StoredManifests(None)
        )
        if intent.destroy:
            mark_removed(state)
        _monitor(monitoring, memory, engine, desired)
        parts = Parts(
            desired=desired,
            providers=providers,
            providers_for=make if start.waiting is not None else None,
            prober=prober,
            memory=monitoring.memory(memory),
            source=monitoring.source(source),
            reporter=reporter,
            clock=clock,
            runner=runner,
            remembered=_zones(loaded),
            approve=intent.approve,
            approves=intent.approves,
            approves_text=intent.approves_text,
            who=intent.who,
            monitor=monitoring,
            files=files,
            booted=clock.booted,
            before=before,
            places=partial(stored_places, state),
        )
        loop = Loop(parts)
        with wake_pipe(state, loop.wake):
            return await loop.once(within, wait)


def _monitor(monitoring: Monitoring, memory: StoreMemory, engine: ProbeEngine, desired: Desired) -> None:
    """Connect what metrics are read from, and begin."""
    monitoring.stats = lambda: engine.stats
    monitoring.history = lambda: (row for _, row in memory.blocking.store.audit_since())
    monitoring.begin(desired)


class _SourceWake(Wake):
    """The wake of the file trigger: it makes the loop read the manifests again."""

    def __init__(self, loop: Loop) -> None:
        super().__init__()
        self._loop = loop

    def set(self, reason: str) -> None:
        """Mark the manifests as changed and wake the loop."""
        self._loop.source_changed()
        self._loop.wake.set(reason)


async def run_watch(location: Location, *, intent: Intent, reporter: Reporter) -> Exit:
    """Keep converging until a signal ends it. Arguments and errors as `run_once`."""
    # Imported here: only a daemon writes images, and the clients of git and forges cost start-up time.
    from reconciler.deployments.attach import Attached  # noqa: PLC0415
    from reconciler.deployments.attach import attach as attach_deployments  # noqa: PLC0415

    host = SystemClock()
    start = start_manifests(location, host, stored=True, take_over=intent.take_over)
    loaded = start.desired
    state = location.state_of(loaded.instance.id)
    desired = location.at_work(intent.applied_to(loaded), state)
    credentials = Credentials(state, host, desired.instance.push)
    files = FileStore(state)
    monitoring, manager = Monitoring(host), from_environment()
    with (
        _locked_store(state, f"{WATCH} {location.path}", host, reporter, stays=True) as memory,
        _machinery(
            desired,
            state,
            may_write=True,
            phase=True,
            offset=memory.clock.offset,
            credentials=credentials,
            report=monitoring.called,
            files=files,
        ) as (providers, engine, prober, runner),
    ):
        clock = memory.clock
        monitoring.follow_clock(clock)
        make = partial(
            build,
            state=state,
            may_write=True,
            offset=clock.offset,
            credentials=credentials,
            report=monitoring.called,
            files=files,
        )
        _monitor(monitoring, memory, engine, desired)
        archive = archive_of(location, state, start, clock)
        before, _ = last_in_force(state, start.sources, loaded)
        if start.invalid is not None:
            reporter.note(
                f"the manifests at {location.path} are invalid; revision "
                f"{named(start.sources.revision, archive.commit_in_force)}, the last good one, stays in force",
                level=logging.WARNING,
            )
            reporter.note(render(start.invalid[1].problems), level=logging.WARNING)
        elif start.waiting is not None:
            reporter.note(waits_note(start, archive), level=logging.WARNING)
        else:
            keep(archive, start, memory.blocking, clock, reporter)
        warn = partial(reporter.note, level=logging.WARNING)
        refused = partial(refused_commit, location)
        notifier = attach(monitoring, state, desired.instance.id, clock, warn, refused)
        recorder = Recorder(notifier, state, clock, refused, warn)
        reviewer = Reviewer(
            recorder,
            state,
            location.instance_file,
            clock,
            Makers(
                partial(forge_client, clock),
                lambda: last_good_tree(state)[0],
                warn,
                recorder.reviewed,
            ),
            location.environment,
        )
        attached = Attached(reviewer)
        parts = Parts(
            desired=desired,
            providers=providers,
            providers_for=make,
            prober=prober,
            memory=monitoring.memory(memory),
            source=monitoring.source(source_of(location, intent, start, state, archive, clock, follow=True)),
            reporter=reporter,
            clock=clock,
            runner=runner,
            remembered=_zones(loaded),
            approve=intent.approve,
            who=intent.who,
            monitor=attached,
            files=files,
            booted=clock.booted,
            before=before,
            places=partial(stored_places, state),
        )
        loop = Loop(parts)
        aio = asyncio.get_running_loop()

        def report(text: str) -> None:
            loop.reporting.source(text, clock.now())
            loop.wake.set("a merged commit was compared with its review")  # the next tick stores the event

        def happened(text: str) -> None:
            with suppress(RuntimeError):  # the run has ended
                aio.call_soon_threadsafe(report, text)

        reviewer.happened = happened

        deployments = attached.deployments = attach_deployments(loop, location, state, clock, warn)
        stop = asyncio.Event()
        triggers = [
            asyncio.create_task(FileTrigger(watched, _SourceWake(loop), clock).run(stop))
            for watched in (location.watched,)
            if watched is not None
        ]
        beside = (
            *triggers,
            asyncio.create_task(serve(loop.pushing, credentials, warn, monitoring.pushed, deployments)),
            asyncio.create_task(serve_metrics(monitoring, warn)),
            asyncio.create_task(serve_webhook(loop.webhook, warn, monitoring.hooked)),
            asyncio.create_task(beat(monitoring, manager, lambda: loop.stopping is not None)),
        )
        try:
            with wake_pipe(state, loop.wake):
                return await loop.watch()
        finally:
            manager.notify("STOPPING=1")
            stop.set()
            reviewer.close()
            recorder.close()
            deployments.close()
            notifier.close()
            for task in beside:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task


class Examined(NamedTuple):
    """What `doctor` found: one finding per provider, and one per secret."""

    providers: tuple[Finding, ...]
    secrets: tuple[SecretFinding, ...]


async def examine(location: Location, stored: StartManifests | None = None) -> Examined:
    """Check of every provider whether it is reachable and configured, and of every secret whether it can be used; read-only.
    Raises `ManifestErrors`.

    `stored` are manifests that take the place of those at the location.
    """
    desired = location.load() if stored is None else stored.desired
    with ExitStack() as stack:
        stack.enter_context(on_resolve(SECRETS.add))
        state = stack.enter_context(state_to_read(desired.instance.id, location.state))
        providers = build(desired, state, may_write=False)
        stack.callback(providers.close)
        runner = ThreadRunner()
        stack.callback(runner.close)
        found = await doctor.examine(desired, providers, runner)
        return Examined(found, await runner.run(lambda: doctor.examine_secrets(desired)))


class _NotesOnly:
    """The reporter of a plan: it passes notes on and ignores the rest, because the plan itself is the result."""

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note

    def started(self, step: object) -> None:
        """Never called: a plan makes no call."""

    def finished(self, step: object, outcome: object) -> None:
        """Never called."""

    def decided(self, decision: Decision, now: Now) -> None:
        """The plan starts from this decision."""

    def event(self, kind: str, obj: str, action: str, cause: str, outcome: str, message: str, actor: str = "") -> None:
        """Nothing: a plan shows what it observes by itself."""

    def note(self, text: str, *, level: int = 0) -> None:
        """Pass it on."""
        del level
        self._note(text)


def _ledger_for_plan(
    state: Path, host: SystemClock, snapshot: Snapshot | None = None
) -> tuple[ReadOnlyMemory, InstanceClock]:
    """The ledger in the instance's store, and the instance's clock; empty and new for an instance that never ran. Those of a snapshot, if any."""
    if snapshot is not None:
        return ReadOnlyMemory(snapshot.rows), InstanceClock(PastClock(snapshot, host), snapshot.clock)
    try:
        with Store.join(state, host) as store:
            clock = InstanceClock(host, store.clock_record())
            rows = {key: clock.of_instance_text(row) for key, row in store.load_ledger().items()}
            return ReadOnlyMemory(rows, [(row.id, command_of(row, clock)) for row in store.pending()]), clock
    except StoreError:
        if (state / "state.db").exists():
            raise
        return ReadOnlyMemory({}), InstanceClock(host, None)


class MadePlan(NamedTuple):
    """A plan, the decision that it starts from and its instant, and the view of the running process that it used, if any.

    `commit`, `ref`: of the git source that the manifests were read from, and the full name of the ref; else empty.
    `lineage` is that of the instance's ledger; empty when it has never run.
    """

    plan: Plan
    decision: Decision
    now: Now
    view: DaemonView | None
    commit: str = ""
    ref: str = ""
    lineage: str = ""


def _at_path(location: Location, snapshot: Snapshot | None = None) -> StartManifests:
    """The manifests at the location; those of the source of the instance as a run judges them. Raises `ManifestErrors`.

    With a snapshot: with the images that policies chose on its host.
    """
    sources = location.read()
    start = StartManifests(resolve(sources), sources)
    if location.reader is not None and location.reader.is_declared:
        start = of_history(location, start)
    if snapshot is None or snapshot.choices == start.sources.choices:
        return start
    sources = with_choices(start.sources, snapshot.choices)
    return StartManifests(resolve(sources), sources)


async def make_plan(
    location: Location,
    *,
    intent: Intent,
    deadline: int,
    note: Callable[[str], None],
    stored: StartManifests | None = None,
    ask: Callable[[Path], str] = lambda _: "",
    untrusted: bool = False,
    approving: bool = False,
    snapshot: Snapshot | None = None,
) -> MadePlan:
    """The whole plan, read-only: no lock, no write, one look, one attempt per network probe that no running process has a verdict of.

    Args:
        location: the manifests and the state directory.
        intent: what the planned run may do.
        deadline: ns that probes have to answer.
        note: takes messages beside the plan.
        stored: use these stored manifests, and read none.
        ask: asks the process that holds the instance with this state directory for its present decision; empty when none answers.
        untrusted: the author of the tree is not trusted: nothing is asked, resolved or run for the tree alone (`cli/render/untrusted.py`).
        approving: as in `forecast`.
        snapshot: what takes the place of every look, verdict and secret: nothing is asked, resolved or run.

    Raises:
        ManifestErrors, StoreError, Stopped, SnapshotRefused
    """
    start = _at_path(location, snapshot) if stored is None else stored
    loaded = start.desired
    desired = intent.applied_to(loaded)
    if snapshot is not None:
        checked(snapshot, loaded.instance.id, SystemClock().now().wall)
    with ExitStack() as stack:
        if snapshot is not None or (untrusted and location.instance_file is None):
            # Its id is the tree's choice too, so it must not find the state of an instance.
            location = replace(location, state=Path(stack.enter_context(TemporaryDirectory(prefix="reconciler-"))))
        state = stack.enter_context(state_to_read(desired.instance.id, location.state))
        if stored is None and not untrusted and snapshot is None:
            environments.checked(state, start.sources.tree, desired.instance.id, take_over=intent.take_over)
        # Before the ledger is read: the process stores its own at this question.
        answer = snapshot.view_text() if snapshot is not None else ask(state) or "{}"
        memory, clock = _ledger_for_plan(state, SystemClock(), snapshot)
        view = daemon_view.read(answer, clock.now())
        machinery = _machinery(
            desired,
            state,
            may_write=False,
            phase=False,
            offset=clock.offset,
            untrusted=untrusted,
            observed=None if snapshot is None else snapshot.facts,
        )
        providers, _, prober, runner = stack.enter_context(machinery)
        parts = Parts(
            desired=desired,
            providers=providers,
            providers_for=None,
            prober=prober,
            memory=memory,
            source=None if stored is None else stored_source(stored, clock),
            reporter=_NotesOnly(note),
            clock=clock,
            runner=runner,
            remembered=_zones(loaded),
            approve=intent.approve,
            who=intent.who,
            view=view,
            booted=clock.booted,
        )
        loop = Loop(parts)
        loop.probing.probes_nothing = loop.secrets.resolves_nothing = untrusted or snapshot is not None
        loop.secrets.other_environment = view is not None
        decision, observed, now = await loop.observe_once(deadline)
        if loop.stopping is not None:
            raise Stopped(loop.stopping)
        if snapshot is None:
            earlier, running = last_in_force(state, start.sources, loaded)
        else:
            earlier, running = in_force_of(snapshot, start.sources, loaded)
        plan = forecast(desired, observed, now, earlier, approving=approving)
        commit = running.commit if stored is not None or (untrusted and snapshot is None) else location.commit()
        plan = placed(plan, desired, field_places(start.sources))
        plan = replace(plan, in_force=running, planned=Manifests(desired.revision, commit))
        if not untrusted and snapshot is None:  # running files are not for that author
            plan = replace(plan, file_diffs=file_diffs.of_plan(desired, observed.runtimes, FileStore(state)))
        if view is not None:
            plan = replace(plan, holds=(*plan.holds, *view.only_there(decision, desired.revision)))
        if stored is None and not untrusted and snapshot is None:
            # The plan is of the manifests at PATH, for review; a run keeps those in force until these are over.
            plan = replace(plan, holds=(*plan.holds, *held_back(state, start, SystemClock(), location.commit())))
        commit, ref = location.reader.seen if location.reader is not None and stored is None else ("", "")
        lineage = now.lineage if (state / "state.db").exists() else ""
        return MadePlan(plan, decision, now, view, commit, ref, lineage)


async def take_snapshot(
    location: Location,
    *,
    intent: Intent,
    deadline: int,
    lasts: int,
    note: Callable[[str], None],
    stored: StartManifests | None = None,
    ask: Callable[[Path], str] = lambda _: "",
) -> Snapshot:
    """One look at everything, as a plan makes it, masked for export. Read-only.

    Args:
        location: the manifests and the state directory.
        intent: as for the plan of the same manifests.
        deadline: ns that probes have to answer.
        lasts: ns until the snapshot expires; 0 = never.
        note: takes messages.
        stored: use these stored manifests, and read none.
        ask: as in `make_plan`.

    Raises:
        ManifestErrors, StoreError, Stopped
    """
    start = _at_path(location) if stored is None else stored
    desired = intent.applied_to(start.desired)
    with ExitStack() as stack:
        state = stack.enter_context(state_to_read(desired.instance.id, location.state))
        answer = ask(state) or "{}"
        memory, clock = _ledger_for_plan(state, SystemClock())
        machinery = _machinery(desired, state, may_write=False, phase=False, offset=clock.offset)
        providers, _, prober, runner = stack.enter_context(machinery)
        view = daemon_view.read(answer, clock.now())
        parts = Parts(
            desired=desired,
            providers=providers,
            providers_for=None,
            prober=prober,
            memory=memory,
            source=None if stored is None else stored_source(stored, clock),
            reporter=_NotesOnly(note),
            clock=clock,
            runner=runner,
            remembered=_zones(start.desired),
            who=intent.who,
            view=view,
            booted=clock.booted,
        )
        loop = Loop(parts)
        loop.secrets.other_environment = view is not None
        decision, _, now = await loop.observe_once(deadline)
        if loop.stopping is not None:
            raise Stopped(loop.stopping)
        good, running = last_good_tree(state)
        expires = now.wall + lasts if lasts else 0
        record = clock.record()
        record = record._replace(
            steady=now.steady, wall=now.wall, host_steady=record.host_steady - (record.steady - now.steady)
        )
        whole = taken(decision, desired, now, record, memory.rows, running.commit, expires)
        documents, identity = good
        whole = replace(whole, revision=running.revision or whole.revision, manifests=documents, identity=identity)
        return masked(whole, desired)
