"""The shell's probing with a fake probe engine, in virtual time. Used by the tests of its targets and results."""

from collections.abc import Mapping

from manifests.values.desired import SECOND
from providers.facts import Generation, ProbeFact
from reconciler.probes.target import Target
from reconciler.shell.looks.facts import Looks
from reconciler.shell.looks.triggers import Wake
from reconciler.shell.probing.targets import Probing
from reconciler.shell.providers import Providers
from tests.inline_runner import InlineRunner
from tests.sim.clock import VirtualClock

START = 1000 * SECOND


class FakeProber:
    """A `Prober` that records its targets and returns prepared results. `updates` counts the calls of `set_targets`."""

    def __init__(self) -> None:
        self.targets: dict[tuple[Generation, str], Target] = {}
        self.results: dict[tuple[Generation, str], ProbeFact] = {}
        self.updates = 0

    def set_targets(self, targets: list[Target]) -> None:
        self.updates += 1
        self.targets = {target.key: target for target in targets}

    def read(self) -> Mapping[tuple[Generation, str], ProbeFact]:
        results, self.results = self.results, {}
        return results

    def fileno(self) -> int:
        return -1

    def silent(self) -> str:
        return ""

    def restart(self) -> None:
        self.targets.clear()

    def close(self) -> None:
        self.targets.clear()


class Shell:
    """The clock, the looks and the probing of one process; looks happen only on request."""

    def __init__(self) -> None:
        self.clock = VirtualClock(steady=START)
        self.prober = FakeProber()
        self.looks = Looks(Providers(), InlineRunner(), self.clock, Wake())
        self.probing = Probing(self.prober, self.looks)
