"""Approvals from the command line: the printed command runs as it stands, also beside a daemon."""

import os
import shlex
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from reconciler.cli.options import Options
from reconciler.cli.run import apply_command
from reconciler.cli.view import View
from reconciler.shell.clock import SystemClock
from reconciler.shell.store.lock import Lock
from reconciler.shell.store.state_db import Store

TREE = """\
apiVersion: reconciler/v1
kind: Instance
metadata: {name: here}
spec: {id: approving, prune: true}
---
apiVersion: reconciler/v1
kind: Provider
metadata: {name: zone}
spec: {type: zonefile, settings: {directory: "DIRECTORY"}}
---
apiVersion: reconciler/v1
kind: Record
metadata: {name: www}
spec: {host: www.a.test, zone: a.test, type: A, values: [192.0.2.1], adopt: true}
"""

ZONE = """$TTL 300
@ IN SOA ns1 h 7 1h 1h 1h 1h
@ NS ns1
ns1 A 192.0.2.5
www A 192.0.2.77
"""


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tree in a directory whose name needs quotes, and a zone that has another value."""
    (tmp_path / "zones").mkdir()
    (tmp_path / "it's a tree").mkdir()
    (tmp_path / "zones" / "a.test.zone").write_text(ZONE)
    text = TREE.replace("DIRECTORY", str(tmp_path / "zones"))
    (tmp_path / "it's a tree" / "all.yaml").write_text(text)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


def call(world: Path, *words: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "reconciler", *words],
        cwd=world,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    return done.returncode, done.stdout + done.stderr


def printed(text: str) -> list[str]:
    """The command that a run, a plan or a status prints."""
    line = next(line for line in text.splitlines() if line.startswith("to approve the held changes, run: "))
    return shlex.split(line.partition("run: ")[2])[1:]


@pytest.mark.parametrize("shows", ["--once", "plan", "status"])
def test_the_printed_command_approves_exactly_what_was_shown(world: Path, shows: str) -> None:
    code, text = call(world, "--once", "it's a tree", "--timeout", "5s")
    assert code == 7
    assert "192.0.2.77 ttl 300 -> 192.0.2.1 ttl 300" in text
    if shows != "--once":
        text = call(world, shows, "it's a tree")[1]
    command = printed(text)
    assert command[:2] == ["apply", str(world / "it's a tree")]
    code, text = call(world, *command)
    assert code == 0, text
    assert "www 300 IN A 192.0.2.1" in (world / "zones" / "a.test.zone").read_text().replace("www.a.test.", "www")


def test_once_takes_an_approval_too(world: Path) -> None:
    text = call(world, "--once", "it's a tree", "--timeout", "5s")[1]
    shown = printed(text)[-1]
    assert call(world, "--once", "it's a tree", "--approve", shown, "--timeout", "5s")[0] == 0


def test_what_cannot_be_a_hash_is_refused_at_once(world: Path) -> None:
    code, text = call(world, "--once", "it's a tree", "--approve", "yes")
    assert code == 64
    assert "not a hash" in text
    assert call(world, "--watch", "it's a tree", "--approve", "0123456789abcdef")[0] == 64


def test_a_running_daemon_gets_the_approval_into_its_inbox(world: Path) -> None:
    call(world, "--once", "it's a tree", "--timeout", "5s")
    state = world / "state" / "reconciler" / "approving"
    clock = SystemClock()
    with Lock.acquire(state, "reconcile --watch tree", clock), Store.open(state, clock) as store:
        done, taken = threading.Event(), []

        def fold() -> None:
            while not done.wait(0.01):
                if pending := store.pending():
                    taken.extend(row.command for row in pending)
                    store.save_ledger(store.load_ledger(), [row.id for row in pending])

        daemon = threading.Thread(target=fold)
        daemon.start()
        code, text = call(world, "apply", "it's a tree", "--yes", "--approve", "0123456789abcdef")
        done.set()
        daemon.join()
    assert code == 0, text
    assert "approve" in taken
    assert "approved for 24h" in text


def test_the_command_repeats_the_options_that_matter() -> None:
    options = Options(View(), instance=Path("/etc/one file"), state_dir=Path("/var/s"), prune=True, take_over=True)
    words = shlex.split(apply_command(Path("/srv/m"), options))
    assert words == shlex.split(
        "reconcile apply /srv/m --yes --prune --take-over --instance '/etc/one file' --state-dir /var/s"
    )
