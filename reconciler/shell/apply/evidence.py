"""Keeps evidence of a failing replica before a step destroys it: a stop for its health, a start after a crash, a replacement.

A restarted container has lost what made it fail, and a failed deployment its containers. So the last probe results, the last log
lines and the exit are kept in the store, for `explain` and `events`. The applier calls `take` before such a step, the loop calls
`add_end` after it. Evidence delays healing by `PATIENCE` at most and never prevents it: what is not available by then is left out,
and the record says so.
"""

import asyncio
import json
from dataclasses import dataclass
from typing import Any, Protocol

from providers.actions import RemoveContainer, StartContainer, StopContainer
from providers.errors import ProviderError
from providers.facts import ContainerFact, ContainerState, ExitCause, Generation, Known, ProbeFact, Probes, ProbeValue
from reconciler.core.model.reasons import Reason
from reconciler.core.model.step import Step
from reconciler.shell.clock import Clock
from reconciler.shell.logs import SECRETS
from reconciler.shell.looks.facts import Looks
from reconciler.shell.store.audit import Event
from reconciler.shell.store.directory import StoreError
from reconciler.shell.store.ports import EvidenceStore

PATIENCE = 2.0
"""Longest time that a step waits for the log, in seconds."""

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

OURS = frozenset({ExitCause.STOPPED_BY_US, ExitCause.HOST_RESTARTED})
"""Exit causes that say nothing about the container."""


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

    async def take(self, step: Step) -> None:
        """Keep evidence of the container of this step, before the step. Raises nothing."""
        action = step.action
        if not isinstance(action, StopContainer | StartContainer | RemoveContainer):
            return
        fact = self._fact(action.node, action.name)
        if not self._needed(step, fact):
            return
        now = self._clock.now()
        lines, missing = await self._log(action.node, action.name)
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
        try:
            event = Event(now.wall, "evidence", step.object, step.id, step.cause.value, "kept", _summary(value))
            number = self._cabinet.put_evidence(event, json.dumps(value))
        except StoreError:
            return  # the journal then cannot be written either, and the step is not done
        if isinstance(action, StopContainer):
            self._taken[step.id] = _Taken(number, value, action.expect)

    def add_end(self, step: Step) -> None:
        """After the step: add how the container exited, as read back. Raises nothing."""
        taken = self._taken.pop(step.id, None)
        action = step.action
        if taken is None or not isinstance(action, StopContainer):
            return
        fact = self._fact(action.node, action.name)
        if fact is None or fact.generation != taken.generation:
            return
        taken.value["end"] = _end(fact)
        try:
            self._cabinet.amend_evidence(taken.number, json.dumps(taken.value))
        except StoreError:
            return  # the next write to the store reports it

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
        return step.cause is Reason.CRASHED

    def _fact(self, node: str, name: str) -> ContainerFact | None:
        known = self._looks.runtimes.get(node)
        facts = known.value if isinstance(known, Known) else ()
        return next((fact for fact in facts if fact.name == name), None)

    async def _log(self, node: str, name: str) -> tuple[list[str], str]:
        """The last lines without secrets, and the reason if there are none."""
        provider = self._looks.providers.runtimes.get(node)
        if provider is None:
            return [], "its runtime is no longer configured"
        try:
            async with asyncio.timeout(self._patience):
                lines = await self._looks.runner.run(lambda: provider.logs(name, LINES))
        except TimeoutError:
            return [], f"no log within {self._patience:g} s"
        except ProviderError as error:
            return [], SECRETS.mask(str(error))
        kept: list[str] = []
        room = LOG_LIMIT
        # Masked as a whole, because a secret may contain line breaks.
        for line in reversed(SECRETS.mask("\n".join(lines)).splitlines()):
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
