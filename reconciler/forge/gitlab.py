"""GitLab. The API: https://docs.gitlab.com/api/rest/, version 4."""

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote

from manifests.values.notices import Forge as Settings
from reconciler.forge import own_comment
from reconciler.forge.calls import Calls
from reconciler.forge.protocol import Comment, CommitStatus, MergeRequest, State, short

STATES = {
    State.PENDING: "pending",
    State.SUCCESS: "success",
    State.FAILURE: "failed",
    State.SUPERSEDED: "canceled",
}

_SAME_STATE = "Cannot transition status"


class GitLab:
    """Implements `Forge`."""

    def __init__(self, settings: Settings, steady: Callable[[], int], wall: Callable[[], float]) -> None:
        self._calls = Calls(settings, f"{settings.url}/api/v4", _headers, steady, wall)
        self._path = f"/projects/{quote(settings.project, safe='')}"
        self._user = 0

    def set_status(self, commit: str, status: CommitStatus) -> None:
        """Set the status of a commit."""
        state = STATES[status.state]
        body = {"state": state, "name": status.context, "description": short(status.description)}
        link = {"target_url": status.url} if status.url else {}
        path = f"{self._path}/statuses/{commit}"
        reply = self._calls.send("POST", path, {**body, **link}, fine=(200, 201, 400))
        if reply.status != 400:
            return
        # GitLab refuses the state that the status has already: "Cannot transition status via :enqueue from :pending".
        if _SAME_STATE in reply.error_text and self._state(commit, status.context) == state:
            return
        raise self._calls.refused(reply, path)

    def open_requests(self) -> tuple[MergeRequest, ...]:
        """All open merge requests."""
        with self._calls.shaped():
            found = [_request(item) for item in self._calls.pages(f"{self._path}/merge_requests?state=opened")]
        return tuple(sorted(found))

    def put_comment(self, number: int, marker: str, body: str) -> Comment:
        """Make or replace the comment of this marker."""
        user = self._who()
        notes = f"{self._path}/merge_requests/{number}/notes"
        paths = own_comment.Paths(notes, lambda id_: f"{notes}/{id_}", "PUT")
        return own_comment.put(
            self._calls, paths, marker, body, lambda note: (note.get("author") or {}).get("id") == user, "web_url"
        )

    def open_request(self, title: str, body: str, branch: str, target: str) -> MergeRequest:
        """Open a merge request, or find the open one of this branch."""
        asked = {"title": title, "description": body, "source_branch": branch, "target_branch": target}
        reply = self._calls.send("POST", f"{self._path}/merge_requests", asked, fine=(201, 409))
        with self._calls.shaped():
            if reply.status == 201:
                return _request(reply.body)
        for request in self.open_requests():
            if (request.branch, request.target, request.fork) == (branch, target, False):
                return request
        raise self._calls.refused(reply, f"{self._path}/merge_requests")

    def close(self) -> None:
        """Close connections."""
        self._calls.close()

    def _state(self, commit: str, context: str) -> str:
        """The state of the latest status of this context; empty without one."""
        with self._calls.shaped():
            path = f"{self._path}/repository/commits/{commit}/statuses?name={quote(context, safe='')}"
            found = {int(item["id"]): str(item["status"]) for item in self._calls.pages(path)}
        return found[max(found)] if found else ""

    def _who(self) -> int:
        if not self._user:
            reply: Any = self._calls.get("/user")
            with self._calls.shaped():
                if reply.status != 200:
                    raise self._calls.refused(reply, "/user")
                self._user = int(reply.body["id"])
        return self._user


def _request(item: Any) -> MergeRequest:
    source = item.get("source_project_id")
    return MergeRequest(
        int(item["iid"]),
        str(item["title"]),
        str(item["sha"] or ""),
        str(item["source_branch"]),
        str(item["target_branch"]),
        "" if source is None else str(source),
        source != item["target_project_id"],
        str((item.get("author") or {}).get("username") or ""),
        str(item["web_url"]),
    )


def _headers(token: str) -> Mapping[str, str]:
    return {"PRIVATE-TOKEN": token}
