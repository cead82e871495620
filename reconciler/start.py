"""The manifests that a run starts with, the source that it follows, and where both are kept over restarts of the program.

Called by `wire.py` for runs and plans, and by the commands that must work while the manifests at PATH are invalid.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from manifests.load import Sources
from manifests.problems import Code, ManifestErrors, Problem
from manifests.source.local import LocalDocuments
from manifests.values.desired import Desired
from reconciler import tree
from reconciler.intent import Intent
from reconciler.shell.clock import BlockingClock, HostClock
from reconciler.shell.parts import Source
from reconciler.shell.report.events import manifests_event
from reconciler.shell.reporter import Reporter
from reconciler.shell.source import DirectorySource, InForce, StoredManifests, problem_of
from reconciler.shell.store import last_good, source_record
from reconciler.shell.store.archive import Archive
from reconciler.shell.store.instance_index import place_of
from reconciler.shell.store.last_good import LastGood
from reconciler.shell.store.memory import BlockingMemory
from reconciler.shell.store.state_db import StoreError
from reconciler.tree import Location


@dataclass(frozen=True, slots=True)
class StartManifests:
    """The manifests that a run starts with.

    Attributes:
        desired: as they are written, without the intent of the run.
        sources: the files that they were resolved from.
        invalid: set when they were stored by an earlier run: the files at the source as they are now, and their problems.
    """

    desired: Desired
    sources: Sources
    invalid: tuple[Sources, ManifestErrors] | None = None


def start_manifests(location: Location, clock: HostClock, *, stored: bool) -> StartManifests:
    """Read the manifests of a run. With `stored` the last good ones of the same instance take the place of invalid ones.

    Raises:
        ManifestErrors: the manifests are invalid, and none are stored that may take their place.
    """
    sources = location.read()
    try:
        desired = tree.resolve(sources)
        if (
            location.reader is not None
            and (record := source_record.load(location.state_of(desired.instance.id))) is not None
        ):
            if record.in_force is not None:
                location.reader.start_from(record.in_force.commit)
            sources = location.read()
            desired = tree.resolve(sources)
        return StartManifests(desired, sources)
    except ManifestErrors as error:
        if not stored:
            raise
        state = location.known_state(sources, error, clock, newest=True)
        if state is None:
            raise
        return stored_manifests(state, sources, error)


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
        yield replace(good.sources, local=local), {file.name for file in local.files}
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


def _problem_of_store(message: str) -> Problem:
    return Problem("stored manifests", 0, 0, Code.UNREADABLE_FILE, "", message, "correct the manifests at PATH")


def stored_source(stored: StartManifests, clock: BlockingClock) -> Source:
    """The source of a plan with stored manifests."""
    if stored.invalid is None:
        return StoredManifests(None)
    (sources, error), now = stored.invalid, clock.now()
    return StoredManifests(problem_of(sources, error, stored.sources.revision[:12], "", now.wall, now))


def archive_of(location: Location, state: Path, instance: str, clock: BlockingClock) -> Archive:
    """Where the manifests of an instance are kept, and by which path commands find them."""
    place = place_of(location.path, location.instance_file)
    try:
        base: Path | None = tree.state_base()
    except tree.NoHome:  # a user without a home, who gave --state-dir
        base = None
    return Archive(state, base, instance, place, clock, location.commit)


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
        return location.at_work(intent.applied_to(tree.resolve(sources, enforce=enforce)), state)

    in_force = InForce(start.sources.state, start.sources.revision, start.invalid, start.sources)
    reader = location.reader
    if reader is None:
        return DirectorySource(location.read, resolve, clock, in_force, archive, follow=follow)
    return DirectorySource(location.read, resolve, clock, in_force, archive, follow=follow, remote=(reader, state))


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
    archive = archive_of(location, state, start.desired.instance.id, clock)
    keep(archive, start, memory, clock, reporter, removed=intent.destroy)
    return source_of(location, intent, start, state, archive, clock, follow=False)


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
