"""Opens a file below a directory so that neither `..` nor a link leads out of it. Called for encrypted files that a tree names.

A manifest must not make this program read, or show the existence of, any other file of the host.
"""

import errno
import os
import stat
from typing import BinaryIO


def open_below(root: str, path: str) -> BinaryIO:
    """A regular file at a relative path below a directory, open for reading. Links may lead to other files below the directory.

    Raises:
        OSError: it does not exist, cannot be read, is not a regular file, or is outside of the directory.
    """
    home = os.path.realpath(root)
    real = os.path.realpath(os.path.join(home, path))
    if os.path.isabs(path) or not real.startswith(home.rstrip("/") + "/"):
        raise OSError(errno.EXDEV, "it is outside of the manifests' directory")
    # What was resolved has no link: one that appears now was put there meanwhile, and is refused.
    descriptor = os.open(home, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        *directories, name = os.path.relpath(real, home).split("/")
        for directory in directories:
            inner = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = inner
        file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=descriptor)
    finally:
        os.close(descriptor)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(errno.EINVAL, "it is not a regular file")
    return open(file, "rb")
