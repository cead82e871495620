"""The ledger's row of a container of ours, by its id: that it is ours, and which of its ends are known.

`replicas/identity` adds and drops rows, `replicas/ends` compares them with what is observed.
"""

from typing import Any, NamedTuple


class Owned(NamedTuple):
    """One container of this instance, under whatever name it has now.

    `ended_at` identifies its last end (wall-clock ns, or the start of the generation that ended; 0 = none yet), `oom_at` its last
    kill at the memory limit while it ran on (wall-clock ns). `restarts` is the runtime's own count at the last look. `node` and
    `replica` tell where and what it is, empty in rows of older versions, and `volumes` are its exclusive volumes: of a container on a
    node that cannot be read, or of a workload that is not declared any more, nothing else tells that.
    """

    ended_at: int = 0
    oom_at: int = 0
    restarts: int = 0
    node: str = ""
    replica: str = ""
    volumes: tuple[str, ...] = ()


def read_owned(raw: list[Any]) -> Owned:
    """A row from its stored form; rows of older versions are shorter."""
    row = Owned(*raw)
    return row._replace(volumes=tuple(row.volumes))
