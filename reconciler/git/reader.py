"""Polls the remote of a git source, and answers which files the manifests are now. Made by `reconciler/tree.py`, read by the loop and commands.

`read` may be called often, from one thread at a time: it asks the remote only when a poll is due, and answers from memory else. What the
remote names becomes manifests only when the whole commit could be read; else `read` answers with a problem, and the caller keeps the last good
manifests. A commit that changes nothing in the set gives equal files, so it leads to no action.

    reader.read()            the files of the newest commit, with local documents
    reader.hurry()           the next `read` asks the remote, whatever its interval
    reader.adopted(sources)  these are in force: events, and the root by which the instance reaches their files

Between fetching and reading a commit stands `checks`, the place for a policy of signatures. They are asked at each poll, because keys may have
changed since the last one. A check raises Unusable to refuse a commit until the remote names another one, or local documents change; another
GitError lets the same commit be checked again at the next poll.
"""

import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from time import monotonic

from manifests.kinds.secret_ref import SecretReference
from manifests.kinds.source import Source
from manifests.load import Sources, declared_instance, environment_of, with_chosen
from manifests.problems import Code, ManifestErrors, Problem
from manifests.resolve.instance import secret_programs
from manifests.source.directory import SourceTree, digest, is_read, read_tree
from manifests.source.git_url import GitUrl
from manifests.source.local import LocalDocuments, read_local
from manifests.values.desired import SECOND
from manifests.values.source_identity import with_environment
from providers.errors import ProviderError
from providers.lib.secrets import define, resolve
from reconciler.git.access import Access
from reconciler.git.errors import Damaged, GitError, Refused, Unavailable, Unusable, Unverified
from reconciler.git.mirror import TIMEOUT, Head, Mirror
from reconciler.git.tree import Listing, Trees, listing, wanted
from reconciler.shell.secrets import SECRETS

INTERVAL = 60.0
"""Seconds between two polls without local documents."""
FLOOR = 10.0
"""Least seconds between two polls without a trigger."""
LONGEST = 3_600.0
"""Most seconds that a remote may ask not to be called again."""
JITTER = 0.1
"""A poll comes up to this part of the interval later: the same part for the same host and source, so that hosts do not poll together."""
FIRST_RETRY = 5.0
"""Seconds until the first poll after one that failed; doubled up to the interval."""

Check = Callable[[Mirror, Head, Source | None], str]
"""Refuses a commit by raising GitError; returns what operators should know, empty for nothing. It gets the mirror, which has the commit and
its tag, and what local documents say."""


@dataclass(frozen=True, slots=True)
class Revision:
    """One commit that was read.

    Attributes:
        commit, ref: the commit, and the full name of the branch or tag that named it; no ref for a pinned commit.
        tree: the git tree of the set.
    """

    commit: str
    ref: str
    tree: str


@dataclass(frozen=True, slots=True)
class Read:
    """The answer of a poll: the files, and the revision they are of; no revision when the poll failed."""

    tree: SourceTree
    revision: Revision | None


@dataclass
class GitReader:
    """The reader of one set.

    Args:
        url: the set.
        instance_file: local documents; their Instance may say how the remote is reached.
        base: the directory that holds our mirrors; it is created when it is needed.
        checks: called at each poll with the commit, before it is read.
        steady: seconds of a steady clock.
        environment: the environment to read, empty for the base alone; None: as local documents say.

    Attributes:
        head: what the remote named at the last poll that reached it.
        problem: why the last poll failed; None when it did not.
        events: what operators should know, since the last call of `news`.
    """

    url: GitUrl
    instance_file: Path | None
    base: Path
    checks: Sequence[Check] = ()
    steady: Callable[[], float] = monotonic
    environment: str | None = None
    head: Head | None = None
    problem: GitError | None = None
    events: list[str] = field(default_factory=list)
    _read: Read | None = None
    _settings: Source | None = None
    _local: LocalDocuments | None = None
    _chosen_before: str = ""
    _due: float = 0.0
    _patience: float = 0.0
    _failures: int = 0
    _hurried: bool = False
    _in_force: str = ""
    _refused: tuple[Head, GitError] | None = None
    _judge_again: bool = False
    _reported: str = ""
    _stop: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def directory(self) -> Path:
        """The directory of our mirror of the remote."""
        return self.base / sha256(self.url.remote.encode()).hexdigest()[:24]

    @property
    def is_declared(self) -> bool:
        """Whether the set is the source that local documents declare, as far as they were read: not another branch of it."""
        return self._settings is not None and self._settings.parsed == self.url

    def hurry(self) -> None:
        """Ask the remote at the next `read`, unless it asked not to be called yet. May be called from any thread."""
        self._hurried = True

    def close(self) -> None:
        """End a call that waits for the remote. May be called from any thread; nothing is read afterwards."""
        self._stop.set()

    def start_from(self, commit: str) -> None:
        """The commit that was in force when this process began: what was read already is judged again, because its history may lack it."""
        self._in_force = commit.partition("-")[0]
        if self.head is not None and self.head.commit != self._in_force:
            self._judge_again, self._due = True, 0.0

    def commit(self) -> str:
        """The commit of the last answer of `read`; while the remote cannot be read, or its commit is refused, the newest known one."""
        return self.head.commit if self.head is not None else ""

    @property
    def seen(self) -> tuple[str, str]:
        """The newest commit that was read, and the full name of its ref; empty texts before the first one."""
        revision = self._read.revision if self._read is not None else None
        return ("", "") if revision is None else (revision.commit, revision.ref)

    @property
    def refused(self) -> str:
        """The newest commit, where it was refused for what it has; empty where it was read, or cannot be read now."""
        head = self.head
        return head.commit if head is not None and isinstance(self.problem, Unusable) else ""

    @property
    def tree(self) -> str:
        """The git tree of the set at the newest commit that was read; empty before the first one."""
        revision = self._read.revision if self._read is not None else None
        return "" if revision is None else revision.tree

    def due_in(self) -> int:
        """Time (ns) until the next poll."""
        due = self._patience if self._hurried else max(self._due, self._patience)
        return max(0, int((due - self.steady()) * SECOND))

    def news(self) -> tuple[str, ...]:
        """What happened since the last call, for the operator."""
        events, self.events = tuple(self.events), []
        return events

    # --- reading -----------------------------------------------------------------------------------------------------

    def read(self) -> Sources:
        """The files now, and local documents. Never raises: see `Sources.problems`."""
        with self._lock:
            local = None if self.instance_file is None else read_local(self.instance_file, self.directory)
            if self._local is None or local is None or local.revision != self._local.revision:
                self._take_settings(local)
            self._local = local
            if self._chosen() != self._chosen_before:
                self._chosen_before, self._due, self._judge_again = self._chosen(), 0.0, True
            if self._read is None or self.due_in() == 0:
                self._hurried = False
                self._read = self._poll()
            return with_chosen(Sources(self._read.tree, local), self.environment)

    def _chosen(self) -> str:
        """The environment that is read now."""
        return environment_of(self.environment, self._local)

    def _take_settings(self, local: LocalDocuments | None) -> None:
        """What local documents say about the remote. While they are invalid, what they said before counts; they are reported elsewhere."""
        try:
            spec = None if local is None else declared_instance(local)
        except ManifestErrors:
            return
        settings = None if spec is None else spec.source
        if spec is not None:
            # A credential may need a program before any manifests are in force.
            define(secret_programs(spec, local=True))
        if settings != self._settings:
            if self.is_declared and (settings is None or settings.parsed != self.url):
                names = "no source" if settings is None else str(settings.parsed)
                self.events.append(
                    f"the local Instance declares {names} now, and this process goes on with {self.url}; "
                    "next step: restart reconcile to follow spec.source.url"
                )
            self._settings, self._due, self._patience, self._judge_again = settings, 0.0, 0.0, True

    def _poll(self) -> Read:
        """Ask the remote, and read what is new. A failure is an answer with a problem."""
        interval = self._interval()
        before = self._read
        try:
            with self.mirror() as mirror:
                read = self._newest(mirror)
                if mirror.rebuilt:
                    self.events.append(f"the mirror of {self.url.remote} was made again: {mirror.rebuilt}")
        except (GitError, ProviderError) as error:
            self.problem = error if isinstance(error, GitError) else Refused(str(error))
            self._failures += 1
            retry = min(FIRST_RETRY * 2 ** min(self._failures - 1, 16), interval)
            self._due = self.steady() + retry
            self._patience = self.steady() + min(float(self.problem.wait), LONGEST)
            if before is not None and before.revision is None and before.tree.problems == (self._why(self.problem),):
                return before
            return Read(self._failed(self.problem), None)
        self.problem, self._failures = None, 0
        self._due = self.steady() + interval
        return read

    def _interval(self) -> float:
        """Seconds until the next poll, with the jitter of this host and source."""
        source = self._settings
        interval = max(FLOOR, int(source.interval) / SECOND if source is not None else INTERVAL)
        name = f"{os.uname().nodename}\n{self.base}\n{self.url}"
        part = int.from_bytes(sha256(name.encode()).digest()[:4]) / 2**32
        return interval * (1 + JITTER * part)

    def mirror(self) -> Mirror:
        """Our mirror of the remote, with what local documents say about it."""
        source = self._settings
        if source is None or source.parsed.remote != self.url.remote:
            # A credential goes only where the operator sends it.
            return Mirror(self.directory, self.url.remote, Access(), TIMEOUT, self._stop)
        return Mirror(self.directory, self.url.remote, access_of(source), int(source.timeout) / SECOND, self._stop)

    def _newest(self, mirror: Mirror) -> Read:
        """The newest commit, read. Raises GitError, ProviderError."""
        head = mirror.head(self.url.ref)
        before = self._read
        same = before is not None and before.revision is not None and head == self.head
        if before is not None and same and not self._judge_again:
            with suppress(Damaged):  # then it is fetched again
                self._check(mirror, head)
                return before
        if self._judge_again:
            self._refused, self._judge_again = None, False
        if self._refused is not None and self._refused[0] == head:
            raise self._refused[1]  # what is wrong is in the commit, and it is the same one
        try:
            return self._of(mirror, head)
        except Unusable as error:
            self._refused = (head, error)
            raise

    def _of(self, mirror: Mirror, head: Head) -> Read:
        """The files of a commit that is not the one read before. Raises GitError, ProviderError."""
        before = self._read
        mirror.fetch(head, self.url.path)
        self.head = head
        self._check(mirror, head)
        self._follows(mirror, head.commit)
        found = listing(mirror, head.commit, self.url.path)
        revision = Revision(head.commit, head.ref, found.tree)
        chosen = self._chosen()
        same = before is not None and before.revision is not None and before.revision.tree == found.tree
        if before is not None and same and before.tree.environment == chosen:
            return Read(before.tree, revision)
        asked = wanted(found)
        trees = Trees(mirror.directory)
        place, too_large = trees.make(mirror, found, asked.names)
        tree = read_tree(place, self.url.identity, partial(trees.add, mirror, found), chosen)
        of_set = [problem for problem in (*asked.problems, *too_large) if is_read(problem.file, chosen)]
        problems = tuple(sorted({*tree.problems, *of_set}))
        trees.prune(found.tree)
        return Read(replace(tree, problems=problems, provide=self._provider(found)), revision)

    def _check(self, mirror: Mirror, head: Head) -> None:
        """Ask the checks about a commit that the mirror has. Raises GitError."""
        for check in self.checks:
            said = check(mirror, head, self._settings)
            if said:
                self.events.append(said)

    def _follows(self, mirror: Mirror, commit: str) -> None:
        """Report a history that does not contain the commit in force; refuse it where local documents say so. Raises Refused."""
        old = self._in_force
        if not old or old == commit:
            return
        held = self._settings is not None and self._settings.require_fast_forward
        unknown = "more commits are new than were searched"
        try:
            # A repository with another kind of numbers has another history.
            follows = mirror.is_ancestor(old, commit) if len(old) == len(commit) else False
        except (Unavailable, Refused) as error:
            if held:
                raise
            follows, unknown = None, f"its history cannot be read: {error.cause}"
        if follows:
            return
        names = f"commit {commit} does not follow commit {old}, which is in force"
        message = f"{names}: the history was rewritten (a force-push)"
        if follows is None:
            message = f"git cannot tell whether commit {commit} follows commit {old}, which is in force: {unknown}"
        if held:
            hint = "push a commit that follows it, or remove requireFastForward from spec.source of the local Instance"
            raise Unusable(message, hint)
        if message != self._reported:  # a commit that cannot be read yet is judged at each poll
            self._reported = message
            self.events.append(message)

    def _provider(self, found: Listing) -> Callable[[str], str]:
        """What makes files that manifests of this revision name readable."""

        def provide(path: str) -> str:
            try:
                with self.mirror() as mirror:
                    return Trees(mirror.directory).add(mirror, found, path)
            except (GitError, ProviderError) as error:
                return str(error)

        return provide

    # --- in force ----------------------------------------------------------------------------------------------------

    def root(self, owner: Path) -> str:
        """The path by which the instance with this state directory reaches the files of the commit in force; the same for all commits."""
        return str(Trees(self.directory).link(str(owner.absolute())))

    def adopted(self, owner: Path) -> None:
        """The last answer of `read` is in force for the instance with this state directory. Raises OSError."""
        revision = self._read.revision if self._read is not None else None
        if revision is not None:
            self._in_force = revision.commit
            Trees(self.directory).put_in_force(revision.tree, str(owner.absolute()))

    # --- problems ----------------------------------------------------------------------------------------------------

    def _why(self, error: GitError) -> Problem:
        code = Code.SOURCE_UNVERIFIED if isinstance(error, Unverified) else Code.SOURCE_UNREADABLE
        return Problem(str(self.url), 0, 0, code, "", error.cause, error.hint)

    def _failed(self, error: GitError) -> SourceTree:
        root = str(self.directory / "trees")
        identity, chosen = with_environment(self.url.identity, self._chosen()), self._chosen()
        return SourceTree(identity, root, digest(()), False, True, (), (self._why(error),), environment=chosen)


def access_of(source: Source) -> Access:
    """The credentials of a source. They are read when git needs them, and masked in all output from then on."""
    key_file = source.ssh_key.file if source.ssh_key is not None and source.ssh_key.file else ""

    def reading(reference: SecretReference, what: str) -> Callable[[], str]:
        def read() -> str:
            text = resolve(reference.source(), what).reveal()
            SECRETS.add(text)
            return text

        return read

    token, key = source.token, source.ssh_key
    return Access(
        username=source.username,
        token=None if token is None else reading(token, "token of the source"),
        key=None if key is None or key_file else reading(key, "ssh key of the source"),
        key_file=key_file,
        known_hosts=source.known_hosts or "",
        ca_file=source.ca_file or "",
    )
