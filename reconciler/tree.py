"""The manifests at a path, and the state directory of their instance. Light: every command needs both first.

With `wire.py` the only module that knows the registry of providers. Called by `wire.py` and the command line.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from manifests.load import load_tree
from manifests.problems import Problem
from manifests.values.desired import Desired
from providers import registry


@dataclass(frozen=True, slots=True)
class Location:
    """Where a run reads its manifests and keeps its state.

    instance_file: a local file whose documents win over those at `path`. state: the state directory, None for the default one.
    """

    path: Path
    instance_file: Path | None = None
    state: Path | None = None

    def load(self) -> Desired:
        """The manifests, checked and resolved. Raises `ManifestErrors`."""
        return load(self.path, self.instance_file)

    def state_of(self, instance: str) -> Path:
        """The state directory of the instance with this id. Raises NoHome."""
        return state_dir(instance, self.state)


def load(path: Path, instance_file: Path | None = None) -> Desired:
    """The manifests at a path, checked and resolved. Raises `ManifestErrors` with every problem."""
    return load_with_warnings(path, instance_file)[0]


def load_with_warnings(
    path: Path, instance_file: Path | None = None, edited: Mapping[str, bytes] | None = None
) -> tuple[Desired, tuple[Problem, ...]]:
    """As `load`, with warnings about manifests that are valid but probably a mistake.

    Args:
        edited: contents that replace those of the files of these names.
    """
    resolved = load_tree(
        path,
        instance_file=instance_file,
        settings_model=registry.settings_model,
        known_types=registry.known_types,
        template_support=registry.template_support,
        edited=edited,
    )
    return resolved.desired, tuple(resolved.warnings)


class NoHome(Exception):
    """The default state directory is unknown: XDG_STATE_HOME and HOME are not set, and the user is not in the passwd database."""

    def __str__(self) -> str:
        user = os.geteuid()
        return (
            f"the default state directory is unknown: HOME is not set, and user {user} is not in the passwd database; "
            "next step: give --state-dir DIR, or set XDG_STATE_HOME"
        )


def state_dir(instance: str, override: Path | None = None) -> Path:
    """Where an instance keeps its state: `override`, else below $XDG_STATE_HOME or ~/.local/state. Raises NoHome."""
    if override is not None:
        return override.absolute()
    base = os.environ.get("XDG_STATE_HOME", "")
    if base and Path(base).is_absolute():
        return Path(base) / "reconciler" / instance
    try:
        home = Path.home()
    except RuntimeError as error:
        raise NoHome from error
    return home / ".local" / "state" / "reconciler" / instance


@contextmanager
def state_to_read(instance: str, override: Path | None = None) -> Iterator[Path]:
    """As `state_dir`, for a run that writes no state: without a home directory an empty directory, removed at the end."""
    try:
        state = state_dir(instance, override)
    except NoHome:
        from tempfile import TemporaryDirectory  # noqa: PLC0415  (rarely needed)

        with TemporaryDirectory(prefix="reconciler-") as empty:
            yield Path(empty, instance)
        return
    yield state
