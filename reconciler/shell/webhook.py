"""What a genuine delivery of a webhook does: it makes the next read of the source come sooner, at most one per PERIOD.

The listener in `reconciler/web/webhook.py` calls it on the event loop's thread; the loop owns it. It keeps no order to be done: the
poll asks the repository itself, so a lost or repeated delivery changes nothing but the time of the next poll.
"""

import asyncio
import secrets
from collections import OrderedDict
from collections.abc import Callable

from manifests.values.desired import Desired, WebhookListener
from reconciler.core.model.source_problem import OBJECT
from reconciler.shell.clock import Clock
from reconciler.shell.store.audit import Event

PERIOD = 2.0
"""Seconds from one read that deliveries ask for to the next one."""

KEPT = 1_024
"""Deliveries that are known again. A forge sends one again within hours, and a busy repository has few hundreds a day."""


class Webhook:
    """The daemon's side of webhooks.

    Args:
        clock: dates events.
        read_soon: makes the next read of the source come at once; gets the reason.
        report: takes the event of a delivery that is accepted.
        period: seconds between two reads that deliveries ask for.

    Attributes:
        listener: of the Instance in force; None for none.
        moved: set when the listener of the Instance changed.
    """

    def __init__(
        self,
        clock: Clock,
        read_soon: Callable[[str], None],
        report: Callable[[Event], None],
        period: float = PERIOD,
    ) -> None:
        self.listener: WebhookListener | None = None
        self.moved = asyncio.Event()
        self._clock, self._read_soon, self._report, self._period = clock, read_soon, report, period
        self._known: OrderedDict[str, str] = OrderedDict()
        self._request = ""
        self._timer: asyncio.TimerHandle | None = None
        self._last: float | None = None

    def set_desired(self, desired: Desired) -> None:
        """Follow the manifests in force."""
        listener = desired.instance.webhook
        if listener != self.listener:
            self.listener = listener
            self.moved.set()

    def known(self, key: str) -> str:
        """The request that this delivery belongs to, when it was accepted before; else empty."""
        return self._known.get(key, "")

    def accept(self, key: str, provider: str, ref: str) -> str:
        """Read the source soon. Returns the id of the request; deliveries that wait for the same read have the same one.

        Args:
            key: what makes the delivery the same one, when it is sent again.
            provider: the kind of forge. ref: the full name of the ref that was pushed; escaped.
        """
        if self._timer is None:
            self._request = secrets.token_hex(8)
            now = self._clock.now()
            message = f"request {self._request}: a push of {ref} was reported, so the source is read soon"
            self._report(Event(now.wall, "webhook", OBJECT, "read the source", provider, "accepted", message))
            time = asyncio.get_running_loop().time()
            wait = 0.0 if self._last is None else max(0.0, self._last + self._period - time)
            self._timer = asyncio.get_running_loop().call_later(wait, self._begin)
        self._known[key] = self._request
        while len(self._known) > KEPT:
            self._known.popitem(last=False)
        return self._request

    def close(self) -> None:
        """Forget a read that is not due yet."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _begin(self) -> None:
        self._timer, self._last = None, asyncio.get_running_loop().time()
        self._read_soon(f"webhook request {self._request}")
