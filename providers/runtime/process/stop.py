"""Stopping and removing a replica. Called by `ProcessRuntime`.

A stop waits for the shim: the grace period for the application, then `SLACK` for its other processes and the record. Before each
signal a pidfd is opened, then the process is compared with the record, then the pidfd is signalled: a reused pid is never
signalled.
"""

import os
import select
import signal

from providers.errors import Conflict, OutcomeUnknown
from providers.facts import Generation
from providers.runtime.process.observe import ReplicaState, look, read_host
from providers.runtime.process.shim_protocol import (
    GENERATION,
    SECOND,
    STOP,
    TREE_DEADLINE,
    decode,
    encode,
    is_alive,
    kill_strays,
    read_file,
    steady,
    write_file,
)
from providers.runtime.process.store import ContainerRecord, Store

SLACK = TREE_DEADLINE + 5 * SECOND
"""How long after the grace period a shim may take to kill remaining processes and to write its record."""

KILL_DEADLINE = 5 * SECOND
"""How long a killed process may take to exit."""


def stop(store: Store, record: ContainerRecord, expect: Generation, grace: int) -> None:
    """Stop generation `expect` and return once all its processes are gone. Does nothing when it is down.

    Raises Conflict when a newer generation runs, OutcomeUnknown when a process survives SIGKILL, OSError.
    """
    name = record.name
    host = read_host()
    replica = look(store, name, host)
    if not replica.up:
        if replica.unclean(host):
            with store.held(name):
                _kill_without_shim(store, record, grace)
        return
    if Generation(record.id, replica.started_at) != expect:
        raise Conflict(name, f"runs in a newer generation: {record.id} {replica.started_at}", "retried automatically")
    request = {"started_at": str(replica.started_at), "grace": str(grace)}
    write_file(f"{store.directory(name)}/{STOP}", encode(request))
    _stop_shim(replica, grace)
    if not look(store, name, host).unclean(host):
        return
    with store.held(name):
        _kill_without_shim(store, record, grace)


def remove(store: Store, record: ContainerRecord, expect: Generation) -> None:
    """Remove the replica, whose newest generation must be `expect` and not running. Raises Conflict, OutcomeUnknown, OSError."""
    name = record.name
    host = read_host()
    _check_removable(record, expect, look(store, name, host))
    with store.held(name):
        replica = look(store, name, host)
        _check_removable(record, expect, replica)
        if replica.unclean(host):
            _kill_without_shim(store, record, 0)
        store.discard(name)


def _check_removable(record: ContainerRecord, expect: Generation, replica: ReplicaState) -> None:
    current = Generation(record.id, replica.started_at)
    if current != expect:
        cause = f"its generation has changed: expected {tuple(expect)}, found {tuple(current)}"
        raise Conflict(record.name, cause, "retried automatically")
    if replica.up:
        raise Conflict(record.name, f"is {replica.state} and cannot be removed", "stop it first")


def _stop_shim(replica: ReplicaState, grace: int) -> None:
    """Ask the shim to stop the replica and wait until it exits; kill it after the time-out."""
    newest = replica.generation
    if newest is None:
        return
    shim = open_process(newest.shim, newest.shim_start)
    if shim is None:
        return
    try:
        _send(shim, signal.SIGTERM)
        _send(shim, signal.SIGCONT)
        if _exits_within(shim, grace + SLACK):
            return
        _send(shim, signal.SIGKILL)  # it hangs or is frozen; the kernel kills the application with it
        _exits_within(shim, KILL_DEADLINE)
    finally:
        os.close(shim)


def _kill_without_shim(store: Store, record: ContainerRecord, grace: int) -> None:
    """Kill the processes that a killed shim left, and record the exit. Call it while holding the replica's lock."""
    path = f"{store.directory(record.name)}/{GENERATION}"
    newest = store.generation(record.name)
    if newest is None or newest.phase == "exited":
        return
    app = open_process(newest.pid, newest.pid_start)
    if app is not None:
        try:
            _send(app, signal.SIGTERM)
            _send(app, signal.SIGCONT)
            if not _exits_within(app, grace):
                _send(app, signal.SIGKILL)
                _exits_within(app, KILL_DEADLINE)
        finally:
            os.close(app)
    left = kill_strays(record.id, steady() + TREE_DEADLINE)
    if left or is_alive(newest.pid, newest.pid_start):
        raise OutcomeUnknown(record.name, "some of its processes survive SIGKILL", "check for hung mounts or devices")
    cause = "unknown" if app is None else "stopped-by-us"
    ending = {"phase": "exited", "exit_code": "", "cause": cause, "exited_at": str(steady()), "exited_wall": ""}
    write_file(path, encode({**decode(read_file(path) or b""), **ending}))


def open_process(pid: int, start: int) -> int | None:
    """A pidfd of the process with this pid and start time; None when it is gone. The caller closes it."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return None
    if is_alive(pid, start):
        return fd
    os.close(fd)
    return None


def _send(pidfd: int, number: int) -> None:
    try:
        signal.pidfd_send_signal(pidfd, number)
    except ProcessLookupError:
        return


def _exits_within(pidfd: int, wait: int) -> bool:
    """Whether the process exits within `wait` ns."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(max(0, wait) // 1_000_000))
