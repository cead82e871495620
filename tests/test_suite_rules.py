"""The rules of tests/conftest.py, on a small suite of its own."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SUITE = """
import pytest

@pytest.mark.server("no-such-server")
def test_one(): pass

@pytest.mark.server("no-such-server")
def test_two(): pass

@pytest.mark.server("sh")
def test_three(): pass

def test_golden(golden): golden("greeting.txt", "hello\\n")
"""


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    shutil.copy(Path(__file__).parent / "conftest.py", tmp_path / "conftest.py")
    (tmp_path / "test_suite.py").write_text(SUITE)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    server(name)\n    e2e\n")
    (tmp_path / "golden").mkdir()
    (tmp_path / "golden" / "greeting.txt").write_text("hello\n")
    (tmp_path / "e2e").mkdir()
    (tmp_path / "e2e" / "test_slow.py").write_text("def test_slow(): pass\n")
    return tmp_path


def run(suite: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "REQUIRE_SERVERS"))}
    env |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **environment}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    return subprocess.run(command, cwd=suite, env=env, capture_output=True, text=True, timeout=60, check=False)


def test_tests_without_their_server_are_skipped_with_one_line(suite):
    done = run(suite)
    assert done.returncode == 0
    assert done.stdout.count("needs no-such-server") == 1
    assert (
        "SKIPPED 2 tests: needs no-such-server, which is not installed: apt-get install no-such-server" in done.stdout
    )
    assert "3 passed, 2 skipped" in done.stdout.splitlines()[-1]


def test_a_missing_server_fails_where_servers_are_required(suite):
    done = run(suite, REQUIRE_SERVERS="1")
    assert done.returncode == 1
    assert "needs no-such-server, which is not installed" in done.stdout
    assert "3 passed" in done.stdout.splitlines()[-1]
    assert "skipped" not in done.stdout.splitlines()[-1]


def test_tests_below_e2e_can_be_deselected(suite):
    left = run(suite, "-m", "not e2e", "--collect-only").stdout
    assert "test_slow" not in left
    assert "1 deselected" in left


def test_a_different_golden_text_fails_until_it_is_updated(suite):
    (suite / "golden" / "greeting.txt").write_text("good morning\n")
    failed = run(suite, "-k", "golden")
    assert failed.returncode == 1
    assert (
        "differs from tests/golden/greeting.txt; if the change is intended, run with --update-golden" in failed.stdout
    )
    assert run(suite, "-k", "golden", "--update-golden").returncode == 0
    assert (suite / "golden" / "greeting.txt").read_text() == "hello\n"
