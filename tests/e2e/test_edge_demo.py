"""The walk through the edge example, as `make demo-edge` does it, at the place that its manifests name."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.providers.runtime.docker.engine import held

pytestmark = [pytest.mark.server(name) for name in ("dockerd", "haproxy", "named", "dig")]

ROOT = Path(__file__).resolve().parents[2]


def demo(home: Path, word: str) -> tuple[int, str]:
    command = [sys.executable, "examples/edge/demo.py", word]
    env = {**os.environ, "XDG_STATE_HOME": str(home)}
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=280,
        check=False,
    )
    return done.returncode, done.stdout


PLACE, NOTE = Path("/run/reconciler-edge"), Path("/run/reconciler-edge-test")
"""The directory of the demo, and the file that marks it as started by a test."""


def test_the_demo_keeps_its_promises_and_leaves_nothing_behind(engine: str, tmp_path: Path):
    with held(Path(tempfile.gettempdir()) / "reconciler-test-demo.lock"):
        if NOTE.exists():
            demo(tmp_path, "down")  # a test that was killed has left it
        elif PLACE.exists():
            pytest.fail("the demo is up on this machine: make demo-edge-down", pytrace=False)
        NOTE.touch()
        walk(tmp_path)
        NOTE.unlink()


def walk(tmp_path: Path) -> None:
    try:
        code, out = demo(tmp_path, "up")
        assert code == 0, out
        assert "the steps were in order: weight 0, stop, start, weight 100" in out
    finally:
        code, down = demo(tmp_path, "down")
    assert code == 0, down
    assert "no replica is left" in down
    assert not PLACE.exists()
