"""Makes the notifier of a daemon with real senders, and sends test notices. Called by `wire.py` and by `reconcile notify test`."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from manifests.values.desired import SECOND
from manifests.values.notices import Channel, Topic
from manifests.values.notices import Forge as ForgeSettings
from providers.errors import ProviderError
from reconciler.core.notices.model import Notice, Phase
from reconciler.forge.connect import connect
from reconciler.forge.protocol import Forge
from reconciler.metrics.monitoring import Monitoring
from reconciler.notify.dispatcher import BlockingClock, Dispatcher, Makers, start_thread
from reconciler.notify.notifier import Notifier
from reconciler.notify.sender import Sender, make
from reconciler.notify.store import NoticeStore


def attach(
    monitoring: Monitoring,
    state: Path,
    instance: str,
    clock: BlockingClock,
    note: Callable[[str], None],
    refused: Callable[[], str],
) -> Notifier:
    """The notifier around the monitor of a daemon.

    Args:
        monitoring: gets every tick too, and counts messages.
        state: the state directory, whose lock this process holds.
        instance: id of the instance.
        clock: of the instance.
        note: reports channels that fail and work again; called from any thread.
        refused: the newest commit of a git source, if what is wrong with it is in the commit; else empty.
    """

    def wall() -> float:
        return clock.now().wall / SECOND

    def sender(channel: Channel, instance: str) -> Sender:
        return make(channel, instance, time.monotonic_ns, wall)

    def forge(settings: ForgeSettings) -> Forge:
        return connect(settings, time.monotonic_ns, wall)

    makers = Makers(sender, forge, start_thread, refused)
    dispatcher = Dispatcher(NoticeStore(state, note), instance, clock, makers, note, monitoring.noticed)
    monitoring.waiting = lambda: dispatcher.waiting
    return Notifier(monitoring, dispatcher, clock)


def forge_client(clock: BlockingClock, settings: ForgeSettings) -> Forge:
    """A client of the forge, with clocks of this host and of the instance."""
    return connect(settings, time.monotonic_ns, lambda: clock.now().wall / SECOND)


class Tested(NamedTuple):
    """The result of one test notice: why it was not taken, and what to do; empty when it was."""

    channel: Channel
    cause: str = ""
    next_step: str = ""


def test(channels: tuple[Channel, ...], instance: str, clock: BlockingClock) -> Iterator[Tested]:
    """Send a test notice through each channel, one after another. Nothing is remembered, and no limit counts it."""
    now = clock.now()
    for channel in channels:
        notice = Notice(
            f"test {channel.name} {now.wall}",
            "",
            Phase.TEST,
            Topic.PROGRAM,
            "test",
            "",
            "",
            "this is a test notice",
            (("", f"channel {channel.name} works; nothing is wrong"),),
            0,
            (),
            (),
            now.wall,
            now.wall,
        )
        sender = make(channel, instance, time.monotonic_ns, lambda: clock.now().wall / SECOND)
        try:
            sender.send(notice)
        except ProviderError as error:
            yield Tested(channel, error.cause, error.next_step)
        else:
            yield Tested(channel)
        finally:
            sender.close()
