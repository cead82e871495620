"""How merge requests are planned by a daemon."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reviews:
    """`interval`, `timeout`: ns between two questions for merge requests, and ns of one plan. `limit`: merge requests that are planned."""

    interval: int
    timeout: int
    limit: int
