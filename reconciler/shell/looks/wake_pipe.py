"""The bell of an instance: a named pipe by which a command wakes the process that holds the lock, so that it reads its inbox at once.

`Bell` is the holder's end, opened by `wire`; `ring` is the commands' end. A bell that cannot be made or rung costs time, never
correctness: the inbox is read at every tick as well.
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

SHOW = "show"
"""The command by which `status` asks for the present: streaks and the age of checks are no news, and so are not stored as they go."""


@contextmanager
def wake_pipe(state_dir: Path, wake: Wake) -> Iterator[None]:
    """Set `wake` whenever somebody rings, as long as the body runs. Needs a running event loop; raises nothing."""
    fd = _open(state_dir / FILE)
    if fd < 0:
        yield
        return
    loop = asyncio.get_running_loop()

    def rung() -> None:
        with suppress(BlockingIOError):
            os.read(fd, 4096)
        wake.set("somebody left a word")

    loop.add_reader(fd, rung)
    try:
        yield
    finally:
        loop.remove_reader(fd)
        os.close(fd)


def wake_holder(state_dir: Path) -> bool:
    """Wake the process that holds the instance. Returns whether one listens."""
    try:
        fd = os.open(state_dir / FILE, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:  # no pipe, or nobody at its other end
        return False
    try:
        if not stat.S_ISFIFO(os.fstat(fd).st_mode):
            return False
        with suppress(BlockingIOError):  # full of rings that are not heard yet
            os.write(fd, b"!")
    except OSError:
        return False
    finally:
        os.close(fd)
    return True


def _open(path: Path) -> int:
    """The pipe's end to read from, made where it is missing; -1 where there can be none."""
    fd = -1
    try:
        with suppress(FileExistsError):
            os.mkfifo(path, 0o600)
        # Open for both: with the last writer gone, a pipe that is only read would be readable for ever.
        fd = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        if not stat.S_ISFIFO(os.fstat(fd).st_mode):
            raise FileExistsError(17, "it is not a pipe", str(path))
    except OSError as error:
        if fd >= 0:
            os.close(fd)
        log.warning(
            "%s: %s; commands of people are read before the next decision, half a minute later at the latest, instead of at once",
            path,
            error.strerror,
        )
        return -1
    return fd
