"""GET /v1/revisions: what `reconcile get revisions -o json` shows, for dashboards and CI. Read-only, and only with the token.

The token is a file of the state directory (`read.token`, mode 0600): who may read that may read the store anyway. It goes over the
wire as it is, so a listener that others reach over a network belongs behind something that encrypts. Routes of the push listener.
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
"""The last decision as it is stored, None before the first. May block; raises StoreError."""


def read_routes(last: Last, token: Callable[[], str], slow: float) -> list[Route]:
    """The routes.

    Args:
        last: where the answers come from.
        token: what a reader must show; may block, raises StoreError.
        slow: seconds that a refused reader waits for its answer, so that guessing is slow.
    """

    async def revisions(request: Request) -> JSONResponse:
        kind, _, shown = request.headers.get("authorization", "").partition(" ")
        try:
            wanted = await asyncio.to_thread(token)
            if kind.lower() != "bearer" or not hmac.compare_digest(shown.strip().encode(), wanted.encode()):
                await asyncio.sleep(slow)
                return JSONResponse({"message": "refused"}, status_code=401, headers={"www-authenticate": "Bearer"})
            stored = await asyncio.to_thread(last)
        except StoreError:
            return JSONResponse({"message": "the state directory cannot be read just now"}, status_code=503)
        if stored is None:
            return JSONResponse({"message": "nothing has been decided yet"}, status_code=503)
        return JSONResponse(revisions_json(stored), headers={"cache-control": "no-store"})

    return [Route(PATH, revisions, methods=["GET"])]
