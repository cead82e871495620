"""Errors of a git source, by what the reader may do next; and what git's messages mean. Raised by `mirror.py` and `tree.py`.

    GitError
    ├── Unavailable   the remote or this host cannot serve now: the last good manifests stay, and the next poll tries again
    ├── Refused       the remote refuses, or the address is wrong: the same, until an operator changes something
    ├── NotThere      the branch, tag, commit or directory does not exist
    ├── Unusable      the commit has something that may not be read, such as a link that leaves the set
    ├── Unverified    the commit does not have the signature that local documents ask for
    ├── Unread        the source could not be read before it was written; `problem` is one of the others
    ├── Moved         the branch names another commit than the one that was written on: read it, and write again
    └── Damaged       our mirror is damaged: delete it and fetch again

Messages name the object, the cause and the next step; they hold no secret, because none is in any argument or address.
"""

import re
from dataclasses import dataclass

from manifests.escape import escape

SHOWN = 300
"""How many characters of a message of git are shown."""


class GitError(Exception):
    """Root of the tree.

    Args:
        cause: what happened.
        hint: the next step, in the imperative.
        wait: seconds for which the remote asked not to be called again; 0 = it did not say.
    """

    def __init__(self, cause: str, hint: str = "", wait: int = 0) -> None:
        super().__init__(cause, hint)
        self.cause, self.hint, self.wait = cause, hint, wait

    def __str__(self) -> str:
        return f"{self.cause}; next step: {self.hint}" if self.hint else self.cause


class Unavailable(GitError):
    """Try again later."""


class Refused(GitError):
    """The same request will be refused again."""


class NotThere(GitError):
    """What the address names does not exist."""


class Unusable(GitError):
    """The commit may not be read."""


class Unverified(GitError):
    """The commit does not have the signature that local documents ask for. Other keys, or another tag, may change that."""


class Unread(GitError):
    """The source could not be read, and so not be written either. `problem` says why."""

    def __init__(self, problem: GitError) -> None:
        super().__init__(problem.cause, problem.hint, problem.wait)
        self.problem = problem


class Moved(GitError):
    """The branch of the remote names another commit than the one that was written on. Nothing was changed."""


class Damaged(GitError):
    """Our own mirror is damaged."""


@dataclass(frozen=True, slots=True)
class _Meaning:
    """What a message of git means: the kind of error, the cause (empty: git's own words), and the next step."""

    pattern: re.Pattern[str]
    kind: type[GitError]
    cause: str
    hint: str


def _means(pattern: str, kind: type[GitError], cause: str, hint: str) -> _Meaning:
    return _Meaning(re.compile(pattern, re.IGNORECASE), kind, cause, hint)


_MEANINGS = (
    _means(
        r"no space left on device|disk quota exceeded|file too large|SIGXFSZ",
        Unavailable,
        "the mirror cannot be written",
        "free space in the file system of the state directory",
    ),
    _means(
        r"could not read (Username|Password)|Authentication failed|returned error: 40[13]|terminal prompts disabled",
        Refused,
        "the remote refuses access",
        "name a token with the right to read the repository in spec.source of the local Instance",
    ),
    _means(
        r"Host key verification failed|No \S+ host key is known",
        Refused,
        "the host key of the remote is not in the known hosts",
        "add the remote's host key, checked by another way, to knownHosts of spec.source",
    ),
    _means(
        r"Permission denied \(|Permissions .* are too open|Load key",
        Refused,
        "the remote refuses the ssh key",
        "check sshKey of spec.source, and that the key may read the repository",
    ),
    _means(r"returned error: 429|too many requests", Unavailable, "the remote asks for fewer requests", ""),
    _means(
        r"unable to update url base from redirection|returned error: 30\d",
        Refused,
        "the remote redirects to another address, which is not followed",
        "write the address to which it redirects",
    ),
    _means(
        r"not valid: is this a git repository|invalid (content|service) response|bad line length|protocol error: bad",
        Unavailable,
        "the remote does not answer as a git server does",
        "check the address of the source, and what answers there",
    ),
    _means(
        r"dubious ownership",
        Refused,
        "the repository belongs to another user of this host",
        "run reconcile as the owner of the repository, or serve it by ssh or https",
    ),
    _means(
        r"repository .*not found|does not appear to be a git repository|returned error: 404",
        Refused,
        "there is no such repository",
        "check the address of the source, and the rights of its token or key",
    ),
    _means(
        r"SSL certificate problem|server certificate verification failed|certificate subject name",
        Refused,
        "the certificate of the remote is not trusted",
        "set caFile of spec.source to the authority of the remote's certificate",
    ),
    _means(
        r"fsck|hasDot|hasDotgit|object .*: (error|badTree|treeNotSorted|duplicateEntries|fullPathname|nullSha1|zeroPaddedFilemode)",
        Unusable,
        "the commit has an object that git's checks refuse",
        "correct the repository; git fsck shows the object",
    ),
    _means(
        r"couldn't find remote ref|not our ref|unadvertised object|no such remote ref|remote did not send all",
        NotThere,
        "the remote does not have the commit any more, or does not give it",
        "check the ref of the address",
    ),
)


def meaning(text: str) -> GitError | None:
    """The error that git's messages mean; None when they are not among the known ones."""
    found = next((known for known in _MEANINGS if known.pattern.search(text)), None)
    if found is None:
        return None
    return found.kind(f"{found.cause} ({git_said(text)})", found.hint, retry_after(text))


def git_said(text: str) -> str:
    """The most telling line of git's messages, in one line of at most SHOWN characters."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not _TRACE.match(line)]
    for prefix in ("fatal:", "error:", "ERROR:", "remote:"):
        picked = [line for line in lines if line.startswith(prefix) and not line.endswith("correct access rights")]
        if picked:
            return escape(picked[0].removeprefix(prefix).strip()[:SHOWN])
    return escape(lines[-1][:SHOWN]) if lines else "git says nothing"


_TRACE = re.compile(r"\d\d:\d\d:\d\d\.\d+ [a-z./_-]+:\d+ ")
_RETRY_AFTER = re.compile(r"<= Recv header: retry-after: *(\d{1,6})\s*$", re.IGNORECASE | re.MULTILINE)


def retry_after(text: str) -> int:
    """The seconds of the last Retry-After header in git's trace of HTTP; 0 without one."""
    found = _RETRY_AFTER.findall(text)
    return int(found[-1]) if found else 0
