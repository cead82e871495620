"""Reviews: plans of open merge requests, made by the daemon. Part of `Instance`, only in local documents."""

from typing import Annotated

from pydantic import Field

from manifests.kinds.base import Model
from manifests.types.durations import Duration
from manifests.types.fields import CallTimeout, PollInterval, Shown
from manifests.values.desired import SECOND
from manifests.values.reviews import Reviews as Value


class Reviews(Model):
    """Plans of open merge requests into the branch of `source`, as one comment and one commit status each, while `reconcile --watch` runs.

    Nothing of their trees is run or asked, so forks are planned too. Needs `source` and `forge`.
    """

    interval: PollInterval = Field(
        Duration(60 * SECOND), description="Time between two questions for open merge requests."
    )
    timeout: CallTimeout = Field(
        Duration(120 * SECOND),
        description="Longest time of one plan, with the fetch of its commit. Then its process is killed.",
    )
    limit: Annotated[int, Field(ge=1, le=100), Shown("number, 1 to 100")] = Field(
        20, description="Merge requests that are planned, the newest ones. Others are left out."
    )

    def value(self) -> Value:
        """As the rest of the program reads it."""
        return Value(int(self.interval), int(self.timeout), self.limit)
