"""The calls of an API of a forge: the token, pages of lists with a bound, and answers of an unexpected shape. Used by the three clients.

The address, the token's place and the certificates are of local documents. Redirects are not followed, so the token goes nowhere else.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from manifests.values.desired import SECOND
from manifests.values.notices import Forge as Settings
from providers.errors import ProviderError, Rejected, Unreachable
from providers.lib.http import API, Reply
from providers.lib.secrets import Secret, resolve
from providers.lib.shapes import expected_shape

TIMEOUT = 10 * SECOND
"""Longest wait (ns) for a connection and for each piece of an answer."""

MAX_ANSWER = 16 * 1024 * 1024
"""Octets of one answer: a page of 100 comments of the longest size is about half of it."""

PER_PAGE = 100
PAGES = 100
"""Pages of a list that are read at most."""

Headers = Mapping[str, Secret]


class Calls:
    """Calls of one API.

    Args:
        settings: the forge of the Instance.
        base: URL of the API.
        headers: the headers that carry a token.
        steady, wall: clocks of the host, in ns and in seconds.
        limit: how many items a page may have.
    """

    def __init__(
        self,
        settings: Settings,
        base: str,
        headers: Callable[[str], Mapping[str, str]],
        steady: Callable[[], int],
        wall: Callable[[], float],
        limit: str = "per_page",
    ) -> None:
        self.target = f"forge {settings.project}"
        self._token = settings.token
        self._headers, self._limit, self._base = headers, limit, base
        self._api = API(
            base,
            TIMEOUT,
            steady,
            wall,
            settings.ca_file,
            max_answer=MAX_ANSWER,
            credentials="check the token of the forge and its permissions",
        )

    def _secret_headers(self) -> Headers:
        token = resolve(self._token, self.target).reveal()
        return {name: Secret(value) for name, value in self._headers(token).items()}

    def get(self, path: str) -> Reply:
        """One answer, whatever its status is below 500 and not 401 or 403."""
        return self._api.read(self.target, path, self._secret_headers())

    def send(self, method: str, path: str, body: Mapping[str, object], fine: tuple[int, ...] = (200, 201)) -> Reply:
        """Send JSON. Raises Rejected for another status than the fine ones."""
        reply = self._api.write(self.target, method, path, self._secret_headers(), body)
        if reply.status not in fine:
            raise self.refused(reply, path)
        return reply

    def refused(self, reply: Reply, path: str) -> ProviderError:
        """The error of an answer that refuses."""
        said = f" ({reply.error_text})" if reply.error_text else ""
        cause = f"{self._base} answers {reply.status}{said} for {path.partition('?')[0]}"
        if reply.status == 404:
            return Rejected(self.target, cause, "check project, and that the token may use it", whole=True)
        return Rejected(self.target, cause, "check forge in the Instance")

    def pages(self, path: str) -> Iterator[Mapping[str, Any]]:
        """The items of a list. The forge says whether there is another page, and this program makes its address.

        Raises:
            Unreachable: there are more pages than can be read: a part of a list must not count as all of it.
        """
        join = "&" if "?" in path else "?"
        for page in range(1, PAGES + 1):
            reply = self.get(f"{path}{join}{self._limit}={PER_PAGE}&page={page}")
            if reply.status != 200:
                raise self.refused(reply, path)
            if not isinstance(reply.body, list):
                raise Unreachable(self.target, f"the answer of {self._base} is no list", "check url in the Instance")
            yield from reply.body
            if not reply.more:
                return
        raise Unreachable(self.target, f"the list {path.partition('?')[0]} has more than {PAGES} pages")

    def shaped(self) -> Any:
        """Around code that reads answers."""
        return expected_shape(self.target, self._base)

    def close(self) -> None:
        """Close connections."""
        self._api.close()
