"""Finds the instance, and opens its store, for commands that only read state or send a command to the running process.

Such a command works beside a running daemon: it joins the store and takes no lock.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from manifests.problems import did_you_mean
from manifests.values.desired import Desired
from reconciler.cli.options import Options, usage_error
from reconciler.shell.clock import SystemClock
from reconciler.shell.store.database_file import FILE
from reconciler.shell.store.state_db import Store

F = TypeVar("F", bound=Callable[..., Any])

_ID = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class Place:
    """Where an instance keeps its state. `desired` is set when PATH was given; `name` is the instance in messages."""

    name: str
    state_dir: Path
    desired: Desired | None = None

    @property
    def has_run(self) -> bool:
        """Whether the instance has run: its store exists."""
        return (self.state_dir / FILE).exists()

    @property
    def never_run(self) -> str:
        """The message when it has not."""
        return f"{self.name} has never run: there is no state in {self.state_dir}; next step: reconcile --once PATH"


def find(path: Path | None, options: Options, instance_id: str) -> Place:
    """The place of PATH's instance, of the instance with that id or state directory, or of the only instance on this host.

    Raises:
        ManifestErrors: PATH is invalid, so its instance is unknown.
        click.UsageError: nothing was given and there is not exactly one instance; or PATH and the id differ.
    """
    from reconciler import tree  # noqa: PLC0415  (only commands that got this far need it)

    if instance_id and not _ID.fullmatch(instance_id):
        raise usage_error(
            f"'{instance_id}' is not a valid instance id", "use lower-case letters and digits, with '-' in between"
        )
    if path is None and options.instance is not None:
        raise usage_error("--instance overrides documents at PATH, and PATH is missing", "give PATH as well")
    if path is not None:
        desired = tree.load(path, options.instance)
        declared = desired.instance.id
        if instance_id and instance_id != declared:
            raise usage_error(
                f"{path} declares instance '{declared}', not '{instance_id}'", "give PATH or --instance-id"
            )
        return Place(f"instance '{declared}'", tree.state_dir(declared, options.state_dir), desired)
    if options.state_dir is not None:
        return Place(f"the instance of {options.state_dir}", options.state_dir)
    if instance_id:
        place = Place(f"instance '{instance_id}'", tree.state_dir(instance_id, None))
        if not place.has_run and (others := _instances(place.state_dir.parent)):
            raise usage_error(
                f"no instance '{instance_id}' keeps its state in {place.state_dir.parent}",
                did_you_mean(instance_id, others, "instances"),
            )
        return place
    return _only(tree.state_dir("x", None).parent)


def _instances(base: Path) -> list[str]:
    """The ids of the instances that keep their state below `base`."""
    try:
        return sorted(entry.name for entry in base.iterdir() if (entry / FILE).exists())
    except OSError:
        return []


def _only(base: Path) -> Place:
    """The only instance that keeps its state below `base`."""
    instances = _instances(base)
    if len(instances) == 1:
        return Place(f"instance '{instances[0]}'", base / instances[0])
    if not instances:
        raise usage_error(f"no instance keeps its state in {base}", "give PATH, --instance-id or --state-dir")
    raise usage_error(
        f"several instances keep their state in {base}: {', '.join(instances)}", "give PATH or --instance-id"
    )


@contextmanager
def joined(place: Place) -> Iterator[Store]:
    """The store of that place, open for reading and for the inbox. Raises StoreError."""
    with Store.join(place.state_dir, SystemClock()) as store:
        yield store


def path_optional(function: F) -> F:
    """PATH of a command that also finds the instance by `--instance-id` or `--state-dir`."""
    return click.argument("path", type=click.Path(path_type=Path), required=False)(function)
