"""GitHub and GitHub Enterprise Server. The API: https://docs.github.com/rest, version 2022-11-28."""

from collections.abc import Callable, Mapping
from typing import Any

from manifests.values.notices import Forge as Settings
from providers.lib.http import Refused
from reconciler.forge.calls import Calls
from reconciler.forge.pull_requests import PullRequests

PUBLIC = "https://github.com"


def base(url: str) -> str:
    """The API of a GitHub: a host of its own for github.com, a path elsewhere."""
    return "https://api.github.com" if url == PUBLIC else f"{url}/api/v3"


class GitHub(PullRequests):
    """Implements `Forge`."""

    def __init__(self, settings: Settings, steady: Callable[[], int], wall: Callable[[], float]) -> None:
        super().__init__(Calls(settings, base(settings.url), _headers, steady, wall), settings.project, exists=422)
        self._login: str | None = None

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

    def _is_ours(self, author: Mapping[str, Any], login: str) -> bool:
        # A token of an app, as in GitHub Actions, cannot ask for its user; users cannot be of the type Bot.
        return bool(author.get("login") == login if login else author.get("type") == "Bot")


def _headers(token: str) -> Mapping[str, str]:
    return {"Authorization": f"Bearer {token}", "X-GitHub-Api-Version": "2022-11-28"}
