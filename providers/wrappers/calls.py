"""A small pool of daemon threads with a deadline for each call, one call at a time per object, and a rate limit.

Used by the `limited` decorator; it does not know the roles of providers. Python cannot cancel a blocked call. So a call that
misses its deadline keeps its thread, and its object stays *busy* until the call returns: until then, the call may still change
the object.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum, auto
from queue import SimpleQueue
from typing import Generic, TypeVar

from manifests.values.desired import SECOND
from providers.errors import OutcomeUnknown, ProviderError, Unreachable
from providers.facts import PoolFact
from providers.lib.rate import Bucket, Rate
from providers.spi import Performed

R = TypeVar("R")

Report = Callable[[str, str, float, str], None]
"""Takes a call that is over: the provider, `observe` or `perform`, its seconds, and the name of its error, empty without one. It is
called on the caller's thread, and must neither block nor raise."""

CLOSE_SECONDS = 1.0
"""Longest time that `close` takes, whatever hangs."""


class _State(Enum):
    WAITING = auto()
    RUNNING = auto()
    DONE = auto()
    DROPPED = auto()


class _Job(Generic[R]):
    """One call on a worker. `lock` guards `state`, so that a deadline and a start cannot both win."""

    def __init__(self, act: Callable[[], R], finished: Callable[[], None]) -> None:
        self.act = act
        self.finished = finished
        self.lock = threading.Lock()
        self.done = threading.Event()
        self.state = _State.WAITING
        self.result: R | None = None
        self.error: BaseException | None = None

    def run(self) -> None:
        with self.lock:
            if self.state is _State.DROPPED:
                return
            self.state = _State.RUNNING
        try:
            self.result = self.act()
        except BaseException as error:  # noqa: BLE001  (carried to the caller, also SystemExit: a worker must not die)
            self.error = error
        with self.lock:
            self.state = _State.DONE
        self.finished()
        self.done.set()

    def drop(self) -> bool:
        """At the deadline: drop a call that has not begun. Returns whether it was dropped."""
        with self.lock:
            if self.state is not _State.WAITING:
                return False
            self.state = _State.DROPPED
            return True


@dataclass(slots=True)
class _Pending:
    """The call that keeps one object, or all objects of a batch, busy. `late` once its caller has given up."""

    since: int
    late: bool = False


@dataclass(frozen=True, slots=True)
class _Request:
    """One call: its keys, its target in messages, its end (monotonic ns) and deadline (ns), the error when it is late."""

    keys: tuple[str, ...]
    pending: _Pending
    target: str
    end: int
    deadline: int
    late: type[Unreachable | OutcomeUnknown]


class _Threads:
    """Daemon threads that take jobs from one queue. Guarded by the lock of `Calls`. `pending` counts the jobs that have not ended."""

    def __init__(self, name: str, workers: int) -> None:
        self.workers = workers
        self.running: list[threading.Thread] = []
        self.pending = 0
        self._name = name
        self._queue: SimpleQueue[_Job[object] | None] = SimpleQueue()

    def put(self, job: _Job[R]) -> None:
        """Queue a job, and start another thread if all may be busy.

        Raises:
            RuntimeError: no thread runs, and the system starts none. The job is not queued.
        """
        if len(self.running) < min(self.workers, self.pending + 1):
            thread = threading.Thread(target=self._work, name=f"{self._name}-{len(self.running)}", daemon=True)
            try:
                thread.start()
                self.running.append(thread)
            except RuntimeError:
                if not self.running:
                    raise
                # The threads that run take the job, later.
        self.pending += 1
        self._queue.put(job)  # type: ignore[arg-type]

    def end(self) -> None:
        """Let every thread end after the jobs that are queued."""
        for _ in self.running:
            self._queue.put(None)

    def _work(self) -> None:
        while (job := self._queue.get()) is not None:
            job.run()


class Calls:
    """Runs calls of one provider. Looks have threads of their own: long actions never make a provider unknown.

    Args:
        provider: its name, for messages and thread names.
        workers: number of threads for looks, and for actions; they start when first needed.
        steady: steady clock in nanoseconds, for the rate limit and for ages in messages.
        rate: limit for all calls together; None = no limit.
        report: gets every call that is over; see `Report`.
    """

    def __init__(
        self,
        provider: str,
        workers: int,
        steady: Callable[[], int],
        rate: Rate | None,
        report: Report | None = None,
    ) -> None:
        if workers < 1:
            raise ValueError(f"{provider}: a pool needs at least 1 worker, not {workers}")
        self._provider = provider
        self._report = report
        self._steady = steady
        self._bucket = Bucket(rate, steady) if rate else None
        self._looks = _Threads(f"{provider}-look", workers)
        self._actions = _Threads(f"{provider}-act", workers)
        self._changed = threading.Condition()
        self._pending: dict[str, _Pending] = {}
        self._closed = False

    def busy(self) -> frozenset[str]:
        """The objects whose last call has not returned yet."""
        with self._changed:
            return frozenset(key for key in self._pending if not key.startswith("look:"))

    def read(self, look: str, act: Callable[[], R], deadline: int) -> R:
        """Make a look. Raises `Unreachable` when it is late or fails unexpectedly.

        `look` names the look. It is refused while an earlier one of the same name hangs, so that looks cannot use up all
        threads.
        """
        end = time.monotonic_ns() + deadline
        key = "look:" + look
        pending = _Pending(self._steady())
        with self._reported("observe"):
            self._take(key, pending, end, self._read_refused)
            return self._run(_Request((key,), pending, self._provider, end, deadline, Unreachable), act)

    def write(self, target: str, act: Callable[[], None], deadline: int) -> None:
        """An action on one object.

        Raises:
            OutcomeUnknown: the call is late or failed unexpectedly, or an earlier call on the object is late.
            Unreachable: the call could not begin before the deadline; nothing was changed.
        """
        end = time.monotonic_ns() + deadline
        pending = _Pending(self._steady())
        with self._reported("perform"):
            self._take(target, pending, end, self._write_refused)
            self._run(_Request((target,), pending, target, end, deadline, OutcomeUnknown), act)

    def write_all(
        self,
        targets: Sequence[str],
        act: Callable[[Sequence[int]], Performed],
        deadline: int,
    ) -> Performed:
        """Make one call for actions on many objects, which are all busy until it returns.

        Args:
            targets: the object of each action, with repetitions.
            act: does the actions with these indexes, ascending; it is not called for none.
            deadline: for the whole call, waiting for earlier calls on the objects included; in ns.

        Returns:
            For each action the error that `write` would have raised, None when it is done; and the pools that `act` read back.
            They are left out when no outcome is known: the writes may still arrive.
        """
        with self._reported("perform") as failed:
            performed = self._write_all(targets, act, deadline)
            failed += [error for error in performed.errors if error is not None]
            return performed

    def _write_all(self, targets: Sequence[str], act: Callable[[Sequence[int]], Performed], deadline: int) -> Performed:
        end = time.monotonic_ns() + deadline
        pending = _Pending(self._steady())
        taken, refused = self._take_all(set(targets), pending, end)
        chosen: Sequence[int] = range(len(targets))
        answers: list[ProviderError | None] = [None] * len(targets)
        if refused:
            chosen = [index for index, target in enumerate(targets) if target not in refused]
            answers = [refused.get(target) for target in targets]
        if not chosen:
            return Performed(tuple(answers))

        def acted() -> Performed:
            try:
                performed = act(chosen)
            except ProviderError as error:
                return Performed((error,) * len(chosen))
            if len(performed.errors) != len(chosen):
                raise ValueError(f"{len(performed.errors)} answers to {len(chosen)} actions")
            return performed

        pools: tuple[PoolFact, ...] = ()
        request = _Request(tuple(taken), pending, self._provider, end, deadline, OutcomeUnknown)
        try:
            performed = self._run(request, acted)
            for index, answer in zip(chosen, performed.errors, strict=True):
                answers[index] = answer
            if not all(isinstance(answer, OutcomeUnknown) for answer in performed.errors):
                pools = performed.pools
        except ProviderError as error:
            for index in chosen:
                answer = type(error)(targets[index], error.cause, error.next_step)
                answer.__cause__ = error.__cause__
                answers[index] = answer
        return Performed(tuple(answers), pools)

    def close(self, close_inner: Callable[[], None]) -> None:
        """End the threads and close the inner provider, within one second. Late calls are left behind."""
        with self._changed:
            first = not self._closed
            self._closed = True
            self._changed.notify_all()
            threads = [*self._looks.running, *self._actions.running]
        if not first:
            return
        closer = threading.Thread(target=close_inner, name=f"{self._provider}-close", daemon=True)
        try:
            closer.start()
            threads.append(closer)
        except RuntimeError:
            close_inner()  # no thread can be started: without one its time has no limit
        self._looks.end()
        self._actions.end()
        end = time.monotonic() + CLOSE_SECONDS
        for thread in threads:
            thread.join(max(0.0, end - time.monotonic()))

    # --- inside -------------------------------------------------------------------------------------------------

    @contextmanager
    def _reported(self, call: str) -> Iterator[list[ProviderError]]:
        """Report the call in the body. The list takes the errors that the body does not raise; the first one counts."""
        if self._report is None:
            yield []
            return
        begun, failed, raised = time.monotonic_ns(), list[ProviderError](), ""
        try:
            yield failed
        except ProviderError as error:
            raised = type(error).__name__
            raise
        finally:
            name = raised or (type(failed[0]).__name__ if failed else "")
            self._report(self._provider, call, (time.monotonic_ns() - begun) / SECOND, name)

    def _take(self, key: str, mine: _Pending, end: int, refused: Callable[[str, int], ProviderError]) -> None:
        """Make `mine` the call on `key`, after an earlier one has returned. Raises when that one is late."""
        with self._changed:
            while True:
                if self._closed:
                    raise Unreachable(self._provider, "is closed")
                earlier = self._pending.get(key)
                if earlier is None:
                    self._pending[key] = mine
                    return
                if earlier.late:
                    raise refused(key, self._steady() - earlier.since)
                left = end - time.monotonic_ns()
                if left <= 0:
                    raise Unreachable(
                        self._label(key), "an earlier call kept it busy until the deadline; nothing was changed"
                    )
                self._changed.wait(left / SECOND)

    def _take_all(self, keys: set[str], mine: _Pending, end: int) -> tuple[list[str], dict[str, ProviderError]]:
        """The keys that `mine` is the call on now, and the errors of the others."""
        with self._changed:
            if not self._closed and self._pending.keys().isdisjoint(keys):
                self._pending.update(dict.fromkeys(keys, mine))
                return list(keys), {}
        taken: list[str] = []
        refused: dict[str, ProviderError] = {}
        # All batches take keys in the same order, so that two never wait for each other.
        for key in sorted(keys):
            try:
                self._take(key, mine, end, self._write_refused)
                taken.append(key)
            except ProviderError as error:
                refused[key] = error
        return taken, refused

    def _release(self, keys: tuple[str, ...]) -> None:
        with self._changed:
            for key in keys:
                self._pending.pop(key, None)
            self._changed.notify_all()

    def _ended(self, request: _Request) -> None:
        """The job of a request has ended, or will never begin."""
        with self._changed:
            self._threads_of(request).pending -= 1
        self._release(request.keys)

    def _run(self, request: _Request, act: Callable[[], R]) -> R:
        try:
            self._wait_for_token(request)
            job = _Job(act, lambda: self._ended(request))
            self._submit(job, request)
        except BaseException:
            self._release(request.keys)
            raise
        if not job.done.wait(max(0, request.end - time.monotonic_ns()) / SECOND):
            self._give_up(job, request)
        if job.error is None:
            return job.result  # type: ignore[return-value]
        if isinstance(job.error, ProviderError):
            raise job.error
        cause = f"provider {self._provider} failed unexpectedly: {type(job.error).__name__}"
        next_step = "report it to the provider's author if it happens again"
        raise request.late(request.target, cause, next_step) from job.error

    def _give_up(self, job: _Job[R], request: _Request) -> None:
        """The deadline is over. Returns only if the call has just come back."""
        if job.drop():
            self._ended(request)
            count = len(self._threads_of(request).running)
            cause = f"all {count} threads of provider {self._provider} wait for calls that do not return"
            raise Unreachable(request.target, cause + "; nothing was changed", "check whether the other side hangs")
        with self._changed:
            if self._pending.get(request.keys[0]) is not request.pending:
                return  # it has just finished: its result counts
            request.pending.late = True
            self._changed.notify_all()  # calls that wait for it give up now
        cause = f"no answer from provider {self._provider} within {request.deadline / SECOND:g} s"
        raise request.late(request.target, cause, "retried automatically")

    def _wait_for_token(self, request: _Request) -> None:
        if self._bucket is None:
            return
        left = request.end - time.monotonic_ns()
        wait = self._bucket.reserve(left)
        if wait is None:
            cause = f"the rate limit of provider {self._provider} allows no call within {left / SECOND:.1f} s"
            raise Unreachable(request.target, cause + "; nothing was changed")
        with self._changed:
            self._changed.wait_for(lambda: self._closed, wait / SECOND)
            if self._closed:
                raise Unreachable(self._provider, "was closed before the call; nothing was changed")

    def _threads_of(self, request: _Request) -> _Threads:
        return self._looks if request.late is Unreachable else self._actions

    def _submit(self, job: _Job[R], request: _Request) -> None:
        with self._changed:
            if self._closed:
                raise Unreachable(self._provider, "was closed before the call; nothing was changed")
            threads = self._threads_of(request)
            try:
                # Within the lock, so that it comes before the entries that end the threads.
                threads.put(job)
            except RuntimeError as error:
                cause = f"no thread can be started ({error}); nothing was changed"
                next_step = (
                    "raise the limit of processes and threads of this user, or end some; it is retried automatically"
                )
                raise Unreachable(request.target, cause, next_step) from error

    def _label(self, key: str) -> str:
        return key.removeprefix("look:") or self._provider

    def _read_refused(self, key: str, age: int) -> Unreachable:
        del key
        return Unreachable(self._provider, f"a look has not returned after {age / SECOND:.1f} s")

    def _write_refused(self, key: str, age: int) -> OutcomeUnknown:
        return OutcomeUnknown(
            key,
            f"an earlier call has not returned after {age / SECOND:.1f} s",
            "retried automatically after it returns",
        )
