"""The check at the end of a run: what is missing, what is left, and what belongs to others."""

import os
import secrets
import shutil
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.machine import compare, snapshot
from tests.providers.runtime.docker.claims import Claim, live_claims

ROOT = Path(__file__).parents[1]
BEFORE = {
    "link": frozenset({"docker0", "eth0", "veth1", "br-1"}),
    "route": frozenset({"172.17.0.0 by docker0"}),
    "Docker container": frozenset({"db", "shop-web-1 of instance shop"}),
    "Docker network": frozenset({"bridge", "net-theirs1"}),
    "Docker image": frozenset({"postgres:16", "reconciler-test/busybox:1"}),
}


def after(**changes: object) -> dict:
    return {**BEFORE, **{name.replace("_", " "): value for name, value in changes.items()}}


@pytest.mark.parametrize(
    ("changes", "lines"),
    [
        ({}, []),
        ({"link": {"eth0"}}, ["missing: link docker0"]),
        ({"route": frozenset()}, ["missing: route 172.17.0.0 by docker0"]),
        ({"Docker_container": frozenset()}, ["missing: Docker container db"]),
        ({"Docker_network": {"net-theirs1"}}, ["missing: Docker network bridge"]),
        ({"Docker_network": {"bridge"}}, []),
        ({"Docker_network": {"bridge", "net-theirs1", "net-mine1"}}, ["left: Docker network net-mine1"]),
        ({"Docker_network": {"bridge", "net-theirs1", "another"}}, []),
        ({"Docker_image": {"reconciler-test/busybox:1"}}, ["missing: Docker image postgres:16"]),
        ({"Docker_image": None}, ["Docker images cannot be listed any more"]),
    ],
)
def test_a_run_says_what_it_removed_or_left(changes, lines):
    changed = after(**{name: value if value is None else frozenset(value) for name, value in changes.items()})
    assert compare(BEFORE, changed, ["mine1"], ["theirs1"], alone=True) == lines


@pytest.mark.parametrize(
    ("then", "now", "lines"),
    [
        ({"shop"}, {"shop"}, []),
        ({"shop"}, set(), ["missing: state directory shop"]),
        (set(), {"shop"}, ["left: state directory shop"]),
        (set(), {"/tmp/w/state"}, ["left: state directory /tmp/w/state"]),
        ({"/tmp/w/state"}, set(), []),
    ],
)
def test_the_users_state_directories_stay_as_they_were(then, now, lines):
    before, now_ = ({"state directory": frozenset(names)} for names in (then, now))
    assert compare(before, now_, [], [], alone=True) == lines


def test_instances_mirrors_and_other_places_are_state_of_the_user(tmp_path):
    (tmp_path / "shop").mkdir()
    (tmp_path / ".git-sources" / "1f").mkdir(parents=True)
    (tmp_path / ".index").mkdir()
    (tmp_path / ".index" / "a.json").write_text('{"state_dir": "/srv/state"}')
    (tmp_path / ".index" / "b.json").write_text("{")
    seen = snapshot(str(tmp_path / "no.sock"), tmp_path)["state directory"]
    assert seen == {"shop", ".git-sources/1f", "/srv/state"}


def test_beside_another_run_only_what_the_engine_keeps_is_missing():
    changed = after(link=frozenset({"eth0"}), Docker_container=frozenset(), Docker_network=frozenset())
    lines = ["missing: link docker0", "missing: Docker network bridge"]
    assert compare(BEFORE, changed, [], ["t1"], alone=False) == lines


def test_what_looks_like_a_tests_is_left_when_no_other_run_is_under_way():
    changed = after(Docker_image=BEFORE["Docker image"] | {"reconciler-test/web:1", "127.0.0.1:5001/shop:1", "redis:7"})
    left = ["left: Docker image 127.0.0.1:5001/shop:1", "left: Docker image reconciler-test/web:1"]
    assert compare(BEFORE, changed, [], [], alone=True) == left
    assert compare(BEFORE, changed, [], ["t1"], alone=False) == []


def test_an_engine_that_was_not_running_or_is_absent_is_no_difference(tmp_path):
    absent = snapshot(str(tmp_path / "no.sock"))
    assert absent["Docker container"] is None
    assert compare(absent, absent, ["mine1"], [], alone=True) == []
    started = {**absent, "Docker container": frozenset(), "Docker network": frozenset({"bridge", "host", "none"})}
    assert compare(absent, started, ["mine1"], [], alone=True) == []
    left = {**started, "Docker container": frozenset({"mine1-web-0"})}
    assert compare(absent, left, ["mine1"], [], alone=True) == ["left: Docker container mine1-web-0"]


def test_an_engine_that_breaks_off_its_answer_is_read_as_unknown(tmp_path):
    path = str(tmp_path / "engine.sock")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()

        def answer() -> None:
            link, _ = listener.accept()
            with link:
                link.recv(4096)
                link.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n[")

        thread = threading.Thread(target=answer)
        thread.start()
        assert snapshot(path)["Docker container"] is None
        thread.join()


def test_claims_of_processes_that_run_are_live():
    claim = Claim("test-machine-claim")
    try:
        assert "test-machine-claim" in live_claims()
    finally:
        claim.drop()
    assert "test-machine-claim" not in live_claims()


SUITE = """
import subprocess
from tests.providers.runtime.docker.claims import Claim

def test_that_leaves_a_link():
    Claim("LINK").drop()
    subprocess.run(["ip", "link", "add", "LINK", "type", "bridge"], check=True)
"""


def run_suite(text: str, directory: Path, workers: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a suite of one file with this suite's own rules."""
    for name in ("conftest.py", "machine.py"):
        shutil.copy(ROOT / "tests" / name, directory / name)
    (directory / "test_left.py").write_text(text)
    (directory / "pytest.ini").write_text("[pytest]\nmarkers =\n    server(name)\n    e2e\n")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", workers, "-p", "no:cacheprovider"],
        cwd=directory,
        env={**environment, "PYTHONPATH": str(ROOT), **variables},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.server("ip")
@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_run_that_leaves_something_fails_and_says_what(workers, tmp_path):
    if os.geteuid():
        pytest.skip("needs root, to make a link")
    link = f"left{secrets.token_hex(4)}"
    try:
        done = run_suite(SUITE.replace("LINK", link), tmp_path, workers)
    finally:
        subprocess.run(["ip", "link", "delete", link], capture_output=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"THE RUN CHANGED THIS MACHINE: left: link {link}" in done.stdout
    assert " failed" not in done.stdout


STATE_SUITE = """
import os
from pathlib import Path
from reconciler.cli.app import run

MANIFESTS = '''
apiVersion: reconciler/v1
kind: Instance
metadata: {name: this}
spec: {id: INSTANCE}
'''

def test_with_the_default_state_directory(tmp_path):
    (tmp_path / "all.yaml").write_text(MANIFESTS)
    assert run(["--once", str(tmp_path / "all.yaml")]) == 0
    assert (Path(os.environ["HOME"]) / ".local/state/reconciler/INSTANCE/state.db").exists()

def test_with_another_state_directory(tmp_path):
    (tmp_path / "all.yaml").write_text(MANIFESTS)
    assert run(["--once", "--state-dir", str(tmp_path / "state"), str(tmp_path / "all.yaml")]) == 0
    assert list((Path(os.environ["HOME"]) / ".local/state/reconciler/.index").iterdir())
"""

LEAVING_SUITE = """
from pathlib import Path
from tests.providers.runtime.docker.claims import Claim

def test_that_writes_to_the_users_home():
    Claim("INSTANCE").drop()
    Path("BASE/INSTANCE").mkdir(parents=True)
"""


@pytest.mark.parametrize("workers", ["0", "2"])
@pytest.mark.parametrize("variable", ["HOME", "XDG_STATE_HOME"])
def test_commands_of_tests_keep_no_state_in_the_users_home(variable, workers, tmp_path):
    user = tmp_path / "user"
    text = STATE_SUITE.replace("INSTANCE", f"s{secrets.token_hex(4)}")
    done = run_suite(text, tmp_path, workers, **{variable: str(user)})
    assert done.returncode == 0, done.stdout + done.stderr
    assert not user.exists()


@pytest.mark.parametrize(("variable", "base"), [("HOME", ".local/state/reconciler"), ("XDG_STATE_HOME", "reconciler")])
def test_a_run_that_writes_to_the_users_state_fails(variable, base, tmp_path):
    user, name = tmp_path / "user", f"s{secrets.token_hex(4)}"
    text = LEAVING_SUITE.replace("INSTANCE", name).replace("BASE", str(user / base))
    done = run_suite(text, tmp_path, "0", **{variable: str(user)})
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"THE RUN CHANGED THIS MACHINE: left: state directory {name}" in done.stdout
