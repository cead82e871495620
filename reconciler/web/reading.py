"""What readers may ask, for dashboards and CI. Read-only, needs the token.

GET /v1/revisions: the document of `reconcile get revisions -o json`. GET /v1/commits/SHA: what became of a commit, as `reconcile wait -o json`.

The token is a file of the state directory (`read.token`, mode 0600): a user who can read it can read the store anyway. It is sent
in clear, so a listener on a network needs a TLS proxy. `serving.py` adds the route to the push listener.
"""

import asyncio
import hmac
from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from reconciler.forge.protocol import COMMIT
from reconciler.shell.report.last_decision import revisions_json
from reconciler.shell.store.directory import StoreError

PATH = "/v1/revisions"
COMMIT_PATH = "/v1/commits/{commit}"

Last = Callable[[], dict[str, Any] | None]
"""Returns the stored last decision; None before the first one. May block; raises StoreError."""

Commit = Callable[[str], dict[str, Any]]
"""Returns what became of a commit. May block; raises StoreError."""


def read_routes(last: Last, commit: Commit, token: Callable[[], str], slow: float) -> list[Route]:
    """The routes.

    Args:
        last: returns the decision to show.
        commit: returns what became of a commit.
        token: returns the token that a reader must send; may block, raises StoreError.
        slow: delay of a refusal in seconds, so that guessing is slow.
    """

    async def answered(request: Request, read: Callable[[], dict[str, Any] | None]) -> JSONResponse:
        """The answer to a reader: the document that `read` returns on a thread, if the token is right."""
        kind, _, sent = request.headers.get("authorization", "").partition(" ")
        try:
            expected = await asyncio.to_thread(token)
            if kind.lower() != "bearer" or not hmac.compare_digest(sent.strip().encode(), expected.encode()):
                await asyncio.sleep(slow)
                return JSONResponse({"message": "refused"}, status_code=401, headers={"www-authenticate": "Bearer"})
            document = await asyncio.to_thread(read)
        except StoreError:
            return JSONResponse({"message": "the state directory cannot be read now; try again"}, status_code=503)
        if document is None:
            return JSONResponse({"message": "there is no decision yet; try again"}, status_code=503)
        return JSONResponse(document, headers={"cache-control": "no-store"})

    async def revisions(request: Request) -> JSONResponse:
        def read() -> dict[str, Any] | None:
            stored = last()
            return None if stored is None else revisions_json(stored)

        return await answered(request, read)

    async def of_commit(request: Request) -> JSONResponse:
        number = request.path_params["commit"].lower()
        if not COMMIT.fullmatch(number):
            message = "the path ends with the whole number of a commit, 40 or 64 hex digits"
            return JSONResponse({"message": message}, status_code=400)
        return await answered(request, lambda: commit(number))

    return [Route(PATH, revisions, methods=["GET"]), Route(COMMIT_PATH, of_commit, methods=["GET"])]
