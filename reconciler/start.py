"""The manifests that a run starts with, the source that it follows, and where both are kept over restarts of the program.

Called by `wire.py` for runs and plans, and by the commands that must work while the manifests at PATH are invalid.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from manifests.load import Sources, with_choices
from manifests.places import Places
from manifests.problems import Code, ManifestErrors, Problem
from manifests.source.directory import SourceFile
from manifests.source.local import LocalDocuments
from manifests.values.desired import Desired, Guard
from reconciler import environments, tree
from reconciler.core.decision import Manifests
from reconciler.core.limits import commits
from reconciler.core.model.ledger import Ledger
from reconciler.core.model.ledger_codec import read_rows
from reconciler.core.model.ledger_fold import apply_commands
from reconciler.core.model.reasons import Hold
from reconciler.core.model.source_problem import named
from reconciler.core.model.waiting_revision import WaitingRevision
from reconciler.intent import Intent
from reconciler.shell.clock import BlockingClock, HostClock
from reconciler.shell.instance_clock import InstanceClock
from reconciler.shell.parts import Source
from reconciler.shell.report.events import manifests_event
from reconciler.shell.reporter import Reporter
from reconciler.shell.source import DirectorySource, InForce, StoredManifests, problem_of
from reconciler.shell.store import last_good, source_record
from reconciler.shell.store.archive import Archive
from reconciler.shell.store.instance_index import place_of
from reconciler.shell.store.last_good import LastGood
from reconciler.shell.store.memory import BlockingMemory, command_of
from reconciler.shell.store.state_db import Store, StoreError
from reconciler.snapshots.snapshot import Snapshot
from reconciler.tree import Location


@dataclass(frozen=True, slots=True)
class StartManifests:
    """The manifests that a run starts with.

    Attributes:
        desired: as they are written, without the intent of the run.
        sources: the files that they were resolved from.
        invalid: set when they were stored by an earlier run: the files at the source as they are now, and their problems.
        waiting: set when they were stored by an earlier run: the valid files at the source as they are now, and their Guard, which with
            the ledger lets them wait.
    """

    desired: Desired
    sources: Sources
    invalid: tuple[Sources, ManifestErrors] | None = None
    waiting: tuple[Sources, Guard] | None = None


def start_manifests(
    location: Location, clock: HostClock, *, stored: bool, destroy: bool = False, take_over: bool = False
) -> StartManifests:
    """Read the manifests of a run. With `stored` the last good ones of the same instance take the place of invalid ones.

    They also take the place of a valid revision that has to wait (`limits/commits`), unless all is removed with `destroy`.
    `take_over` lets another environment replace the one that is in force.

    Raises:
        ManifestErrors: the manifests are invalid, and none are stored that may take their place; or they have to wait, and those in
            force cannot be used any more.
    """
    sources = location.read()
    try:
        start = of_history(location, StartManifests(tree.resolve(sources), sources))
    except ManifestErrors as error:
        if not stored:
            raise
        state = location.known_state(sources, error, clock, newest=True)
        if state is None:
            raise
        other = environments.conflict(state, sources.tree, "")
        if other is not None:
            raise ManifestErrors([*error.problems, other]) from error
        _follow(location, state)
        return stored_manifests(state, sources, error)
    instance = start.desired.instance.id
    try:
        state = location.state_of(instance)
    except tree.NoHome:
        return start
    other = None if take_over else environments.conflict(state, sources.tree, instance)
    if other is not None:
        raise ManifestErrors([other])
    left_out = [] if destroy else environments.left_out(state, sources.tree)
    if left_out and not stored:
        raise ManifestErrors(left_out)
    if left_out:
        return stored_manifests(state, environments.with_left_out(state, sources), ManifestErrors(left_out))
    if destroy or not held_back(state, start, clock, location.commit()):
        return start
    try:
        stays = stored_manifests(state, sources, None)
    except ManifestErrors as error:
        next_step = "correct them, or let the new revision come into force: reconcile resume --commits"
        message = "new commits are held, and the manifests in force cannot be used"
        raise ManifestErrors([*error.problems, _problem_of_store(message, next_step)]) from error
    return replace(stays, waiting=(sources, start.desired.guard))


def of_history(location: Location, start: StartManifests) -> StartManifests:
    """The manifests of a git source, judged by the commit that is in force: its history is in the state of the instance, known only now.

    Raises:
        ManifestErrors: the history was rewritten, and local documents hold that.
    """
    try:
        state = location.state_of(start.desired.instance.id)
    except tree.NoHome:
        return start
    if not _follow(location, state):
        return start
    sources = location.read()
    return StartManifests(tree.resolve(sources), sources)


def _follow(location: Location, state: Path) -> bool:
    """Let the reader of a git source judge each commit by the one that is in force. False where none is known."""
    if location.reader is None:
        return False
    record = source_record.load(state)
    commit = "" if record is None or record.in_force is None else record.in_force.newest or record.in_force.commit
    if not commit:  # the record may be lost
        try:
            good = last_good.load(state)
        except StoreError:
            good = None
        commit = "" if good is None else good.commit
    if commit:
        location.reader.start_from(commit)
    return bool(commit)


def in_force(location: Location) -> StartManifests | None:
    """The stored manifests of the instance at a location, where those at the location are other ones; None where they are not.

    Raises:
        ManifestErrors: the manifests at the location are invalid, or the stored ones cannot be used.
    """
    sources = location.read()
    instance = tree.resolve(sources).instance.id
    try:
        state = location.state_of(instance)
        good = last_good.load(state)
    except (tree.NoHome, StoreError):
        return None
    if good is None or good.removed or good.instance != instance or good.revision == sources.revision:
        return None
    return stored_manifests(state, sources, None)


def held_back(state: Path, start: StartManifests, clock: HostClock, commit: str) -> list[Hold]:
    """What lets the manifests of this start wait while others are in force; empty when nothing does, or none are.

    `commit` is the one that they are of; empty outside of git.

    Orders in the inbox count as given: the run that starts reads them before it decides.
    """
    try:
        good = last_good.load(state)
    except StoreError:
        good = None
        record = source_record.load(state)
        if record is None or record.in_force is None or record.in_force.revision == start.sources.revision:
            return []
    else:
        desired = start.desired
        if good is None or good.removed or good.instance != desired.instance.id:
            return []
        if good.revision == start.sources.revision:
            return []
    try:
        with Store.join(state, clock) as store:
            instance_clock = InstanceClock(clock, store.clock_record())
            now = instance_clock.now()
            ledger, _ = read_rows(store.load_ledger())
            ledger = apply_commands(ledger, tuple(command_of(row, instance_clock) for row in store.pending()))
    except StoreError:
        ledger, now = Ledger(), clock.now()
    name = named(good.revision, good.commit) if good is not None else "(unreadable)"
    waiting = WaitingRevision(start.sources.revision, commit, start.desired.guard, name, now.steady)
    return commits.holds(waiting, ledger, now)


def stored_manifests(
    state: Path, now: Sources | None, error: ManifestErrors | None, *, removed: bool = False
) -> StartManifests:
    """The last good manifests in a state directory, checked with the local documents as they are now.

    What the policy of today's Guard forbids in them is kept as it runs, and not created again (`Workload.forbidden`).

    Args:
        now: the files at the source now, for the local documents; None when no PATH was given.
        error: the problems of the source; they are raised together with those of the stored manifests.
        removed: also manifests that `reconcile destroy` has begun to remove.

    Raises:
        ManifestErrors: nothing is stored that may be used: nothing at all, a damaged file, or manifests that this version of the
            program, or the local documents as they are now, do not accept.
    """
    known = error.problems if error is not None else ()
    try:
        good = last_good.load(state)
    except StoreError as damaged:
        raise ManifestErrors([*known, _problem_of_store(str(damaged))]) from damaged
    if good is None or (good.removed and not removed):
        raise error or ManifestErrors([_problem_of_store(f"{state}: no manifests are stored")])
    invalid = (now, error) if now is not None and error is not None else None
    refused = ManifestErrors(())
    for sources, judge in _judged(good, now.local if now is not None else None):
        try:
            return StartManifests(_resolved(sources, good), sources, invalid)
        except ManifestErrors as wrong:
            refused = wrong
            if {problem.file for problem in wrong.problems if not problem.is_warning} - judge:
                break  # else the local documents themselves are invalid and judge nothing: those that were stored do
    shown = [
        replace(problem, file=f"stored revision {good.revision[:12]}: {problem.file}")
        for problem in refused.problems
        if not problem.is_warning
    ]
    raise ManifestErrors([*known, *shown])


def _judged(good: LastGood, local: LocalDocuments | None) -> Iterator[tuple[Sources, set[str]]]:
    """The stored manifests with the local documents that may judge them, and the names of those: today's first, then the stored ones.

    Today's judge nothing when they cannot be used. Manifests that came into force without local documents never count as confined by them.
    """
    if local is not None and local.files:
        yield (
            with_choices(replace(good.sources, local=local), good.sources.choices),
            {file.name for file in local.files},
        )
    if local is None or good.sources.local is not None:
        yield good.sources, set()


def _resolved(sources: Sources, good: LastGood) -> Desired:
    """Stored manifests, checked by the rules of today; those that came into force before local documents confined the tree, by theirs."""
    try:
        return tree.resolve(sources, enforce=False)
    except ManifestErrors:
        if good.confined or good.sources.local is None:
            raise
        return tree.resolve(sources, confined=False, enforce=False)


def _problem_of_store(message: str, next_step: str = "correct the manifests at PATH") -> Problem:
    return Problem("stored manifests", 0, 0, Code.UNREADABLE_FILE, "", message, next_step)


def last_in_force(state: Path, sources: Sources, planned: Desired) -> tuple[Desired | None, Manifests]:
    """The manifests that a run put in force last, checked with today's local documents, and their revision and commit.

    None where none are stored, where `reconcile destroy` has begun to remove them, and where this version of the program or the local
    documents do not accept them: then only their revision is known.

    Args:
        sources, planned: the files of the plan, and what they declare.
    """
    try:
        good = last_good.load(state)
    except StoreError:
        return None, Manifests()
    if good is None or good.removed:
        return None, Manifests()
    name = Manifests(good.revision, good.commit)
    if good.revision == planned.revision:
        return planned, name
    try:
        return stored_manifests(state, sources, None).desired, name
    except ManifestErrors:
        return None, name


def last_good_tree(state: Path) -> tuple[tuple[tuple[tuple[str, str], ...], str], Manifests]:
    """The documents of the tree that a run put in force last, the identity of their source, and their revision and commit; empty without."""
    try:
        good = last_good.load(state)
    except StoreError:
        good = None
    if good is None or good.removed:
        return ((), ""), Manifests()
    tree_ = good.sources.tree
    documents = tuple((file.name, file.data.decode("utf-8", "replace")) for file in tree_.files)
    return (documents, tree_.identity), Manifests(good.revision, good.commit)


def in_force_of(snapshot: Snapshot, sources: Sources, planned: Desired) -> tuple[Desired | None, Manifests]:
    """As `last_in_force`, from a snapshot: its documents of the tree, with the local documents that are given now."""
    name = Manifests(snapshot.revision, snapshot.commit)
    if not snapshot.manifests:
        return None, name
    files = tuple(SourceFile(name, text.encode()) for name, text in snapshot.manifests)
    kept_tree = replace(sources.tree, identity=snapshot.identity, files=files, problems=(), complete=True)
    kept_tree = replace(kept_tree, revision=kept_tree.digest())
    if kept_tree.revision == sources.tree.revision and not snapshot.choices:
        return planned, name
    try:
        earlier = with_choices(replace(sources, tree=kept_tree), snapshot.choices)
        return tree.resolve(earlier, enforce=False), name
    except ManifestErrors:
        return None, name


def stored_places(state: Path, revision: str) -> Places | None:
    """Where fields stand in the files of the manifests in force; None unless those of this revision are stored."""
    try:
        good = last_good.load(state)
    except StoreError:
        return None
    return None if good is None or good.revision != revision else field_places(good.sources)


def field_places(sources: Sources) -> Places:
    """Where fields stand in the files of a read."""
    local = () if sources.local is None else sources.local.files
    return Places((*sources.tree.base, *local), sources.tree.overlay)


def stored_source(stored: StartManifests, clock: BlockingClock) -> Source:
    """The source of a plan with stored manifests."""
    if stored.invalid is None:
        return StoredManifests(None)
    (sources, error), now = stored.invalid, clock.now()
    return StoredManifests(problem_of(sources, error, stored.sources.revision[:12], "", now.wall, now))


def archive_of(location: Location, state: Path, start: StartManifests, clock: BlockingClock) -> Archive:
    """Where the manifests of the instance of a run are kept, and by which path commands find them."""
    instance = start.desired.instance.id
    place = place_of(location.path, location.instance_file, start.sources.tree.environment)
    try:
        base: Path | None = tree.state_base()
    except tree.NoHome:  # a user without a home, who gave --state-dir
        base = None
    return Archive(state, base, instance, place, clock, location.commit)


def refused_commit(location: Location) -> str:
    """The newest commit of a git source, where what is wrong with it is in the commit; else empty. Called from any thread."""
    reader = location.reader
    return "" if reader is None else reader.refused


def source_of(
    location: Location,
    intent: Intent,
    start: StartManifests,
    state: Path,
    archive: Archive,
    clock: BlockingClock,
    *,
    follow: bool,
) -> Source:
    """The files at a location, with the manifests that a run starts with in force. `follow`: use changed ones during the run."""

    def resolve(sources: Sources, *, enforce: bool = True) -> Desired:
        if enforce:  # else they are in force already
            wrong = environments.changed(start.sources.tree, sources.tree)
            if wrong:
                raise ManifestErrors(wrong)
        return location.at_work(intent.applied_to(tree.resolve(sources, enforce=enforce)), state)

    # Of a program before environments: what is in the way stays a problem of each read, until it is gone.
    of_before = environments.reads_environments(start.sources.tree)
    read = (lambda: environments.with_left_out(state, location.read())) if of_before else location.read
    in_force = InForce(start.sources.state, start.sources.revision, start.invalid, start.sources, start.waiting)
    reader = location.reader
    if reader is None:
        return DirectorySource(read, resolve, clock, in_force, archive, follow=follow)
    return DirectorySource(read, resolve, clock, in_force, archive, follow=follow, remote=(reader, state))


def kept(
    location: Location,
    intent: Intent,
    start: StartManifests,
    state: Path,
    memory: BlockingMemory,
    clock: BlockingClock,
    reporter: Reporter,
) -> Source:
    """The source of a single run, whose manifests are stored as the last good ones."""
    archive = archive_of(location, state, start, clock)
    keep(archive, start, memory, clock, reporter, removed=intent.destroy)
    return source_of(location, intent, start, state, archive, clock, follow=False)


def waits_note(start: StartManifests, archive: Archive) -> str:
    """What a run reports that starts with the stored manifests because new commits are held."""
    assert start.waiting is not None  # noqa: S101  (asked by the caller)
    waits = named(start.waiting[0].revision, archive.checked_out())
    stays = named(start.sources.revision, archive.commit_in_force)
    return f"new commits are held: revision {waits} waits, and revision {stays} stays in force"


def keep(
    archive: Archive,
    start: StartManifests,
    memory: BlockingMemory,
    clock: BlockingClock,
    reporter: Reporter,
    *,
    removed: bool = False,
) -> None:
    """Store the manifests that a run starts with as the last good ones, with an event when they are other ones than before."""
    failed = archive.in_force(start.sources, removed=removed)
    if failed:
        reporter.note(failed, level=logging.WARNING)
    if archive.changed and not failed:
        desired = start.desired
        event = manifests_event(desired.revision, archive.commit_in_force, desired.source, clock.now())
        memory.append_audit((), desired.revision, [event])
