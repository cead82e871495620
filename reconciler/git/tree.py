"""The directory that holds what a set of manifests reads of one commit. Made by `reader.py` from a mirror.

It has the manifests, and the links that lead to them, and later what manifests name: a working directory, a file of authorities, files that
are mounted. It is named after the git tree of the set, so a commit that changes nothing in the set has the same directory. A file in it never
changes: it is written beside, and appears by a rename. Names, links, submodules and sizes are checked here, because an author who can merge chooses
them, and because git checks nothing that is not checked out.
"""

import os
import posixpath
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from shutil import rmtree
from time import time_ns

from manifests.problems import Code, Problem
from manifests.source.directory import DIRECTORY_DEPTH, ENTRIES, FILES, SUFFIXES, is_skipped, printable
from manifests.yaml.read import FILE_SIZE
from reconciler.git.errors import GitError, Unavailable, Unusable
from reconciler.git.mirror import Entry, Mirror, number, parsed_tree

LINKS = 40
"""Most links that lead from a name to a file, as in the kernel."""
LINKS_OF_SET = 1_000
"""Most links of a set."""
NAMED_FILES = 10_000
"""Most files of a directory that a manifest names."""
NAMED_BYTES = 256 * 1024 * 1024
"""Most bytes of one file, and of all files of one directory, that a manifest names."""
UNUSED = 3600
"""Seconds that a directory stays after its last use, beside those that an instance has in force."""

_FILE, _PROGRAM, _LINK, _SUBMODULE = "100644", "100755", "120000", "160000"


@dataclass(frozen=True, slots=True)
class Listing:
    """What is in the set at one commit.

    Attributes:
        tree: the number of its git tree.
        entries: files, links and submodules by their names, relative to the set.
        links: the target of each link, as it is written.
        files_outside: links that lead to a file of the repository that is not in the set.
        order: all names, sorted.
    """

    tree: str
    entries: dict[str, Entry]
    links: dict[str, str]
    files_outside: frozenset[str] = field(default_factory=frozenset)
    order: list[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "order", sorted(self.entries))

    def leads_to(self, name: str) -> str | None:
        """Where a name is in the set when all links are followed; None when it leaves the set or never ends. The root is empty."""
        parts, done, followed = name.split("/"), list[str](), 0
        while parts:
            part = parts.pop(0)
            if part in {"", "."}:
                continue
            if part == "..":
                if not done:
                    return None
                done.pop()
                continue
            at = "/".join([*done, part])
            entry = self.entries.get(at)
            if entry is None or entry.mode != _LINK:
                done.append(part)
                continue
            followed += 1
            target = self.links.get(at, "/")
            if followed > LINKS or target.startswith("/") or not target:
                return None
            parts = [*target.split("/"), *parts]
        return "/".join(done)

    def below(self, name: str) -> list[str]:
        """The names of everything at or below a place."""
        if not name:
            return self.order
        begin, end = bisect_left(self.order, f"{name}/"), bisect_left(self.order, f"{name}0")  # '0' comes after '/'
        return [name, *self.order[begin:end]] if name in self.entries else self.order[begin:end]


def listing(mirror: Mirror, commit: str, path: str) -> Listing:
    """Read the names in the set at a directory of a commit. Raises GitError."""
    tree = mirror.directory_of(commit, path)
    entries = mirror.entries(tree)
    if len(entries) > ENTRIES:
        raise Unusable(f"the directory has more than {ENTRIES} files", "choose a smaller directory in the address")
    named: dict[str, Entry] = {}
    for entry in entries:
        name = os.fsdecode(entry.name)
        parts = name.split("/")
        if any(part in {"", ".", ".."} or part.casefold() == ".git" for part in parts):
            raise Unusable(f"'{printable(name)}' is a name that git does not allow", "remove it from the repository")
        named[name] = entry
    found = [name for name, entry in named.items() if entry.mode == _LINK]
    if len(found) > LINKS_OF_SET:
        raise Unusable(f"the directory has more than {LINKS_OF_SET} links", "replace links by files")
    contents = mirror.blobs([named[name].oid for name in found], limit=os.pathconf("/", "PC_PATH_MAX")) if found else {}
    # A target that no link of this host can have counts as one that leaves the set.
    raw = {name: contents[named[name].oid] or b"/" for name in found}
    links = {name: "/" if b"\0" in target else os.fsdecode(target) for name, target in raw.items()}
    made = Listing(tree, named, links)
    outside = frozenset(
        name for name in found if made.leads_to(name) is None and _is_file(mirror, commit, path, name, links)
    )
    return replace(made, files_outside=outside)


def _is_file(mirror: Mirror, commit: str, path: str, name: str, links: dict[str, str]) -> bool:
    """Whether a link leads to a file of the repository, as far as the mirror has the trees on the way; else it may be a directory."""
    goal = posixpath.normpath(posixpath.join(path, posixpath.dirname(name), links[name]))
    if goal.startswith(("/", "..")):
        return False
    above, base = posixpath.split(goal)
    try:
        tree = mirror.directory_of(commit, above)
        entries = parsed_tree(mirror.object(tree).data, len(tree) // 2)
    except GitError:
        return False
    mode = next((entry.mode for entry in entries if entry.name == os.fsencode(base)), "")
    return mode.startswith("100")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the reader of manifests needs: names of files and links, and the problems of what may not be read."""

    names: tuple[str, ...]
    problems: tuple[Problem, ...]


def wanted(found: Listing) -> Wanted:
    """The manifests of a set, by the rules of `manifests/source/directory.py`."""
    names: dict[str, None] = {}
    problems: list[Problem] = []
    entered: set[str] = set()
    for name, entry in found.entries.items():
        parts = name.split("/")
        if any(is_skipped(part) for part in parts):
            continue
        if entry.mode == _SUBMODULE:
            hint = "move it out of the directory of the manifests, or name another directory in the address"
            message = "is a submodule: its files are in another repository and are not read"
            problems.append(Problem(printable(name), 0, 0, Code.UNREADABLE_FILE, "", message, hint))
        elif len(parts) > DIRECTORY_DEPTH:
            message = f"directories are nested more than {DIRECTORY_DEPTH} deep"
            problems.append(Problem(printable(name), 0, 0, Code.TOO_MANY_FILES, "", message))
        elif entry.mode == _LINK:
            problems += _linked(found, name, names, entered)
        elif name.casefold().endswith(SUFFIXES):
            names[name] = None
    if len(names) > FILES:
        message = f"more than {FILES} manifest files"
        problems.append(Problem(".", 0, 0, Code.TOO_MANY_FILES, "", message, "choose a smaller directory"))
        names.clear()
    return Wanted(tuple(names), tuple(problems))


def _linked(found: Listing, name: str, names: dict[str, None], entered: set[str]) -> list[Problem]:
    """Add a link, and the manifests that it leads to. A link out of the set is a problem where the reader would follow it."""
    target = found.leads_to(name)
    is_manifest = name.casefold().endswith(SUFFIXES)
    if target is None:
        if not is_manifest and name in found.files_outside:
            return []
        message = "the link leads out of the manifests' directory"
        hint = "replace the link with the file itself, or remove it"
        return [Problem(printable(name), 0, 0, Code.LINK_LEAVES_TREE, "", message, hint)]
    if is_manifest:
        names[name] = None
    if target in found.entries:
        if is_manifest:
            names[target] = None
        return []
    if target in entered:
        names[name] = None
        return []
    # Of a directory; the reader enters it only where it is hidden in its own place.
    below = [other for other in found.below(target) if other.casefold().endswith(SUFFIXES)]
    if below:
        entered.add(target)
        names[name] = None
        names.update(dict.fromkeys(other for other in below if found.entries[other].mode in {_FILE, _PROGRAM}))
    return []


class Trees:
    """The directories of one mirror, by the git trees of sets.

    Args:
        place: the directory of the mirror; private to this user.
    """

    def __init__(self, place: Path) -> None:
        self.place = place / "trees"

    def directory(self, tree: str) -> Path:
        """The directory of a set."""
        return self.place / tree

    def make(self, mirror: Mirror, found: Listing, names: Sequence[str]) -> tuple[Path, list[Problem]]:
        """The directory with these files and links; what is there already is checked. Raises GitError.

        Returns it, and a problem for each file that is too large for a manifest.
        """
        place = self.directory(found.tree)
        try:
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.utime(place)
            left_out = _ensure(mirror, found, names, place, FILE_SIZE)
        except OSError as error:
            raise _full(place, error) from error
        message = f"the file has more than {FILE_SIZE} bytes"
        return place, [
            Problem(printable(name), 0, 0, Code.FILE_TOO_LARGE, "", message, "split the file") for name in left_out
        ]

    def add(self, mirror: Mirror, found: Listing, path: str) -> str:
        """Make a file or a whole directory of the set readable in its directory. Returns why it cannot be. Raises GitError."""
        place = self.directory(found.tree)
        names: dict[str, None] = {}
        waiting = ["" if posixpath.normpath(path) == "." else posixpath.normpath(path)]
        seen: set[str] = set()
        while waiting:
            start = waiting.pop()
            seen.add(start)
            target = found.leads_to(start)
            if target is None:
                return f"the link '{printable(start)}' leads out of the directory of the set"
            here = [*_on_the_way(start, found), *found.below(target)]
            names.update(dict.fromkeys(name for name in here if found.entries[name].mode != _SUBMODULE))
            if len(names) > NAMED_FILES:
                return f"it has more than {NAMED_FILES} files; name a smaller directory"
            waiting += [name for name in here if found.entries[name].mode == _LINK and name not in seen]
        try:
            left_out = _ensure(mirror, found, list(names), place, NAMED_BYTES)
        except OSError as error:
            raise _full(place, error) from error
        return f"'{printable(left_out[0])}' has more than {NAMED_BYTES} bytes" if left_out else ""

    def link(self, owner: str) -> Path:
        """The path by which an instance reaches the directory that it has in force. `owner` names it, such as its state directory."""
        return self.place.parent / "in-force" / sha256(os.fsencode(owner)).hexdigest()[:16]

    def put_in_force(self, tree: str, owner: str) -> None:
        """Let an instance use the directory of a set, by its number, from now on: what reaches it by `link` sees the old or the new one.

        Raises OSError.
        """
        link = self.link(owner)
        goal = os.path.join("..", self.place.name, tree)
        if link.is_symlink() and os.readlink(link) == goal:
            return
        link.parent.mkdir(mode=0o700, exist_ok=True)
        beside = link.with_name(f"{link.name}.new")
        with suppress(FileNotFoundError):
            beside.unlink()
        beside.symlink_to(goal)
        os.replace(beside, link)

    def prune(self, keep: str) -> None:
        """Remove directories that no instance has in force, in which no process works, and that were not used for UNUSED."""
        now = time_ns() // 1_000_000_000
        used = {keep, *_pointed_at(self.place.parent / "in-force")}
        old: list[Path] = []
        with suppress(OSError):
            for entry in os.scandir(self.place):
                if entry.name not in used and now - int(entry.stat(follow_symlinks=False).st_mtime) > UNUSED:
                    old.append(Path(entry.path))
        if not old:
            return
        working = _working_directories(str(self.place))
        for directory in old:
            if directory.name not in working:
                rmtree(directory, ignore_errors=True)


def _on_the_way(path: str, found: Listing) -> Iterable[str]:
    """The links that a path goes through."""
    parts = path.split("/")
    for end in range(1, len(parts) + 1):
        at = "/".join(parts[:end])
        if at in found.entries and found.entries[at].mode == _LINK:
            yield at


def _pointed_at(links: Path) -> set[str]:
    found: set[str] = set()
    with suppress(OSError):
        for entry in os.scandir(links):
            with suppress(OSError):
                found.add(os.path.basename(os.readlink(entry.path)))
    return found


def _working_directories(place: str) -> set[str]:
    """The directories below a place in which processes of this user work."""
    found: set[str] = set()
    with suppress(OSError):
        for entry in os.scandir("/proc"):
            if entry.name.isdecimal():
                with suppress(OSError):
                    where = os.readlink(f"/proc/{entry.name}/cwd")
                    if where.startswith(f"{place}/"):
                        found.add(where[len(place) + 1 :].split("/")[0])
    return found


def _ensure(mirror: Mirror, found: Listing, names: Sequence[str], place: Path, limit: int) -> list[str]:
    """Write what is not there, or has other contents after a power cut. Returns the files above the limit. Raises OSError, GitError."""
    missing = [name for name in names if not _holds(str(place), name, found)]
    if not missing:
        return []
    files = [name for name in missing if found.entries[name].mode != _LINK]
    contents = mirror.blobs([found.entries[name].oid for name in files], limit, NAMED_BYTES)
    left_out: list[str] = []
    for name in files:
        data = contents[found.entries[name].oid]
        if data is None:
            left_out.append(name)
        else:
            _one(str(place), name, _file(data, 0o500 if found.entries[name].mode == _PROGRAM else 0o400))
    for name in missing:
        if found.entries[name].mode == _LINK:
            _one(str(place), name, partial(os.symlink, found.links[name]))
    return left_out


def _holds(place: str, name: str, found: Listing) -> bool:
    """Whether a file or link is there, with the contents that git names."""
    entry, path = found.entries[name], os.path.join(place, name)
    try:
        if entry.mode == _LINK:
            return os.readlink(path) == found.links[name]
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            programs = bool(status.st_mode & 0o100) == (entry.mode == _PROGRAM)
            return programs and status.st_size <= NAMED_BYTES and number("blob", file.read(), entry.oid) == entry.oid
    except OSError:
        return False


def _one(place: str, name: str, make: Callable[[str], None]) -> None:
    """Make one file or link beside its name, and rename it: no reader sees a part."""
    goal = os.path.join(place, name)
    os.makedirs(os.path.dirname(goal), mode=0o700, exist_ok=True)
    beside = os.path.join(place, f".new-{os.getpid()}-{sha256(os.fsencode(name)).hexdigest()[:16]}")
    with suppress(FileNotFoundError):
        os.unlink(beside)
    make(beside)
    os.rename(beside, goal)


def _file(data: bytes, mode: int) -> Callable[[str], None]:
    def make(beside: str) -> None:
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with open(descriptor, "wb") as file:
            file.write(data)
            os.fchmod(descriptor, mode)

    return make


def _full(place: Path, error: OSError) -> GitError:
    reason = (error.strerror or type(error).__name__).lower()
    return Unavailable(
        f"{place}: the files of the commit cannot be written: {reason}",
        "free space, or make the state directory writable",
    )
