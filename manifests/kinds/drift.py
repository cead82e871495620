"""Drift: what is done about fields of containers that moved while the manifests did not. Of a Workload, and as its default of the Guard."""

from typing import Literal

from pydantic import Field

from manifests.kinds.base import Model

_Action = Literal["correct", "report", "ignore"]


class Drift(Model):
    """The action by field; a field that is left out is that of the Guard, whose own defaults are `correct`, for `image` `report`.

    `report` shows the difference as a hold and leaves it; `ignore` shows nothing, neither in plans nor in `reconcile drift`.
    """

    resources: _Action | None = Field(
        None, description="Limits of CPU and memory that differ, for example after `docker update`."
    )
    networks: _Action | None = Field(
        None, description="A network that the container was created for and is not connected to any more."
    )
    image: _Action | None = Field(
        None,
        description="A container that runs another image than its revision, because another program replaced it; `correct` recreates it.",
    )
