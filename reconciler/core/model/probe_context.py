"""A probe context that an owner put on a label of a container of their own: a value of `Observed`. `replicas/labelled.py` has the rules."""

from typing import NamedTuple

from manifests.values.desired import Probe


class Context(NamedTuple):
    """A probe context as the shell has read it: probes by name, or what is wrong with the text."""

    probes: tuple[tuple[str, Probe], ...] = ()
    problem: str = ""
