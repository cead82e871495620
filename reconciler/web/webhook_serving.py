"""The webhook listener, open as the Instance in force declares it. Run by `wire.py` beside the loop.

When it fails, the source is still polled: the listener only makes polls come sooner.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from manifests.values.desired import WebhookListener
from providers.errors import ProviderError
from providers.lib.secrets import resolve
from reconciler.shell.webhook import Webhook
from reconciler.web.keep_open import keep_open, run_until_moved
from reconciler.web.sockets import open_tcp


async def serve_webhook(webhook: Webhook, note: Callable[[str], None], answered: Callable[[str], None]) -> None:
    """Listen until cancelled. `note` reports failures; `answered` gets the result of every request."""
    listen = partial(_listen, webhook, note, answered)
    try:
        await keep_open("webhooks cannot be received", webhook.moved, lambda: webhook.listener, listen, note)
    finally:
        webhook.close()


async def _listen(
    webhook: Webhook, note: Callable[[str], None], answered: Callable[[str], None], listener: WebhookListener
) -> str:
    """Listen until the listener of the Instance changes. Returns and raises as `keep_open` expects."""
    # Imported only here: the server is an extra, and costs memory.
    from reconciler.web.delivery import Wanted  # noqa: PLC0415
    from reconciler.web.server import make_server  # noqa: PLC0415
    from reconciler.web.webhook import webhook_app  # noqa: PLC0415

    with open_tcp("source.webhook", *listener.listen) as opened:
        thread = ThreadPoolExecutor(1, thread_name_prefix="webhook")
        try:
            app = webhook_app(
                webhook,
                thread,
                _secret(listener, note),
                Wanted(listener.ref, listener.tags),
                listener.provider,
                answered,
            )
            return await run_until_moved(make_server(app), [opened], webhook.moved)
        finally:
            thread.shutdown(wait=False, cancel_futures=True)


def _secret(listener: WebhookListener, note: Callable[[str], None]) -> Callable[[], str]:
    """Reads the secret at each use, so that a changed one counts at once; a problem is reported once, until it changes."""
    reported: list[str] = []

    def read() -> str:
        try:
            secret = resolve(listener.secret, "source.webhook.secret of the Instance").reveal()
        except ProviderError as error:
            if reported != [str(error)]:
                reported[:] = [str(error)]
                note(f"webhooks are refused: {error}")
            raise
        reported.clear()
        return secret

    return read
