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
"""Where the configuration of Debian's package has its admin socket."""


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
        raise ValueError("a socket is named twice")
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
        description="Absolute paths of stats sockets with `level admin`, one for each process that carries the pools.",
    )
    state_file: Annotated[str, AfterValidator(_absolute)] | None = Field(
        default=None,
        description="HAProxy's server-state-file, as an absolute path. Kept up to date, so that a reload keeps addresses "
        "and weights; with several sockets they must run the same backends.",
    )
    persistence: Literal["keep", "cut"] = Field(
        default="keep",
        description="What weight 0 means to clients that a cookie or a stick-table binds to the endpoint: with `keep` they "
        "still reach it, with `cut` they go to another one. What is under way goes on either way.",
    )
    reload_window: Deadline = Field(
        default=Duration(60 * SECOND),
        description="How long after the start of a process sessions are taken for unknown, because the one before it may still "
        "have some: as long as `hard-stop-after`, or as the longest requests that matter.",
    )
    timeout: Delay = Field(
        default=Duration(5 * SECOND), description="The longest that one look, or one batch of writes, may take."
    )
