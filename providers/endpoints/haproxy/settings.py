"""Settings of `type: haproxy`. Apart from the provider so that manifests are checked without it."""

import os
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from manifests.types.durations import Duration
from manifests.types.fields import Deadline, Delay
from manifests.values.desired import SECOND

SOCKET_PATH_BYTES = 107
"""Longest path of a Unix socket on Linux (unix(7): 108 bytes with the final zero)."""

DEBIAN_SOCKET = "/run/haproxy/admin.sock"
"""The admin socket in the configuration of Debian's package."""


def _absolute(path: str) -> str:
    if not os.path.isabs(path) or "\0" in path:
        raise ValueError(f"{path!r} is not an absolute path")
    return path


def _short(path: str) -> str:
    if len(os.fsencode(path)) > SOCKET_PATH_BYTES:
        raise ValueError(f"a socket's path has at most {SOCKET_PATH_BYTES} bytes")
    return path


def _distinct(paths: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(paths)) != len(paths):
        raise ValueError("a socket is listed twice")
    return paths


class HAProxySettings(BaseModel):
    """Settings of `type: haproxy`."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True)
    takes_slots: ClassVar[bool] = True

    sockets: Annotated[
        tuple[Annotated[str, AfterValidator(_absolute), AfterValidator(_short)], ...], AfterValidator(_distinct)
    ] = Field(
        default=(DEBIAN_SOCKET,),
        min_length=1,
        description="Absolute paths of stats sockets with `level admin`, one for each process that serves the pools.",
    )
    state_file: Annotated[str, AfterValidator(_absolute)] | None = Field(
        default=None,
        description="Absolute path of HAProxy's server-state-file. It is kept up to date, so that a reload keeps addresses and "
        "weights. With several sockets, all must run the same backends.",
    )
    persistence: Literal["keep", "cut"] = Field(
        default="keep",
        description="What weight 0 means for clients that a cookie or a stick-table binds to the endpoint. `keep`: they still reach "
        "it. `cut`: they go to another one. Requests in flight go on either way.",
    )
    reload_window: Deadline = Field(
        default=Duration(60 * SECOND),
        description="How long after the start of a process sessions count as unknown, because the process before it may still have "
        "some. Set it to `hard-stop-after`, or to the longest request that matters.",
    )
    timeout: Delay = Field(
        default=Duration(5 * SECOND), description="Longest time of one look, or of one batch of writes."
    )
