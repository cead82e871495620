"""The applications in simulated containers: when each answers, fails, misleads probes or crashes. No process, no thread."""

from dataclasses import dataclass, field

from manifests.values.desired import SECOND, Probe
from providers.facts import Generation, ProbeValue
from reconciler.probes.streak import CANNOT_RUN, FAIL, PASS, UNKNOWN
from tests.sim.programs import Program

CODES = {
    ProbeValue.PASS: PASS,
    ProbeValue.FAIL: FAIL,
    ProbeValue.UNKNOWN: UNKNOWN,
    ProbeValue.CANNOT_RUN: CANNOT_RUN,
}


@dataclass(slots=True)
class Apps:
    """The behaviour of every application, by container name and generation.

    `start_delay` is the time until a generation answers (ns), `slow` overrides it per container. Generations in `sick` fail
    liveness, those in `unready` fail readiness, until restarted. Containers in `cursed` fail liveness in every generation, those
    in `mute` fail readiness. `lies` overrides the result of a probe: (container, probe) -> value. `flaps` makes a probe alternate
    with this period (ns). `crash_after` ends each generation of a container this long (ns) after its start. `programs` says, by
    container id, what the program in it answers; without one it answers every probe. `checks_pass` is the result of checks of names, and those
    of a path in `bad_checks` fail. `cut` is the result of every probe of the containers of a node that cannot be reached.
    """

    start_delay: int = 2 * SECOND
    slow: dict[str, int] = field(default_factory=dict)
    sick: set[Generation] = field(default_factory=set)
    unready: set[Generation] = field(default_factory=set)
    cursed: set[str] = field(default_factory=set)
    mute: set[str] = field(default_factory=set)
    lies: dict[tuple[str, str], ProbeValue] = field(default_factory=dict)
    flaps: dict[tuple[str, str], int] = field(default_factory=dict)
    crash_after: dict[str, int] = field(default_factory=dict)
    programs: dict[str, Program] = field(default_factory=dict)
    checks_pass: bool = False
    bad_checks: set[str] = field(default_factory=set)
    cut: dict[str, ProbeValue] = field(default_factory=dict)

    def delay(self, name: str) -> int:
        return self.slow.get(name, self.start_delay)

    def healthy(self, name: str, generation: Generation) -> bool:
        """Whether the application really works, whatever its probes show."""
        return not (
            generation in self.sick or generation in self.unready or name in self.cursed or name in self.mute
        ) and not any(container == name for container, _ in (*self.lies, *self.flaps))

    def answer(
        self, name: str, generation: Generation, probe: str, running_for: int, steady: int, asked: Probe | None = None
    ) -> int:
        """The result of one probe now, as a code of `reconciler.probes.streak`. `asked` is what the probe asks for."""
        lie = self.lies.get((name, probe)) or self.lies.get(("*", probe))
        if lie is not None:
            return CODES[lie]
        probe = probe.rpartition(" ")[2]  # what is tried or asked once more has the probe's name at its end
        period = self.flaps.get((name, probe))
        if period is not None and steady // period % 2:
            return FAIL
        if running_for < self.delay(name):
            return FAIL
        if probe == "liveness" and (generation in self.sick or name in self.cursed):
            return FAIL
        if probe == "readiness" and (generation in self.unready or name in self.mute):
            return FAIL
        program = self.programs.get(generation.container_id)
        return PASS if program is None or asked is None or program.passes(asked) else FAIL
