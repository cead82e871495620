"""The incidents with real processes: their parts, and the same five in the simulation. `make soak` plays them in real time."""

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from reconciler.cli.app import run as command
from tests.free_ports import free_port
from tests.incidents import product
from tests.incidents.real import SHORT, Run, agrees, ask
from tests.incidents.score import Row
from tests.incidents.test_scoring import GOOD
from tests.incidents.traces import Slot

PATIENCE = 60.0


@pytest.mark.parametrize("key", SHORT)
def test_the_manifests_of_a_real_run_are_valid(key, tmp_path, capsys):
    kind, size = SHORT[key]
    run = Run(key, kind(size), tmp_path)
    try:
        assert command(["validate", str(run.manifests)]) == 0, capsys.readouterr()
    finally:
        run.close()


def test_the_application_answers_what_is_ordered_and_forgets_older_orders(tmp_path):
    port = free_port()
    orders = tmp_path / "127.0.0.1"
    orders.write_text(json.dumps({"": "pass"}))
    os.utime(orders, (1, 1))
    env = {**os.environ, "ORDERS": str(tmp_path), "ADDRESS": "127.0.0.1", "PORT": str(port)}
    app = subprocess.Popen([sys.executable, Path(__file__).with_name("real_app.py")], env=env)
    try:
        end = time.monotonic() + PATIENCE
        while (code := ask(f"127.0.0.1:{port}", "/startup")) == 0 and time.monotonic() < end:
            time.sleep(0.05)
        assert code == 503
        assert ask(f"127.0.0.1:{port}") == 503
        orders.write_text(json.dumps({"": "pass", "liveness": "fail", "readiness": "timeout"}))
        assert [ask(f"127.0.0.1:{port}", path) for path in ("/", "/liveness", "/readiness")] == [200, 503, 0]
    finally:
        app.kill()
        app.wait()
    assert ask(f"127.0.0.1:{port}") == 0


def test_a_real_run_agrees_within_a_third_of_the_lost_requests():
    assert agrees(replace(GOOD, lost=1.33), GOOD)
    assert not agrees(replace(GOOD, lost=1.34), GOOD)
    assert not agrees(replace(GOOD, restarts=2), GOOD)
    assert agrees(replace(GOOD, lost=0.1), replace(GOOD, lost=0.0))


def simulated(key: str) -> tuple[Row, list[tuple[Slot, bool]]]:
    """One of the five in the simulation, with drains as long as those of a pool in a file."""
    kind, size = SHORT[key]
    score, _ = product.run(kind(size), counted=False)
    row = score.row()
    assert row.emptied == 0
    assert row.recovery is not None
    return row, [(restart.slot, restart.helps) for restart in score.restarts]


def test_both_replicas_that_hang_are_restarted_once():
    row, restarts = simulated("2")
    assert sorted(restarts) == [(0, True), (1, True)]
    assert 2 * 33.3 * 20 <= row.lost * 1000 <= 2 * 33.3 * 50


def test_a_dependency_that_is_down_costs_few_restarts_and_no_request():
    row, restarts = simulated("3a")
    assert 1 <= len(restarts) <= 2
    assert row.lost == 0


def test_a_replica_that_flaps_through_its_drain_is_left_alone():
    row, restarts = simulated("6")
    assert restarts == []
    assert 10 * 33.3 * 5 <= row.lost * 1000 <= 10 * 33.3 * 12


def test_the_hung_replica_is_restarted_and_those_under_load_are_not():
    _, restarts = simulated("8a")
    assert restarts == [(0, True)]


def test_starts_that_slow_each_other_down_are_hardly_restarted():
    row, restarts = simulated("11")
    assert len(restarts) <= 1
    assert row.recovery < 4
