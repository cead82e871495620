"""Paths and arguments of programs in manifests."""

import posixpath

from manifests.types.errors import bad_value


def no_nul(value: str) -> str:
    """A text that can be passed to a program."""
    if "\0" in value:
        raise bad_value("a NUL character cannot be passed to a program")
    return value


def relative_path(value: str) -> str:
    """A path in normal form that cannot lead out of the tree."""
    no_nul(value)
    if not value or value.startswith("/") or ".." in value.split("/"):
        raise bad_value(
            f"'{value[:80]}' is not a path inside the tree",
            "write a path relative to the manifests' directory, without '..'",
        )
    return posixpath.normpath(value)


def absolute_path(value: str) -> str:
    """An absolute path in normal form, without `..`."""
    no_nul(value)
    if not value.startswith("/") or ".." in value.split("/"):
        raise bad_value(f"'{value[:80]}' is not an absolute path", "write one that starts with '/', without '..'")
    if ":" in value:
        raise bad_value(f"'{value[:80]}' has a colon, which engines use between paths", "use another path")
    return posixpath.normpath(value).replace("//", "/")


def working_dir(value: str) -> str:
    """An absolute path, or one inside the tree."""
    return absolute_path(value) if value.startswith("/") else relative_path(value)
