"""Our mirror of a remote repository: fetches what a set of manifests needs of a commit, and reads it. The only module that runs git.

    with Mirror(directory, remote, access) as mirror:      the mirror's lock is held
        head = mirror.head("main")                         one round trip; nothing is fetched
        mirror.fetch(head, "deploy/prod")                  the commit and the directory's trees
        root = mirror.directory_of(head.commit, "deploy/prod")
        entries = mirror.entries(root)                     every file, link and submodule below
        contents = mirror.blobs([entry.oid for entry in entries], limit=…)
        commit = mirror.object(head.commit)                a raw object, for signatures and dates

What it costs: of a repository of any size the commit, the trees on the way to the directory, the trees below it, and the files that are
asked for, each once; never its history or other files. A server without filters costs one snapshot of the commit instead.

The mirror is bare and has no refs: nothing is checked out, no hook or filter runs, and no name in it can be wrong. It is a cache. When it
is damaged, or has gathered many packs, it is made again. The lock is inherited by git, so that a git that outlived its `reconcile` still
has it; who holds it may therefore remove the lock files of git processes that were killed.
"""

import fcntl
import os
import re
import shutil
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from hashlib import new as new_hash
from pathlib import Path
from tempfile import mkdtemp
from time import monotonic, sleep
from typing import NamedTuple, Self

from manifests.escape import escape
from manifests.source.git_url import COMMIT
from providers.lib.program import OUTPUT, Missing, ProgramError, Ran, TimedOut, end_orphans, run
from reconciler.git.access import ENVIRONMENT, Access, offline, online
from reconciler.git.errors import (
    SHOWN,
    Damaged,
    GitError,
    Moved,
    NotThere,
    Refused,
    Unavailable,
    Unusable,
    git_said,
    meaning,
    retry_after,
)

TIMEOUT = 60.0
"""Seconds that one call of git over the network may take, unless the operator says otherwise."""
LOCAL_TIMEOUT = 60.0
"""Seconds that one call of git on the mirror may take."""
PACKS = 100
"""With more packs than this, the mirror is made again, with the newest commit only."""
PACK_BYTES = 2 * 1024 * 1024 * 1024
"""Largest file that git may write into the mirror."""
LISTING = 256 * 1024 * 1024
"""Most bytes of the listing of a directory."""
REFS = 4 * 1024 * 1024
"""Most bytes of a remote's answer about a ref."""
TAGS = 100
"""The most tags at one commit that are fetched, the last ones by name."""

_NO_FILTER = re.compile(
    r"filter .* not supported|not our ref|unadvertised object|filtering not recognized|does not support", re.I
)
_DAMAGE = re.compile(
    r"corrupt|bad object|bad (pack|tree|config)|not a git repository|loose object|inflate|garbage at end|packfile|index file|"
    r"missing (tree|blob|commit)|unable to read|could not read [0-9a-f]{40}|could not parse|unresolved deltas|"
    r"Some objects may not be loaded|invalid object|shallow file|fetch-pack: invalid|transport .* not allowed|Not a valid object",
    re.I,
)

_NETWORK = re.compile(
    r"could not resolve|unable to access|connection|timed out|timeout|could not read from remote|disconnect|early EOF|RPC failed|"
    r"remote error|hung up|upload-pack:|network|SSL|TLS|gnutls|kex_exchange|cannot run ssh",
    re.I,
)
_MOVED = re.compile(
    r"\[rejected\] \((stale info|fetch first|non-fast-forward)|cannot lock ref|failed to update ref|incorrect old value|reference already exists"
)
_REJECTED = re.compile(r"^!\t[^\t]*\t\[(?:remote )?rejected\] \((.*)\)$", re.MULTILINE)

_SMART = re.compile(r"<= Recv header: content-type: *application/x-git-upload-pack-advertisement", re.I)


class Head(NamedTuple):
    """What a ref of the remote names.

    Attributes:
        ref: its full name, `refs/heads/main`; empty for a pinned commit.
        commit: the commit.
        tag: the annotated tag object that names the commit; empty for a branch, a light tag and a pinned commit.
    """

    ref: str
    commit: str
    tag: str = ""


class Entry(NamedTuple):
    """One entry of a directory in a commit. `mode` is octal text (100644, 100755, 120000, 160000); `name` is relative, as bytes."""

    mode: str
    oid: str
    name: bytes


class Object(NamedTuple):
    """One object as git stores it: `commit`, `tag`, `tree` or `blob`, and its bytes."""

    kind: str
    data: bytes


@dataclass
class Mirror:
    """A mirror in a directory of its own. Use it as a context: inside, this process alone uses the directory.

    Attributes:
        directory: private to this user; created with its first use.
        remote: the address for git, without credentials.
        access: the credentials.
        timeout: seconds of a call over the network.
        stop: ends a call that waits for the remote, when it is set.
        rebuilt: why the repository was made again in this use; empty when it was not.
    """

    directory: Path
    remote: str
    access: Access = field(default_factory=Access)
    timeout: float = TIMEOUT
    stop: threading.Event | None = None
    rebuilt: str = ""
    _lock: int = -1
    _present: frozenset[str] | None = None

    @property
    def repository(self) -> Path:
        """The bare repository."""
        return self.directory / "repository"

    # --- the lock ----------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        """Take the lock. Raises Unavailable when another process holds it for longer than a fetch takes."""
        from reconciler.shell.store.directory import StoreError, make_state_dir  # noqa: PLC0415

        try:
            make_state_dir(self.directory)
            lock = os.open(self.directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except StoreError as error:
            raise Unavailable(f"{error.target}: {error.cause}", error.next_step) from error
        except OSError as error:
            raise _cannot_write(self.directory, error) from error
        deadline, tries = monotonic() + 2 * self.timeout, 0
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if tries % 20 == 0:
                    end_orphans(lock, "git")  # of a reconcile that was killed
                tries += 1
                if monotonic() >= deadline or (self.stop is not None and self.stop.is_set()):
                    os.close(lock)
                    cause = f"another process has been using the mirror {self.directory} for {2 * self.timeout:g}s"
                    raise Unavailable(cause, "wait for it, or end it: fuser -v on its file 'lock' shows it") from None
                sleep(0.05)
        self._lock, self._present, self.rebuilt = lock, None, ""
        self._clean()
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._lock)
        self._lock = -1

    def _clean(self) -> None:
        """Remove what killed git processes and earlier rebuilds left: the process that has the lock is alone."""
        with suppress(OSError):
            for entry in os.scandir(self.directory):
                if entry.name.startswith("new-"):
                    shutil.rmtree(entry.path, ignore_errors=True)
        for top, _, names in os.walk(self.repository):
            for name in names:
                if name.endswith(".lock") or name.startswith("tmp_") or name == "gc.pid":
                    with suppress(OSError):
                        os.unlink(os.path.join(top, name))

    # --- the remote --------------------------------------------------------------------------------------------------

    def head(self, ref: str) -> Head:
        """What a branch, tag, full ref, or the default branch (empty text) of the remote names now. Raises GitError.

        A whole commit number names itself, without a question to the remote.
        """
        if COMMIT.fullmatch(ref):
            return Head("", ref)
        names = _candidates(ref)
        # `^{}` asks for the commit that an annotated tag names.
        patterns = [pattern for name in names for pattern in (name, f"{name}^{{}}")]
        with online(self._scheme, self.access, self._empty()) as how:
            command = [*how.words, "ls-remote", "--symref", "--quiet", "--", self.remote, *patterns]
            ran = self._run(command, how.env, how.fds, self.timeout, output=REFS)
        if ran.code != 0:
            error = self._failed(ran)
            raise Unavailable(error.cause) if isinstance(error, Damaged) else error
        if self._scheme == "https" and not _SMART.search(ran.err_text):
            # git would read another page as a list of refs, in which the ref is missing.
            raise Unavailable(
                "the remote does not answer as a git server does",
                "check the address of the source, and what answers there",
            )
        return _named(ref, names, ran.out, self.remote)

    def _empty(self) -> Path:
        """A directory of ours that has no file. Raises Unavailable."""
        try:
            (self.directory / "empty").mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise _cannot_write(self.directory, error) from error
        return self.directory / "empty"

    @property
    def _scheme(self) -> str:
        return self.remote.partition("://")[0]

    def fetch(self, head: Head, path: str = "") -> None:
        """Get a commit, the tag that names it, and the trees on the way to a directory and below it. Raises GitError.

        Files come later, with `blobs`. Objects in the mirror are not fetched again. A mirror that turns out to be damaged is made
        again first.
        """
        if self._pack_count() > PACKS:
            self._rebuild(f"it had more than {PACKS} packs")
        try:
            self._fetch(head, path)
        except (Unavailable, Refused, NotThere, Unusable):
            raise
        except GitError as error:
            self._rebuild(error.cause)
            self._fetch(head, path)

    def _fetch(self, head: Head, path: str) -> None:
        self._create(head.commit)
        wanted = [oid for oid in (head.commit, head.tag) if oid and oid not in self.present()]
        if wanted:
            self._commit(head.commit, wanted, path)
        try:
            root = self.directory_of(head.commit, path)
            missing = self._missing_trees(root)
        except Damaged:
            self._snapshot([head.commit])
            return
        if missing and not self._get([root], "--filter=blob:none"):
            self._snapshot([head.commit])

    def _commit(self, commit: str, wanted: Sequence[str], path: str) -> None:
        """Get a commit and the trees on the way to a directory: in one step, or tree by tree from a server that refuses the filter for it.

        Forges allow few filters: `blob:none`, and often `tree:0`.
        """
        refuses = self.directory / "refuses-combined-filters"
        depth = len(path.split("/")) if path else 0
        if not depth:
            if not self._get(wanted, "--depth=1", "--filter=blob:none"):
                self._snapshot(wanted)
            return
        if not refuses.exists():
            if self._get(wanted, "--depth=1", f"--filter=combine:blob:none+tree:{depth}"):
                return
            with suppress(OSError):  # a full disk
                refuses.touch(mode=0o600)
        if not self._get(wanted, "--depth=1", "--filter=tree:0"):
            self._snapshot(wanted)
            return
        found = self.object(commit)
        if found.kind != "commit":
            return  # `directory_of` says so; what a file has is no number
        oid = tree_of(found.data)
        for part in path.split("/"):
            if oid not in self.present() and not self._get([oid], "--filter=tree:0"):
                self._snapshot(wanted)
                return
            entries = parsed_tree(self.object(oid).data, len(oid) // 2)
            entry = next((entry for entry in entries if entry.name == os.fsencode(part)), None)
            if entry is None or entry.mode != "40000":
                return  # `directory_of` says so
            oid = entry.oid

    def _missing_trees(self, root: str) -> bool:
        """Whether trees at or below a tree are missing."""
        if root not in self.present():
            return True
        waiting, seen = [root], {root}
        while waiting:
            below: list[str] = []
            for oid, found in zip(waiting, self.objects(waiting), strict=True):
                below += [entry.oid for entry in parsed_tree(found.data, len(oid) // 2) if entry.mode == "40000"]
            waiting = [oid for oid in dict.fromkeys(below) if oid not in seen]
            seen.update(waiting)
            if any(oid not in self.present() for oid in waiting):
                return True
        return False

    def _snapshot(self, wanted: Sequence[str]) -> None:
        """Get everything of a commit, from a server that has no filters. Raises GitError."""
        if not self._get(wanted, "--depth=1", "--refetch", "--no-filter"):
            raise NotThere(
                f"the remote does not give the commit {wanted[0]}",
                "check the ref of the address, or name a branch or tag",
            )

    def _get(self, oids: Sequence[str], *options: str) -> bool:
        """Fetch objects by their numbers. False when the server does not give them in this way. Raises GitError."""
        with online(self._scheme, self.access, self._empty()) as how:
            command = [
                *how.words,
                f"--git-dir={self.repository}",
                "fetch",
                "--quiet",
                "--no-tags",
                "--no-write-fetch-head",
                "--no-auto-maintenance",
                "--no-recurse-submodules",
                *options,
                "--stdin",
                "--",
                self.remote,
            ]
            ran = self._run(command, how.env, how.fds, self.timeout, stdin="".join(f"{oid}\n" for oid in oids).encode())
        self._present = None
        if ran.code == 0:
            return True
        if "--no-filter" not in options and _NO_FILTER.search(ran.err_text):
            return False
        raise self._failed(ran)

    def _failed(self, ran: Ran) -> GitError:
        """The error of a call of git that reached for the remote."""
        text = ran.err_text
        known = meaning(text)
        if known is not None:
            return known
        if ran.code == -25:  # SIGXFSZ
            return Refused("the commit is larger than the mirror may be", "keep large files out of the repository")
        if _DAMAGE.search(text):
            return Damaged(f"the mirror is damaged ({git_said(text)})")
        if self.repository.exists() and not _NETWORK.search(text):
            return Damaged(f"the mirror cannot be used ({git_said(text)})")
        hint = "check the address, the network and the remote"
        return Unavailable(f"the remote cannot be read ({git_said(text)})", hint, retry_after(text))

    def is_ancestor(self, old: str, new: str) -> bool | None:
        """Whether a commit is in the history of a newer one; None when that is not known within HISTORY commits. Raises GitError.

        Gets commits without their files, as many as it needs.
        """
        if self._reaches(old, new):
            return True
        for depth in HISTORY:
            # Not every server allows the smallest filter, and some have none.
            if not any(self._get([new], f"--depth={depth}", option) for option in HISTORY_FILTERS):
                return None
            if self._reaches(old, new):
                return True
            if not self._ends_early(new):
                return False
        return None

    def _walk(self, new: str) -> Iterator[tuple[str, tuple[str, ...]]]:
        """The commits of a history that are in the mirror, each with its parents."""
        waiting, seen = [new], {new}
        while waiting:
            here = [oid for oid in waiting if oid in self.present()]
            below: list[str] = []
            for oid, found in zip(here, self.objects(here), strict=True):
                parents = parents_of(found.data)
                yield oid, parents
                below += parents
            waiting = [oid for oid in dict.fromkeys(below) if oid not in seen]
            seen.update(waiting)

    def _reaches(self, old: str, new: str) -> bool:
        return new == old or any(old in parents for _, parents in self._walk(new))

    def _ends_early(self, new: str) -> bool:
        """Whether the history in the mirror ends before its first commit."""
        return any(parent not in self.present() for _, parents in self._walk(new) for parent in parents)

    # --- what is in the mirror ---------------------------------------------------------------------------------------

    def present(self) -> frozenset[str]:
        """The numbers of all objects in the mirror. Raises GitError."""
        if self._present is None:
            if not self.repository.is_dir():
                return frozenset()
            command = ["cat-file", "--batch-all-objects", "--unordered", "--batch-check=%(objectname)"]
            self._present = frozenset(self._local(command, output=LISTING).decode("ascii").split())
        return self._present

    def directory_of(self, commit: str, path: str) -> str:
        """The number of the tree of a directory in a commit; NotThere, Unusable when it is none. Raises GitError."""
        found = self.object(commit)
        if found.kind != "commit":
            raise NotThere(f"{commit} is a {found.kind} and not a commit", "name a branch, a tag or a commit")
        oid = tree_of(found.data)
        done: list[str] = []
        for part in path.split("/") if path else ():
            tree = self.object(oid)
            done.append(part)
            entries = parsed_tree(tree.data, len(oid) // 2)
            entry = next((entry for entry in entries if entry.name == os.fsencode(part)), None)
            if entry is None:
                same = next((e for e in entries if e.name.lower() == os.fsencode(part).lower()), None)
                near = f"; did you mean '{escape(os.fsdecode(same.name))}'?" if same is not None else ""
                raise NotThere(
                    f"commit {commit[:12]} has no directory '{escape('/'.join(done))}'{near}",
                    "check the path in the address",
                )
            if entry.mode != "40000":
                what = {"160000": "a submodule, whose files are in another repository", "120000": "a link"}
                raise Unusable(
                    f"'{escape('/'.join(done))}' in commit {commit[:12]} is {what.get(entry.mode, 'a file')}",
                    "name a directory of the repository itself in the address",
                )
            oid = entry.oid
        return oid

    def entries(self, tree: str) -> tuple[Entry, ...]:
        """All files, links and submodules below a tree, sorted by name as bytes. Raises GitError."""
        out = self._local(["ls-tree", "-r", "-z", "--full-tree", tree], output=LISTING)
        listed: list[Entry] = []
        for line in out.split(b"\0"):
            head, tab, name = line.partition(b"\t")
            if tab:
                mode, _, oid = head.decode("ascii", "replace").split(" ")
                listed.append(Entry(mode, oid, name))
        return tuple(sorted(listed, key=lambda entry: entry.name))

    def blobs(self, oids: Iterable[str], limit: int, total: int = OUTPUT) -> dict[str, bytes | None]:
        """The contents of files by their numbers; None for one that is larger than `limit` bytes. Raises GitError.

        Args:
            oids: numbers of blobs; the missing ones are fetched in one call.
            limit: most bytes of one file.
            total: most bytes of all of them.
        """
        wanted = list(dict.fromkeys(oids))
        missing = [oid for oid in wanted if oid not in self.present()]
        if missing and not self._get(missing, "--no-filter"):
            raise NotThere("the remote does not give the files of the commit", "check the rights of the token or key")
        sizes = self._sizes(wanted)
        small = [oid for oid in wanted if sizes[oid] <= limit]
        if sum(sizes[oid] for oid in small) > total:
            raise Unusable(
                f"the files of the set have more than {total} bytes together", "keep only manifests in its directory"
            )
        found = self.objects(small)
        contents: dict[str, bytes | None] = dict.fromkeys(wanted)
        for oid, blob in zip(small, found, strict=True):
            contents[oid] = blob.data
        return contents

    def _sizes(self, oids: Sequence[str]) -> dict[str, int]:
        if not oids:
            return {}
        out = self._local(["cat-file", "--batch-check=%(objectsize)"], stdin=_lines(oids))
        numbers = out.decode("ascii", "replace").splitlines()
        if len(numbers) != len(oids) or not all(number.isdecimal() for number in numbers):
            raise Damaged("the mirror lacks objects that it lists")
        return dict(zip(oids, map(int, numbers), strict=True))

    def object(self, oid: str) -> Object:
        """One object, checked against its number. Raises GitError."""
        return self.objects([oid])[0]

    def objects(self, oids: Sequence[str]) -> list[Object]:
        """Objects that are in the mirror, in the order asked for, each checked against its number. Raises GitError."""
        if not oids:
            return []
        out = self._local(["cat-file", "--batch"], stdin=_lines(oids), output=LISTING)
        found: list[Object] = []
        at = 0
        for oid in oids:
            end = out.find(b"\n", at)
            words = out[at:end].decode("ascii", "replace").split(" ") if end >= 0 else []
            if len(words) != 3 or words[0] != oid or not words[2].isdecimal():
                raise Damaged(f"the mirror does not have {oid}")
            size = int(words[2])
            data = out[end + 1 : end + 1 + size]
            at = end + 2 + size
            if number(words[1], data, oid) != oid:
                raise Damaged(f"{oid} in the mirror has other contents")
            found.append(Object(words[1], data))
        return found

    # --- writing -----------------------------------------------------------------------------------------------------

    def store(self, kind: str, data: bytes) -> str:
        """Put a new object into the mirror; returns its number. It is in no history until it is pushed. Raises GitError."""
        command = ["hash-object", "-t", kind, "-w", "--stdin"]
        oid = self._local(command, stdin=data).decode("ascii", "replace").strip()
        if number(kind, data, oid) != oid:
            raise Damaged(f"the mirror stored a {kind} under a wrong number")
        self._present = None
        return oid

    def with_access(self, access: Access) -> "Mirror":
        """This mirror, in use, with other credentials. It may be used until this one is left."""
        return replace(self, access=access)

    def push(self, commit: str, ref: str, expected: str) -> None:
        """Let a ref of the remote name a commit, if it still names the expected one.

        Args:
            commit: is in the mirror; its parent is what the remote has.
            ref: full name of a branch, `refs/heads/…`.
            expected: the commit that the ref names now; empty: the ref does not exist.

        Raises:
            Moved: the ref names another commit, so nothing was changed.
            Refused: the remote does not allow the push.
            GitError: as for every call; the push may have been carried out.
        """
        with online(self._scheme, self.access, self._empty()) as how:
            command = [
                *how.words,
                "-c",
                "push.gpgSign=false",
                "-c",
                "push.recurseSubmodules=no",
                f"--git-dir={self.repository}",
                "push",
                "--porcelain",
                "--no-verify",
                "--no-thin",  # a thin pack needs files of the parent, which the mirror may not have
                f"--force-with-lease={ref}:{expected}",
                "--",
                self.remote,
                f"{commit}:{ref}",
            ]
            ran = self._run(command, how.env, how.fds, self.timeout)
        if ran.code == 0:
            return
        said = ran.out.decode("utf-8", "replace")
        if _MOVED.search(said) or _MOVED.search(ran.err_text):
            raise Moved(f"{ref.removeprefix('refs/heads/')} moved meanwhile")
        rejected = _REJECTED.search(said)
        if rejected is not None:
            remote = " ".join(
                line.removeprefix("remote:").strip() for line in ran.err_text.splitlines() if line.startswith("remote:")
            )
            cause = f"the remote refuses the push ({escape((rejected[1] + ': ' + remote if remote else rejected[1])[:SHOWN])})"
            raise Refused(cause, "give the credentials of writeBack the right to push to this branch")
        error = self._failed(ran)
        if isinstance(error, Refused):
            raise Refused(error.cause, "name credentials with the right to push in spec.source.writeBack") from None
        raise Unavailable(error.cause, error.hint, error.wait) if isinstance(error, Damaged) else error

    # --- signatures ----------------------------------------------------------------------------------------------------

    def tags_at(self, commit: str) -> tuple[Head, ...]:
        """The annotated tags that name a commit, by what the remote says, and fetched. Raises GitError.

        The remote's word is no proof: `verify.py` compares it with the tags themselves.
        """
        with online(self._scheme, self.access, self._empty()) as how:
            command = [*how.words, "ls-remote", "--tags", "--quiet", "--", self.remote]
            ran = self._run(command, how.env, how.fds, self.timeout, output=LISTING)
        if ran.code != 0:
            raise self._failed(ran)
        numbers = {
            name: oid
            for oid, _, name in (line.partition("\t") for line in ran.out.decode("utf-8", "replace").splitlines())
        }
        names = [name for name in numbers if numbers.get(f"{name}^{{}}") == commit and COMMIT.fullmatch(numbers[name])]
        heads = tuple(Head(name, commit, numbers[name]) for name in names[-TAGS:])
        missing = [head.tag for head in heads if head.tag not in self.present()]
        if missing and not self._get(missing, "--depth=1", "--filter=blob:none"):
            self._snapshot(missing)
        return heads

    def check(self, verb: str, oid: str, settings: Sequence[str], env: Mapping[str, str]) -> Ran:
        """Run git's check of the signature of an object: `verify-commit` or `verify-tag`. Raises GitError.

        Args:
            settings: configuration that names the keys and programs, `NAME=VALUE`.
            env: variables for these programs.
        """
        own = [word for setting in settings for word in ("-c", setting)]
        command = [*offline(), *own, f"--git-dir={self.repository}", verb, "--raw", oid]
        return self._run(command, {**ENVIRONMENT, **env}, (), LOCAL_TIMEOUT)

    # --- the repository ----------------------------------------------------------------------------------------------

    def _create(self, commit: str) -> None:
        """Make the bare repository when there is none, or one of the other hash. Raises GitError."""
        name = "sha256" if len(commit) == 64 else "sha1"
        marker = self.directory / "hash"
        with suppress(OSError):
            if self.repository.is_dir() and marker.read_text() == name:
                return
        try:
            self._remove()
            new = mkdtemp(prefix="new-", dir=self.directory)
            command = ["init", "--quiet", "--bare", "--template=", f"--object-format={name}", new]
            ran = self._run([*offline(), *command], ENVIRONMENT, (), LOCAL_TIMEOUT)
            if ran.code != 0:
                raise self._failed(ran)
            os.chmod(new, 0o700)
            marker.write_text(name)
            os.rename(new, self.repository)
        except OSError as error:
            raise _cannot_write(self.directory, error) from error

    def _rebuild(self, cause: str) -> None:
        """Delete the repository, so that the next fetch makes it again."""
        self._remove()
        self.rebuilt = cause

    def _remove(self) -> None:
        self._present = None
        shutil.rmtree(self.repository, ignore_errors=True)
        if self.repository.exists():  # not even that works: put it aside
            with suppress(OSError):
                os.rename(self.repository, mkdtemp(prefix="new-", dir=self.directory))

    def _pack_count(self) -> int:
        try:
            return sum(name.endswith(".pack") for name in os.listdir(self.repository / "objects" / "pack"))
        except OSError:
            return 0

    def _local(self, command: Sequence[str], stdin: bytes = b"", output: int = OUTPUT) -> bytes:
        """What a command that reads the mirror prints. Raises GitError."""
        words = [*offline(), f"--git-dir={self.repository}", *command]
        ran = self._run(words, ENVIRONMENT, (), LOCAL_TIMEOUT, stdin=stdin, output=output)
        if ran.code != 0:
            raise Damaged(f"the mirror is damaged ({git_said(ran.err_text)})")
        return ran.out

    def _run(
        self,
        command: Sequence[str],
        env: dict[str, str],
        fds: Sequence[int],
        timeout: float,
        *,
        stdin: bytes = b"",
        output: int = OUTPUT,
    ) -> Ran:
        fds = [*fds, self._lock] if self._lock >= 0 else fds
        try:
            return run(
                command,
                timeout=timeout,
                env=env,
                stdin=stdin,
                output=output,
                file_size=PACK_BYTES,
                pass_fds=fds,
                stop=self.stop,
            )
        except Missing as error:
            raise Refused(str(error), "install git, so that it is on the PATH of reconcile") from error
        except TimedOut as error:
            raise Unavailable(f"{error.cause}: {_verb(command)}", "check the network and the remote") from error
        except ProgramError as error:
            raise Unusable(f"{error}: {_verb(command)}", "choose a smaller directory of the repository") from error


HISTORY = (50, 1_000, 20_000)
"""How many commits back a history is searched, step by step."""

HISTORY_FILTERS = ("--filter=tree:0", "--filter=blob:none", "--no-filter")
"""What is left out of a history that is searched; the first one that the server allows."""


def _verb(command: Sequence[str]) -> str:
    """The subcommand of a command of git, for messages: nothing else of it."""
    verbs = {"ls-remote", "fetch", "cat-file", "ls-tree", "init", "verify-commit", "verify-tag", "push", "hash-object"}
    return "git " + next((word for word in command if word in verbs), "")


def _lines(oids: Sequence[str]) -> bytes:
    return "".join(f"{oid}\n" for oid in oids).encode("ascii")


def number(kind: str, data: bytes, like: str) -> str:
    """The number that git gives an object."""
    total = new_hash("sha256" if len(like) == 64 else "sha1", usedforsecurity=False)
    total.update(f"{kind} {len(data)}\0".encode("ascii"))
    total.update(data)
    return total.hexdigest()


def parsed_tree(data: bytes, size: int) -> list[Entry]:
    """The entries of a raw tree; `size` is that of a number in bytes. Raises Unusable."""
    entries: list[Entry] = []
    at = 0
    while at < len(data):
        space, end = data.find(b" ", at), data.find(b"\0", at)
        if not at < space < end or end + 1 + size > len(data):
            raise Unusable("a tree of the commit cannot be read", "correct the repository; git fsck shows the object")
        mode = data[at:space].decode("ascii", "replace")
        entries.append(Entry(mode, data[end + 1 : end + 1 + size].hex(), data[space + 1 : end]))
        at = end + 1 + size
    return entries


def tree_of(commit: bytes) -> str:
    """The tree of a raw commit."""
    return commit.partition(b"\n")[0].removeprefix(b"tree ").decode("ascii", "replace")


def parents_of(commit: bytes) -> tuple[str, ...]:
    """The parents of a raw commit."""
    head = commit.partition(b"\n\n")[0].split(b"\n")
    return tuple(line[7:].decode("ascii", "replace") for line in head if line.startswith(b"parent "))


def _candidates(ref: str) -> tuple[str, ...]:
    """The full names that a ref may mean."""
    if not ref:
        return ("HEAD",)
    return (ref,) if ref.startswith("refs/") else (f"refs/heads/{ref}", f"refs/tags/{ref}")


def _named(ref: str, names: Sequence[str], out: bytes, remote: str) -> Head:
    """The head in an answer of ls-remote. Raises NotThere, Refused."""
    found: dict[str, str] = {}
    symbolic = ""
    for line in out.decode("utf-8", "replace").splitlines():
        oid, tab, name = line.partition("\t")
        if oid.startswith("ref: ") and name == "HEAD":
            symbolic = oid.removeprefix("ref: ")
        elif tab and COMMIT.fullmatch(oid):
            found[name] = oid
    there = [name for name in names if name in found]
    if not there:
        shown = f"branch or tag '{escape(ref)}'" if ref else "default branch"
        raise NotThere(f"{escape(remote)} has no {shown}", "check the ref of the address, or push it")
    if len(there) > 1:
        cause = f"'{escape(ref)}' is both a branch and a tag of {escape(remote)}"
        raise Refused(cause, f"write ?ref=refs/heads/{ref} or ?ref=refs/tags/{ref}")
    name = there[0]
    peeled = found.get(f"{name}^{{}}", "")
    full = escape(symbolic) if name == "HEAD" else name
    return Head(full, peeled or found[name], found[name] if peeled else "")


def _cannot_write(place: Path, error: OSError) -> Unavailable:
    reason = (error.strerror or type(error).__name__).lower()
    return Unavailable(
        f"{place}: the mirror cannot be written: {reason}", "check the free space and the rights of its directory"
    )
