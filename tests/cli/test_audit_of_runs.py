"""What an operator orders with a run itself, and not through a daemon, is in the audit with the operator's name."""

import json
from pathlib import Path

import pytest

from reconciler.cli.app import run as command

MANIFESTS = """
apiVersion: reconciler/v1
kind: Instance
metadata: {name: audited}
spec: {id: audited}
---
apiVersion: reconciler/v1
kind: Provider
metadata: {name: pool}
spec: {type: file}
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The options of a run."""
    (tmp_path / "manifests").mkdir()
    (tmp_path / "manifests" / "all.yaml").write_text(MANIFESTS)
    monkeypatch.setenv("SUDO_USER", "ada")
    return [str(tmp_path / "manifests"), "--state-dir", str(tmp_path / "state")]


@pytest.mark.parametrize(
    ("words", "action"),
    [
        (["destroy", "--yes"], "destroy everything"),
        (["--once", "--take-over"], "take-over everything"),
        (["apply", "--yes", "--approve", "0123456789abcdef"], "approve 0123456789abcdef"),
    ],
)
def test_an_order_that_is_a_run_has_its_operator(place, words, action, capsys):
    assert command(["--once", *place]) == 0
    assert command([*words, *place]) == 0
    capsys.readouterr()
    assert command(["events", "-o", "json", *place]) == 0
    events = json.loads(capsys.readouterr().out)["events"]
    orders = [event for event in events if event["kind"] == "command"]
    assert [(event["step"], event["actor"], event["outcome"]) for event in orders] == [(action, "ada", "by ada")]


def test_a_run_without_an_order_has_none(place, capsys):
    assert command(["--once", *place]) == 0
    capsys.readouterr()
    assert command(["events", "-o", "json", *place]) == 0
    assert [event for event in json.loads(capsys.readouterr().out)["events"] if event["kind"] == "command"] == []
