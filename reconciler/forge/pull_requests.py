"""What GitHub and Gitea share: Gitea and Forgejo took their API of statuses and pull requests from GitHub's. Used by `github.py` and `gitea.py`."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from reconciler.forge import own_comment
from reconciler.forge.calls import Calls
from reconciler.forge.protocol import Comment, CommitStatus, MergeRequest, State, short

STATES = {
    State.PENDING: "pending",
    State.SUCCESS: "success",
    State.FAILURE: "failure",
    State.SUPERSEDED: "error",
}


class PullRequests(ABC):
    """Implements `Forge` where merge requests are pull requests.

    Args:
        calls: to the API, with its token.
        project: owner and name of the repository.
        exists: the status of the answer when a pull request of the branch is open already.
    """

    def __init__(self, calls: Calls, project: str, exists: int) -> None:
        self._calls, self._project, self._exists = calls, project, exists
        self._path = f"/repos/{project}"

    def set_status(self, commit: str, status: CommitStatus) -> None:
        """Set the status of a commit."""
        body = {"state": STATES[status.state], "context": status.context, "description": short(status.description)}
        link = {"target_url": status.url} if status.url else {}
        self._calls.send("POST", f"{self._path}/statuses/{commit}", {**body, **link}, fine=(201,))

    def open_requests(self) -> tuple[MergeRequest, ...]:
        """All open pull requests."""
        with self._calls.shaped():
            found = [self._request(item) for item in self._calls.pages(f"{self._path}/pulls?state=open")]
        return tuple(sorted(found))

    def put_comment(self, number: int, marker: str, body: str) -> Comment:
        """Make or replace the comment of this marker."""
        login = self._who()
        paths = own_comment.Paths(
            f"{self._path}/issues/{number}/comments", lambda id_: f"{self._path}/issues/comments/{id_}", "PATCH"
        )
        return own_comment.put(
            self._calls, paths, marker, body, lambda comment: self._is_ours(comment.get("user") or {}, login)
        )

    def open_request(self, title: str, body: str, branch: str, target: str) -> MergeRequest:
        """Open a pull request, or find the open one of this branch."""
        asked = {"title": title, "body": body, "head": branch, "base": target}
        reply = self._calls.send("POST", f"{self._path}/pulls", asked, fine=(201, self._exists))
        with self._calls.shaped():
            if reply.status == 201:
                return self._request(reply.body)
        for request in self.open_requests():
            if (request.branch, request.target, request.fork) == (branch, target, False):
                return request
        raise self._calls.refused(reply, f"{self._path}/pulls")

    def close(self) -> None:
        """Close connections."""
        self._calls.close()

    @abstractmethod
    def _who(self) -> str:
        """The login of the token; empty where it may not ask."""

    @abstractmethod
    def _is_ours(self, author: Mapping[str, Any], login: str) -> bool:
        """Whether the author of a comment is the token with this login."""

    def _request(self, item: Any) -> MergeRequest:
        head = item["head"]
        source = str((head.get("repo") or {}).get("full_name") or "")
        return MergeRequest(
            int(item["number"]),
            str(item["title"]),
            str(head["sha"]),
            str(head["ref"]),
            str(item["base"]["ref"]),
            source,
            source.casefold() != self._project.casefold(),
            str((item.get("user") or {}).get("login") or ""),
            str(item["html_url"]),
        )
