"""Processes that a probe's command left behind: found through /proc and killed, whatever session they moved to.

Used by `exec.py` only. The engine's child process is a *subreaper*: whoever is orphaned below it becomes its own child
(prctl(2), PR_SET_CHILD_SUBREAPER), so everything a command started can be reached as a descendant. All commands carry
MARK in their environment, so that a later engine finds what a killed one left.
"""

import os
import signal

MARK = "RECONCILER_PROBE"
"""Name of the environment variable: `<pid of the engine>:<its start in clock ticks>:<number of the run>`."""

_PR_SET_CHILD_SUBREAPER = 36
_ROUNDS = 10
"""Walks over a tree that may still be forking. Each kills all it finds, so only a deliberate fork bomb survives them."""


def become_subreaper() -> bool:
    """Adopt orphans from now on; False when the kernel refuses."""
    import ctypes  # noqa: PLC0415  (only engines with exec probes need it)

    return bool(ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)


def start_ticks(pid: int) -> int:
    """When a process started, in clock ticks since boot; 0 when it does not exist. With the pid it names one process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[19])
    except (OSError, IndexError, ValueError):
        return 0


def children(pid: int) -> list[int]:
    """The direct children of a process, of all its threads; empty when it does not exist."""
    found: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                found.extend(int(text) for text in file.read().split())
    except OSError:
        return found
    return found


def kill(pid: int) -> None:
    """SIGKILL, if it is still there."""
    try:
        os.kill(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


def kill_group(pid: int) -> None:
    """SIGKILL to the process group led by `pid`, which must not have been waited for yet: its number is still its own."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


def kill_tree(pid: int) -> None:
    """SIGKILL to a child of ours, its group, and all its descendants as they are now and as they become while dying.

    The child must not have been waited for yet. Descendants are not ours to wait for: when their parents die they become
    our children, and the caller's next sweep reaps them.
    """
    seen: set[int] = set()
    for _ in range(_ROUNDS):
        fresh = [descendant for descendant in _descendants(pid) if descendant not in seen]
        for one in fresh:
            kill(one)
        seen.update(fresh)
        kill_group(pid)
        kill(pid)
        if not fresh:
            return


def _descendants(pid: int) -> list[int]:
    found: list[int] = []
    queue = [pid]
    while queue:
        below = children(queue.pop())
        found.extend(below)
        queue.extend(below)
    return found


def mark_of(pid: int) -> str:
    """The value of MARK in a process's environment; empty when there is none or it may not be read."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            environ = file.read(1 << 20)
    except OSError:
        return ""
    prefix = f"{MARK}=".encode()
    for entry in environ.split(b"\0"):
        if entry.startswith(prefix):
            return entry[len(prefix) :].decode(errors="replace")
    return ""


def kill_leftovers() -> int:
    """Kill commands of engines that do not exist any more (killed with -9); returns how many.

    One pass over the processes that may be read. A process counts only when its mark names an engine that is gone.
    """
    killed = 0
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        engine, _, rest = mark_of(int(name)).partition(":")
        ticks = rest.partition(":")[0]
        if engine.isdigit() and ticks.isdigit() and start_ticks(int(engine)) != int(ticks):
            kill(int(name))
            killed += 1
    return killed
