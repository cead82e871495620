"""The notifier: takes each tick of the loop, and lets the dispatcher work on a thread of its own. `wire.py` attaches it to the loop.

The loop only hands over an immutable tick: neither a rule, a disk nor a server of notices ever holds it up.
"""

import logging
import threading

from manifests.values.desired import SECOND
from reconciler.notify.dispatcher import LAST_WAIT, LONGEST_SLEEP, BlockingClock, Dispatcher
from reconciler.shell.monitor import Monitor, Tick

log = logging.getLogger("reconciler")

PACE = 1.0
"""Seconds between two passes: a loop that ticks more often costs no more."""


class Notifier:
    """Implements `Monitor` around another one, which gets every tick first. The thread begins with the first tick that has a channel."""

    def __init__(self, inner: Monitor, dispatcher: Dispatcher, clock: BlockingClock) -> None:
        self._inner, self._dispatcher, self._clock = inner, dispatcher, clock
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def ticked(self, tick: Tick) -> None:
        """Take a tick. Neither blocks nor raises."""
        self._inner.ticked(tick)
        informed = tick.desired.instance.informed
        if self._thread is None and not (informed.channels or informed.forge):
            return
        self._dispatcher.tick = tick
        if self._thread is None and not self._stopped.is_set():
            thread = threading.Thread(target=self._work, name="notifier", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:
                log.warning(
                    "no notices are sent: no thread can be started: %s", error
                )  # tried again with the next tick
                return
            self._thread = thread
        self._dispatcher.woken.set()

    def failed(self, at: int) -> None:
        """A tick ended with an unexpected error."""
        self._inner.failed(at)

    def close(self, seconds: float = LAST_WAIT + 1.0) -> None:
        """End the thread. A message that is not known to be sent by then is sent again by the next process."""
        self._stopped.set()
        self._dispatcher.woken.set()
        if self._thread is not None:
            self._thread.join(seconds)

    def _work(self) -> None:
        pause = 0.0
        while not self._stopped.is_set():
            self._dispatcher.woken.wait(pause)
            self._dispatcher.woken.clear()
            try:
                wake_at = self._dispatcher.step()
            except Exception:
                log.exception("notices failed; they are tried again")
                wake_at = self._clock.now().steady + LONGEST_SLEEP
            self._stopped.wait(PACE)  # a loop that ticks all the time costs little here
            pause = min(max(0, wake_at - self._clock.now().steady), LONGEST_SLEEP) / SECOND
        self._dispatcher.end()
