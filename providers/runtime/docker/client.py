"""The connection to one engine: a client of the `docker` package per thread, a time-out on every call, errors as `ProviderError`.

Only this module uses the package: it is imported with the first call, so that checking manifests does not pay for it, and so
that it can be replaced. Requests and answers are the engine's own JSON.
"""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from providers.errors import Conflict, Gone, OutcomeUnknown, ProviderError, Rejected, Unreachable
from providers.runtime.docker.daemon import find_daemon

if TYPE_CHECKING:
    import requests
    from docker.api.client import APIClient

CONNECT_SECONDS = 3.0
"""How long the engine may take to accept a connection: it listens on this host."""

READ_SECONDS = 20.0
"""How long the engine may be silent in an answer: less than the deadline of a whole call, 30 s."""

MAX_ANSWER = 64 * 1024 * 1024
"""Octets of one answer; a list of 10,000 containers has about 15 million. A longer one is refused before it is held in memory."""

MAX_REFUSAL = 64 * 1024
"""Octets that are read of an answer that refuses a request."""

ANSWER_TIMES = 2
"""A whole answer may take this many times the time that the engine may be silent."""

_CHUNK = 64 * 1024

_NOT_SENT = (FileNotFoundError, ConnectionRefusedError, PermissionError, NotADirectoryError)
"""Errors of connecting: the request was never sent."""

NEWEST_API = "1.45"
"""The newest version of the engine's API that the requests here are written for."""

LIST_TRIES = 4
"""How often a list of containers is read while removals spoil it: one that does not end is a fault of the engine."""

_REMOVED_MEANWHILE = "does not exist in database"
"""Podman fails a whole list when one container of it is removed meanwhile: containers/podman issue 10120, seen with 4.3.1."""

LIBPOD_API = "/v4.0.0/libpod"
"""Podman's own API, at the oldest version that its newest releases still serve."""

NO_INIT = "install the package catatonit on the node, or set init_path in containers.conf, or leave out init"
"""The next step where Podman's init process is missing."""

NETWORK_NAMESPACES = (
    "check that /run/netns is a directory on the node in which Podman's service may write (mkdir -p /run/netns), "
    "then restart that service"
)
"""The next step where Podman cannot keep the network namespace of a container: it mounts each one in a file there."""

JSON = Any
"""A value of the engine's JSON."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer of the engine."""

    content: bytes

    def json(self) -> JSON:
        """Its JSON. Raises ValueError."""
        return json.loads(self.content)


class EngineClient:
    """The client of one engine.

    Args:
        node: the provider's name, for messages.
        path: absolute path of the unix socket.
        read_seconds: how long the engine may be silent in an answer.
    """

    def __init__(self, node: str, path: str, read_seconds: float = READ_SECONDS) -> None:
        self.node, self.path = node, path
        self._read_seconds = read_seconds
        self._local = threading.local()
        self._lock = threading.Lock()
        self._clients: list[APIClient] = []
        self._reached = False
        self._version = ""

    def get(self, path: str, target: str, **params: str) -> JSON:
        """A read. Raises Unreachable, Gone (404), Rejected."""
        answer = self.request("GET", path, target, params=params)
        try:
            return answer.json()
        except ValueError as error:
            raise Unreachable(target, f"the engine's answer to {path} is not JSON", "check the engine's log") from error

    def containers(self, target: str, **params: str) -> JSON:
        """The list of containers, those that do not run included. Raises as `get`."""
        for _ in range(LIST_TRIES - 1):
            try:
                return self.get("/containers/json", target, all="1", **params)
            except ProviderError as error:
                if _REMOVED_MEANWHILE not in error.cause:
                    raise
        return self.get("/containers/json", target, all="1", **params)

    def libpod(self, path: str, target: str) -> JSON:
        """A read from Podman's own API. Raises as `get`."""
        answer = self.request("GET", path, target, api=LIBPOD_API)
        try:
            return answer.json()
        except ValueError as error:
            raise Unreachable(target, f"the engine's answer to {path} is not JSON", "check the engine's log") from error

    def post(self, path: str, target: str, body: JSON = None, *, patience: float = 0.0, **params: str) -> JSON:
        """A write; its JSON object, or None when the answer has none.

        Args:
            path: below the API version, such as `/containers/ID/start`.
            target: the object, for messages.
            body: JSON to send.
            patience: seconds that the engine may take in addition, for calls that wait for something.
            params: the query.

        Raises:
            Unreachable: nothing was sent. OutcomeUnknown: no complete answer. Gone (404), Conflict (409), Rejected (other
            4xx), ProviderError (the engine tried and failed).
        """
        answer = self.request("POST", path, target, params=params, body=body, patience=patience)
        if not answer.content.lstrip().startswith(b"{"):
            return None
        try:
            return answer.json()
        except ValueError as error:
            raise OutcomeUnknown(
                target, f"the engine's answer to {path} is incomplete", "retried automatically"
            ) from error

    def delete(self, path: str, target: str, **params: str) -> None:
        """A removal. Raises as `post`."""
        self.request("DELETE", path, target, params=params, patience=10.0)

    def request(
        self,
        method: str,
        path: str,
        target: str,
        *,
        params: dict[str, str] | None = None,
        body: JSON = None,
        patience: float = 0.0,
        api: str = "",
    ) -> Answer:
        """One request and its whole answer. `api` selects another API than Docker's.

        Keyword arguments are those of an HTTP request, so there are many. Raises as `post`.
        """
        end = time.monotonic() + ANSWER_TIMES * self._read_seconds + patience
        with (
            self._calling(target, write=method != "GET"),
            self.stream(method, path, target, params=params, body=body, patience=patience, api=api) as answer,
        ):
            return Answer(_whole(answer, end))

    def stream(
        self,
        method: str,
        path: str,
        target: str,
        *,
        params: dict[str, str] | None = None,
        body: JSON = None,
        patience: float = 0.0,
        headers: dict[str, str] | None = None,
        api: str = "",
    ) -> "requests.Response":
        """As `request`, but the caller reads the body, with a limit of its own, and closes the answer."""
        with self._calling(target, write=method != "GET"):
            if not self._reached:
                # The package leaks a socket when no engine listens; a separate connection finds that out first.
                find_daemon(self.path, CONNECT_SECONDS)
            client = self._client()
            answer = client.request(
                method,
                f"{client.base_url}{api or f'/v{self._version}'}{path}",
                params=params,
                json=body,
                headers=headers,
                stream=True,
                timeout=(CONNECT_SECONDS, self._read_seconds + patience),
            )
            self._reached = True
            if answer.status_code >= 400:
                with answer:
                    refusal = _refusal(target, answer)
                if "client version" in refusal.cause:  # another engine serves the socket now: negotiate again
                    self._version = ""
                raise refusal
            return answer

    def version(self) -> JSON:
        """The engine's answer about its version. Raises Unreachable."""
        return self.get("/version", self.node)

    def close(self) -> None:
        """Close all connections."""
        with self._lock:
            clients, self._clients = self._clients, []
        for client in clients:
            client.close()

    # --- inside -------------------------------------------------------------------------------------------------

    def _client(self) -> "APIClient":
        """This thread's client; a session of `requests` must not be shared by threads."""
        client: APIClient | None = getattr(self._local, "client", None)
        if client is None:
            from docker.api.client import APIClient as Client  # noqa: PLC0415  (slow to import; see the module's docstring)

            # With a version given it does not ask the engine yet.
            client = Client(base_url=f"unix://{self.path}", version=NEWEST_API, timeout=max(1, int(self._read_seconds)))
            client.trust_env = False  # proxies of the environment do not apply to a local socket
            client.headers["Accept-Encoding"] = "identity"  # a small compressed answer may be a very long one
            self._local.client = client
            with self._lock:
                self._clients.append(client)
        if not self._version:
            self._version = self._negotiate(client)
        return client

    def _negotiate(self, client: "APIClient") -> str:
        """The newest API version that both sides support."""
        wait = (CONNECT_SECONDS, self._read_seconds)
        end = time.monotonic() + ANSWER_TIMES * self._read_seconds
        with client.get(f"{client.base_url}/version", timeout=wait, stream=True) as answer:
            theirs = str(json.loads(_whole(answer, end))["ApiVersion"])
        return min(theirs, NEWEST_API, key=lambda text: tuple(int(part) for part in text.split(".")))

    @contextmanager
    def _calling(self, target: str, *, write: bool) -> Iterator[None]:
        import requests  # noqa: PLC0415
        from docker.errors import DockerException  # noqa: PLC0415

        try:
            yield
        except ProviderError:
            raise
        except requests.exceptions.ReadTimeout as error:
            cause = f"the engine at {self.path} has not answered for {self._read_seconds:g} s or more"
            raise self._timed_out(write)(target, cause, "check in the engine's log whether it hangs") from error
        except (requests.exceptions.RequestException, DockerException, OSError, ValueError, KeyError) as error:
            self._reached = False
            root = _os_error(error)
            # Without an API version the first request failed, which changes nothing.
            unsent = isinstance(root, _NOT_SENT) or not self._version
            raise self._failed(target, root or error, sent=write and not unsent) from error

    def _timed_out(self, write: bool) -> type[Unreachable | OutcomeUnknown]:
        return OutcomeUnknown if write and self._version else Unreachable

    def _failed(self, target: str, error: BaseException, *, sent: bool) -> ProviderError:
        if isinstance(error, FileNotFoundError | NotADirectoryError):
            cause, step = f"the socket {self.path} does not exist", "start the engine, or correct the provider's socket"
        elif isinstance(error, ConnectionRefusedError):
            cause, step = f"no engine listens at {self.path}", "start the engine"
        elif isinstance(error, PermissionError):
            cause, step = f"no permission to use {self.path}", "run as root, or as a user of the socket's group"
        else:
            text = getattr(error, "strerror", None) or str(error) or type(error).__name__
            cause, step = f"the connection to the engine at {self.path} broke: {text[:300]}", "retried automatically"
        return OutcomeUnknown(target, cause, step) if sent else Unreachable(target, cause, step)


def _whole(answer: "requests.Response", end: float, limit: int = MAX_ANSWER) -> bytes:
    """The body of an answer. Raises OSError when it is too long, compressed, or not complete at `end` (monotonic seconds)."""
    if answer.headers.get("Content-Encoding", "identity") != "identity":
        raise OSError("the engine's answer is compressed, which was not asked for")
    body = bytearray()
    # What has arrived, not whole pieces: a server that sends an octet now and then must not hold a read for ever.
    while piece := answer.raw.read1(_CHUNK):
        body += piece
        if len(body) > limit:
            raise OSError(f"the engine's answer has more than {limit} octets")
        if time.monotonic() > end:
            raise OSError("the engine's answer was not complete in time")
    return bytes(body)


def _os_error(error: BaseException) -> OSError | None:
    """The operating system's error inside an error of a library, if there is one."""
    errors: list[BaseException] = [error]
    for _ in range(12):
        if not errors:
            return None
        current = errors.pop()
        if isinstance(current, OSError) and current.errno:
            return current
        inner = [*current.args, getattr(current, "reason", None), current.__cause__, current.__context__]
        errors += [candidate for candidate in inner if isinstance(candidate, BaseException)]
    return None


def _refusal(target: str, answer: "requests.Response") -> ProviderError:
    """The engine's refusal: its message, and the next step."""
    try:
        said = json.loads(_whole(answer, time.monotonic() + READ_SECONDS, MAX_REFUSAL))
        text = str(said.get("message") or said.get("cause") or "")
    except (ValueError, AttributeError, OSError):  # the errors of `requests` are OSErrors
        text = ""
    cause = (text or answer.reason or f"status {answer.status_code}").strip().replace("\n", " ")[:600]
    kind = answer.status_code
    if kind == 404:
        return Gone(target, cause, "retried automatically")
    if kind == 409:
        return Conflict(target, cause, "retried automatically")
    return Rejected(target, cause, hint(cause)) if kind < 500 else ProviderError(target, cause, hint(cause))


_HINTS: tuple[tuple[str, str], ...] = (
    ("container-init binary not found", NO_INIT),
    ("catatonit", NO_INIT),
    ("network namespace", NETWORK_NAMESPACES),
    ("/netns/", NETWORK_NAMESPACES),
    ("/run/netns", NETWORK_NAMESPACES),
    ("bind source path does not exist", "create that directory on the node, or mount another one"),
    ("port is already allocated", "stop what uses the port, or declare another hostPort"),
    ("address already in use", "stop what uses the port, or declare another hostPort"),
    ("cannot assign requested address", "set hostIP to an address of the node"),
    ("executable file not found", "correct the command: the image has no such program"),
    ("no such file or directory", "correct the command or the path: the image has no such file"),
    ("permission denied", "check whether the user of the manifest may execute the file"),
    ("unable to find user", "set a numeric user, or one that the image has"),
    ("is ambiguous", "remove all networks of that name but one: docker network ls, docker network rm ID"),
    ("log driver", "set a logging driver of the engine, with its options"),
    ("logger", "set a logging driver of the engine, with its options"),
    ("invalid capability", "correct securityContext.capabilities"),
    ("no space left", "free space on the node's disk"),
)


def hint(cause: str) -> str:
    """The next step for an engine's message; empty where the message says it."""
    lowered = cause.lower()
    return next((step for phrase, step in _HINTS if phrase in lowered), "")


def is_gone(act: Callable[[], JSON]) -> bool:
    """Act on an object that may not exist any more; whether it was gone. Raises all other errors of `act`."""
    try:
        act()
    except Gone:
        return True
    return False
