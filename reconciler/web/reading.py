"""GET /v1/revisions: the document of `reconcile get revisions -o json`, for dashboards and CI. Read-only, needs the token.

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

from reconciler.shell.report.last_decision import revisions_json
from reconciler.shell.store.directory import StoreError

PATH = "/v1/revisions"

Last = Callable[[], dict[str, Any] | None]
"""Returns the stored last decision; None before the first one. May block; raises StoreError."""


def read_routes(last: Last, token: Callable[[], str], slow: float) -> list[Route]:
    """The routes.

    Args:
        last: returns the decision to show.
        token: returns the token that a reader must send; may block, raises StoreError.
        slow: delay of a refusal in seconds, so that guessing is slow.
    """

    async def revisions(request: Request) -> JSONResponse:
        kind, _, sent = request.headers.get("authorization", "").partition(" ")
        try:
            expected = await asyncio.to_thread(token)
            if kind.lower() != "bearer" or not hmac.compare_digest(sent.strip().encode(), expected.encode()):
                await asyncio.sleep(slow)
                return JSONResponse({"message": "refused"}, status_code=401, headers={"www-authenticate": "Bearer"})
            stored = await asyncio.to_thread(last)
        except StoreError:
            return JSONResponse({"message": "the state directory cannot be read now; try again"}, status_code=503)
        if stored is None:
            return JSONResponse({"message": "there is no decision yet; try again"}, status_code=503)
        return JSONResponse(revisions_json(stored), headers={"cache-control": "no-store"})

    return [Route(PATH, revisions, methods=["GET"])]
