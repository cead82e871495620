"""The manifests at a path and where the state of their instance lives: what every command needs first, and nothing heavy.

Beside `wire.py` the only module that knows the registry. Called by `wire.py` and the command line.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from manifests.load import load_tree
from manifests.problems import Problem
from manifests.values.desired import Desired
from providers import registry


def load(path: Path, instance_file: Path | None = None) -> Desired:
    """The manifests at a path, checked and resolved. Raises `ManifestErrors` with every problem."""
    return load_with_warnings(path, instance_file)[0]


def load_with_warnings(
    path: Path, instance_file: Path | None = None, edited: Mapping[str, bytes] | None = None
) -> tuple[Desired, tuple[Problem, ...]]:
    """As `load`, with what is legal and probably not meant. `edited` gives some files, by name, another content."""
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
    """Where an instance keeps its state: as told, else below $XDG_STATE_HOME or ~/.local/state."""
    if override is not None:
        return override.absolute()
    base = os.environ.get("XDG_STATE_HOME", "")
    root = Path(base) if base and Path(base).is_absolute() else Path.home() / ".local" / "state"
    return root / "reconciler" / instance
