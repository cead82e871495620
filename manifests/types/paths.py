"""Paths and arguments of programs in manifests."""

import posixpath

from manifests.types.errors import bad_value
from manifests.values.files import is_git_directory


def no_nul(value: str) -> str:
    """A string without NUL, which programs can get as argument or variable."""
    if "\0" in value:
        raise bad_value("a NUL character cannot be passed to a program", "remove it")
    return value


def relative_path(value: str) -> str:
    """A path in normal form that cannot lead out of the tree, nor into git's own directory, which may hold the credentials of a checkout."""
    no_nul(value)
    parts = value.split("/")
    if is_git_directory(parts):
        raise bad_value(f"'{value[:80]}' is in git's own directory", "write the path of a file of the repository")
    if not value or value.startswith("/") or ".." in parts:
        raise bad_value(
            f"'{value[:80]}' is not a path inside the tree",
            "write a path relative to the manifests' directory, without '..'",
        )
    return posixpath.normpath(value)


def absolute_path(value: str) -> str:
    """An absolute path in normal form, without `..`."""
    no_nul(value)
    if not value.startswith("/") or ".." in value.split("/"):
        raise bad_value(f"'{value[:80]}' is not an absolute path", "write a path that starts with '/' and has no '..'")
    if ":" in value:
        raise bad_value(f"'{value[:80]}' has a colon, which engines use as a separator of paths", "use another path")
    return posixpath.normpath(value).replace("//", "/")


def working_dir(value: str) -> str:
    """An absolute path, or a path inside the tree."""
    return tree_or_absolute_path(value)


def tree_or_absolute_path(value: str) -> str:
    """A path inside the tree, or an absolute path, in normal form without `..`."""
    return absolute_path(value) if value.startswith("/") else relative_path(value)
