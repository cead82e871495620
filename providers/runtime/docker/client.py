"""The line to one engine: a client of the `docker` package per thread, a time-out on every call, errors in our words.

Only this module knows the package: it is imported with the first call, so that checking manifests does not pay for it, and so
that it can be replaced. Requests and answers are the engine's own JSON.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from providers.errors import Conflict, Gone, OutcomeUnknown, ProviderError, Rejected, Unreachable
from providers.runtime.docker.instants import engine_life

if TYPE_CHECKING:
    import requests
    from docker.api.client import APIClient

CONNECT_SECONDS = 3.0
"""How long the engine may take to accept a connection: it listens on this host."""

READ_SECONDS = 20.0
"""How long the engine may be silent in an answer. Below the 30 s that a whole call gets."""

_NOT_SENT = (FileNotFoundError, ConnectionRefusedError, PermissionError, NotADirectoryError)
"""What connecting can fail with: the request was never sent."""

NEWEST_API = "1.45"
"""The newest version of the engine's API that requests here are written for."""

LIBPOD_API = "/v4.0.0/libpod"
"""Podman's own API, at the oldest version that is still served by its newest releases."""

JSON = Any
"""A value out of the engine's JSON."""


class Link:
    """One engine's socket.

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

    def get(self, where: str, target: str, **params: str) -> JSON:
        """A read. Raises Unreachable, Gone (404), Rejected."""
        answer = self.request("GET", where, target, params=params)
        try:
            return answer.json()
        except ValueError as error:
            raise Unreachable(target, f"the engine's answer to {where} is no JSON", "see the engine's log") from error

    def libpod(self, where: str, target: str) -> JSON:
        """A read from Podman's own API. Raises as `get`."""
        with self.request("GET", where, target, api=LIBPOD_API) as answer:
            try:
                return answer.json()
            except ValueError as error:
                raise Unreachable(
                    target, f"the engine's answer to {where} is no JSON", "see the engine's log"
                ) from error

    def post(self, where: str, target: str, body: JSON = None, *, patience: float = 0.0, **params: str) -> JSON:
        """A write; its JSON object, None where the engine answers without one.

        Args:
            where: path below the API version, such as `/containers/ID/start`.
            target: the object, for messages.
            body: JSON to send.
            patience: seconds that the engine may take beyond the usual, for calls that wait for something.
            params: the query.

        Raises:
            Unreachable: nothing was sent. OutcomeUnknown: no whole answer. Gone (404), Conflict (409), Rejected (other
            4xx), ProviderError (the engine tried and failed).
        """
        answer = self.request("POST", where, target, params=params, body=body, patience=patience)
        if not answer.content.lstrip().startswith(b"{"):
            return None
        try:
            return answer.json()
        except ValueError as error:
            raise OutcomeUnknown(target, f"the engine's answer to {where} is cut off", "look again") from error

    def delete(self, where: str, target: str, **params: str) -> None:
        """A removal. Raises as `post`."""
        self.request("DELETE", where, target, params=params, patience=10.0)

    def request(
        self,
        method: str,
        where: str,
        target: str,
        *,
        params: dict[str, str] | None = None,
        body: JSON = None,
        patience: float = 0.0,
        stream: bool = False,
        headers: dict[str, str] | None = None,
        api: str = "",
    ) -> "requests.Response":
        """One request; `api` is another one than Docker's. `stream` leaves the body to the caller, who closes the answer.

        Raises as `post`.
        """
        with self._calling(target, write=method != "GET"):
            if not self._reached:
                # The package leaves a socket open when nobody listens; a connection of our own finds that out first.
                engine_life(self.path, CONNECT_SECONDS)
            client = self._client()
            answer = client.request(
                method,
                f"{client.base_url}{api or f'/v{self._version}'}{where}",
                params=params,
                json=body,
                headers=headers,
                stream=stream,
                timeout=(CONNECT_SECONDS, self._read_seconds + patience),
            )
            self._reached = True
            if answer.status_code >= 400:
                with answer:
                    refusal = _refusal(target, answer)
                if "client version" in refusal.cause:  # another engine has taken the socket over: ask it again
                    self._version = ""
                raise refusal
            return answer

    def version(self) -> JSON:
        """What the engine says of itself. Raises Unreachable."""
        return self.get("/version", self.node)

    def close(self) -> None:
        """Close all connections."""
        with self._lock:
            clients, self._clients = self._clients, []
        for client in clients:
            client.close()

    # --- inside -------------------------------------------------------------------------------------------------

    def _client(self) -> "APIClient":
        """This thread's client; sessions of `requests` are not made for several threads."""
        made: APIClient | None = getattr(self._local, "client", None)
        if made is None:
            from docker.api.client import APIClient as Client  # noqa: PLC0415  (heavy; see the module's docstring)

            # With a version it asks the engine nothing yet.
            made = Client(base_url=f"unix://{self.path}", version=NEWEST_API, timeout=max(1, int(self._read_seconds)))
            made.trust_env = False  # proxies from the environment are not for a local socket
            self._local.client = made
            with self._lock:
                self._clients.append(made)
        if not self._version:
            self._version = self._negotiate(made)
        return made

    def _negotiate(self, client: "APIClient") -> str:
        """The newest API version that both sides speak."""
        wait = (CONNECT_SECONDS, self._read_seconds)
        with client.get(f"{client.base_url}/version", timeout=wait) as answer:
            theirs = str(answer.json()["ApiVersion"])
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
            raise self._late(write)(target, cause, "see whether the engine hangs: its log says on what") from error
        except (requests.exceptions.RequestException, DockerException, OSError, ValueError, KeyError) as error:
            self._reached = False
            root = _os_error(error)
            # Without an API version the failure is of the very first question, which changes nothing.
            unsent = isinstance(root, _NOT_SENT) or not self._version
            raise self._failed(target, root or error, sent=write and not unsent) from error

    def _late(self, write: bool) -> type[Unreachable | OutcomeUnknown]:
        return OutcomeUnknown if write and self._version else Unreachable

    def _failed(self, target: str, error: BaseException, *, sent: bool) -> ProviderError:
        if isinstance(error, FileNotFoundError | NotADirectoryError):
            cause, step = f"there is no engine at {self.path}", "start the engine, or correct the provider's socket"
        elif isinstance(error, ConnectionRefusedError):
            cause, step = f"nobody listens at {self.path}", "start the engine"
        elif isinstance(error, PermissionError):
            cause, step = f"may not use {self.path}", "run as root, or as a user of the socket's group"
        else:
            text = getattr(error, "strerror", None) or str(error) or type(error).__name__
            cause, step = f"the connection to the engine at {self.path} broke: {text[:300]}", "look again"
        return OutcomeUnknown(target, cause, step) if sent else Unreachable(target, cause, step)


def _os_error(error: BaseException) -> OSError | None:
    """The operating system's word inside an error of a library, if there is one."""
    seen: list[BaseException] = [error]
    for _ in range(12):
        if not seen:
            return None
        one = seen.pop()
        if isinstance(one, OSError) and one.errno:
            return one
        inner = [*one.args, getattr(one, "reason", None), one.__cause__, one.__context__]
        seen += [each for each in inner if isinstance(each, BaseException)]
    return None


def _refusal(target: str, answer: "requests.Response") -> ProviderError:
    """The engine's refusal: what it says, and what may be done next."""
    try:
        text = str(answer.json().get("message") or answer.json().get("cause") or "")
    except (ValueError, AttributeError):
        text = ""
    cause = (text or answer.reason or f"status {answer.status_code}").strip().replace("\n", " ")[:600]
    kind = answer.status_code
    if kind == 404:
        return Gone(target, cause, "look again")
    if kind == 409:
        return Conflict(target, cause, "look again")
    return Rejected(target, cause, hint(cause)) if kind < 500 else ProviderError(target, cause, hint(cause))


_HINTS: tuple[tuple[str, str], ...] = (
    ("bind source path does not exist", "create that directory on the node, or name another one"),
    ("port is already allocated", "stop what uses the port, or declare another hostPort"),
    ("address already in use", "stop what uses the port, or declare another hostPort"),
    ("cannot assign requested address", "the hostIP must be an address of the node"),
    ("executable file not found", "correct the command: the image has no such program"),
    ("no such file or directory", "correct the command or the path: the image has no such file"),
    ("permission denied", "see whether the file may be run, by the user that the manifest names"),
    ("unable to find user", "name a user by number, or one that the image has"),
    ("is ambiguous", "remove all networks of that name but one: docker network ls, docker network rm ID"),
    ("log driver", "name a logging driver that the engine has, with options it knows"),
    ("logger", "name a logging driver that the engine has, with options it knows"),
    ("invalid capability", "correct securityContext.capabilities"),
    ("no space left", "make room on the node's disk"),
)


def hint(cause: str) -> str:
    """What a person can do about an engine's words; empty where they say it all."""
    lowered = cause.lower()
    return next((step for words, step in _HINTS if words in lowered), "")


def is_gone(act: Callable[[], JSON]) -> bool:
    """Do something to an object that may be gone by now; whether it was. Raises what else `act` raises."""
    try:
        act()
    except Gone:
        return True
    return False
