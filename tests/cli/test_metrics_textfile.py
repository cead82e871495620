"""`--metrics-textfile`: what node_exporter finds after a run, also after one that failed."""

import os
import stat
import subprocess
from pathlib import Path

import pytest

from reconciler.shell.clock import SystemClock
from reconciler.shell.store.lock import Lock
from tests.metrics.scrapes import Scrape

TREE = """\
apiVersion: reconciler/v1
kind: Instance
metadata: {name: this}
spec: {id: textfile}
---
apiVersion: reconciler/v1
kind: Provider
metadata: {name: local}
spec: {type: process}
---
apiVersion: reconciler/v1
kind: Provider
metadata: {name: pool}
spec: {type: file}
"""


@pytest.fixture
def manifests(tmp_path: Path) -> Path:
    directory = tmp_path / "manifests"
    directory.mkdir()
    (directory / "all.yaml").write_text(TREE)
    return directory


def test_a_run_leaves_its_gauges_for_all_users(manifests, tmp_path, reconcile):
    file = tmp_path / "x.prom"
    file.write_text("old\n")
    before = os.umask(0o077)
    try:
        done = reconcile("--once", manifests, "--metrics-textfile", file, "--state-dir", tmp_path / "state")
    finally:
        os.umask(before)
    assert done.code == 0
    scrape = Scrape(file.read_bytes())
    assert scrape.get("run_exit_code") == 0
    assert scrape.get("provider_readable", provider="local", role="runtime") == 1
    assert all('reconciler_instance="textfile"' in line for line in file.read_text().splitlines() if line[0] != "#")
    assert stat.S_IMODE(file.stat().st_mode) == 0o644
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("x.")] == ["x.prom"]
    # No counters, and nothing that an alert about a daemon would look at.
    assert " counter" not in file.read_text()
    assert scrape.get("last_tick_timestamp_seconds") is None


@pytest.mark.server("promtool")
def test_promtool_accepts_the_file(manifests, tmp_path, reconcile):
    file = tmp_path / "x.prom"
    reconcile("--once", manifests, "--metrics-textfile", file, "--state-dir", tmp_path / "state")
    done = subprocess.run(["promtool", "check", "metrics"], input=file.read_bytes(), capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_invalid_manifests_leave_their_exit_code_and_no_state(manifests, tmp_path, reconcile):
    file = tmp_path / "x.prom"
    (manifests / "bad.yaml").write_text("kind: [\n")
    done = reconcile("--once", manifests, "--metrics-textfile", file, "--state-dir", tmp_path / "state")
    scrape = Scrape(file.read_bytes())
    assert done.code == 3 == scrape.get("run_exit_code")
    assert scrape.get("provider_readable", provider="local", role="runtime") is None
    assert f'reconciler_instance="{manifests}"' in file.read_text()


def test_a_locked_instance_keeps_its_name(manifests, tmp_path, reconcile):
    file, state = tmp_path / "x.prom", tmp_path / "state"
    with Lock.acquire(state, "another run", SystemClock()):
        words = ("--metrics-textfile", file, "--state-dir", state, "--timeout", "1s")
        assert reconcile("--once", manifests, *words).code == 5
    assert Scrape(file.read_bytes()).get("run_exit_code") == 5
    assert 'reconciler_instance="textfile"' in file.read_text()


@pytest.mark.parametrize(("name", "cause"), [("x.txt", "does not end in .prom"), ("absent/x.prom", "does not exist")])
def test_a_file_that_the_collector_would_not_read_is_refused(name, cause, manifests, tmp_path, reconcile):
    done = reconcile("--once", manifests, "--metrics-textfile", tmp_path / name, "--state-dir", tmp_path / "state")
    assert done.code == 64
    assert cause in done.err
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize("mode", ["--watch", "--dry-run"])
def test_only_a_run_that_ends_writes_a_file(mode, manifests, tmp_path, reconcile):
    done = reconcile(mode, manifests, "--metrics-textfile", tmp_path / "x.prom")
    assert done.code == 64
    assert "cannot be used together" in done.err
