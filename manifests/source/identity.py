"""The identity of a directory of manifests: the same repository and path on every machine that has it checked out.

Pruning compares it, so that a wrong path on the command line deletes nothing. Called by `directory.py` and `reconcile deploy`;
`commit_of` by the shell, for each new revision.
"""

import os
import re
import subprocess
from pathlib import Path

GIT_TIMEOUT = 5.0
"""Longest time of one call of git, in seconds; reading never fails because of git."""

_CREDENTIALS = re.compile(r"(?<=://)[^/@]*@")


def identity_of(path: Path) -> tuple[str, bool]:
    """The identity of an absolute path, and whether it is inside a git work tree.

    Inside a work tree: the address of the remote `origin` without credentials (the top-level directory when there is no
    such remote), two slashes, the path below the top level. Elsewhere, or when git fails: the path itself.
    """
    directory = _work_tree(path)
    if directory is None:
        return str(path), False
    top = _git(directory, "rev-parse", "--show-toplevel")
    if not top:
        return str(path), False
    try:
        below = path.relative_to(Path(top).resolve())
    except ValueError:
        return str(path), False
    remote = _git(directory, "remote", "get-url", "origin")
    below_text = "" if str(below) == "." else below.as_posix()
    return f"{without_credentials(remote) if remote else top}//{below_text}", True


def commit_of(path: Path) -> str:
    """The commit that is checked out at an absolute path, with `-dirty` when files below the path differ from it.

    Empty outside of a git work tree, before the first commit, and when git fails.
    """
    directory = _work_tree(path)
    if directory is None:
        return ""
    commit = _git(directory, "rev-parse", "--verify", "--quiet", "HEAD")
    if not commit:
        return ""
    below = str(path) if path.exists() else str(path.parent)
    changed = _git(directory, "-c", "core.fsmonitor=false", "status", "--porcelain", "--", below)
    return f"{commit}-dirty" if changed else commit


def without_credentials(url: str) -> str:
    """A remote address without credentials: no user, password, query or fragment, no final slash or `.git`."""
    if "://" in url:
        url = _CREDENTIALS.sub("", url, count=1).partition("?")[0].partition("#")[0]
    return url.rstrip("/").removesuffix(".git")


def _work_tree(path: Path) -> Path | None:
    """The nearest directory at or above a path that has `.git`; None when there is none.

    git starts there: in a directory below it git would take the configuration of a bare repository that is committed there as files,
    and that configuration can name programs to run (CVE-2022-24765 has the same effect).
    """
    directory = path if path.is_dir() else path.parent
    return next((parent for parent in (directory, *directory.parents) if (parent / ".git").exists()), None)


def _git(directory: Path, *arguments: str) -> str:
    """The first line that git prints, or an empty text when it fails."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment |= {"GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
    try:
        done = subprocess.run(
            ["git", "-C", str(directory), *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=GIT_TIMEOUT,
            env=environment,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    if done.returncode != 0:
        return ""
    return os.fsdecode(done.stdout).partition("\n")[0].strip()
