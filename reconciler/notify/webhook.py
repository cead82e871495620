"""The channel `webhook`: one POST of JSON, signed. Made by `sender.py`.

The signature is HMAC-SHA256 over the time, a dot and the body, so that a receiver can refuse a message that was changed or is replayed.
"""

import hashlib
import hmac
import json
from collections.abc import Callable
from urllib.parse import urlsplit

from manifests.types.web import call_url, is_loopback
from manifests.values.desired import SECOND
from manifests.values.notices import Webhook
from providers.errors import Rejected, Unreachable
from providers.lib.http import API
from providers.lib.secrets import Secret, resolve
from reconciler.core.notices.model import Notice
from reconciler.notify import text

TIMEOUT = 5 * SECOND
"""Longest wait (ns) for a connection and for each piece of an answer; a whole call takes five times that at most."""

MAX_ANSWER = 64 * 1024

LATER = frozenset({408, 425})
"""Statuses of a request that may be repeated as it is (RFC 9110, RFC 8470), beside those that `API` knows."""

GONE = frozenset({404, 405, 410})
"""Statuses of a wrong address: no message is taken there."""


class WebhookSender:
    """Implements `Sender`."""

    def __init__(
        self, name: str, via: Webhook, instance: str, steady: Callable[[], int], wall: Callable[[], float]
    ) -> None:
        self._target, self._via, self._instance = f"channel {name}", via, instance
        self._steady, self._wall = steady, wall
        self._base, self._api = "", None if via.url_from is not None else self._connect(via.url)

    def send(self, notice: Notice) -> None:
        """Post it. Raises as `Sender` says."""
        api, url = self._api, self._via.url
        if self._via.url_from is not None:
            url = resolve(self._via.url_from, self._target).reveal().strip()
            api = self._checked(url)
        if api is None:
            raise Unreachable(self._target, "it has no address")
        body = json.dumps(text.document(notice, self._instance)).encode()
        headers = {"X-Reconciler-Delivery": Secret(text.delivery(notice, self._instance))}
        if self._via.token is not None:
            token = resolve(self._via.token, self._target).reveal()
            headers["Authorization"] = Secret(f"Bearer {token}")
        if self._via.secret is not None:
            key = resolve(self._via.secret, self._target).reveal()
            at = str(int(self._wall()))
            headers["X-Reconciler-Timestamp"] = Secret(at)
            headers["X-Reconciler-Signature"] = Secret(signature(key, at, body))
        reply = api.write(self._target, "POST", _path(url), headers, body)
        if 200 <= reply.status < 300:
            return
        said = f"{_origin(url)} answers {reply.status}{f' ({reply.error_text})' if reply.error_text else ''}"
        if reply.status in LATER:
            raise Unreachable(self._target, said)
        whole = reply.status in GONE
        raise Rejected(self._target, said, "check the address of the channel", whole=whole)

    def close(self) -> None:
        """Close connections."""
        if self._api is not None:
            self._api.close()

    def _checked(self, url: str) -> API:
        """The connection of an address that is a secret; made again when the secret changes."""
        origin = ""
        try:
            origin = _origin(call_url(url))
        except Exception:  # noqa: BLE001  (its text could hold a part of the secret)
            origin = ""
        if not origin:
            cause = "the secret of urlFrom is not an http or https URL"
            raise Rejected(self._target, cause, "store the whole address there", whole=True)
        plain = origin.startswith("http:") and not is_loopback(urlsplit(url).hostname or "")
        if plain and self._via.token is not None:
            raise Rejected(self._target, "a token would be sent in clear", "use an address with https", whole=True)
        if self._api is None or origin != self._base:
            self.close()
            self._api, self._base = self._connect(url), origin
        return self._api

    def _connect(self, url: str) -> API:
        # Errors name the origin only: the path of a chat's webhook is a secret.
        return API(
            _origin(url),
            TIMEOUT,
            self._steady,
            self._wall,
            self._via.ca_file,
            max_answer=MAX_ANSWER,
            json_answers=False,
            credentials="check the token of the channel",
        )


def signature(key: str, at: str, body: bytes) -> str:
    """The value of `X-Reconciler-Signature`. `at` is the value of `X-Reconciler-Timestamp`: seconds since 1970."""
    digest = hmac.new(key.encode(), at.encode() + b"." + body, hashlib.sha256).hexdigest()
    return f"sha256={digest}"


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def _path(url: str) -> str:
    parts = urlsplit(url)
    return (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
