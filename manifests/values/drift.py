"""What is done about drift of containers: a field that moved in the world while the manifests did not. Values of `desired.Workload`."""

from dataclasses import dataclass
from enum import StrEnum


class DriftAction(StrEnum):
    """What is done about a field that moved: it is corrected, only reported, or taken as it is."""

    CORRECT = "correct"
    REPORT = "report"
    IGNORE = "ignore"


@dataclass(frozen=True, slots=True)
class DriftRules:
    """The action by field: `resources` are limits of CPU and memory, `networks` those a container was created for, `image` its digest."""

    resources: DriftAction = DriftAction.CORRECT
    networks: DriftAction = DriftAction.CORRECT
    image: DriftAction = DriftAction.REPORT


DEFAULT_DRIFT = DriftRules()
