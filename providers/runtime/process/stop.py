"""Stopping and removing a replica. Called by `ProcessRuntime`.

The rule for every signal: open a pidfd, then check that the process is the recorded one, then signal through the pidfd. A
pid that has become somebody else's is never signalled.
"""

import os
import select
import signal

from providers.errors import Conflict, OutcomeUnknown
from providers.facts import Generation
from providers.runtime.process.observe import Seen, look, read_host
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
"""How long after the grace a shim may take to end what is left and to write its record."""

KILL_DEADLINE = 5 * SECOND
"""How long a killed process may take to be gone."""


def stop(store: Store, record: ContainerRecord, expect: Generation, grace: int) -> None:
    """Stop generation `expect` and return once all of it is gone. Down already: success.

    Raises Conflict when a newer generation runs, OutcomeUnknown when something survives being killed, OSError.
    """
    name = record.name
    host = read_host()
    seen = look(store, name, host)
    if not seen.up:
        if seen.unclean(host):
            with store.held(name):
                _end_without_shim(store, record, grace)
        return
    if Generation(record.id, seen.started_at) != expect:
        raise Conflict(name, f"runs in generation {record.id} {seen.started_at} by now", "look again")
    request = {"started_at": str(seen.started_at), "grace": str(grace)}
    write_file(f"{store.directory(name)}/{STOP}", encode(request))
    _end_shim(seen, grace)
    if not look(store, name, host).unclean(host):
        return
    with store.held(name):
        _end_without_shim(store, record, grace)


def remove(store: Store, record: ContainerRecord, expect: Generation) -> None:
    """Remove the replica, whose newest generation must be `expect` and not running. Raises Conflict, OutcomeUnknown, OSError."""
    name = record.name
    host = read_host()
    _check_removable(record, expect, look(store, name, host))
    with store.held(name):
        seen = look(store, name, host)
        _check_removable(record, expect, seen)
        if seen.unclean(host):
            _end_without_shim(store, record, 0)
        store.discard(name)


def _check_removable(record: ContainerRecord, expect: Generation, seen: Seen) -> None:
    found = Generation(record.id, seen.started_at)
    if found != expect:
        raise Conflict(record.name, f"the plan saw generation {tuple(expect)}, now it is {tuple(found)}", "look again")
    if seen.up:
        raise Conflict(record.name, f"is {seen.state}, so it cannot be removed", "stop it first")


def _end_shim(seen: Seen, grace: int) -> None:
    """Ask the shim to end the replica and wait until it is gone; kill it when it does not do it in time."""
    newest = seen.generation
    if newest is None:
        return
    shim = open_process(newest.shim, newest.shim_start)
    if shim is None:
        return
    try:
        _send(shim, signal.SIGTERM)
        _send(shim, signal.SIGCONT)
        if _ended(shim, grace + SLACK):
            return
        _send(shim, signal.SIGKILL)  # it hangs or is frozen; the kernel kills the application with it
        _ended(shim, KILL_DEADLINE)
    finally:
        os.close(shim)


def _end_without_shim(store: Store, record: ContainerRecord, grace: int) -> None:
    """End what a killed shim has left, and record it. Call it while holding the replica's lock."""
    path = f"{store.directory(record.name)}/{GENERATION}"
    newest = store.generation(record.name)
    if newest is None or newest.phase == "exited":
        return
    app = open_process(newest.pid, newest.pid_start)
    if app is not None:
        try:
            _send(app, signal.SIGTERM)
            _send(app, signal.SIGCONT)
            if not _ended(app, grace):
                _send(app, signal.SIGKILL)
                _ended(app, KILL_DEADLINE)
        finally:
            os.close(app)
    left = kill_strays(record.id, steady() + TREE_DEADLINE)
    if left or is_alive(newest.pid, newest.pid_start):
        raise OutcomeUnknown(record.name, "some of its processes survive SIGKILL", "look for hung mounts or devices")
    cause = "unknown" if app is None else "stopped-by-us"
    ending = {"phase": "exited", "exit_code": "", "cause": cause, "exited_at": str(steady()), "exited_wall": ""}
    write_file(path, encode({**decode(read_file(path) or b""), **ending}))


def open_process(pid: int, start: int) -> int | None:
    """A pidfd of exactly the process with this pid and start time, which the caller closes; None when it is gone."""
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


def _ended(pidfd: int, wait: int) -> bool:
    """Whether the process ends within `wait` ns."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(max(0, wait) // 1_000_000))
