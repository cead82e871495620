"""Keeps evidence of a failing replica: of each end, and before a step destroys it (a stop for its health, a replacement).

A restarted container has lost what made it fail, and a failed deployment its containers. So the last probe results, the last log
lines and the exit are kept in the store, for `explain` and `events`. The loop calls `keep` for each end that a look has found, also
if the runtime has started the container again by itself; the applier calls `take` before a step, the loop `add_end` after it.
Evidence delays healing by `PATIENCE` at most and never prevents it: what is not available by then is left out, and the record says
so.
"""

import asyncio
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from manifests.values.desired import SECOND
from providers.actions import RemoveContainer, StartContainer, StopContainer
from providers.errors import ProviderError
from providers.facts import ContainerFact, ContainerState, Generation, Known, ProbeFact, Probes, ProbeValue
from reconciler.core.model.instant import Now
from reconciler.core.model.reasons import Reason
from reconciler.core.model.step import Step
from reconciler.core.replicas.ends import OURS, End
from reconciler.shell.clock import Clock
from reconciler.shell.looks.facts import Looks
from reconciler.shell.secrets import SECRETS
from reconciler.shell.store.audit import Event
from reconciler.shell.store.directory import StoreError
from reconciler.shell.store.ports import EvidenceStore

PATIENCE = 2.0
"""Longest time that a step waits for the log, in seconds."""

AFTER_END = SECOND // 20
"""How much later than an end (ns) the last lines of the ended process may be dated. A runtime starts it again after 100 ms at the
earliest."""

LINES = 50
"""Log lines that are kept."""

LOG_LIMIT = 16 * 1024
"""Characters of log that are kept; the newest lines win."""

DETAIL_LIMIT = 1_000
"""Characters kept of each probe's answer."""

STOPS = frozenset({Reason.LIVENESS_FAILED, Reason.STARTUP_FAILED, Reason.RECREATE, Reason.DRAIN_DEADLINE})
"""Causes of a stop before which evidence is kept."""

LEAVES = frozenset({Reason.TEMPLATE_CHANGED, Reason.SUPERSEDED, Reason.REVISION_FAILED})
"""Causes of a replacement by another revision: evidence is kept if the replica is failing."""

ENDS = frozenset({Reason.CRASHED, Reason.EXITED, Reason.OOM_KILLED})
"""Causes of a start after an end by itself. Evidence of it is kept before the start, unless it is already."""

_DOWN = {ContainerState.EXITED, ContainerState.RESTARTING}

_NOT_AGAIN = {ContainerState.EXITED, ContainerState.STOPPING}
"""States in which no later run writes to the log of the one that ended."""


class Verdicts(Protocol):
    """The probe results by generation: `Probing`."""

    verdicts: dict[Generation, Probes]


@dataclass(slots=True)
class _Taken:
    """The evidence that was kept for a step in progress."""

    number: int
    value: dict[str, Any]
    generation: Generation


class EvidenceCollector:
    """Keeps evidence for the steps that need it."""

    def __init__(
        self, looks: Looks, cabinet: EvidenceStore, clock: Clock, probing: Verdicts, patience: float = PATIENCE
    ) -> None:
        self._looks, self._cabinet, self._clock, self._probing = looks, cabinet, clock, probing
        self._patience = patience
        self._taken: dict[str, _Taken] = {}
        self._keeping: dict[str, asyncio.Task[None]] = {}
        self._kept: dict[str, Generation] = {}

    def keep(self, ends: Sequence[End]) -> list[asyncio.Task[None]]:
        """Begin to keep evidence of these ends. Returns the tasks, which raise nothing of the store or the runtime."""
        tasks = []
        for end in ends:
            task = asyncio.create_task(self._keep(end))
            self._keeping[end.fact.id] = task
            tasks.append(task)
        return tasks

    async def _keep(self, end: End) -> None:
        fact, now = end.fact, self._clock.now()
        verdicts = self._probing.verdicts.get(fact.generation)
        try:
            # A run that another program or the runtime starts writes to the same log. A container that is down is started by us, after this.
            started_by_others = fact.state not in _NOT_AGAIN and not end.child
            lines, missing = await self._log(fact.node, fact.name, end.at if started_by_others else 0)
            value: dict[str, Any] = {
                "container": fact.name,
                "cause": end.reason.value,
                "why": _short(end.message),
                "generation": {"id": fact.id, "started_at": fact.started_at},
                "probes": _probes(
                    verdicts if fact.state in _DOWN | _NOT_AGAIN or end.child else None, now.steady, now.wall
                ),
                "log": lines,
                "log_missing": missing or None,
                "end": None if end.child else {"exit_code": end.exit_code, "cause": end.cause.value},
            }
            await self._put(now, end.object, f"end {fact.name}", end.reason, value)
            if fact.state in _DOWN:
                self._kept[fact.id] = fact.generation
        finally:
            if self._keeping.get(fact.id) is asyncio.current_task():
                del self._keeping[fact.id]

    async def _put(self, now: Now, obj: str, step: str, cause: Reason, value: dict[str, Any]) -> int:
        """Store a piece of evidence. Returns its id, 0 if it cannot be stored: the journal cannot be written either then."""
        try:
            event = Event(now.wall, "evidence", obj, step, cause.value, "kept", _summary(value))
            return await self._cabinet.put_evidence(event, json.dumps(value))
        except StoreError:
            return 0

    async def take(self, step: Step) -> None:
        """Keep evidence of the container of this step, before the step. Raises nothing."""
        action = step.action
        if not isinstance(action, StopContainer | StartContainer | RemoveContainer):
            return
        keeping = self._keeping.get(action.expect.container_id)
        if keeping is not None and not isinstance(action, StopContainer):
            await asyncio.wait((keeping,), timeout=self._patience)
        fact = self._fact(action)
        if not self._needed(step, fact):
            return
        now = self._clock.now()
        lines, missing = await self._log(action.node, action.name if fact is None else fact.name)
        value: dict[str, Any] = {
            "container": action.name,
            "cause": step.cause.value,
            "why": _short(step.message) if step.cause is Reason.REVISION_FAILED else None,
            "generation": {"id": action.expect.container_id, "started_at": action.expect.started_at},
            "probes": _probes(self._probing.verdicts.get(action.expect), now.steady, now.wall),
            "log": lines,
            "log_missing": missing or None,
            "end": None if isinstance(action, StopContainer) else _end(fact),
        }
        if fact is not None and fact.health is not None:
            value["runtime_health"] = _short(fact.health.output)
        number = await self._put(now, step.object, step.id, step.cause, value)
        if number and isinstance(action, StopContainer):
            self._taken[step.id] = _Taken(number, value, action.expect)

    def add_end(self, step: Step) -> asyncio.Task[None] | None:
        """After the step: begin to add how the container exited, as read back. Returns the task, which raises nothing; None without one."""
        taken = self._taken.pop(step.id, None)
        action = step.action
        if taken is None or not isinstance(action, StopContainer):
            return None
        fact = self._fact(action)
        if fact is None or fact.generation != taken.generation:
            return None
        taken.value["end"] = _end(fact)
        return asyncio.create_task(self._amend(taken.number, json.dumps(taken.value)))

    async def _amend(self, number: int, value: str) -> None:
        with suppress(StoreError):  # the next write to the store reports it
            await self._cabinet.amend_evidence(number, value)

    def _needed(self, step: Step, fact: ContainerFact | None) -> bool:
        """Whether evidence is kept before this step."""
        action = step.action
        if isinstance(action, StopContainer):
            failing = any(
                isinstance(verdict, ProbeFact) and verdict.value is ProbeValue.FAIL
                for verdict in self._probing.verdicts.get(action.expect, Probes())
            )
            return step.cause in STOPS or (step.cause in LEAVES and failing)
        ended = fact is not None and fact.exit_cause is not None and fact.exit_cause not in OURS
        if isinstance(action, RemoveContainer):
            never = fact is not None and fact.state is ContainerState.CREATED and step.cause is Reason.REVISION_FAILED
            return step.cause in LEAVES and (ended or never)
        if not isinstance(action, StartContainer):
            return False
        return step.cause in ENDS and self._kept.get(action.expect.container_id) != action.expect

    def _fact(self, action: StopContainer | StartContainer | RemoveContainer) -> ContainerFact | None:
        """The container that an action means, under whatever name."""
        known = self._looks.runtimes.get(action.node)
        facts = known.value if isinstance(known, Known) else ()
        by_id = (fact for fact in facts if fact.id == action.expect.container_id)
        return next(by_id, None) or next((fact for fact in facts if fact.name == action.name), None)

    async def _log(self, node: str, name: str, ended_at: int = 0) -> tuple[list[str], str]:
        """The last lines without secrets, and the reason if there are none. `ended_at`: without those of a later run."""
        provider = self._looks.providers.runtimes.get(node)
        if provider is None:
            return [], "its runtime is no longer configured"
        try:
            async with asyncio.timeout(self._patience):
                if ended_at:
                    lines = await self._looks.runner.run(lambda: provider.logs(name, LINES, ended_at + AFTER_END))
                else:
                    lines = await self._looks.runner.run(lambda: provider.logs(name, LINES))
        except TimeoutError:
            return [], f"no log within {self._patience:g} s"
        except ProviderError as error:
            return [], SECRETS.mask(str(error))
        kept: list[str] = []
        room = LOG_LIMIT
        # Masked as a whole, because a secret may contain line breaks.
        for line in map(SECRETS.mask, reversed(SECRETS.mask("\n".join(lines)).splitlines())):
            if room <= 0:
                break
            kept.append(line[-room:])
            room -= len(line) + 1
        return kept[::-1], ""


def _summary(value: dict[str, Any]) -> str:
    """The evidence in one line."""
    parts = [value["why"]] if value["why"] else []
    parts += [f"{name} {probe['verdict']} {probe['streak']}" for name, probe in value["probes"].items()]
    if value["end"] is not None:
        parts.append(f"{value['end']['cause']}, exit code {value['end']['exit_code']}")
    count = len(value["log"])
    parts.append(value["log_missing"] or f"{count} log line{'' if count == 1 else 's'}")
    return ", ".join(parts)


def _short(text: str) -> str:
    return SECRETS.mask(text)[:DETAIL_LIMIT]


def _end(fact: ContainerFact | None) -> dict[str, Any] | None:
    """How it exited: exit code and cause; an OOM kill has a cause of its own."""
    if fact is None or fact.exit_cause is None:
        return None
    return {"exit_code": fact.exit_code, "cause": fact.exit_cause.value}


def _probes(probes: Probes | None, steady: int, wall: int) -> dict[str, Any]:
    """The last results of its probes."""
    results: dict[str, Any] = {}
    for name, fact in (probes or Probes())._asdict().items():
        if not isinstance(fact, ProbeFact):
            continue
        results[name] = {
            "verdict": fact.value.value,
            "last": fact.last.value,
            "streak": f"{fact.streak}/{fact.threshold}",
            "checked_wall": wall - steady + fact.last_at,
            "detail": _short(fact.detail),
        }
    return results
