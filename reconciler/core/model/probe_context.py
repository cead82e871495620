"""The probe context on a label of a foreign container: a value of `Observed`. `replicas/labelled` has the rules."""

from typing import NamedTuple

from manifests.values.desired import Probe


class Context(NamedTuple):
    """A probe context as the shell has parsed it: probes by name, or the error in the text."""

    probes: tuple[tuple[str, Probe], ...] = ()
    problem: str = ""
