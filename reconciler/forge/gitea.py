"""Gitea and Forgejo. The API: https://docs.gitea.com/api, the same in Forgejo."""

from collections.abc import Callable, Mapping
from typing import Any

from manifests.values.notices import Forge as Settings
from reconciler.forge.calls import Calls
from reconciler.forge.pull_requests import PullRequests


class Gitea(PullRequests):
    """Implements `Forge`.

    Gitea has no pages of the comments of one issue (go-gitea/gitea#18082): it sends all, and no Link.
    """

    def __init__(self, settings: Settings, steady: Callable[[], int], wall: Callable[[], float]) -> None:
        calls = Calls(settings, f"{settings.url}/api/v1", _headers, steady, wall, limit="limit")
        super().__init__(calls, settings.project, exists=409)
        self._login = ""

    def _who(self) -> str:
        if not self._login:
            reply: Any = self._calls.get("/user")  # needs the scope read:user
            with self._calls.shaped():
                if reply.status != 200:
                    raise self._calls.refused(reply, "/user")
                self._login = str(reply.body["login"])
        return self._login

    def _is_ours(self, author: Mapping[str, Any], login: str) -> bool:
        return bool(author.get("login") == login)


def _headers(token: str) -> Mapping[str, str]:
    return {"Authorization": f"token {token}"}
