"""Settings of `type: nginx`. Apart from the provider so that manifests are checked without it."""

import os
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from manifests.types import durations
from manifests.types.durations import Duration
from manifests.types.fields import Delay
from manifests.values.desired import SECOND


def _absolute(path: str) -> str:
    if not os.path.isabs(path) or "\0" in path:
        raise ValueError(f"{path!r} is not an absolute path")
    return os.path.normpath(path)


_Path = Annotated[str, AfterValidator(_absolute)]

_Pause = Annotated[Delay, AfterValidator(durations.between(100_000_000, 10 * SECOND))]
"""A call waits for it, and must end within its deadline."""


class NginxSettings(BaseModel):
    """Settings of `type: nginx`."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True)

    directory: _Path = Field(
        default="/etc/nginx/reconciler",
        description="Absolute path of the directory with the pools' files, `<pool>.conf`. nginx's configuration must include them.",
    )
    configuration: _Path = Field(
        default="/etc/nginx/nginx.conf",
        description="Absolute path of nginx's main file, which is tested before each change.",
    )
    pid_file: _Path = Field(
        default="/run/nginx.pid", description="Absolute path of the file with the master's process id."
    )
    timeout: Delay = Field(
        default=Duration(10 * SECOND), description="Longest time of one change: its test and the reload."
    )
    reload_interval: _Pause = Field(
        default=Duration(SECOND),
        description="Shortest time between two reloads, at most 10s. Changes that come sooner wait, and go together with the next ones.",
    )
