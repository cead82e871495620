"""The answer to a pipeline that waits for a commit, from the history of this host or over the readers' API of another one.

Called by `reconcile wait` and by the readers' API. The process that holds the instance writes the history; this module only reads it.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from manifests.values.desired import SECOND
from providers.errors import Rejected, Unreachable
from providers.lib.http import API
from providers.lib.secrets import Secret
from reconciler.commits import history_file
from reconciler.core.notices.history import Fate, Row
from reconciler.exits import Exit

PATH = "/v1/commits/"
"""Of the readers' API; the number of a commit follows."""

SETTLED = 10 * SECOND
"""How long (ns) a commit must have waited for an operator before that is the answer: a hold may be over at the next decision."""

TIMEOUT = 10 * SECOND
"""Longest wait (ns) for a connection, and for each piece of an answer."""

LARGEST = 64 * 1024
"""Octets of an answer."""

UNKNOWN = "unknown"
"""The state of a commit that the host has not fetched."""

EXITS = {
    Fate.APPLIED: Exit.OK,
    Fate.FAILED: Exit.MANUAL,
    Fate.MANUAL: Exit.MANUAL,
    Fate.REFUSED: Exit.SOURCE,
    Fate.SUPERSEDED: Exit.SOURCE,
}


class Answer(NamedTuple):
    """What is known of a commit now.

    `state` is a `Fate` or `UNKNOWN`, `since_wall` since when (ns), `exit` the exit code of a wait that ends with it, None while it may change
    by itself. `newest` is the commit that changed last.
    """

    commit: str
    state: str
    message: str
    exit: Exit | None = None
    since_wall: int | None = None
    review: str = ""
    newest: str = ""

    def document(self) -> dict[str, Any]:
        """As JSON, for the readers' API and for `reconcile wait -o json`."""
        return {
            "commit": self.commit,
            "state": self.state,
            "message": self.message,
            "exit_code": None if self.exit is None else int(self.exit),
            "since_wall": self.since_wall,
            "review": self.review or None,
            "newest": self.newest or None,
        }


def of_state(state: Path, commit: str, wall: int) -> Answer:
    """What the history in a state directory says of a commit at a wall-clock instant (ns). Raises StoreError."""
    rows = history_file.load(state).rows
    newest = rows[-1].commit if rows else ""
    row = next((row for row in rows if row.commit == commit), None)
    if row is None:
        return Answer(commit, UNKNOWN, _unknown(newest), newest=newest)
    return Answer(commit, row.fate.value, row.text, _exit(row, wall), row.at_wall, row.review, newest)


def _exit(row: Row, wall: int) -> Exit | None:
    if row.fate is Fate.MANUAL and wall - row.at_wall < SETTLED:
        return None
    return EXITS.get(row.fate)


def _unknown(newest: str) -> str:
    if not newest:
        return "this host has fetched no commit; next step: check that reconcile --watch runs with manifests of a git repository"
    name = newest[:12]
    return (
        f"this host has not fetched it, its newest commit is {name}; next step: wait for {name} if it contains this one, "
        "else check that this commit is on the branch of the source"
    )


class Remote:
    """The readers' API of a host.

    Args:
        url: address of the push listener, without a path.
        token: gives the readers' token.
        steady: steady clock in ns.
        wall: seconds since 1970.
        ca_file: certificates to trust instead of the system's; empty = the system's.
    """

    def __init__(
        self,
        url: str,
        token: Callable[[], str],
        steady: Callable[[], int],
        wall: Callable[[], float],
        ca_file: str = "",
    ) -> None:
        self._target, self._token = f"reconcile at {url}", token
        self._api = API(
            url,
            TIMEOUT,
            steady,
            wall,
            ca_file,
            max_answer=LARGEST,
            credentials="give the token that the file read.token of the state directory has",
        )

    def ask(self, commit: str) -> Answer:
        """What the host says of a commit.

        Raises:
            Unreachable: there is no answer, or none of this program: ask again.
            Rejected: the token is refused, or nothing is at the address.
        """
        reply = self._api.read(self._target, f"{PATH}{commit}", {"Authorization": Secret(f"Bearer {self._token()}")})
        if reply.status != 200:
            hint = "check --url: it is the address of the push listener (spec.push.tcp)"
            raise Rejected(self._target, f"it answers {reply.status}", hint, whole=True)
        body: Any = reply.body
        try:
            code = body["exit_code"]
            return Answer(
                commit,
                str(body["state"]),
                str(body["message"]),
                None if code is None else Exit(code),
                None,
                str(body["review"] or ""),
                str(body["newest"] or ""),
            )
        except (ValueError, TypeError, LookupError) as error:
            raise Unreachable(self._target, "its answer is not one of reconcile", "check --url") from error

    def close(self) -> None:
        """Close connections."""
        self._api.close()
