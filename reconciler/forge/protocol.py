"""What this program asks of a forge, as one protocol. `github.py`, `gitlab.py` and `gitea.py` implement it.

The notifier sets commit statuses; reviews use comments and merge requests. Calls block and have deadlines, so they are made on threads.
"""

import re
from enum import StrEnum
from typing import NamedTuple, Protocol

DESCRIPTION = 140
"""The longest description of a commit status (characters), GitHub's limit: https://docs.github.com/rest/commits/statuses."""

COMMENT = 65_536
"""The longest comment (characters), GitHub's limit, which the others exceed."""

COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
"""A commit: the hex digits of its SHA-1 or SHA-256."""

_MARKER = re.compile(r"[a-z0-9][a-z0-9 /._-]{0,99}")


class State(StrEnum):
    """The state of a commit status. All but `PENDING` are final for a reader who waits."""

    PENDING = "pending"
    SUCCESS = "success"
    FAILURE = "failure"
    SUPERSEDED = "superseded"
    """A newer commit is in force. Forges have no such state: it is an error, or a cancelled job."""


class CommitStatus(NamedTuple):
    """What a commit shows. `context` names who says it; a later status of the same context takes its place."""

    context: str
    state: State
    description: str
    url: str = ""


class MergeRequest(NamedTuple):
    """An open merge request (pull request). `fork` says that its commits are in another repository, or in one that is gone.

    `source` is the repository of its commits as `owner/name` (GitLab: its id), empty where it is gone.
    """

    number: int
    title: str
    commit: str
    branch: str
    target: str
    source: str
    fork: bool
    author: str
    url: str


class Comment(NamedTuple):
    """A comment as it is now on the forge."""

    id: int
    url: str
    created: bool


class Forge(Protocol):
    """One repository on a forge.

    Every call may raise `Unreachable` (try again, `wait` is what the forge asked for), `Rejected` (rights, content) or `OutcomeUnknown` (it
    may have been carried out). All of them may be repeated: a repetition changes nothing that is there already.
    """

    def set_status(self, commit: str, status: CommitStatus) -> None:
        """Set the status of a commit."""

    def open_requests(self) -> tuple[MergeRequest, ...]:
        """All open merge requests, by number."""

    def put_comment(self, number: int, marker: str, body: str) -> Comment:
        """Make the comment of this marker on a merge request, or replace its text. Comments of other authors are never changed.

        Args:
            number: of the merge request.
            marker: from `marker`; it is invisible, and finds the comment again.
            body: Markdown, at most `COMMENT` characters with the marker.
        """

    def open_request(self, title: str, body: str, branch: str, target: str) -> MergeRequest:
        """Open a merge request from a branch of the repository, or find the one that is open."""

    def close(self) -> None:
        """Close connections."""


def marker(*words: str) -> str:
    """The invisible first line of a comment: an HTML comment with these words. Raises ValueError for other characters than `a-z0-9/._-`."""
    text = " ".join(words)
    if not _MARKER.fullmatch(text) or "--" in text:
        raise ValueError(f"a marker cannot contain {text!r}")
    return f"<!-- reconciler: {text} -->"


def short(text: str, limit: int = DESCRIPTION) -> str:
    """A text in one line of at most `limit` characters, cut at a word where that is possible."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    if len(line) <= limit:
        return line
    cut = line[: limit - 1]
    head, _, _ = cut.rpartition(" ")
    return f"{(head if len(head) > limit // 2 else cut).rstrip(' ,;:')}…"
