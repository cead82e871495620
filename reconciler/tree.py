"""The manifests at a path, and the state directory of their instance. Light: every command needs both first.

With `wire.py` the only module that knows the registry of providers. Called by `wire.py` and the command line.
"""

import os
from collections.abc import Mapping
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
        """The state directory of the instance with this id."""
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


def state_dir(instance: str, override: Path | None = None) -> Path:
    """Where an instance keeps its state: `override`, else below $XDG_STATE_HOME or ~/.local/state."""
    if override is not None:
        return override.absolute()
    base = os.environ.get("XDG_STATE_HOME", "")
    root = Path(base) if base and Path(base).is_absolute() else Path.home() / ".local" / "state"
    return root / "reconciler" / instance
