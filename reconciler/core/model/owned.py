"""The ledger's row of a container of ours, by its id: that it is ours, and which of its ends are known.

`replicas/identity` adds and drops rows, `replicas/ends` compares them with what is observed.
"""

from typing import NamedTuple


class Owned(NamedTuple):
    """One container of this instance, under whatever name it has now.

    `ended_at` identifies its last end (wall-clock ns, or the start of the generation that ended; 0 = none yet), `oom_at` its last
    kill at the memory limit while it ran on (wall-clock ns). `restarts` is the runtime's own count at the last look.
    """

    ended_at: int = 0
    oom_at: int = 0
    restarts: int = 0
