"""Plans open merge requests and compares what was merged, on a thread of its own. A monitor around another one; `wire.py` attaches it.

The loop only hands over an immutable tick. Each plan is made from it in a process of its own (`planner.py`), one at a time and with a deadline, so
that no head, however large or hostile, holds up a tick, a look or a poll. A head is planned again only when it or the commit in force
changed. After a merge the plan of the merged commit, from the observation before it came into force, is compared with the reviewed one.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from manifests.values.desired import SECOND
from manifests.values.notices import Forge as ForgeSettings
from manifests.values.notices import ForgeType
from manifests.values.reviews import Reviews
from providers.errors import ProviderError, Rejected
from reconciler.core.model.instant import Now
from reconciler.core.model.ledger_codec import to_rows
from reconciler.forge.protocol import COMMENT, COMMIT, CommitStatus, Forge, MergeRequest, State, marker, short
from reconciler.notify.text import clean
from reconciler.reviews import file, reviewed
from reconciler.reviews.file import Head, Remembered
from reconciler.reviews.planner import CannotPlan, Planner
from reconciler.reviews.reviewed import Line, Reviewed
from reconciler.shell.instance_clock import ClockRecord
from reconciler.shell.monitor import Monitor, Tick
from reconciler.shell.secrets import SECRETS
from reconciler.shell.store import source_record
from reconciler.shell.store.directory import StoreError
from reconciler.snapshots import document
from reconciler.snapshots.snapshot import taken

log = logging.getLogger("reconciler")

TRIES = 3
"""How often a head or a merged commit is planned that could not be planned, before its commit says so."""

MOVED = 10 * SECOND
"""Time (ns) until a head is looked at again that moved while it was planned, or that could not be planned."""

REFUSED = 60 * SECOND
"""Time (ns) until a head is planned again whose comment or status the forge refused; doubled with each refusal up to REFUSED_LONGEST."""

REFUSED_LONGEST = 3_600 * SECOND
"""Most time (ns) of the same. An operator may mend it at any time: give the token a right, or unlock the merge request."""

MERGES = 8
"""Commits that came into force and wait for their comparison."""

REFS = {
    ForgeType.GITHUB: "refs/pull/{}/head",
    ForgeType.GITEA: "refs/pull/{}/head",
    ForgeType.GITLAB: "refs/merge-requests/{}/head",
}
"""Where forges keep the heads of merge requests, also of forks, in the repository itself."""


class Clock(Protocol):
    """What the reviewer needs of time: the clock of the instance."""

    def now(self) -> Now:
        """One reading of all clocks."""

    def record(self) -> ClockRecord:
        """The clocks of instance and host at this moment."""


Documents = Callable[[], tuple[tuple[tuple[str, str], ...], str]]
"""Returns the documents of the tree in force, and the identity of their source."""


class Makers(NamedTuple):
    """What the reviewer is connected with.

    forge: makes a client. documents: of the tree in force. note: reports what fails, for the log. compared: records how the plan of a commit
    compares with the reviewed one.
    """

    forge: Callable[[ForgeSettings], Forge]
    documents: Documents
    note: Callable[[str], None]
    compared: Callable[[str, str], None]


class _Merge(NamedTuple):
    """A commit that came into force. `before` is the last tick under the earlier one; None where this process did not see it."""

    commit: str
    before: Tick | None


class _PutOff(NamedTuple):
    """A head whose comment or status the forge refuses: how often, why, and the steady instant (ns) until which it is left alone."""

    times: int
    cause: str
    until: int


class Reviewer:
    """Implements `Monitor` around another one, which gets every tick first. The thread begins with the first tick that asks for reviews.

    Args:
        inner: the other monitor.
        state: the state directory, whose lock this process holds.
        instance_file: the local documents; without them nothing is reviewed.
        clock: of the instance.
        makers: see there.
        environment: as in `read_sources`.

    Attributes:
        happened: takes an event for the audit, from any thread; set by `wire.py` once the loop is made.
    """

    def __init__(
        self,
        inner: Monitor,
        state: Path,
        instance_file: Path | None,
        clock: Clock,
        makers: Makers,
        environment: str | None = None,
    ) -> None:
        self._inner, self._state, self._clock, self._makers = inner, state, clock, makers
        self.happened: Callable[[str], None] = lambda _: None
        self._stopped, self._woken = threading.Event(), threading.Event()
        mirrors = state / "reviews"
        self._planner = None if instance_file is None else Planner(instance_file, mirrors, self._stopped, environment)
        self._tick: Tick | None = None
        self._merges: deque[_Merge] = deque(maxlen=MERGES)
        self._remembered: Remembered | None = None
        self._client: tuple[ForgeSettings, Forge] | None = None
        self._tries: dict[tuple[int, str, str], int] = {}
        self._compared = 0
        """How often in a row the oldest of `_merges` could not be planned."""
        self._put_off: dict[tuple[int, str, str], _PutOff] = {}
        self._problem = ""
        self._due = 0
        self._thread: threading.Thread | None = None

    # --- called by the loop -------------------------------------------------------------------------------------------

    def ticked(self, tick: Tick) -> None:
        """Take a tick. Neither blocks nor raises."""
        self._inner.ticked(tick)
        instance = tick.desired.instance
        if self._planner is None or not tick.complete or instance.reviews is None or instance.informed.forge is None:
            self._tick = None
            return
        last, self._tick = self._tick, tick
        if last is not None and last.commit != tick.commit:
            self._merges.append(_Merge(tick.commit, last))
            self._woken.set()
        if self._thread is None and not self._stopped.is_set():
            thread = threading.Thread(target=self._work, name="reviews", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:  # tried again with the next tick
                log.warning("merge requests are not planned: no thread can be started: %s", error)
                return
            self._thread = thread

    def failed(self, at: int) -> None:
        """A tick ended with an unexpected error."""
        self._inner.failed(at)

    def close(self, seconds: float = 5.0) -> None:
        """End the thread, and a plan that is being made."""
        self._stopped.set()
        self._woken.set()
        if self._thread is not None:
            self._thread.join(seconds)

    # --- the thread -----------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        while not self._stopped.is_set():
            pause = 1.0
            try:
                pause = self._step()
            except ProviderError as error:
                pause = self._failed(clean(str(error)), error.wait)
            except StoreError as error:
                pause = self._failed(str(error), 0)
            except Exception:
                log.exception("a review failed; it is tried again")
                pause = 60.0
            self._woken.wait(pause)
            self._woken.clear()
        if self._client is not None:
            self._client[1].close()

    def _failed(self, problem: str, wait: int) -> float:
        """Report a problem once; returns the seconds until the next pass. `wait`: ns that the other side asked for."""
        if problem != self._problem:
            self._makers.note(f"merge requests cannot be planned: {problem}; tried again automatically")
        self._problem = problem
        return max(30.0, wait / SECOND)

    def _step(self) -> float:
        """One pass; returns the seconds until the next one. Raises ProviderError, StoreError."""
        tick = self._tick
        if tick is None or not COMMIT.fullmatch(tick.commit):
            return 5.0
        reviews, settings = tick.desired.instance.reviews, tick.desired.instance.informed.forge
        if reviews is None or settings is None:
            return 5.0
        if self._remembered is None:
            self._begin(tick)
        while self._merges:
            if not self._compare(self._merges[0], tick, reviews, settings):
                return MOVED / SECOND
            self._merges.popleft()
        now = self._clock.now().steady
        if now >= self._due:
            pause = self._plan_heads(reviews, settings)
            self._due = self._clock.now().steady + pause
        self._problem = ""
        return max(0.2, (self._due - self._clock.now().steady) / SECOND)

    def _begin(self, tick: Tick) -> None:
        """What an earlier process remembered. A commit that came into force since then was not seen by this one."""
        self._remembered = file.load(self._state)
        if self._remembered.in_force and self._remembered.in_force != tick.commit and not self._merges:
            self._merges.append(_Merge(tick.commit, None))
        elif not self._remembered.in_force:
            self._keep(self._remembered._replace(in_force=tick.commit))

    def _keep(self, remembered: Remembered) -> None:
        if remembered != self._remembered or not (self._state / file.FILE).exists():
            file.save(self._state, remembered)
        self._remembered = remembered

    # --- open merge requests -------------------------------------------------------------------------------------------

    def _plan_heads(self, reviews: Reviews, settings: ForgeSettings) -> int:
        """Plan what is due; returns the time (ns) until the next question."""
        branch, pause = self._branch(), reviews.interval
        if not branch:
            return pause  # a tag or a pinned commit: nothing is merged into it
        forge = self._forge(settings)
        opened = [request for request in forge.open_requests() if request.target == branch]
        for request in sorted(opened, reverse=True)[: reviews.limit]:
            tick = self._tick
            if self._stopped.is_set() or self._merges or tick is None:
                return SECOND  # what was merged goes first; the rest is due after it
            key = (request.number, request.commit, tick.commit)
            if key in self._put_off and self._clock.now().steady < self._put_off[key].until:
                continue
            try:
                if not self._plan_head(request, tick, reviews, settings):
                    pause = min(pause, MOVED)
            except Rejected as error:  # of this one: a locked merge request holds up no other
                self._put_off_head(key, clean(str(error)), error.wait)
        return pause

    def _put_off_head(self, key: tuple[int, str, str], cause: str, asked: int) -> None:
        """Leave a head alone for a while, at least for the time (ns) that the forge asked for, and report why, once for each cause."""
        before = self._put_off.get(key, _PutOff(0, "", 0))
        if before.cause != cause:
            self._makers.note(f"the plan of merge request {key[0]} cannot be shown: {cause}; tried again automatically")
        if len(self._put_off) > file.KEPT:
            self._put_off.clear()  # of heads that are gone
        wait = min(REFUSED << min(before.times, 16), REFUSED_LONGEST)
        self._put_off[key] = _PutOff(before.times + 1, cause, self._clock.now().steady + max(wait, asked))

    def _branch(self) -> str:
        """The branch that the manifests come from; empty for a tag or a pinned commit."""
        record = source_record.load(self._state)
        ref = record.seen.ref if record is not None and record.seen is not None else ""
        return ref.removeprefix("refs/heads/") if ref.startswith("refs/heads/") else ""

    def _plan_head(self, request: MergeRequest, tick: Tick, reviews: Reviews, settings: ForgeSettings) -> bool:
        """Plan a head, unless that is done. False when it moved meanwhile, or is to be tried again."""
        assert self._planner is not None  # noqa: S101  (no thread without it)
        assert self._remembered is not None  # noqa: S101  (read by `_step`)
        key = (request.number, request.commit, tick.commit)
        if any((head.number, head.commit, head.base) == key for head in self._remembered.heads):
            return True
        if not COMMIT.fullmatch(request.commit):
            return True
        forge, instance = self._forge(settings), tick.desired.instance.id
        ref = REFS[settings.type].format(request.number)
        try:
            answer = self._planner.plan(
                ref, request.commit, tick.commit, self._snapshot(tick), reviews.timeout / SECOND
            )
            cause = str(answer.get("failed") or "")
        except CannotPlan as error:
            answer, cause = {}, str(error)
        if self._stopped.is_set() or answer.get("moved"):
            return False  # the list of the forge is older than its repository
        if cause:
            if len(self._tries) > file.KEPT:
                self._tries.clear()  # of heads that are gone
            self._tries[key] = self._tries.get(key, 0) + 1
            self._makers.note(f"merge request {request.number} cannot be planned: {clean(cause)}")
            if self._tries[key] < TRIES:
                return False
            status = CommitStatus(_context(instance), State.FAILURE, f"no plan of {request.commit[:12]} could be made")
        else:
            body = SECRETS.mask(str(answer["markdown"]))
            room = COMMENT - 200
            name = marker("plan", instance.replace("--", "-_"))
            forge.put_comment(request.number, name, body if len(body) < room else f"{body[: room - 2]}\n")
            status = CommitStatus(_context(instance), *_described(answer))
        forge.set_status(request.commit, status)
        self._tries.pop(key, None)
        self._put_off.pop(key, None)
        self._keep(self._remembered.with_head(Head(*key, None if cause else _reviewed(answer))))
        return True

    # --- after the merge --------------------------------------------------------------------------------------------------

    def _compare(self, merge: _Merge, tick: Tick, reviews: Reviews, settings: ForgeSettings) -> bool:
        """Say whether a commit that came into force is as it was reviewed. False when it could not be planned and is to be tried again."""
        assert self._planner is not None  # noqa: S101  (no thread without it)
        assert self._remembered is not None  # noqa: S101  (read by `_step`)
        known = self._remembered
        if merge.commit == known.in_force or not COMMIT.fullmatch(merge.commit):
            return True
        snapshot = self._snapshot(merge.before or tick)
        try:
            answer = self._planner.plan(merge.commit, merge.commit, "", snapshot, reviews.timeout / SECOND)
            cause = str(answer.get("failed") or "")
        except CannotPlan as error:
            answer, cause = {}, str(error)
        if self._stopped.is_set():
            return False  # the next process compares it
        self._compared = self._compared + 1 if cause else 0
        if 0 < self._compared < TRIES:  # the remote may not answer just now
            return False
        self._compared = 0
        same, text = self._judged(merge, answer, cause)
        self._makers.compared(merge.commit, text)
        self.happened(f"commit {merge.commit[:12]}: {text}")
        if same is not None:
            context = f"reconciler/{tick.desired.instance.id}/review"
            state = State.SUCCESS if same else State.FAILURE
            try:
                self._forge(settings).set_status(merge.commit, CommitStatus(context, state, short(clean(text))))
            except ProviderError as error:  # the event has it
                self._makers.note(f"the review of commit {merge.commit[:12]} cannot be shown: {clean(str(error))}")
        self._keep(known._replace(in_force=merge.commit))
        return True

    def _judged(self, merge: _Merge, answer: Mapping[str, Any], cause: str) -> tuple[bool | None, str]:
        """Whether a merged commit is as reviewed (None: no review is known), and that in a sentence."""
        assert self._remembered is not None  # noqa: S101  (read by `_step`)
        if cause:
            return None, f"not compared with a review: {cause}"
        tree, parents = str(answer.get("tree") or ""), answer.get("parents") or ()
        heads = [head for head in reversed(self._remembered.heads) if head.reviewed is not None]
        by_tree = [head for head in heads if head.reviewed is not None and head.reviewed.tree == tree]
        by_commit = [head for head in heads if head.commit == merge.commit or head.commit in parents]
        found = next(iter([head for head in by_tree if head in by_commit] or by_commit or by_tree), None)
        merged = _reviewed(answer)
        if found is None or found.reviewed is None or merged is None:
            return None, "no merge request with this commit or these manifests was planned on this host"
        if merge.before is None:
            what = "are those" if found.reviewed.tree == tree else "are not those"
            text = f"its manifests {what} reviewed in merge request {found.number}"
            return (
                found.reviewed.tree == tree,
                f"{text}; its plan was not compared, because the daemon did not run then",
            )
        same, text = reviewed.compared(found.reviewed, merged, found.number)
        if found.reviewed.tree != tree:
            text = f"{text}; the manifests are not those of the reviewed head, other commits were merged before"
        return same, text

    # --- helpers ------------------------------------------------------------------------------------------------------------

    def _snapshot(self, tick: Tick) -> str:
        """The observation of a tick, for the process that plans. It does not leave this host."""
        record, host = self._clock.record(), tick.now.steady
        record = record._replace(
            steady=tick.now.steady, wall=tick.now.wall, host_steady=record.host_steady - (record.steady - host)
        )
        snapshot = taken(tick.decision, tick.desired, tick.now, record, to_rows(tick.decision.ledger), tick.commit)
        documents, identity = self._makers.documents()
        return document.write(snapshot.with_manifests(documents, identity))

    def _forge(self, settings: ForgeSettings) -> Forge:
        if self._client is None or self._client[0] != settings:
            if self._client is not None:
                self._client[1].close()
            self._client = (settings, self._makers.forge(settings))
        return self._client[1]


def _context(instance: str) -> str:
    return f"reconciler/{instance}/plan"


def _described(answer: Mapping[str, Any]) -> tuple[State, str]:
    """State and description of the status of a planned head."""
    if "invalid" in answer:
        count = int(answer["invalid"])
        return State.FAILURE, f"the manifests are invalid: {count} problem{'' if count == 1 else 's'}"
    steps, held = int(answer["steps"]), int(answer["held"])
    text = f"plan: {steps} step{'' if steps == 1 else 's'}, {held} held" if steps or held else "plan: nothing to do"
    missing = answer.get("incomplete") or ()
    return State.SUCCESS, short(f"{text}; incomplete: {', '.join(missing)} unknown" if missing else text)


def _reviewed(answer: Mapping[str, Any]) -> Reviewed | None:
    """What is compared of an answer; None where there is no plan."""
    if "hash" not in answer:
        return None
    lines = tuple(Line(str(name), str(digest)) for name, digest in answer["lines"])
    return Reviewed(str(answer["tree"]), str(answer["commit"]), str(answer["hash"]), lines)
