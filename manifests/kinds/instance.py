"""Instance: this installation of the program."""

from typing import Literal

from pydantic import Field

from manifests.desired import SECOND
from manifests.fields import InstanceId, Interval
from manifests.kinds.base import Manifest, Model
from manifests.scalars import Duration


class Intervals(Model):
    """How often each kind of provider is looked at."""

    runtime: Interval = Field(Duration(15 * SECOND), description="Time between looks at containers.")
    endpoints: Interval = Field(Duration(SECOND), description="Time between looks at pools.")
    dns: Interval = Field(Duration(30 * SECOND), description="Time between looks at zones.")


class InstanceSpec(Model):
    """Who this is, and how it works."""

    id: InstanceId = Field(description="Owner mark on everything this installation makes; unique among installations.")
    prune: bool = Field(False, description="Deletes what is owned but no longer declared.")
    intervals: Intervals = Field(default_factory=Intervals, description="How often providers are looked at.")


class Instance(Manifest):
    """This installation of the program. Exactly one."""

    kind: Literal["Instance"] = Field(description="What the document declares.")
    spec: InstanceSpec = Field(description="What is wanted.")
