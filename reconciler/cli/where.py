"""Finds the instance, and opens its store, for commands that only read state or send a command to the running process.

Such a command works beside a running daemon: it joins the store and takes no lock.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from manifests.load import Sources
from manifests.problems import ManifestErrors, did_you_mean
from manifests.values.desired import Desired
from reconciler.cli.given import path_argument, required
from reconciler.cli.options import Options, usage_error
from reconciler.cli.source_state import Seen, SourceState, source_state
from reconciler.shell.clock import SystemClock
from reconciler.shell.store import source_record
from reconciler.shell.store.database_file import FILE
from reconciler.shell.store.state_db import Store

if TYPE_CHECKING:
    from reconciler.tree import Given, Location

F = TypeVar("F", bound=Callable[..., Any])

_ID = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class Place:
    """Where an instance keeps its state. `name` is the instance in messages.

    `desired` is set when PATH was given and its manifests are valid. `source` is the state of the manifests at PATH, else as the last
    run saw them.
    """

    name: str
    state_dir: Path
    desired: Desired | None = None
    source: SourceState | None = None

    @property
    def has_run(self) -> bool:
        """Whether the instance has run: its store exists."""
        return (self.state_dir / FILE).exists()

    @property
    def never_run(self) -> str:
        """The message when it has not."""
        return f"{self.name} has never run: there is no state in {self.state_dir}; next step: reconcile --once PATH"


def find(path: "Given | None", options: Options, instance_id: str) -> Place:
    """The place of PATH's instance, of the instance with that id or state directory, or of the only instance on this host.

    The manifests at PATH need not be valid: then the instance is the one that last ran with them. Where the revision at the source
    is not in force, the first line of the output says so; JSON documents have it in `manifests`.

    Raises:
        ManifestErrors: PATH is invalid, and no instance has run with it.
        AmbiguousInstance: PATH is invalid, and several instances have run with it.
        click.UsageError: nothing was given and there is not exactly one instance; or PATH and the id differ.
    """
    place, seen = _place(path, options, instance_id)
    state = source_state(place.state_dir, seen)
    if state.in_force is not None or state.attempted is not None:
        options.view.common["manifests"] = state.document()
    line = state.line(SystemClock().now().wall)
    if line and not options.view.json:
        options.view.out(options.view.paint.warn(line))
    return replace(place, source=state)


def _place(path: "Given | None", options: Options, instance_id: str) -> tuple[Place, Seen | None]:
    """The place without its source, and the manifests at PATH as they are now. Errors as `find`."""
    from reconciler import tree  # noqa: PLC0415  (only commands that got this far need it)

    if instance_id and not _ID.fullmatch(instance_id):
        raise usage_error(
            f"'{instance_id}' is not a valid instance id", "use lower-case letters and digits, with '-' in between"
        )
    if path is None and (options.instance is not None or options.env is not None):
        path = required(path, options, "reconcile COMMAND")
    if path is not None:
        location = tree.Location(path, options.instance, options.state_dir, environment=options.env)
        sources = location.read()
        try:
            desired = tree.resolve(sources)
        except ManifestErrors as error:
            return _place_of_invalid(location, instance_id, sources, error), Seen(sources, location, error)
        declared = desired.instance.id
        if instance_id and instance_id != declared:
            raise usage_error(
                f"{path} declares instance '{declared}', not '{instance_id}'", "give PATH or --instance-id"
            )
        return Place(f"instance '{declared}'", location.state_of(declared), desired), Seen(sources, location)
    if options.state_dir is not None:
        return Place(f"the instance of {options.state_dir}", options.state_dir), None
    if instance_id:
        place = Place(f"instance '{instance_id}'", tree.state_dir(instance_id, None))
        if not place.has_run and (others := _instances(place.state_dir.parent)):
            raise usage_error(
                f"no instance '{instance_id}' keeps its state in {place.state_dir.parent}",
                did_you_mean(instance_id, others, "instances"),
            )
        return place, None
    return _only(tree.state_base()), None


def _place_of_invalid(location: "Location", instance_id: str, sources: Sources, error: ManifestErrors) -> Place:
    """The place of the instance that last ran with manifests that are invalid now. Raises `error` when there is none."""
    if instance_id:
        state = location.state_of(instance_id)
    else:
        known = location.known_state(sources, error, SystemClock())
        if known is None:
            raise error
        state = known
    record = source_record.load(state)
    if not (state / FILE).exists():
        raise error
    return Place(f"instance '{record.instance if record is not None else instance_id or state.name}'", state)


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
    return path_argument(function)
