"""PATH of a command line: a directory or file, the address of a git source, or nothing where local documents declare the source."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from reconciler.cli.options import Options, usage_error

if TYPE_CHECKING:
    from reconciler.tree import Given


class GivenType(click.Path):
    """A path, or the address of a git source. Text that looks like an address must be a good one: no directory is looked for then."""

    name = "path"

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """A `Path` or a `GitUrl`; a usage error for a bad address, which does not repeat it: it may hold a password."""
        if not isinstance(value, str) or not (":" in value or value.startswith("git+")):
            return super().convert(value, param, ctx)
        from manifests.source.git_url import BadUrl, looks_like_url, parse  # noqa: PLC0415  (only for what may be an address)

        if not looks_like_url(value) or os.path.lexists(value):
            return super().convert(value, param, ctx)
        try:
            return parse(value)
        except BadUrl as error:
            raise usage_error(f"PATH: {error.cause}", error.hint) from None


path_argument = click.argument("path", type=GivenType(), required=False)
"""A directory of manifests, one file of them, or the address of a git source."""


def given(path: "Given | None", options: Options) -> "Given | None":
    """PATH, or the git source that the local Instance declares; None when there is neither."""
    if path is None and options.instance is None and options.env is not None:
        raise usage_error("--env needs PATH", "give PATH, whose directory environments has the environment")
    if path is not None or options.instance is None:
        return path
    from reconciler.tree import source_of_instance  # noqa: PLC0415  (only without PATH)

    return source_of_instance(options.instance)


def required(path: "Given | None", options: Options, command: str) -> "Given":
    """As `given`; a usage error when there is neither."""
    found = given(path, options)
    if found is not None:
        return found
    if options.instance is not None:
        hint = f"give PATH, or add spec.source to the Instance in {options.instance}"
        raise usage_error("PATH is missing, and the local documents declare no source", hint)
    raise usage_error("PATH is missing", f"run: {command} PATH")
