"""Keeps the last good manifests and the record of the source of one instance. Used by the process that holds the lock.

It writes only what changed. A write that fails is a message and is tried again with the next read of the source: manifests are
in force whether they could be stored or not.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from manifests.load import Sources
from manifests.problems import Code, Problem
from reconciler.shell.clock import BlockingClock
from reconciler.shell.store import instance_index, last_good, source_record
from reconciler.shell.store.directory import StoreError
from reconciler.shell.store.last_good import LastGood
from reconciler.shell.store.source_record import (
    CAUSE,
    PLACES,
    PROBLEMS,
    Attempted,
    InForce,
    SeenCommit,
    SourcePlace,
    SourceRecord,
)


class Archive:
    """What is stored about the source of an instance.

    Args:
        state_dir: the state directory, whose lock this process holds.
        base: holds the default state directories; None when this user has none.
        instance: id of the instance.
        place: where the source is.
        clock: gives the time.
        commit: reads what is checked out at the source now.

    Attributes:
        unsaved: whether the last write failed, so that `flush` should be called again.
        changed: whether the manifests that were put in force last are another revision than before.
    """

    def __init__(
        self,
        state_dir: Path,
        base: Path | None,
        instance: str,
        place: SourcePlace,
        clock: BlockingClock,
        commit: Callable[[], str],
    ) -> None:
        self._state_dir, self._base, self._clock, self._commit = state_dir, base, clock, commit
        stored = source_record.load(state_dir)
        self._stored = stored
        self._wanted = stored if stored is not None and stored.instance == instance else SourceRecord(instance)
        if self._wanted.in_force is None:
            self._wanted = replace(self._wanted, in_force=_of_stored(state_dir, instance))
        self._place = place
        self._good: LastGood | None = None
        self._good_stored = False
        self.unsaved = False
        self.changed = False

    @property
    def commit_in_force(self) -> str:
        """The commit of the manifests in force; empty outside of git."""
        return self._wanted.in_force.commit if self._wanted.in_force is not None else ""

    def in_force(self, sources: Sources, removed: bool = False) -> str:
        """Keep manifests that are in force. `removed`: they are about to be removed, so no daemon may start with them.

        Returns why they could not be stored; empty when they are.
        """
        before = self._wanted.in_force
        self.changed = before is None or before.revision != sources.revision
        if before is not None and before.revision == sources.revision:
            now = replace(before, source=sources.tree.identity)
        else:
            now = InForce(sources.revision, self._commit(), sources.tree.identity, self._clock.now().wall)
        places = [self._place, *(place for place in self._wanted.places if place != self._place)]
        used = self._clock.now().wall
        self._wanted = replace(
            self._wanted, places=tuple(places[:PLACES]), in_force=now, attempted=None, used=used, removed=removed
        )
        self._good, self._good_stored = (
            LastGood(sources, self._wanted.instance, now.commit, now.since_wall, removed),
            False,
        )
        return self.flush()

    def checked_out(self) -> str:
        """The commit that is at the source now; empty outside of git."""
        return self._commit()

    def attempted(self, revision: str, problems: tuple[Problem, ...]) -> tuple[Attempted, str]:
        """Keep why the source cannot be put in force. Returns it, and why it could not be stored."""
        wrong = [problem for problem in problems if not problem.is_warning]
        before = self._wanted.attempted
        same = before is not None and before.revision == revision
        if same and before is not None and wrong and wrong[0].code is Code.SOURCE_UNVERIFIED:
            # A refused commit has no files, and so no revision of its own: its number is in the message.
            same = [known.get("message") for known in before.problems[:1]] == [_short(wrong[0])["message"]]
        attempted = Attempted(
            revision,
            before.commit if same and before is not None else self._commit(),
            before.since_wall if same and before is not None else self._clock.now().wall,
            len(wrong),
            tuple(_short(problem) for problem in wrong[:PROBLEMS]),
        )
        self._wanted = replace(self._wanted, attempted=attempted)
        return attempted, self.flush()

    def seen(self, commit: str, ref: str, *, in_force: bool) -> str:
        """Keep which commit of a git source is the newest, and whether its manifests are in force. Returns why that could not be stored."""
        wanted, before, now = self._wanted, self._wanted.seen, self._wanted.in_force
        if before is None or (before.commit, before.ref) != (commit, ref):
            wanted = replace(wanted, seen=SeenCommit(commit, ref, self._clock.now().wall))
        if in_force and now is not None and (now.newest or now.commit) != commit:
            wanted = replace(wanted, in_force=replace(now, newest=commit))
        if wanted == self._wanted:
            return ""
        self._wanted = wanted
        return self.flush()

    def settled(self) -> str:
        """The source equals the manifests in force again. Returns why that could not be stored."""
        self._wanted = replace(self._wanted, attempted=None)
        return self.flush()

    def flush(self) -> str:
        """Write what is not stored yet. Returns why that failed; empty when everything is stored."""
        try:
            if self._good is not None and not self._good_stored:
                if not self._is_stored(self._good):
                    last_good.save(self._state_dir, self._good)
                self._good_stored = True
            if self._wanted != self._stored:
                source_record.save(self._state_dir, self._wanted)
                self._stored = self._wanted
        except StoreError as error:
            self.unsaved = True
            return f"the manifests in force cannot be stored: {error}; a restart of the daemon needs valid manifests until they are"
        self.unsaved = False
        if self._base is not None:
            with suppress(StoreError, OSError):  # --state-dir finds the instance without it
                instance_index.remember(self._base, self._state_dir)
        return ""

    def _is_stored(self, good: LastGood) -> bool:
        try:
            stored = last_good.load(self._state_dir)
        except StoreError:
            return False
        return stored is not None and stored == replace(good, since=stored.since)


def mark_removed(state_dir: Path) -> None:
    """Let no daemon start with the stored manifests: what they declare is about to be removed. Raises StoreError."""
    stored = last_good.load(state_dir)
    if stored is not None and not stored.removed:
        last_good.save(state_dir, replace(stored, removed=True))
    record = source_record.load(state_dir)
    if record is not None and not record.removed:
        source_record.save(state_dir, replace(record, removed=True))


def _of_stored(state_dir: Path, instance: str) -> InForce | None:
    """The revision in force by the stored manifests, for a lost record."""
    try:
        stored = last_good.load(state_dir)
    except StoreError:
        return None
    if stored is None or stored.instance != instance:
        return None
    return InForce(stored.revision, stored.commit, stored.sources.tree.identity, stored.since)


def _short(problem: Problem) -> dict[str, str | int]:
    return {name: value[:CAUSE] if isinstance(value, str) else value for name, value in problem.to_dict().items()}
