"""A named pipe: a command wakes the process that holds the lock with it, so that the process reads its inbox at once.

`wake_pipe` is the holder's end, opened by `wire.py`; `wake_holder` is the commands' end. A pipe that cannot be used costs time,
never correctness: the inbox is read at every tick as well.
"""

import asyncio
import logging
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from reconciler.shell.looks.triggers import Wake

log = logging.getLogger(__name__)

FILE = "bell"
"""The name of the pipe in the state directory."""

COMMAND = "a command arrived"
"""The reason of the wake-up."""

SHOW = "show"
"""The command of `status` that has the next decision stored: changes of streaks and ages of checks alone are not stored."""


@contextmanager
def wake_pipe(state_dir: Path, wake: Wake) -> Iterator[None]:
    """Set `wake` whenever a command writes to the pipe, as long as the body runs. Needs a running event loop; raises nothing."""
    fd = _open(state_dir / FILE)
    if fd < 0:
        yield
        return
    loop = asyncio.get_running_loop()

    def on_readable() -> None:
        with suppress(BlockingIOError):
            os.read(fd, 4096)
        wake.set(COMMAND)

    loop.add_reader(fd, on_readable)
    try:
        yield
    finally:
        loop.remove_reader(fd)
        os.close(fd)


def wake_holder(state_dir: Path) -> bool:
    """Wake the process that holds the instance. Returns whether there is one."""
    try:
        fd = os.open(state_dir / FILE, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:  # no pipe, or no reader
        return False
    try:
        if not stat.S_ISFIFO(os.fstat(fd).st_mode):
            return False
        with suppress(BlockingIOError):  # full of unread wake-ups
            os.write(fd, b"!")
    except OSError:
        return False
    finally:
        os.close(fd)
    return True


def _open(path: Path) -> int:
    """The reading end of the pipe, created when it is missing; -1 when that fails."""
    fd = -1
    try:
        with suppress(FileExistsError):
            os.mkfifo(path, 0o600)
        # Open for both: without any writer, a pipe opened only for reading would be readable all the time.
        fd = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        if not stat.S_ISFIFO(os.fstat(fd).st_mode):
            raise FileExistsError(17, "it is not a pipe", str(path))
    except OSError as error:
        if fd >= 0:
            os.close(fd)
        log.warning(
            "%s: %s; commands may take up to 30s to take effect",
            path,
            error.strerror,
        )
        return -1
    return fd
