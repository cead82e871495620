"""A probe engine in virtual time: real periods and streaks, with the answers of simulated applications."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from providers.facts import Generation, ProbeFact
from providers.testing.memory import MemoryWorld
from reconciler.probes.engine import VALUES
from reconciler.probes.streak import FAIL, PASS, Streak, initial, step
from reconciler.probes.target import Target, same_target, valid_for
from tests.sim.apps import CODES, Apps


@dataclass(slots=True)
class _Running:
    target: Target
    due: int
    streak: Streak


class SimProber:
    """Implements the loop's `Prober`. `pump` runs every probe that is due; results wake the loop through a descriptor."""

    def __init__(self, outside: MemoryWorld, apps: Apps) -> None:
        self.outside, self.apps = outside, apps
        self.running: dict[tuple[Generation, str], _Running] = {}
        self.results: dict[tuple[Generation, str], ProbeFact] = {}
        self.why_silent = ""
        self.unstartable = False
        self.readable = False
        self.restarts = 0
        self.made = 0
        self._eventfd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    # --- for the loop ------------------------------------------------------------------------------------

    def set_targets(self, targets: list[Target]) -> None:
        """Run exactly these probes from now on; known ones keep their streak."""
        now = self.outside.steady()
        before, self.running = self.running, {}
        for target in targets:
            old = before.get(target.key)
            if old is not None and same_target(old.target, target):
                self.running[target.key] = old
                continue
            first = max(now, target.started + target.probe.initial_delay)
            self.running[target.key] = _Running(target, first, initial(now))

    def read(self) -> Mapping[tuple[Generation, str], ProbeFact]:
        """All results since the last call."""
        results, self.results = self.results, {}
        if self.readable:
            os.eventfd_read(self._eventfd)
            self.readable = False
        return results

    def fileno(self) -> int:
        """A descriptor that is readable when there are results."""
        return self._eventfd

    def silent(self) -> str:
        """Why the results cannot be used now; empty when they can."""
        return self.why_silent

    def restart(self) -> None:
        """A new engine: it answers again, and has lost all streaks. Raises OSError while no process can be made."""
        if self.unstartable:
            raise BlockingIOError(11, "Resource temporarily unavailable")
        self.restarts += 1
        self.why_silent = ""
        self.running.clear()
        self.results.clear()

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self._eventfd)

    # --- for the simulation ------------------------------------------------------------------------------

    def next_due(self) -> int:
        """The instant of the next probe."""
        if self.why_silent or not self.running:
            return 2**62
        return min(probe.due for probe in self.running.values())

    def pump(self, now: int) -> bool:
        """Run every probe that is due. Whether there are unread results."""
        if not self.why_silent:
            for key, running in self.running.items():
                if running.due <= now:
                    self._probe(key, running, now)
        if self.results and not self.readable:
            os.eventfd_write(self._eventfd, 1)
            self.readable = True
        return bool(self.results)

    def _probe(self, key: tuple[Generation, str], running: _Running, now: int) -> None:
        """Make a due probe: its answer counts at once, and the next one is a period later."""
        self.made += 1
        running.due = now + running.target.probe.period
        self.count(key, running, self._result(running.target, now), now)

    def count(self, key: tuple[Generation, str], running: _Running, result: int, now: int) -> None:
        """Count an answer, a code of `reconciler.probes.streak`."""
        probe = running.target.probe
        limit = valid_for(probe)
        running.streak = step(running.streak, result, now, probe.success_threshold, probe.failure_threshold, limit)
        streak = running.streak
        self.results[key] = ProbeFact(
            VALUES[streak.value],
            VALUES[streak.last],
            streak.length,
            probe.failure_threshold if streak.run else probe.success_threshold,
            streak.since,
            streak.counted_at,
            limit,
            "simulated",
        )

    def _result(self, target: Target, now: int) -> int:
        generation = target.generation
        for node, containers in self.outside.nodes.items():
            for item in containers.values():
                if item.id == generation.container_id:
                    if node in self.apps.cut:
                        return CODES[self.apps.cut[node]]
                    alive = item.up and item.started_at == generation.started_at
                    running_for = now - item.running_since if alive else -1
                    return self.apps.answer(item.name, generation, target.name, running_for, now, target.probe)
        return PASS if self.apps.checks_pass and target.probe.path not in self.apps.bad_checks else FAIL
