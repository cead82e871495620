"""The last good manifests of an instance, for `plan`, `doctor` and `destroy` when those at PATH are invalid or PATH is missing.

Using them must be asked for with `--instance-id`: without it these commands are about the manifests at PATH.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from manifests.problems import ManifestErrors
from reconciler.cli.given import given, path_argument
from reconciler.cli.options import Options, usage_error

if TYPE_CHECKING:
    from reconciler.start import StartManifests
    from reconciler.tree import Given, Location

path_or_id = path_argument
"""PATH of a command that also works with the last good manifests of `--instance-id`."""

id_option = click.option(
    "--instance-id",
    metavar="ID",
    default="",
    help="Id of the instance; its last good manifests are used when those at PATH are invalid, or without PATH.",
)


@contextmanager
def hint(options: Options) -> Iterator[None]:
    """Name the option of the last good manifests when those at PATH are invalid."""
    try:
        yield
    except ManifestErrors:
        options.view.err("to use the last good manifests instead, add --instance-id with the id of the instance")
        raise


def chosen(path: "Given | None", options: Options, instance_id: str) -> "tuple[Location, StartManifests | None]":
    """Where this command's manifests are, and the stored ones when they take the place of those at PATH.

    Raises:
        ManifestErrors: PATH is invalid and no instance is named, or nothing usable is stored.
        click.UsageError: neither PATH nor an instance is given, or PATH declares another instance.
    """
    from reconciler import tree  # noqa: PLC0415  (imported when it is needed)

    path = given(path, options)
    if path is None and not instance_id:
        raise usage_error(
            "PATH is missing", "give PATH, or --instance-id to use the last good manifests of an instance"
        )
    sources, error = None, None
    if path is not None:
        location = tree.Location(path, options.instance, options.state_dir, environment=options.env)
        if not instance_id:
            return location, None
        sources = location.read()
        try:
            declared = tree.resolve(sources).instance.id
        except ManifestErrors as invalid:
            error = invalid
        else:
            if declared != instance_id:
                raise usage_error(
                    f"{path} declares instance '{declared}', not '{instance_id}'", "give the other id or PATH"
                )
            return location, None
    from reconciler.cli.where import find  # noqa: PLC0415  (only for stored manifests)
    from reconciler.start import stored_manifests  # noqa: PLC0415

    place = find(path, options, instance_id)
    start = stored_manifests(place.state_dir, sources, error, removed=True)
    if start.desired.instance.id != instance_id:
        raise usage_error(
            f"{place.state_dir} is of instance '{start.desired.instance.id}', not '{instance_id}'", "give its id"
        )
    root, environment = path or Path(start.desired.root), start.sources.tree.environment
    return tree.Location(root, options.instance, place.state_dir, environment=environment), start
