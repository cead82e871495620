"""Gitea and Forgejo. The API: https://docs.gitea.com/api, the same in Forgejo."""

from collections.abc import Callable, Mapping
from typing import Any

from manifests.values.notices import Forge as Settings
from reconciler.forge import own_comment
from reconciler.forge.calls import Calls
from reconciler.forge.protocol import Comment, CommitStatus, MergeRequest, State, short

STATES = {
    State.PENDING: "pending",
    State.SUCCESS: "success",
    State.FAILURE: "failure",
    State.SUPERSEDED: "error",
}


class Gitea:
    """Implements `Forge`."""

    def __init__(self, settings: Settings, steady: Callable[[], int], wall: Callable[[], float]) -> None:
        self._calls = Calls(settings, f"{settings.url}/api/v1", _headers, steady, wall, limit="limit")
        self._project, self._path = settings.project, f"/repos/{settings.project}"
        self._login = ""

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
        # Gitea has no pages of the comments of one issue (go-gitea/gitea#18082): it sends all, and no Link.
        paths = own_comment.Paths(
            f"{self._path}/issues/{number}/comments", lambda id_: f"{self._path}/issues/comments/{id_}", "PATCH"
        )
        return own_comment.put(
            self._calls, paths, marker, body, lambda comment: (comment.get("user") or {}).get("login") == login
        )

    def open_request(self, title: str, body: str, branch: str, target: str) -> MergeRequest:
        """Open a pull request, or find the open one of this branch."""
        asked = {"title": title, "body": body, "head": branch, "base": target}
        reply = self._calls.send("POST", f"{self._path}/pulls", asked, fine=(201, 409))
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

    def _who(self) -> str:
        if not self._login:
            reply: Any = self._calls.get("/user")  # needs the scope read:user
            with self._calls.shaped():
                if reply.status != 200:
                    raise self._calls.refused(reply, "/user")
                self._login = str(reply.body["login"])
        return self._login


def _headers(token: str) -> Mapping[str, str]:
    return {"Authorization": f"token {token}"}
