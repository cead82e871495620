"""The push listener, open as the Instance in force declares it. Run by `wire.py` beside the loop."""

import socket
from collections.abc import Callable, Coroutine
from functools import partial
from time import monotonic_ns, time_ns
from typing import TYPE_CHECKING, Any

from manifests.values.desired import PushListener
from reconciler.shell.pushing.credentials import Credentials
from reconciler.shell.pushing.pushes import Pushing
from reconciler.shell.report.last_decision import last_decision
from reconciler.web.keep_open import keep_open, run_until_moved
from reconciler.web.sockets import open_sockets

if TYPE_CHECKING:
    from reconciler.web.deployments import Receiver


async def serve(
    pushing: Pushing,
    credentials: Credentials,
    note: Callable[[str], None],
    answered: Callable[[str, int], None] | None = None,
    deployments: "Receiver | None" = None,
) -> None:
    """Listen until cancelled. `note` reports failures; `answered` gets the event and the status code of every answer;
    `deployments` takes those.
    """

    def declared() -> PushListener | None:
        credentials.listener = pushing.listener
        return pushing.listener

    def listen(listener: PushListener) -> Coroutine[Any, Any, str]:
        return _listen(listener, pushing, credentials, answered, deployments)

    await keep_open("pushes cannot be received", pushing.moved, declared, listen, note)


async def _listen(
    listener: PushListener,
    pushing: Pushing,
    credentials: Credentials,
    answered: Callable[[str, int], None] | None,
    deployments: "Receiver | None",
) -> str:
    """Listen until the listener of the Instance changes. Returns and raises as `keep_open` expects."""
    # Imported only here: the server is an extra, and costs memory.
    from reconciler.commits.waiting import of_state  # noqa: PLC0415
    from reconciler.shell.report.instants import instants_as_text  # noqa: PLC0415
    from reconciler.web.deployments import deployment_routes  # noqa: PLC0415
    from reconciler.web.push import SLOW_SECONDS, push_app  # noqa: PLC0415
    from reconciler.web.reading import read_routes  # noqa: PLC0415
    from reconciler.web.server import make_server  # noqa: PLC0415

    credentials.token("")  # creates the key, so that an unusable state directory is reported now
    sockets: list[socket.socket] = open_sockets(listener, credentials.directory)
    try:
        credentials.reader()

        def commit(number: str) -> dict[str, Any]:
            document = of_state(credentials.state, number, time_ns()).document()
            shown: dict[str, Any] = instants_as_text(document)
            return shown

        reading = read_routes(partial(last_decision, credentials.state), commit, credentials.reader, SLOW_SECONDS)
        taking = [] if deployments is None else deployment_routes(deployments, monotonic_ns, SLOW_SECONDS)
        server = make_server(push_app(pushing, credentials, others=[*reading, *taking], answered=answered))
        return await run_until_moved(server, sockets, pushing.moved)
    finally:
        for listening in sockets:
            listening.close()
