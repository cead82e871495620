"""The composition root: puts the parts together, and holds no rule and no logic of its own. Called by the command line.

With `tree.py` the only module that knows the registry of providers, and the only one that sees both halves of the program.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from manifests.values.desired import SECOND, Desired, Role
from providers import registry
from providers.lib.secrets import on_resolve
from providers.spi import Context, Provider
from providers.wrappers.limited import limited
from providers.wrappers.owned import OwnedRuntime, owned
from providers.wrappers.push_credentials import PreparedRuntime, shares_files
from providers.wrappers.readonly import read_only
from reconciler.core.decision import Decision, Plan
from reconciler.core.forecast import forecast
from reconciler.core.model.instant import Now
from reconciler.exits import Exit
from reconciler.probes.engine import ProbeEngine
from reconciler.shell import doctor
from reconciler.shell.clock import SystemClock
from reconciler.shell.doctor import Finding
from reconciler.shell.logs import SECRETS
from reconciler.shell.looks.triggers import FileTrigger, Wake
from reconciler.shell.looks.wake_pipe import wake_pipe
from reconciler.shell.loop import Loop
from reconciler.shell.parts import Parts, Source, Stopped
from reconciler.shell.providers import Providers, ThreadRunner
from reconciler.shell.pushing.credentials import Credentials
from reconciler.shell.report.summary import Summary
from reconciler.shell.reporter import ProgressReporter, Reporter
from reconciler.shell.source import DirectorySource
from reconciler.shell.store.lock import Lock
from reconciler.shell.store.memory import ReadOnlyMemory, StoreMemory, command_of
from reconciler.shell.store.state_db import Store, StoreError
from reconciler.tree import load, state_dir
from reconciler.web.serving import serve

LOCK_WAIT = 5.0
"""Seconds that a run waits for another one on the same instance to end."""


@dataclass(frozen=True, slots=True)
class Intent:
    """What a run may do beyond its manifests. `prune` None: as the Instance says. `approve`: a hash that a person approved."""

    prune: bool | None = None
    take_over: bool = False
    destroy: bool = False
    approve: str = ""


def _meant(desired: Desired, intent: Intent) -> Desired:
    """The manifests with what this run may do. `destroy` wants nothing at all to be there."""
    if intent.destroy:
        former = {workload.key: workload for workload in desired.workloads}
        desired = replace(
            desired,
            workloads=(),
            services=(),
            policies=(),
            checks=(),
            records=(),
            record_lists=(),
            services_of={},
            former=former,
        )
    prune = desired.instance.prune if intent.prune is None else intent.prune
    return replace(desired, prune=prune, take_over=intent.take_over, destroy=intent.destroy)


def _zones(desired: Desired) -> frozenset[str]:
    return frozenset(f"{provider}/{zone}" for provider, zone in desired.zones)


def build(desired: Desired, state: Path, *, may_write: bool, credentials: Credentials | None = None) -> Providers:
    """All providers that the manifests name, each with its decorators: ownership inside, deadlines outside.

    `credentials` are what new containers get to push with.
    """
    context = Context(desired.instance.id, str(state))
    made: dict[Role, dict[str, Provider]] = {role: {} for role in Role}
    for one in desired.providers:
        provider = registry.create(one.type, one.name, one.settings, context)
        made[one.role][one.name] = _decorated(provider, desired.instance.id, may_write, credentials)
    # The registry has checked that each provider has the role its type promises.
    return Providers(made[Role.RUNTIME], made[Role.ENDPOINTS], made[Role.DNS])  # type: ignore[arg-type]


def _decorated(provider: Provider, instance: str, may_write: bool, credentials: Credentials | None) -> Provider:
    safe: Provider = owned(provider, instance)
    if credentials is not None and isinstance(safe, OwnedRuntime):
        safe = PreparedRuntime(safe, credentials.prepare, shares_files(provider))
    return limited(safe if may_write else read_only(safe))


@contextmanager
def _session(
    state: Path, operation: str, clock: SystemClock, reporter: Reporter, lock_wait: float = LOCK_WAIT
) -> Iterator[StoreMemory]:
    """The instance's lock and store, held together."""
    with Lock.acquire(state, operation, clock, lock_wait), Store.open(state, clock) as store:
        if store.recovered:
            reporter.note(store.recovered)
        yield StoreMemory(store, operation)


@contextmanager
def _machinery(
    desired: Desired, state: Path, *, may_write: bool, phase: bool, credentials: Credentials | None = None
) -> Iterator[tuple[Providers, ProbeEngine, ThreadRunner]]:
    """Providers, probe engine and threads of one run; all of them end with it, containers go on."""
    with ExitStack() as stack:
        stack.enter_context(on_resolve(SECRETS.add))
        providers = build(desired, state, may_write=may_write, credentials=credentials)
        stack.callback(providers.close)
        runner = ThreadRunner()
        stack.callback(runner.close)
        engine = ProbeEngine(phase=phase)
        stack.callback(engine.close)
        yield providers, engine, runner


def _source(path: Path, instance_file: Path | None, intent: Intent, clock: SystemClock, *, follow: bool) -> Source:
    extra = (instance_file,) if instance_file is not None else ()
    return DirectorySource(path, extra, lambda: _meant(load(path, instance_file), intent), clock, follow=follow)


async def run_once(
    path: Path,
    *,
    instance_file: Path | None,
    state: Path | None,
    intent: Intent,
    within: int,
    wait: bool,
    reporter: ProgressReporter,
    operation: str = "reconcile --once",
) -> Summary:
    """Converge once.

    Args:
        path: the manifests.
        instance_file: a local file of documents that win.
        state: the state directory, None for the default one.
        intent: what the run may do.
        within: ns after which it ends whatever is left.
        wait: sit through waits that end in that time.
        reporter: who tells people.
        operation: what the lock's owner record says.

    Raises:
        ManifestErrors, Locked, StoreError
    """
    clock = SystemClock()
    loaded = load(path, instance_file)
    desired = _meant(loaded, intent)
    place = state_dir(desired.instance.id, state)
    source = _source(path, instance_file, intent, clock, follow=False)
    credentials = Credentials(place, clock, desired.instance.push)
    with (
        _session(place, f"{operation} {path}", clock, reporter, min(LOCK_WAIT, within / SECOND)) as memory,
        _machinery(desired, place, may_write=True, phase=False, credentials=credentials) as (providers, engine, runner),
    ):
        reporter.follow(providers.progress)
        parts = Parts(
            desired=desired,
            providers=providers,
            providers_for=None,
            prober=engine,
            memory=memory,
            source=source,
            reporter=reporter,
            clock=clock,
            runner=runner,
            remembered=_zones(loaded),
            approve=intent.approve,
        )
        loop = Loop(parts)
        with wake_pipe(place, loop.wake):
            return await loop.once(within, wait)


class _SourceWake(Wake):
    """A wake of the source: the loop reads it again."""

    def __init__(self, loop: Loop) -> None:
        super().__init__()
        self._loop = loop

    def set(self, reason: str) -> None:
        """Pass the hint on."""
        self._loop.source_changed()
        self._loop.wake.set(reason)


async def run_watch(
    path: Path, *, instance_file: Path | None, state: Path | None, intent: Intent, reporter: Reporter
) -> Exit:
    """Keep converging until a signal says stop. Arguments and errors as `run_once`."""
    clock = SystemClock()
    loaded = load(path, instance_file)
    desired = _meant(loaded, intent)
    place = state_dir(desired.instance.id, state)
    credentials = Credentials(place, clock, desired.instance.push)
    with (
        _session(place, f"reconcile --watch {path}", clock, reporter) as memory,
        _machinery(desired, place, may_write=True, phase=True, credentials=credentials) as (providers, engine, runner),
    ):
        parts = Parts(
            desired=desired,
            providers=providers,
            providers_for=lambda new: build(new, place, may_write=True, credentials=credentials),
            prober=engine,
            memory=memory,
            source=_source(path, instance_file, intent, clock, follow=True),
            reporter=reporter,
            clock=clock,
            runner=runner,
            remembered=_zones(loaded),
            approve=intent.approve,
        )
        loop = Loop(parts)
        stop = asyncio.Event()
        trigger = asyncio.create_task(FileTrigger(Path(desired.root), _SourceWake(loop), clock).run(stop))
        pushes = asyncio.create_task(serve(loop.pushing, credentials, partial(reporter.note, level=logging.WARNING)))
        try:
            with wake_pipe(place, loop.wake):
                return await loop.watch()
        finally:
            stop.set()
            for task in (trigger, pushes):
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task


async def examine(path: Path, *, instance_file: Path | None, state: Path | None) -> tuple[Finding, ...]:
    """Ask every provider whether it can be reached and is configured; read-only. Raises `ManifestErrors`."""
    desired = load(path, instance_file)
    with ExitStack() as stack:
        stack.enter_context(on_resolve(SECRETS.add))
        providers = build(desired, state_dir(desired.instance.id, state), may_write=False)
        stack.callback(providers.close)
        runner = ThreadRunner()
        stack.callback(runner.close)
        return await doctor.examine(desired, providers, runner)


class _Quiet:
    """A reporter for plans: the plan itself is what is told."""

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note

    def started(self, step: object) -> None:
        """Never reached: a plan makes no call."""

    def finished(self, step: object, outcome: object) -> None:
        """Never reached."""

    def decided(self, decision: Decision, now: Now) -> None:
        """The forecast goes on from here."""

    def note(self, text: str, *, level: int = 0) -> None:
        """Pass it on."""
        del level
        self._note(text)


def _glimpse(place: Path, clock: SystemClock) -> ReadOnlyMemory:
    """The ledger as the instance's store has it; an instance that never ran has none."""
    try:
        with Store.join(place, clock) as store:
            return ReadOnlyMemory(store.load_ledger(), [(one.id, command_of(one)) for one in store.pending()])
    except StoreError:
        if (place / "state.db").exists():
            raise
        return ReadOnlyMemory({})


async def make_plan(
    path: Path,
    *,
    instance_file: Path | None,
    state: Path | None,
    intent: Intent,
    deadline: int,
    note: Callable[[str], None],
) -> tuple[Plan, Decision, Now]:
    """The whole plan, read-only: no lock, nothing written, one look, one attempt per network probe.

    Args:
        deadline: ns that probes get to answer.
        note: takes what is worth knowing beside the plan.

    Raises:
        ManifestErrors, StoreError, Stopped
    """
    clock = SystemClock()
    loaded = load(path, instance_file)
    desired = _meant(loaded, intent)
    place = state_dir(desired.instance.id, state)
    with _machinery(desired, place, may_write=False, phase=False) as (providers, engine, runner):
        parts = Parts(
            desired=desired,
            providers=providers,
            providers_for=None,
            prober=engine,
            memory=_glimpse(place, clock),
            source=None,
            reporter=_Quiet(note),
            clock=clock,
            runner=runner,
            remembered=_zones(loaded),
        )
        loop = Loop(parts)
        decision, observed, now = await loop.observe_once(deadline)
        if loop.stopping is not None:
            raise Stopped(loop.stopping)
        return forecast(desired, observed, now), decision, now
