"""Finds processes that a probe's command left behind through /proc and kills them, in any session. Used by `exec.py` and `engine.py`.

The engine's child process is a *subreaper*: orphans below it become its own children (prctl(2), PR_SET_CHILD_SUBREAPER), so
every process of a command is a descendant. All commands carry MARK in their environment, so that a later engine finds the
processes of a killed one.
"""

import os
import signal

MARK = "RECONCILER_PROBE"
"""Name of the environment variable: `<pid of the engine>:<its start in clock ticks>:<its namespaces>:<number of the run>`."""

_PR_SET_CHILD_SUBREAPER = 36
_ROUNDS = 10
"""Passes over a tree that may still be forking. Each kills all processes it finds, so only a deliberate fork bomb survives them."""


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


def namespaces() -> str:
    """The namespaces in which pids and start times of this process have their meaning: those of processes and of time."""
    found = []
    for kind in ("pid", "time"):
        try:
            found.append(str(os.stat(f"/proc/self/ns/{kind}").st_ino))
        except OSError:  # the kernel has no such namespaces
            found.append("0")
    return "-".join(found)


def children(pid: int) -> list[int]:
    """The direct children of a process, of all its threads; empty when it does not exist."""
    pids: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                pids.extend(int(text) for text in file.read().split())
    except OSError:
        return pids
    return pids


def kill(pid: int) -> None:
    """SIGKILL to a process, if it still exists."""
    try:
        os.kill(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


def kill_group(pid: int) -> None:
    """SIGKILL to the process group led by `pid`, which must not have been waited for yet: otherwise its number may be reused."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


def kill_tree(pid: int) -> None:
    """SIGKILL to a child of this process, its group, and all its descendants, including those that it forks meanwhile.

    The child must not have been waited for yet. Descendants become children of this process when their parents end; the caller's
    next sweep reaps them.
    """
    killed: set[int] = set()
    for _ in range(_ROUNDS):
        new = [descendant for descendant in _descendants(pid) if descendant not in killed]
        for descendant in new:
            kill(descendant)
        killed.update(new)
        kill_group(pid)
        kill(pid)
        if not new:
            return


def _descendants(pid: int) -> list[int]:
    descendants: list[int] = []
    queue = [pid]
    while queue:
        direct = children(queue.pop())
        descendants.extend(direct)
        queue.extend(direct)
    return descendants


def mark_of(pid: int) -> str:
    """The value of MARK in a process's environment; empty when it is absent or unreadable."""
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
    """Kill commands of engines that no longer exist (after SIGKILL); returns how many.

    One pass over the readable processes. A process counts only when its mark names an engine that no longer exists. From another
    namespace an engine that lives looks like one that does not: its commands are left alone.
    """
    killed, here = 0, namespaces()
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        engine, ticks, where, *_ = (*mark_of(int(name)).split(":"), "", "", "")
        if where == here and engine.isdigit() and ticks.isdigit() and start_ticks(int(engine)) != int(ticks):
            kill(int(name))
            killed += 1
    return killed
