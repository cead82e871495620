"""The port of a channel: sends one notice, and raises what the queue has to know. Implemented by the modules of each type of channel."""

from collections.abc import Callable
from typing import Protocol

from manifests.values.notices import Apprise, Channel, Mail
from reconciler.core.notices.model import Notice


class Sender(Protocol):
    """Sends notices through one channel. Used by one thread at a time."""

    def send(self, notice: Notice) -> None:
        """Send it; return once the other side has taken it.

        Raises:
            Unreachable: it was not taken, and may be later. `wait` is what the other side asked for.
            Rejected: the other side refuses this message, or with `whole` every message.
            OutcomeUnknown: it may have been taken.
        """

    def close(self) -> None:
        """Close connections."""


def make(channel: Channel, instance: str, steady: Callable[[], int], wall: Callable[[], float]) -> Sender:
    """The sender of a channel. It connects with its first message."""
    # Imported here: each type needs packages that cost start-up time.
    if isinstance(channel.via, Mail):
        from reconciler.notify.mail import MailSender  # noqa: PLC0415

        return MailSender(channel.name, channel.via, instance)
    if isinstance(channel.via, Apprise):
        from reconciler.notify.apprise import AppriseSender  # noqa: PLC0415

        return AppriseSender(channel.name, channel.via, instance)
    from reconciler.notify.webhook import WebhookSender  # noqa: PLC0415

    return WebhookSender(channel.name, channel.via, instance, steady, wall)
