"""Builders of targets, and a reader that waits for facts. Used by the tests of the probe engine."""

import select
import time
from collections.abc import Callable
from typing import Any

from manifests.values.desired import Probe, ProbeKind
from providers.facts import Generation, ProbeFact
from providers.spi import ExecTarget
from reconciler.probes.engine import ProbeEngine
from reconciler.probes.target import Target

MS = 1_000_000
PATIENCE = 60.0
"""Longest wait on a busy machine, seconds."""


def steady() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def target(name: str, address: str = "127.0.0.1", port: int = 1, **probe: Any) -> Target:
    """A liveness target whose container id is `name`."""
    declared = {"kind": ProbeKind.HTTP, "period": 700 * MS, "timeout": 10_000 * MS, "port": port} | probe
    return Target(Generation(name, 1), "liveness", Probe(**declared), address, port, steady())


def command(name: str, *argv: str, env: tuple[tuple[str, str], ...] = (), cwd: str = "/", **probe: Any) -> Target:
    """An exec liveness target."""
    declared = {"kind": ProbeKind.EXEC, "period": 700 * MS, "timeout": 10_000 * MS, "command": argv} | probe
    path = (("PATH", "/usr/bin:/bin"),)
    return Target(
        Generation(name, 1), "liveness", Probe(**declared), "", 0, steady(), ExecTarget(argv, path + env, cwd)
    )


class Watch:
    """Reads an engine and keeps the newest fact by container id.

    Results that are void because this machine was too busy are skipped (`skip_void`): the next one counts.
    """

    def __init__(self, engine: ProbeEngine) -> None:
        self.engine = engine
        self.skip_void = True
        self.facts: dict[str, ProbeFact] = {}

    def until(self, done: Callable[[dict[str, ProbeFact]], bool], limit: float = PATIENCE) -> dict[str, ProbeFact]:
        """Read until the condition holds; fails after `limit` seconds."""
        deadline = time.monotonic() + limit
        while not done(self.facts):
            left = deadline - time.monotonic()
            assert left > 0, f"not reached within {limit} s: {self.facts} {self.engine.silent()}"
            select.select([self.engine], [], [], left)
            for (generation, _), fact in self.engine.read().items():
                if not (self.skip_void and fact.detail.startswith("void")):
                    self.facts[generation.container_id] = fact
        return self.facts

    def of(self, name: str, limit: float = PATIENCE) -> ProbeFact:
        """The first fact of one target."""
        return self.until(lambda facts: name in facts, limit)[name]
