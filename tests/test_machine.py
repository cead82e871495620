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


@pytest.mark.server("ip")
@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_run_that_leaves_something_fails_and_says_what(workers, tmp_path):
    if os.geteuid():
        pytest.skip("needs root, to make a link")
    link = f"left{secrets.token_hex(4)}"
    for name in ("conftest.py", "machine.py"):
        shutil.copy(ROOT / "tests" / name, tmp_path / name)
    (tmp_path / "test_left.py").write_text(SUITE.replace("LINK", link))
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    server(name)\n    e2e\n")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    command = [sys.executable, "-m", "pytest", "-q", "-n", workers, "-p", "no:cacheprovider"]
    try:
        done = subprocess.run(
            command, cwd=tmp_path, env={**environment, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
            timeout=120, check=False,
        )  # fmt: skip
    finally:
        subprocess.run(["ip", "link", "delete", link], capture_output=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"THE RUN CHANGED THIS MACHINE: left: link {link}" in done.stdout
    assert " failed" not in done.stdout
