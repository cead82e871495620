"""The channel `apprise`: any service that Apprise can send to. Needs the extra `notify`. Made by `sender.py`."""

import logging

from manifests.values.notices import Apprise as Settings
from providers.errors import Rejected, Unreachable
from providers.lib.secrets import resolve
from reconciler.core.notices.model import Notice, Phase
from reconciler.notify import text


class AppriseSender:
    """Implements `Sender`."""

    def __init__(self, name: str, via: Settings, instance: str) -> None:
        self._target, self._via, self._instance = f"channel {name}", via, instance

    def send(self, notice: Notice) -> None:
        """Send it. Apprise says only whether a service took it. Raises as `Sender` says."""
        try:
            import apprise  # noqa: PLC0415  (an extra, and slow to import)
        except ImportError:
            cause = "apprise is not installed"
            raise Rejected(self._target, cause, "run pip install 'reconciler-gitops[notify]'", whole=True) from None
        # Its logs hold parts of the URL, which is a secret.
        logging.getLogger("apprise").setLevel(logging.CRITICAL + 1)
        url = resolve(self._via.url, self._target).reveal()
        service = apprise.Apprise()
        if not service.add(url):
            cause = "Apprise does not know the URL of urlFrom"
            raise Rejected(self._target, cause, "store one URL of a service of Apprise there", whole=True)
        kind = apprise.NotifyType.SUCCESS if notice.phase in {Phase.OVER, Phase.APPLIED} else apprise.NotifyType.WARNING
        try:
            taken = service.notify(
                title=text.title(notice, self._instance).replace("@", "@\u200b"),
                body=text.body(notice).replace("@", "@\u200b"),
                notify_type=kind,
                body_format=apprise.NotifyFormat.TEXT,
            )
        except Exception as error:  # noqa: BLE001  (a plugin may raise anything, and its text may hold the URL)
            raise Unreachable(self._target, f"the service of Apprise failed: {type(error).__name__}") from None
        if not taken:
            raise Unreachable(self._target, "the service of Apprise did not take the message")

    def close(self) -> None:
        """Nothing is kept open."""
