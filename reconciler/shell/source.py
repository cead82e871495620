"""Reads the manifests again during a run; new ones are used only when they have settled and are valid.

An editor may truncate a file before it writes, and a copy may be half done. So the manifests in force change only when two reads
SETTLE apart are equal and everything in them is valid. A single run never changes its manifests. Called by the loop.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, Protocol

from manifests.load import Sources
from manifests.problems import Code, ManifestErrors, Problem
from manifests.values.desired import SECOND, Desired, Guard
from reconciler.core.model.instant import Now
from reconciler.core.model.source_problem import SourceProblem, named
from reconciler.core.model.waiting_revision import HeldBack, WaitingRevision, never
from reconciler.shell.clock import BlockingClock

SETTLE = SECOND // 10
"""Time (ns) between two equal reads before a change counts."""

READ_AGAIN = 15 * SECOND
"""How often (ns) the source is read again without a trigger; a git source asks its remote less often."""

READS = 10
"""Reads of a source that keeps changing, before it is left for the next time."""


LOGGED = 20
"""Problems that are logged, each in a line of its own; `reconcile validate` shows all."""


def _in_lines(problems: Sequence[Problem]) -> list[str]:
    """Each problem with its hint in one line: a log escapes line breaks, so that texts in one message are hard to read."""
    lines = ["; ".join(line.strip() for line in problem.lines()) for problem in problems[:LOGGED]]
    more = len(problems) - len(lines)
    return [*lines, f"{more} more problems; next step: run reconcile validate"] if more > 0 else lines


class AttemptedRevision(Protocol):
    """A revision of the source that is invalid, as it is kept."""

    @property
    def commit(self) -> str:
        """What is checked out."""

    @property
    def since_wall(self) -> int:
        """Since when (wall ns) the source has had this problem."""


class Keeper(Protocol):
    """Keeps the manifests in force over restarts of the program; implemented by the store. Messages are empty without a failure."""

    unsaved: bool

    @property
    def commit_in_force(self) -> str:
        """The commit of the manifests in force; empty outside of git."""

    def in_force(self, sources: Sources) -> str:
        """Keep manifests that are in force now."""

    def checked_out(self) -> str:
        """The commit that is at the source now; empty outside of git."""

    def attempted(self, revision: str, problems: tuple[Problem, ...]) -> tuple[AttemptedRevision, str]:
        """Keep why a revision cannot be put in force."""

    def settled(self) -> str:
        """The source equals the manifests in force again."""

    def seen(self, commit: str, ref: str, *, in_force: bool) -> str:
        """Keep which commit of a git source is the newest, and whether its manifests are in force."""

    def flush(self) -> str:
        """Try again what could not be stored."""


class Remote(Protocol):
    """A git source, as far as what is in force matters to it; implemented by `reconciler/git/reader.py`."""

    @property
    def seen(self) -> tuple[str, str]:
        """The newest commit that was read, and the full name of its ref; empty texts before the first one."""

    def adopted(self, owner: Path) -> None:
        """What was read last is in force for the instance with this state directory. Raises OSError."""

    def news(self) -> tuple[str, ...]:
        """What happened since the last call."""

    def due_in(self) -> int:
        """Time (ns) until it should ask its remote again."""

    def hurry(self) -> None:
        """Ask the remote at the next read."""

    def close(self) -> None:
        """End a read that waits for the remote."""


class InForce(NamedTuple):
    """The manifests that a run starts with: the state of the files (`Sources.state`), and their revision.

    `invalid` is set when they were stored by an earlier run, because the source is invalid now: the files as they were read, and
    their problems. `sources` are their own files. `waiting` is set when they were stored by an earlier run, because the valid
    revision at the source waits: its files, and its Guard.
    """

    state: str
    revision: str
    invalid: tuple[Sources, ManifestErrors] | None = None
    sources: Sources | None = None
    waiting: tuple[Sources, Guard] | None = None


class Resolve(Protocol):
    """Checks and resolves files. Raises `ManifestErrors`."""

    def __call__(self, sources: Sources, *, enforce: bool = True) -> Desired:
        """The manifests; without `enforce` violations of the policy only mark the workloads."""


def problem_of(
    sources: Sources, error: ManifestErrors, in_force: str, commit: str, since_wall: int, now: Now
) -> SourceProblem:
    """Why files cannot be put in force, since a wall-clock instant (ns). `in_force` names the revision that is."""
    wrong = [problem for problem in error.problems if not problem.is_warning]
    cause = wrong[0].lines()[0] if wrong else "a problem without a text"
    hint = ""
    unverified = [problem for problem in wrong if problem.code is Code.SOURCE_UNVERIFIED]
    if unverified:
        cause, hint = unverified[0].message, unverified[0].hint
    since = now.steady - max(0, now.wall - since_wall)
    return SourceProblem(
        sources.revision,
        commit,
        cause,
        len(wrong),
        in_force,
        since,
        since_wall,
        unreadable=error.of_source,
        unverified=bool(unverified),
        hint=hint,
    )


class StoredManifests:
    """The source of a plan or a `destroy` with the last good manifests: it is never read, so it proves nothing absent.

    Args:
        problem: why the manifests at PATH are not used; None without PATH.
    """

    def __init__(self, problem: SourceProblem | None) -> None:
        self._problem = problem

    def reread(self, held: HeldBack = never) -> tuple[Desired | None, tuple[str, ...]]:  # noqa: ARG002
        """Nothing new."""
        return None, ()

    def same(self) -> bool:
        """Never: the manifests in force were not read from the source."""
        return False

    def commit(self) -> str:
        """Never asked for: nothing else comes into force."""
        return ""

    def newest(self) -> str:
        """Unknown: it is never read."""
        return ""

    def problem(self) -> SourceProblem | None:
        """Why the source cannot be put in force."""
        return self._problem

    def news(self) -> tuple[str, ...]:
        """Nothing: it is never read."""
        return ()

    def due_in(self) -> int:
        """As for every source; nothing is read then."""
        return READ_AGAIN

    def hurry(self) -> None:
        """Nothing to ask."""

    def close(self) -> None:
        """Nothing is read."""

    def waiting(self) -> WaitingRevision | None:
        """Never: nothing else comes into force."""
        return None


class DirectorySource:
    """A directory or file of manifests.

    Args:
        read: reads the files; never raises.
        resolve: checks and resolves files.
        clock: waits between two reads.
        in_force: the manifests that the run starts with.
        keeper: keeps what is put in force.
        follow: use changed manifests; without it changes are only reported.
        remote: the git source that `read` reads, and the state directory of the instance: what is read then is a whole commit, which
            needs no second read.
    """

    def __init__(
        self,
        read: Callable[[], Sources],
        resolve: Resolve,
        clock: BlockingClock,
        in_force: InForce,
        keeper: Keeper,
        *,
        follow: bool,
        remote: tuple[Remote, Path] | None = None,
    ) -> None:
        self._remote = remote
        self._read, self._resolve, self._clock, self._keeper, self._follow = read, resolve, clock, keeper, follow
        self._in_force, self._revision = in_force.state, in_force.revision
        self._sources, self._judged = in_force.sources, False
        self._refused = ""
        # Stored manifests stay in force although the same files would be refused now: the rules have changed since.
        self._outdated = in_force.invalid is not None and in_force.invalid[0].state == in_force.state
        self._problem: SourceProblem | None = None
        self._message = self._reported = self._newest = ""
        self._same = in_force.invalid is None and in_force.waiting is None
        self._waiting: WaitingRevision | None = None
        self._waiting_state = ""
        if in_force.waiting is not None:
            self._wait(*in_force.waiting)
        if in_force.invalid is not None:
            sources, error = in_force.invalid
            self._refused = sources.state
            self._refuse(sources, error)
        else:
            self._adopt()
        self._keep_seen()

    def same(self) -> bool:
        """Whether the last read was complete and equal to the manifests in force."""
        return self._same

    def commit(self) -> str:
        """The commit of the manifests in force; empty outside of git."""
        return self._keeper.commit_in_force

    def newest(self) -> str:
        """The newest commit of a git source whose manifests equal those in force; empty when it is not known, and outside of git."""
        return self._newest

    def problem(self) -> SourceProblem | None:
        """Why the source cannot be put in force; None while it is valid."""
        return self._problem

    def news(self) -> tuple[str, ...]:
        """What happened at a git source since the last call."""
        return () if self._remote is None else self._remote[0].news()

    def due_in(self) -> int:
        """Time (ns) until the source should be read again: local documents are read as often as a directory."""
        return READ_AGAIN if self._remote is None else min(READ_AGAIN, self._remote[0].due_in())

    def hurry(self) -> None:
        """Let the next read ask the remote of a git source."""
        if self._remote is not None:
            self._remote[0].hurry()

    def close(self) -> None:
        """End a read that waits for the remote of a git source."""
        if self._remote is not None:
            self._remote[0].close()

    def waiting(self) -> WaitingRevision | None:
        """The valid revision that waits; None when there is none."""
        return self._waiting

    def reread(self, held: HeldBack = never) -> tuple[Desired | None, tuple[str, ...]]:
        """Read again: the new manifests when they changed, settled and are valid, and messages for the operator."""
        desired, messages = self._reread(held)
        self._keep_seen()
        if self._keeper.unsaved:
            self._report(self._keeper.flush())
        if self._message == self._reported:
            return desired, messages
        self._reported = self._message
        return desired, (*messages, self._message) if self._message else messages

    def _reread(self, held: HeldBack) -> tuple[Desired | None, tuple[str, ...]]:
        sources = self._read()
        self._same = self._is_in_force(sources)
        if self._same:
            self._adopt()
            return self._unjudged(sources), self._good_again()
        if sources.state == self._refused or self._still_waits(sources, held):
            return None, ()
        settled = self._settled(sources)
        if settled is None:
            return None, ("the manifests keep changing; the last good revision stays in force until they settle",)
        if self._is_in_force(settled):
            self._same = True
            return self._unjudged(settled), self._good_again()
        if settled.state == self._waiting_state and self._still_waits(settled, held):
            return None, ()
        if not self._follow and settled.state != self._waiting_state:
            self._refused = settled.state
            return None, ("the manifests changed during this run; run reconcile again to apply them",)
        try:
            desired = self._resolve(settled)
        except ManifestErrors as error:
            self._refused = settled.state
            self._wait_no_more()
            self._refuse(settled, error)
            wrong = "the source cannot be used" if error.of_source else "the manifests are invalid"
            stays = f"{wrong}; revision {self._named()} stays in force"
            return self._judge(settled), (stays, *_in_lines(error.problems))
        if held(self._candidate(settled, desired.guard)):
            self._wait(settled, desired.guard)
            self._refused, was_invalid = "", self._problem is not None
            self._problem = None
            self._report(self._keeper.settled() if was_invalid else "")
            assert self._waiting is not None  # noqa: S101  (set by `_wait`)
            stays = f"revision {self._waiting.name} waits; revision {self._named()} stays in force until new commits are taken"
            return self._judge(settled), (stays,)
        self._wait_no_more()
        self._in_force, self._revision, self._refused = settled.state, settled.revision, ""
        self._sources, self._judged = settled, False
        self._same, self._problem, self._outdated = True, None, False
        self._report(self._keeper.in_force(settled))
        self._adopt()
        return desired, (f"the manifests changed; revision {self._named()} is in force",)

    def _keep_seen(self) -> None:
        """Keep which commit of a git source is the newest, also where it changes nothing: what follows must contain it."""
        commit, ref = ("", "") if self._remote is None else self._remote[0].seen
        if commit:  # else the remote did not answer: what is known stays
            self._newest = commit if self._same else ""
            self._report(self._keeper.seen(commit, ref, in_force=self._same) or self._message)

    def _adopt(self) -> None:
        """Let the instance reach the files of the commit that was read last: what is in force is equal to it."""
        if self._remote is None:
            return
        remote, state = self._remote
        try:
            remote.adopted(state)
        except OSError as error:
            self._report(f"{state}: the files of the commit in force cannot be used: {error.strerror}")

    def _candidate(self, sources: Sources, guard: Guard) -> WaitingRevision:
        """The revision of these files as one that may have to wait; one that waits already does so since then."""
        before, now = self._waiting, self._clock.now().steady
        if before is not None and before.revision == sources.revision:
            return replace(before, guard=guard)
        return WaitingRevision(sources.revision, self._keeper.checked_out(), guard, self._named(), now)

    def _wait(self, sources: Sources, guard: Guard) -> None:
        """Let the revision of these files wait."""
        self._waiting, self._waiting_state = self._candidate(sources, guard), sources.state

    def _wait_no_more(self) -> None:
        self._waiting, self._waiting_state = None, ""

    def _still_waits(self, sources: Sources, held: HeldBack) -> bool:
        """Whether these files are those of the revision that waits, and it has to wait on."""
        return self._waiting is not None and sources.state == self._waiting_state and held(self._waiting)

    def _is_in_force(self, sources: Sources) -> bool:
        """Whether these files are those in force, by the rules of today too."""
        return sources.state == self._in_force and not self._outdated

    def _judge(self, refused: Sources) -> Desired | None:
        """The manifests in force with the local documents as they are now; None where these are the same, or are invalid themselves.

        Today's Guard judges what stays in force: what its policy forbids is kept as it runs, and is not created again. They are stored
        as before, and a restart judges them in the same way.
        """
        if self._sources is None or refused.local == self._sources.local:
            return None
        try:
            desired = self._resolve(replace(self._sources, local=refused.local), enforce=False)
        except ManifestErrors:
            return None
        self._judged = True
        return desired

    def _unjudged(self, sources: Sources) -> Desired | None:
        """The manifests in force as they are, when other local documents have judged them until now."""
        if not self._judged:
            return None
        self._judged = False
        try:
            return self._resolve(sources)
        except ManifestErrors:  # a provider type is not installed any more
            return None

    def _named(self) -> str:
        """The revision in force as operators see it."""
        return named(self._revision, self._keeper.commit_in_force)

    def _refuse(self, sources: Sources, error: ManifestErrors) -> None:
        """Remember why the source cannot be put in force."""
        attempted, message = self._keeper.attempted(sources.revision, error.problems)
        self._report(message)
        since, commit = attempted.since_wall, attempted.commit
        self._problem = problem_of(sources, error, self._named(), commit, since, self._clock.now())

    def _good_again(self) -> tuple[str, ...]:
        """The files are those of the manifests in force."""
        self._refused = ""
        self._wait_no_more()
        if self._problem is None:
            return ()
        problem, self._problem = self._problem, None
        self._report(self._keeper.settled())
        if problem.unverified:
            return (f"the commit at the source has its signature again; revision {self._named()} is in force",)
        if problem.unreadable:
            return (f"the source can be read again; revision {self._named()} is in force",)
        return (f"the manifests are valid again; revision {self._named()} is in force",)

    def _report(self, message: str) -> None:
        self._message = message

    def _settled(self, sources: Sources) -> Sources | None:
        """The files once two reads in a row are equal; None when they never are."""
        if self._remote is not None:
            return sources
        for _ in range(READS):
            self._clock.pause(SETTLE)
            again = self._read()
            if again.state == sources.state:
                return again
            sources = again
        return None
