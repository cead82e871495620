"""The ledger's row of a container of ours, by its id: that it is ours, where it is, and which of its ends are known.

`replicas/identity` adds and drops rows, `replicas/ends` compares them with what is observed, `replicas/unseen` reads those of nodes
that cannot be read.
"""

from typing import Any, NamedTuple


class Owned(NamedTuple):
    """One container of this instance, under whatever name it has now.

    `ended_at` identifies its last end (wall-clock ns, or the start of the generation that ended; 0 = none yet), `oom_at` its last
    kill at the memory limit while it ran on (wall-clock ns). `restarts` is the runtime's own count at the last look. `node`, `workload`
    (its name), `ordinal` and `revision` say which replica it is and where; `node` is empty in rows of older versions. `reach` is how
    it could be reached at the last look: its own addresses as `ADDRESS`, ports of its host as `ADDRESS:PORT`. `volumes` are its exclusive
    volumes: of a container on a node that cannot be read, or of a workload that is not declared any more, nothing else shows that.
    """

    ended_at: int = 0
    oom_at: int = 0
    restarts: int = 0
    node: str = ""
    workload: str = ""
    ordinal: int = -1
    revision: str = ""
    reach: tuple[str, ...] = ()
    volumes: tuple[str, ...] = ()

    @property
    def replica(self) -> str:
        """The key of the replica that it is; empty in rows of older versions."""
        return f"workload/{self.workload}/{self.ordinal}" if self.workload else ""


def read_owned(raw: list[Any]) -> Owned:
    """A row from its stored form; rows of older versions are shorter."""
    row = Owned(*raw)
    return row._replace(reach=tuple(row.reach), volumes=tuple(row.volumes))
