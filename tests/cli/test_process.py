"""Behaviour that needs a process of its own: imports, pipes, signals, the environment."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

MODULES = """
import sys
from reconciler.cli.app import run
code = run(sys.argv[1:])
print(" ".join(sorted({name.partition(".")[0] for name in sys.modules})), file=sys.stderr)
sys.exit(code)
"""


def imported(*words: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", MODULES, *words], capture_output=True, text=True, timeout=60, check=True
    )
    return set(done.stderr.splitlines()[-1].split())


@pytest.mark.parametrize("words", [["--version"], ["plan", "--version"], ["--help"]])
def test_the_version_and_help_import_nothing_heavy(words):
    assert not imported(*words) & {"pydantic", "asyncio", "rich", "docker", "boto3", "sqlite3", "ruamel", "dns"}


def test_validating_imports_no_provider_library(tree):
    assert not imported("validate", str(tree)) & {"docker", "boto3", "httpx", "dns"}


def test_a_plan_without_such_objects_imports_no_cloud_library(tree, home):
    assert not imported("plan", str(tree)) & {"docker", "boto3", "httpx"}


def program(*words: str, **environment: str) -> list[str]:
    return [sys.executable, "-m", "reconciler", *words]


def test_a_reader_that_goes_away_is_no_error(tmp_path):
    many = "\n".join(f"---\napiVersion: reconciler/v1\nkind: Nothing{n}\nmetadata: {{name: x}}" for n in range(300))
    (tmp_path / "many.yaml").write_text(many)
    read, write = os.pipe()
    os.close(read)
    try:
        done = subprocess.run(
            program("validate", str(tmp_path)), stdout=write, stderr=subprocess.PIPE, text=True, timeout=60, check=False
        )
    finally:
        os.close(write)
    assert done.returncode == 3
    assert done.stderr == ""


def test_a_terminal_without_unicode_gets_escapes(tmp_path):
    (tmp_path / "a.yaml").write_text("apiVersion: reconciler/v1\nkind: Wörkload\nmetadata: {name: x}\n")
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "LC_ALL": "C"}
    done = subprocess.run(
        program("validate", str(tmp_path)), capture_output=True, text=True, timeout=60, check=False, env=environment
    )
    assert done.returncode == 3
    assert "unknown-kind" in done.stdout
    assert "W\\xf6rkload" in done.stdout
    assert "Traceback" not in done.stderr


def test_no_variable_of_the_environment_appears_in_any_output(tree, tmp_path, reconcile, monkeypatch):
    secret = "sentinel-of-the-environment"
    environment = {**os.environ, "API_TOKEN": secret, "XDG_STATE_HOME": str(tmp_path / "home")}
    done = subprocess.run(
        program("plan", str(tree), "-v"), capture_output=True, text=True, timeout=60, check=False, env=environment
    )
    monkeypatch.setenv("API_TOKEN", secret)
    inside = [reconcile("plan", tree, "-o", "json"), reconcile("status", tree, "-v")]
    for output in (done.stdout + done.stderr, *(result.out + result.err for result in inside)):
        assert secret not in output
        assert "sentinel-of-the-manifest" not in output


@pytest.mark.parametrize(
    ("typed", "code", "said"), [(b"n\n", 7, b"nothing was changed"), (b"\x03", 130, b"interrupted")]
)
def test_an_operator_at_a_terminal_sees_the_plan_and_may_refuse_it(typed, code, said, tree, tmp_path):
    ours, theirs = os.openpty()
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "home"), "TERM": "xterm"}
    process = subprocess.Popen(
        ["setsid", "--ctty", "--wait", *program("apply", str(tree))],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment,
    )
    os.close(theirs)
    output = b""
    try:
        while b"[y/N]" not in output:
            output += os.read(ours, 4096)
        _until_asleep(process.pid)
        os.write(ours, typed)
        while chunk := _read(ours):
            output += chunk
        assert process.wait(timeout=60) == code
    finally:
        os.close(ours)
        process.kill()
        process.wait()
    assert b"create small-web-" in output
    assert said in output
    assert not (tmp_path / "home").exists()


def _until_asleep(pid: int) -> None:
    """Until the process waits for its terminal: a signal that comes a moment earlier would not wake it."""
    end = time.monotonic() + 60
    while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "S":
        assert time.monotonic() < end, "it never came to read"
        time.sleep(0.01)


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 4096)
    except OSError:  # Linux answers so when the other side has closed its terminal
        return b""


def test_a_full_disk_under_standard_output_is_an_error_with_one_line(tree):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            program("validate", str(tree)), stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False
        )
    assert done.returncode == 1
    assert "standard output: No space left on device" in done.stderr
    assert "Traceback" not in done.stderr
