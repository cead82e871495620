"""The dispatcher: keeps incidents and commit statuses over ticks, and sends what is due. Run by the thread of the notifier.

Every message is sent beside this thread, so that a server holds up neither a rule nor another channel. There is one message under way in
each channel. All rules are in `reconciler/core/notices/`; here are the file, the senders and their results.
"""

import logging
import threading
import time
from collections.abc import Callable
from functools import partial
from queue import Empty, SimpleQueue
from typing import NamedTuple, Protocol

from manifests.values.desired import SECOND
from manifests.values.notices import Channel, Informed, Topic
from manifests.values.notices import Forge as ForgeSettings
from providers.errors import ProviderError, Rejected
from reconciler.core.model.instant import FOREVER, Now, due, elapsed, instant
from reconciler.core.notices import commits, incidents, outbox
from reconciler.core.notices.codec import Remembered
from reconciler.core.notices.commits import Row
from reconciler.core.notices.model import Notice, Phase
from reconciler.core.notices.outbox import Queue
from reconciler.core.notices.symptoms import symptoms, undecided
from reconciler.forge.protocol import COMMIT, CommitStatus, Forge, short
from reconciler.forge.protocol import State as ForgeState
from reconciler.notify.sender import Sender
from reconciler.notify.store import NoticeStore
from reconciler.notify.text import clean
from reconciler.shell.monitor import Tick

log = logging.getLogger("reconciler")

LONGEST_SLEEP = 30 * SECOND
"""The longest sleep (ns)."""

LAST_WAIT = 2.0
"""Seconds that the end of the process waits for messages under way."""

FORGE = "forge"
"""How the forge is named in metrics and notes."""

SHORTEST_RETRY = 10 * SECOND
LONGEST_RETRY = 15 * 60 * SECOND


class BlockingClock(Protocol):
    """What the notifier needs of time."""

    def now(self) -> Now:
        """One reading of all clocks."""


class _Result(NamedTuple):
    """The end of a call: of a notice in a channel, or of the status of a commit."""

    channel: str
    sent: Notice | Row
    error: ProviderError | None


class Makers(NamedTuple):
    """What makes senders, clients and threads. `run` starts a call beside this thread. `refused` as in `attach`."""

    sender: Callable[[Channel, str], Sender]
    forge: Callable[[ForgeSettings], Forge]
    run: Callable[[Callable[[], None], str], None]
    refused: Callable[[], str] = lambda: ""


def start_thread(call: Callable[[], None], name: str) -> None:
    """Make the call on a thread of its own, which does not keep the process alive. Raises RuntimeError."""
    threading.Thread(target=call, name=name, daemon=True).start()


class Dispatcher:
    """Everything about notices of one instance but the thread.

    Args:
        store: remembers over restarts.
        instance: id of the instance.
        clock: of the instance.
        makers: of senders, clients and threads.
        note: reports a channel that fails, and one that works again.
        counted: gets the channel and the outcome of each message: `sent`, `failed`, `dropped`.

    Attributes:
        tick: the latest one; set by the notifier.
        woken: set when a call has ended.
    """

    def __init__(
        self,
        store: NoticeStore,
        instance: str,
        clock: BlockingClock,
        makers: Makers,
        note: Callable[[str], None],
        counted: Callable[[str, str], None],
    ) -> None:
        self._store, self._instance, self._clock = store, instance, clock
        self._makers, self._note, self._counted = makers, note, counted
        self.tick: Tick | None = None
        self.woken = threading.Event()
        self._results: SimpleQueue[_Result] = SimpleQueue()
        self._busy: set[str] = set()
        self._senders: dict[str, tuple[Channel, Sender]] = {}
        self._client: tuple[ForgeSettings, Forge] | None = None
        self._remembered: Remembered | None = None
        self._errors: dict[str, str] = {}

    def step(self) -> int:
        """One pass: results, incidents, statuses, what is due, the file. Returns the steady instant of the next one."""
        now = self._clock.now()
        before = self._remembered if self._remembered is not None else self._store.load()
        remembered = self._take_results(before, now)
        tick = self.tick
        if tick is None or not tick.complete:
            self._remembered = remembered
            return FOREVER
        informed = tick.desired.instance.informed
        remembered, wake_at = self._decide(remembered, tick, informed, now)
        remembered, next_send = self._send(remembered, informed, now)
        self._remembered = remembered
        if not self._store.save(remembered):
            wake_at = min(wake_at, now.steady + LONGEST_SLEEP)
        return min(wake_at, next_send)

    def end(self) -> None:
        """Wait a moment for the messages under way, and remember those that were sent."""
        last = time.monotonic() + LAST_WAIT
        while self._busy and time.monotonic() < last:
            self.woken.wait(0.1)
            self.woken.clear()
            if self._remembered is not None:
                self._remembered = self._take_results(self._remembered, self._clock.now())
        if self._remembered is not None:
            self._store.save(self._remembered)
        for _, sender in list(self._senders.values()):
            sender.close()
        if self._client is not None:
            self._client[1].close()

    # --- deciding -----------------------------------------------------------------------------------------------------

    def _decide(self, remembered: Remembered, tick: Tick, informed: Informed, now: Now) -> tuple[Remembered, int]:
        found = symptoms(tick.decision, tick.desired)
        followed = incidents.follow(remembered.state, found, tick.commit, now, undecided(tick.decision))
        state, wake_at = followed.state, followed.wake_at
        name, text = commits.outcome(tick.decision, found, state)
        notices = followed.notices
        if name == commits.SUCCESS and state.applied != tick.desired.revision:
            state = state._replace(applied=tick.desired.revision)
            notices = [*notices, self._applied(tick, text, now)]
        queues: dict[str, Queue] = {}
        for channel in informed.channels:
            queue = outbox.expired(remembered.queues.get(channel.name, Queue()), now)
            state, reminders, at = incidents.reminders(state, channel.name, channel.remind, tick.commit, now)
            wanted = [notice for notice in (*notices, *reminders) if outbox.wants(channel, notice)]
            dropped = queue.dropped
            queues[channel.name] = outbox.put(queue, wanted, now, busy=channel.name in self._busy)
            for _ in range(queues[channel.name].dropped - dropped):
                self._counted(channel.name, "dropped")
            wake_at = min(wake_at, at)
        rows = self._statuses(remembered.commits, tick, (name, text), now) if informed.forge is not None else ()
        return Remembered(state, queues, rows), wake_at

    def _applied(self, tick: Tick, text: str, now: Now) -> Notice:
        revision = tick.desired.revision
        title = f"revision {revision[:12]} is {text}"
        return Notice(
            f"applied {revision}",
            "",
            Phase.APPLIED,
            Topic.APPLIED,
            "applied",
            revision,
            tick.commit,
            title,
            (),
            0,
            (),
            (),
            now.wall,
            now.wall,
        )

    def _statuses(self, rows: tuple[Row, ...], tick: Tick, outcome: tuple[str, str], now: Now) -> tuple[Row, ...]:
        observed = tick.decision.status.observed
        problem, waiting = observed.source_problem, observed.waiting
        named = [(tick.commit, *outcome), (tick.newest, *outcome)]
        if waiting is not None:
            named.append((waiting.commit, *commits.waits(tick.decision)))
        if problem is not None:
            # Of a remote that does not answer nothing follows for the commit.
            unknown = problem.unreadable and not problem.unverified and problem.commit != self._makers.refused()
            how = (commits.PENDING, "not read") if unknown else (commits.FAILURE, "refused")
            named.append((problem.commit, how[0], f"{how[1]}: {problem.cause}"))
        seen: dict[str, tuple[str, str, str]] = {}
        for row in named:
            if COMMIT.fullmatch(row[0]):
                seen.setdefault(row[0], row)
        known = tick.newest or waiting is not None or (problem is not None and problem.commit)
        return commits.follow(rows, tuple(seen.values()), list(seen)[-1] if known else "", now) if seen else rows

    # --- sending --------------------------------------------------------------------------------------------------------

    def _send(self, remembered: Remembered, informed: Informed, now: Now) -> tuple[Remembered, int]:
        wake_at = FOREVER
        self._forget(informed)
        for channel in informed.channels:
            queue = remembered.queues[channel.name]
            if channel.name in self._busy:
                continue
            at = outbox.due_at(queue, channel.per_hour, now)
            if at > now.steady:
                wake_at = min(wake_at, at)
                continue
            notice = outbox.next_post(queue, now)
            self._begin(channel.name, notice, partial(self._deliver, channel, notice))
        if informed.forge is not None and FORGE not in self._busy:
            wake_at = min(wake_at, self._send_status(informed.forge, remembered.commits, now))
        return remembered, wake_at

    def _send_status(self, settings: ForgeSettings, rows: tuple[Row, ...], now: Now) -> int:
        """Begin to send the first status that is due; return when the next one is."""
        wake_at = FOREVER
        for row in rows:
            if row.sent:
                continue
            at = now.steady if row.last is None else due(row.last, row.wait, now)
            if at > now.steady:
                wake_at = min(wake_at, at)
                continue
            context = f"reconciler/{self._instance}"
            status = CommitStatus(context, ForgeState(row.state), short(clean(row.text)))
            self._begin(FORGE, row, partial(self._set_status, settings, row.commit, status))
            return wake_at
        return wake_at

    def _deliver(self, channel: Channel, notice: Notice) -> None:
        self._sender(channel).send(notice)

    def _set_status(self, settings: ForgeSettings, commit: str, status: CommitStatus) -> None:
        self._forge(settings).set_status(commit, status)

    def _begin(self, channel: str, item: Notice | Row, call: Callable[[], None]) -> None:
        """Make a call beside this thread; its result comes back through the queue."""

        def work() -> None:
            error: ProviderError | None = None
            try:
                call()
            except ProviderError as failure:
                error = failure
            except Exception as failure:
                log.debug("channel %s failed", channel, exc_info=failure)
                error = ProviderError(
                    f"channel {channel}", f"unexpected {type(failure).__name__}", "report this as a bug"
                )
            self._results.put(_Result(channel, item, error))
            self.woken.set()

        self._busy.add(channel)
        try:
            self._makers.run(work, f"notify-{channel}")
        except RuntimeError as error:
            self._results.put(_Result(channel, item, ProviderError(f"channel {channel}", f"no thread: {error}")))

    def _take_results(self, remembered: Remembered, now: Now) -> Remembered:
        """What the calls that ended mean for the queues. A message counts as sent only here, after it was."""
        while True:
            try:
                result = self._results.get_nowait()
            except Empty:
                return remembered
            self._busy.discard(result.channel)
            self._report(result)
            if isinstance(result.sent, Row):
                remembered = self._status_ended(remembered, result.sent, result.error, now)
                continue
            queue = remembered.queues.get(result.channel)
            if queue is None:
                continue  # the channel is gone
            if result.error is None:
                after = outbox.sent(queue, result.sent, now)
            else:
                error = result.error
                refused = isinstance(error, Rejected) and not error.whole
                after = outbox.failed(queue, result.sent, clean(error.cause), error.wait, refused, now)
                for _ in range(after.dropped - queue.dropped):
                    self._counted(result.channel, "dropped")
            remembered = remembered._replace(queues={**remembered.queues, result.channel: after})

    def _status_ended(self, remembered: Remembered, sent: Row, error: ProviderError | None, now: Now) -> Remembered:
        def ended(row: Row) -> Row:
            if (row.commit, row.state) != (sent.commit, sent.state):
                return row
            tries = row.tries + 1
            # Refused as a whole: for the token or the project, which an operator can mend.
            refused = isinstance(error, Rejected) and not error.whole and tries >= outbox.REFUSALS
            if error is None or refused or elapsed(row.at, now) >= outbox.KEEP:
                return row._replace(sent=True, last=None, wait=0)
            pause = min(SHORTEST_RETRY << min(tries - 1, 20), LONGEST_RETRY)
            return row._replace(tries=tries, last=instant(now), wait=max(pause, min(error.wait, outbox.LONGEST_WAIT)))

        return remembered._replace(commits=tuple(map(ended, remembered.commits)))

    def _report(self, result: _Result) -> None:
        """Count the result, and report a failure once, and its end."""
        name = f"channel {result.channel}" if result.channel != FORGE else FORGE
        self._counted(result.channel, "sent" if result.error is None else "failed")
        cause = "" if result.error is None else clean(str(result.error))
        if cause and cause != self._errors.get(result.channel):
            self._note(f"{name} does not work: {cause}; retried automatically")
        elif not cause and self._errors.get(result.channel):
            self._note(f"{name} works again")
        self._errors[result.channel] = cause

    def _sender(self, channel: Channel) -> Sender:
        """The sender of a channel; another one when its settings changed. Called on the thread of the channel."""
        kept = self._senders.get(channel.name)
        if kept is None or kept[0] != channel:
            if kept is not None:
                kept[1].close()
            kept = self._senders[channel.name] = (channel, self._makers.sender(channel, self._instance))
        return kept[1]

    def _forge(self, settings: ForgeSettings) -> Forge:
        """The client of the forge. Called on its thread."""
        if self._client is None or self._client[0] != settings:
            if self._client is not None:
                self._client[1].close()
            self._client = (settings, self._makers.forge(settings))
        return self._client[1]

    def _forget(self, informed: Informed) -> None:
        """Close the senders of channels that are gone."""
        names = {channel.name for channel in informed.channels}
        for name in [name for name in list(self._senders) if name not in names and name not in self._busy]:
            self._senders.pop(name)[1].close()
            self._errors.pop(name, None)

    @property
    def waiting(self) -> dict[str, int]:
        """How many messages wait in each channel."""
        remembered = self._remembered
        if remembered is None:
            return {}
        counts = {name: len(queue.posts) for name, queue in remembered.queues.items()}
        unsent = sum(not row.sent for row in remembered.commits)
        return {**counts, **({FORGE: unsent} if remembered.commits else {})}
