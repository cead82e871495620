"""GitHub and GitHub Enterprise Server. The API: https://docs.github.com/rest, version 2022-11-28."""

from collections.abc import Callable, Mapping
from typing import Any

from manifests.values.notices import Forge as Settings
from providers.lib.http import Refused
from reconciler.forge import own_comment
from reconciler.forge.calls import Calls
from reconciler.forge.protocol import Comment, CommitStatus, MergeRequest, State, short

STATES = {
    State.PENDING: "pending",
    State.SUCCESS: "success",
    State.FAILURE: "failure",
    State.SUPERSEDED: "error",
}

PUBLIC = "https://github.com"


def base(url: str) -> str:
    """The API of a GitHub: a host of its own for github.com, a path elsewhere."""
    return "https://api.github.com" if url == PUBLIC else f"{url}/api/v3"


class GitHub:
    """Implements `Forge`."""

    def __init__(self, settings: Settings, steady: Callable[[], int], wall: Callable[[], float]) -> None:
        self._calls = Calls(settings, base(settings.url), _headers, steady, wall)
        self._project, self._path = settings.project, f"/repos/{settings.project}"
        self._login: str | None = None

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

        def ours(comment: Mapping[str, Any]) -> bool:
            author = comment.get("user") or {}
            # A token of an app, as in GitHub Actions, cannot ask for its user; users cannot be of the type Bot.
            return bool(author.get("login") == login if login else author.get("type") == "Bot")

        paths = own_comment.Paths(
            f"{self._path}/issues/{number}/comments", lambda id_: f"{self._path}/issues/comments/{id_}", "PATCH"
        )
        return own_comment.put(self._calls, paths, marker, body, ours)

    def open_request(self, title: str, body: str, branch: str, target: str) -> MergeRequest:
        """Open a pull request, or find the open one of this branch."""
        asked = {"title": title, "body": body, "head": branch, "base": target}
        reply = self._calls.send("POST", f"{self._path}/pulls", asked, fine=(201, 422))
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
        """The login of the token; empty for one of an app, which may not ask."""
        if self._login is None:
            try:
                with self._calls.shaped():
                    reply: Any = self._calls.get("/user")
                    self._login = str(reply.body["login"]) if reply.status == 200 else ""
            except Refused as error:
                if error.status != 403:
                    raise
                self._login = ""
        return self._login


def _headers(token: str) -> Mapping[str, str]:
    return {"Authorization": f"Bearer {token}", "X-GitHub-Api-Version": "2022-11-28"}
