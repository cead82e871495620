"""The example of docs/providers.md: its suite passes, and its entry point makes a usable type."""

import importlib
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from manifests.values.desired import Role
from providers import registry
from providers.spi import Context

EXAMPLE = Path(__file__).parents[2] / "examples" / "custom-provider"


def test_the_example_passes_the_suite_it_is_shown_with() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(EXAMPLE)]
    command += ["-c", os.devnull, str(EXAMPLE / "test_textzone.py")]
    environment = {**os.environ, "PYTHONPATH": str(EXAMPLE), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout


def test_the_entry_point_of_the_example_is_found_by_its_type(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    ((type_name, value),) = project["entry-points"]["reconciler.providers"].items()
    info = tmp_path / "reconciler_textzone-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    (info / "entry_points.txt").write_text(f"[reconciler.providers]\n{type_name} = {value}\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.syspath_prepend(EXAMPLE)
    importlib.invalidate_caches()

    found = registry.settings_model("textzone")
    assert found is not None
    assert found[0] is Role.DNS
    provider = registry.create("textzone", "text", {"directory": "names"}, Context("demo", str(tmp_path)))
    provider.close()
