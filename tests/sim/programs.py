"""The programs in simulated containers: where each listens and what it answers, by the version that its container was made from.

A simulation without programs answers every probe, whatever it asks for. `World.run_programs` gives each container its own, so that a
probe of another revision fails as it does in reality.
"""

from collections.abc import Callable
from dataclasses import dataclass

from manifests.values.desired import Probe, ProbeKind, Template
from providers.actions import CreateContainer


@dataclass(frozen=True, slots=True)
class Program:
    """One program: the ports that it listens on, and the requests that it answers as healthy (None: all of them).

    A program that is not `good` listens nowhere.
    """

    ports: frozenset[int]
    healthy: frozenset[object] | None = None
    good: bool = True

    def passes(self, probe: Probe) -> bool:
        """Whether a probe of this program passes."""
        if not self.good or (probe.port and probe.port not in self.ports):
            return False
        if probe.kind is ProbeKind.TCP:
            return True
        if probe.kind is ProbeKind.HTTP and not any(low <= 200 <= high for low, high in probe.expected):
            return False
        return self.healthy is None or request(probe) in self.healthy


def request(probe: Probe) -> object:
    """What a probe asks for, without when and how often."""
    return probe.kind, probe.path, probe.scheme, probe.headers, probe.host, probe.command, probe.service


def probes_of(template: Template) -> tuple[Probe, ...]:
    """All probes of a template."""
    main = template.container
    return tuple(probe for probe in (main.startup, main.liveness, main.readiness) if probe is not None)


ProgramOf = Callable[[CreateContainer], Program]
"""The program in a container, by the action that creates it."""
