"""Which instance a command means that only reads kept state or leaves a word, and what is kept there.

Such a command works beside a running daemon: it joins the store and takes no lock.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from manifests.values.desired import Desired
from reconciler.cli.options import Options, mistake
from reconciler.shell.clock import SystemClock
from reconciler.shell.store.database_file import FILE
from reconciler.shell.store.state_db import Store

F = TypeVar("F", bound=Callable[..., Any])

_ID = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class Place:
    """Where an instance keeps its state. `desired` is set when a PATH was given; `name` is for messages."""

    name: str
    state_dir: Path
    desired: Desired | None = None

    @property
    def used(self) -> bool:
        """Whether anything has run with this state directory."""
        return (self.state_dir / FILE).exists()

    @property
    def unused(self) -> str:
        """What to say when nothing has."""
        return f"{self.name}: nothing has run with {self.state_dir} yet; run: reconcile --once PATH"


def find(path: Path | None, options: Options, instance_id: str) -> Place:
    """The place of PATH's instance, of that id, of that state directory, or of the only instance there is.

    Raises:
        ManifestErrors: PATH is not valid, so its instance is not known.
        click.UsageError: nothing was given and there is not exactly one; or both, and they differ.
    """
    from reconciler import tree  # noqa: PLC0415  (only commands that got this far need it)

    if instance_id and not _ID.fullmatch(instance_id):
        raise mistake(f"'{instance_id}' is not the id of an instance", "it has lower-case letters, digits and '-'")
    if path is None and options.instance is not None:
        raise mistake("--instance is a part of the manifests at PATH", "give PATH as well")
    if path is not None:
        desired = tree.load(path, options.instance)
        own = desired.instance.id
        if instance_id and instance_id != own:
            raise mistake(f"{path} is of instance '{own}', not '{instance_id}'", "give one of them")
        return Place(f"instance '{own}'", tree.state_dir(own, options.state_dir), desired)
    if options.state_dir is not None:
        return Place(f"state directory {options.state_dir}", options.state_dir)
    if instance_id:
        return Place(f"instance '{instance_id}'", tree.state_dir(instance_id, None))
    return _only(tree.state_dir("x", None).parent)


def _only(base: Path) -> Place:
    """The only instance that keeps state at the usual place."""
    try:
        found = sorted(entry.name for entry in base.iterdir() if (entry / FILE).exists())
    except OSError:
        found = []
    if len(found) == 1:
        return Place(f"instance '{found[0]}'", base / found[0])
    if not found:
        raise mistake(f"no instance keeps state in {base}", "give PATH, --instance-id or --state-dir")
    raise mistake(f"several instances keep state in {base}: {', '.join(found)}", "give PATH or --instance-id")


@contextmanager
def joined(place: Place) -> Iterator[Store]:
    """The store of that place, open for reading and for the inbox. Raises StoreError."""
    with Store.join(place.state_dir, SystemClock()) as store:
        yield store


def path_optional(function: F) -> F:
    """PATH of a command that can also be told the instance by other means."""
    return click.argument("path", type=click.Path(path_type=Path), required=False)(function)
