"""Tests a configuration before it is put in place: nginx's own test, on a copy that has the changed files. Used by `provider.py`.

Files that include a changed file, at any depth, are copied too, and their `include` directives name the copies. The copy of the
main file is beside it under a hidden name, because nginx resolves relative names from the directory of the main file. The others
are in a private directory.
"""

import os
import re
import shutil
import stat
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from glob import glob, has_magic
from pathlib import Path

from providers.endpoints.nginx.text import statements
from providers.errors import Rejected, Unreachable
from providers.lib.files import read

BINARIES = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin", "/usr/local/nginx/sbin"])
MOST_FILES = 20_000
"""Most files of one configuration that are read."""
MOST_DEPTH = 20


_READ_BY_TEST = re.compile(r".*(?:_certificate(?:_key)?|_crl|_dhparam|_password_file|_ticket_key)|load_module")
"""Directives with a file that nginx reads during its test, besides `include`."""


AFTER_TEST = 2_000_000_000
"""A change during a test is reported as of so long (ns) after it, so that it is newer than the failure that the caller notes."""

_Signature = tuple[object, ...] | None
"""A file's inode, size and times, or a directory's visible names; None where there is neither."""


@dataclass(slots=True)
class Sources:
    """The files and directories on which the result of a test depends, as they were when it began.

    `ended` is when it ended, `noticed` when it was noticed that one of them has changed since (both wall clock, ns); 0 = not yet.
    """

    signatures: dict[Path, _Signature] = field(default_factory=dict)
    ended: int = 0
    noticed: int = 0

    def add(self, path: Path) -> None:
        """Add a file or directory. Call it before it is read."""
        self.signatures.setdefault(path, _signature(path))

    def changed(self) -> int:
        """When it was noticed that one of them is not as it was; 0 = all are."""
        if not self.noticed and any(_signature(path) != before for path, before in self.signatures.items()):
            self.noticed = max(time.time_ns(), self.ended + AFTER_TEST)
        return self.noticed


def _signature(path: Path) -> _Signature:
    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            return tuple(sorted(name for name in os.listdir(path) if not name.startswith(".")))
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def test(
    target: str,
    main: Path,
    changed: Mapping[Path, bytes],
    scratch: Path,
    deadline: float,
    sources: Sources,
) -> None:
    """Let nginx test `main` with these files in place of the present ones, or as new ones.

    Args:
        target: for messages.
        main: nginx's main file.
        changed: the new bytes of files, by their absolute paths. Empty: the present configuration.
        scratch: a private directory, which is created and removed.
        deadline: monotonic seconds.
        sources: gets the files and directories that were read.

    Raises:
        Rejected: it does not include one of the files, or nginx is not installed.
        Unreachable: nginx refuses the configuration, which others change too; it cannot be read or copied, or the test takes too
            long.
    """
    copy = main.with_name(f".{main.name}.reconciler-test")
    shutil.rmtree(scratch, ignore_errors=True)
    try:
        scratch.mkdir(mode=0o700, parents=True)
        stage = _Stage(target, main, changed, scratch, sources)
        text = stage.copy_of(main, 0)
        missing = sorted(str(path) for path in changed.keys() - stage.included)
        if missing:
            place = f"include {Path(missing[0]).parent}/*.conf;"
            raise Rejected(
                target, f"{main} does not include {missing[0]}", f"add to its block http (or stream): {place}"
            )
        if text is not None:
            _write(copy, text)
        _run(target, copy if text is not None else main, deadline)
    except OSError as error:
        raise Unreachable(
            target,
            f"cannot copy {main} to test it: {error.strerror}",
            "give this user write permission in its directory",
        ) from error
    finally:
        copy.unlink(missing_ok=True)
        shutil.rmtree(scratch, ignore_errors=True)


class _Stage:
    """The copies of one test. `included` are the changed files that the configuration includes."""

    def __init__(self, target: str, main: Path, changed: Mapping[Path, bytes], scratch: Path, sources: Sources) -> None:
        self.sources = sources
        self.target, self.root, self.changed, self.scratch = target, main.parent, changed, scratch
        self.included: set[Path] = set()
        self._copies: dict[Path, Path] = {}
        self._count = 0

    def copy_of(self, path: Path, depth: int) -> bytes | None:
        """A file with its includes naming copies; None if it can stay as it is."""
        self._count += 1
        if self._count > MOST_FILES or depth > MOST_DEPTH:
            raise Unreachable(
                self.target, f"{path} is one of more than {MOST_FILES} files, or included more than {MOST_DEPTH} deep"
            )
        self.sources.add(path)
        data = read(self.target, path)
        if data is None:
            return None  # nginx reports the missing file
        text = data.decode("utf-8", "surrogateescape")
        parts, at, differs = [], 0, False
        try:
            pairs = [statement for statement in statements(text) if len(statement.words) == 2]
        except ValueError as error:
            raise Unreachable(self.target, f"{path}: {error}", "correct it; `nginx -t` shows details") from None
        includes = [statement for statement in pairs if statement.words[0] == "include"]
        for name, file in (statement.words for statement in pairs):
            if _READ_BY_TEST.fullmatch(name) and "$" not in file and "\0" not in file:
                self.sources.add(Path(self.root, file))
        for include in includes:
            paths = self._named_by(include.words[1])
            copies = [self._copy(path, depth + 1) for path in paths]
            if copies == paths:
                continue
            differs = True
            parts += [text[at : include.start], "".join(f'include "{copy}";\n' for copy in copies)]
            at = include.stop
        return "".join([*parts, text[at:]]).encode("utf-8", "surrogateescape") if differs else None

    def _named_by(self, pattern: str) -> list[Path]:
        """The files that an include names, with new ones, in nginx's order."""
        full = os.path.join(self.root, pattern)
        if not has_magic(full):
            return [Path(full)]
        parts = Path(full).parts
        fixed = next(number for number, part in enumerate(parts) if has_magic(part))
        for directory in {Path(*parts[:fixed]), *map(Path, glob(os.path.dirname(full)))}:
            self.sources.add(directory)
        new = {str(path) for path in self.changed if fnmatchcase(str(path), full) and path.parent == Path(full).parent}
        return [Path(path) for path in sorted({*glob(full), *new})]

    def _copy(self, path: Path, depth: int) -> Path:
        """The path to include for a file: its copy if it needs one."""
        if path in self._copies:
            return self._copies[path]
        real = next(
            (new for new in self.changed if new == path or os.path.realpath(new) == os.path.realpath(path)), None
        )
        if real is not None:
            self.included.add(real)
            data: bytes | None = self.changed[real]
        else:
            data = self.copy_of(path, depth)
        self._copies[path] = path
        if data is not None:
            self._copies[path] = self.scratch / f"{len(self._copies)}.conf"
            _write(self._copies[path], data)
        return self._copies[path]


def _write(path: Path, data: bytes) -> None:
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)


def _run(target: str, main: Path, deadline: float) -> None:
    binary = shutil.which("nginx", path=BINARIES)
    if binary is None:
        raise Rejected(target, "the program nginx was not found to test the configuration", "install nginx")
    try:
        done = subprocess.run(
            [binary, "-t", "-q", "-c", str(main)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=max(0.01, deadline - time.monotonic()),
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Unreachable(
            target, "nginx's test of its configuration took too long", "check whether the names in it resolve"
        ) from None
    if done.returncode:
        lines = done.stderr.decode("utf-8", "replace").splitlines()
        reason = next((line for line in lines if "[emerg]" in line), lines[0] if lines else "no message")
        # Another file may be at fault, or a name that does not resolve now: a later try may succeed.
        raise Unreachable(target, f"nginx refuses the configuration, nothing was changed: {reason[:300]}", "correct it")
