"""The process that plans a head has a deadline, and its failures are causes."""

import socket
import threading
import time
from pathlib import Path

import pytest

from providers.wrappers.recorded import Recorded
from reconciler.reviews.planner import CannotPlan, Planner
from reconciler.shell.instance_clock import ClockRecord
from reconciler.snapshots import document
from reconciler.snapshots.snapshot import Snapshot

HEAD = "a" * 40
SNAPSHOT = document.write(
    Snapshot("shop", "r", HEAD, 1, 0, ClockRecord("l", 2**60, 1, 1, "b", "m"), {}, Recorded(), {})
)


def planner(base: Path, url: str) -> Planner:
    local = base / "local.yaml"
    spec = f"{{id: shop, source: {{url: '{url}', timeout: 60s}}}}"
    local.write_text(f"apiVersion: reconciler/v1\nkind: Instance\nmetadata: {{name: this}}\nspec: {spec}\n")
    local.chmod(0o600)
    base.chmod(0o700)
    return Planner(local, base / "mirrors", threading.Event())


def test_a_remote_that_never_answers_costs_no_more_than_the_deadline(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"git+https://127.0.0.1:{silent.getsockname()[1]}/repo.git"
        began = time.monotonic()
        with pytest.raises(CannotPlan, match="did not end within"):
            planner(tmp_path, url).plan("refs/pull/1/head", HEAD, HEAD, SNAPSHOT, 4.0)
        assert time.monotonic() - began < 20


def test_a_head_that_is_gone_is_a_cause_and_no_traceback(tmp_path):
    answer = planner(tmp_path, f"git+file://{tmp_path}/none.git").plan("refs/pull/1/head", HEAD, HEAD, SNAPSHOT, 60.0)
    assert answer["failed"]
    assert "Traceback" not in answer["failed"]


def test_a_snapshot_that_cannot_be_read_is_a_cause(tmp_path):
    with pytest.raises(CannotPlan, match="snapshot"):
        planner(tmp_path, f"git+file://{tmp_path}/none.git").plan("refs/pull/1/head", HEAD, HEAD, "{}", 60.0)
