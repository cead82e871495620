"""HTTP calls to a management API, with errors sorted by what the caller may do next. The only module that imports httpx.

Used by providers whose other side speaks JSON over HTTP. There is no retry here. When a server answers 429 or 503 with
Retry-After, every call until then fails at once and says how much time is left. Redirects are not followed and proxies of the
environment are not used: the settings say where the API is.
"""

import json
import re
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from threading import Lock

import httpx

from manifests.values.desired import SECOND
from providers.errors import OutcomeUnknown, ProviderError, Rejected, Unreachable
from providers.lib.secrets import Secret

MAX_ANSWER = 256 * 1024 * 1024
"""Octets of one answer, which is about a million record sets. A longer one is refused, so that no server can fill the memory."""

MAX_PATIENCE = 3600
"""Seconds: a longer Retry-After counts as this, so that a mistake of the server does not stop us for days."""

WHOLE = 5
"""A whole answer may take this many times the time-out of one wait."""

HEADER = re.compile(r"[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?")
"""Valid header values (RFC 9110 section 5.5), without octets beyond ASCII."""

_NEXT_PAGE = re.compile(r';\s*rel="?next"?(?:[\s;,]|$)', re.IGNORECASE)

_NO_CONNECTION = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, UnicodeError, OverflowError)
"""Errors before anything is sent. The last two come from the standard library for hosts such as `a..b` and for ports beyond 65535."""

SHOWN = 300
"""Characters of the server's own text in a message."""


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer that the caller judges: its status and its JSON (None without a body, or when the body is not JSON).

    `more` says that the server has another page of the list (`Link` with `rel="next"`, RFC 8288).
    """

    status: int
    body: object
    more: bool = False

    @property
    def error_text(self) -> str:
        """The server's own error message, shortened: the texts of `error`, `message` and `errors`."""
        if not isinstance(self.body, Mapping):
            return ""
        errors = self.body.get("errors")
        parts = [self.body.get("error"), self.body.get("message"), *(errors if isinstance(errors, list) else [])]
        return "; ".join(str(part) for part in parts if part)[:SHOWN]


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer that is not judged: its status, its headers in lower case, and its octets."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Refused(Rejected):
    """The server refuses the credentials: with 401 the token, with 403 what was asked for."""

    def __init__(self, target: str, cause: str, next_step: str, status: int) -> None:
        super().__init__(target, cause, next_step, whole=True)
        self.status = status


class API:
    """One management API at a base URL.

    Args:
        url: base URL without a slash at its end.
        timeout: longest wait for a connection and for each piece of an answer, in ns; a whole call takes `WHOLE` times that.
        steady: steady clock in ns.
        wall: seconds since 1970, for a Retry-After with a date.
        ca_file: certificates to trust instead of the system's; empty = the system's.
        transport: for tests; None = a socket.
        max_answer: octets of one answer.
        json_answers: an answer with status 200 that is not JSON is no answer.
        credentials: the next step when the server refuses them.
    """

    def __init__(
        self,
        url: str,
        timeout: int,
        steady: Callable[[], int],
        wall: Callable[[], float],
        ca_file: str = "",
        transport: httpx.BaseTransport | None = None,
        *,
        max_answer: int = MAX_ANSWER,
        json_answers: bool = True,
        credentials: str = "check the provider's key and its permissions on the server",
    ) -> None:
        self._url = url
        self._max_answer, self._json_answers, self._credentials = max_answer, json_answers, credentials
        self._timeout = timeout
        self._steady = steady
        self._wall = wall
        self._ca_file = ca_file
        self._transport = transport
        self._client: httpx.Client | None = None
        self._lock = Lock()
        self._not_before = 0

    def read(self, target: str, path: str, headers: Mapping[str, Secret]) -> Reply:
        """GET. Raises `Unreachable` without a usable answer, or `Rejected` (401, 403)."""
        return self._call("GET", target, path, headers, None)

    def write(self, target: str, method: str, path: str, headers: Mapping[str, Secret], body: object) -> Reply:
        """Send JSON with PATCH, POST, PUT or DELETE. A `body` of bytes is JSON already.

        Raises:
            Unreachable: it was not sent, or the server did not process it (429, 503).
            OutcomeUnknown: it was sent and there is no answer, or the server failed while processing it (other 5xx).
            Rejected: the server refuses the credentials (401, 403).
        """
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self._call(method, target, path, headers, content)

    def ask(self, target: str, method: str, path: str, headers: Mapping[str, Secret], accept: str) -> Answer:
        """GET or HEAD, for a caller that reads headers and refusals itself, as those of a registry's login.

        Raises:
            Unreachable: no connection, no whole answer, a failure of the server (5xx), or it asks to wait (429, 503).
            Rejected: a redirect.
        """
        self._check_patience(target)
        sent = {name: _header(target, name, secret) for name, secret in headers.items()}
        sent |= {"Accept": accept, "Accept-Encoding": "identity"}
        try:
            status, answer_headers, answer = self._exchange(target, method, path, sent, None)
        except _NO_CONNECTION as error:
            raise Unreachable(target, f"no connection to {self._url}: {_text(error)}") from None
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
            raise Unreachable(target, f"no usable answer from {self._url}: {_text(error)}") from None
        if status not in (401, 403):
            self._judged(target, False, status if status != 200 else 204, answer_headers, answer)
        return Answer(status, {name.lower(): value for name, value in answer_headers.items()}, answer)

    def close(self) -> None:
        """Close connections. May be called twice, and the API used again."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    def _call(self, method: str, target: str, path: str, headers: Mapping[str, Secret], content: bytes | None) -> Reply:
        self._check_patience(target)
        sent = {name: _header(target, name, secret) for name, secret in headers.items()}
        sent |= {"Accept": "application/json", "Accept-Encoding": "identity"}
        if content is not None:
            sent["Content-Type"] = "application/json"
        try:
            status, answer_headers, answer = self._exchange(target, method, path, sent, content)
        except _NO_CONNECTION as error:
            raise Unreachable(target, f"no connection to {self._url}: {_text(error)}") from None
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
            raise self._lost(target, content is not None, _text(error)) from None
        return self._judged(target, content is not None, status, answer_headers, answer)

    def _exchange(
        self, target: str, method: str, path: str, headers: Mapping[str, str], content: bytes | None
    ) -> tuple[int, httpx.Headers, bytes]:
        end = self._steady() + WHOLE * self._timeout
        answer = bytearray()
        with self._session(target).stream(method, self._url + path, headers=headers, content=content) as response:
            if response.headers.get("Content-Encoding", "identity") != "identity":
                # A few octets of it may be gigabytes, all made before the first of them can be counted.
                raise httpx.DecodingError("its answer is compressed, which was not asked for")
            for piece in response.iter_raw():
                answer += piece
                if len(answer) > self._max_answer:
                    raise httpx.ReadError(f"its answer has more than {self._max_answer} octets")
                if self._steady() > end:
                    raise httpx.ReadTimeout(f"its answer was not complete after {WHOLE * self._timeout / SECOND:g} s")
            return response.status_code, response.headers, bytes(answer)

    def _session(self, target: str) -> httpx.Client:
        with self._lock:
            if self._client is None:
                seconds = self._timeout / SECOND
                self._client = httpx.Client(
                    timeout=seconds, trust_env=False, verify=self._trust(target), transport=self._transport
                )
            return self._client

    def _trust(self, target: str) -> ssl.SSLContext | bool:
        if not self._url.startswith("https:"):
            return False  # nothing to verify, and loading the system's certificates takes time
        try:
            return ssl.create_default_context(cafile=self._ca_file or None)
        except (OSError, ssl.SSLError) as error:
            cause = f"cannot use the certificates in {self._ca_file}: {error}"
            raise Rejected(target, cause, "set caFile to a file of PEM certificates", whole=True) from error

    def _check_patience(self, target: str) -> None:
        left = self._not_before - self._steady()
        if left > 0:
            seconds = -(-left // SECOND)
            cause = f"{self._url} asked to wait another {seconds} s"
            raise Unreachable(target, cause, f"retried automatically in {seconds} s", left)

    def _judged(self, target: str, writing: bool, status: int, headers: httpx.Headers, answer: bytes) -> Reply:
        reply = Reply(status, _json(answer), _NEXT_PAGE.search(headers.get("Link", "")) is not None)
        said = f"{self._url} answers {status}{f' ({reply.error_text})' if reply.error_text else ''}"
        if status in (429, 503) or (status == 403 and _over_its_rate(headers)):
            wait = self._patience(headers.get("Retry-After", "")) or self._until_reset(headers)
            self._not_before = max(self._not_before, self._steady() + wait * SECOND)
            asks = f" and asks to wait {wait} s" if wait else ""
            raise Unreachable(target, said + asks, wait=wait * SECOND)
        if status >= 500:
            raise self._lost(target, writing, said)
        if status in (401, 403):
            raise Refused(target, said, self._credentials, status)
        if 300 <= status < 400:
            raise Rejected(target, f"{said}: a redirect", "set url to the final URL", whole=True)
        if status == 200 and reply.body is None and self._json_answers:
            raise self._lost(target, writing, f"{said} without JSON")
        return reply

    def _patience(self, text: str) -> int:
        """Seconds of a Retry-After header: a number, or a date (RFC 9110 section 10.2.3). 0 where there is none."""
        text = text.strip()
        if text.isascii() and text.isdigit():
            return min(int(text[:9]), MAX_PATIENCE)
        try:
            until = parsedate_to_datetime(text).timestamp()
        except (ValueError, TypeError, OverflowError):
            return 0
        return min(max(0, int(until - self._wall() + 0.999)), MAX_PATIENCE)

    def _until_reset(self, headers: httpx.Headers) -> int:
        """Seconds until a spent rate is filled again: `X-RateLimit-Reset` or `RateLimit-Reset` in Unix time. 0 where it is not spent."""
        for prefix in ("X-RateLimit", "RateLimit"):
            reset = headers.get(f"{prefix}-Reset", "").strip()
            if headers.get(f"{prefix}-Remaining", "").strip() == "0" and reset.isascii() and reset.isdigit():
                return min(max(0, int(int(reset[:11]) - self._wall() + 0.999)), MAX_PATIENCE)
        return 0

    def _lost(self, target: str, writing: bool, cause: str) -> ProviderError:
        if not writing:
            return Unreachable(target, f"no usable answer from {self._url}: {cause}")
        return OutcomeUnknown(target, f"the change was sent to {self._url}, then: {cause}", "retried automatically")


def _over_its_rate(headers: httpx.Headers) -> bool:
    """Whether a refusal (403) is one of rate, as GitHub answers: it names the time to wait, or that nothing of the rate is left."""
    return "Retry-After" in headers or headers.get("X-RateLimit-Remaining", "").strip() == "0"


def _header(target: str, name: str, secret: Secret) -> str:
    """A secret as a header's value. Checked here because an error of httpx would quote it."""
    text = secret.reveal()
    if not HEADER.fullmatch(text):
        cause = f"the secret for {name} has characters that are not allowed in an HTTP header"
        raise Rejected(target, cause, "store it as one line of printable ASCII", whole=True)
    return text


def _json(answer: bytes) -> object:
    try:
        body: object = json.loads(answer) if answer else None
    except (ValueError, RecursionError):
        return None
    return body


def _text(error: Exception) -> str:
    """The error's text. httpx leaves that of time-outs empty."""
    return str(error)[:SHOWN] or type(error).__name__
