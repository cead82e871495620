"""Environments that a cron job, a container or a CI runner gives: no standard output, ASCII, no home, other modules of our names."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

SLEEPER = """\
apiVersion: reconciler/v1
kind: Instance
metadata: {name: this}
spec: {id: quiet}
---
apiVersion: reconciler/v1
kind: Provider
metadata: {name: local}
spec: {type: process}
---
apiVersion: reconciler/v1
kind: Workload
metadata: {name: w}
spec:
  template:
    metadata: {labels: {app: w}}
    spec:
      containers: [{name: w, command: [sleep, "300"]}]
"""

PROGRAM = [sys.executable, "-m", "reconciler"]


class Sleeper:
    """One replica that sleeps, and the program that runs it."""

    def __init__(self, home: Path) -> None:
        self.tree, self.home = home / "manifests", home
        self.tree.mkdir()
        (self.tree / "all.yaml").write_text(SLEEPER)

    def run(self, *words: str, redirect: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
        """Run one command line; `redirect` is a redirection of the shell, such as `>&-`."""
        return subprocess.run(
            ["sh", "-c", f'exec "$@" {redirect}', "sh", *PROGRAM, *words],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env={**os.environ, "XDG_STATE_HOME": str(self.home / "state"), **environment},
        )

    def status(self) -> dict:
        return json.loads(self.run("status", str(self.tree), "-o", "json").stdout)

    @property
    def runs(self) -> bool:
        (workload,) = self.status()["status"]["workloads"]
        return [replica["runtime"] for replica in workload["replicas"]] == ["running"]


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[Sleeper]:
    sleeper = Sleeper(tmp_path)
    yield sleeper
    done = sleeper.run("destroy", "--yes", str(sleeper.tree))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("redirect", [">&-", ">&- 2>&-", "<&- >&- 2>&-", ">/dev/full"])
def test_the_work_does_not_depend_on_the_standard_streams(sleeper, redirect):
    done = sleeper.run("--once", str(sleeper.tree), redirect=redirect)
    lost = "full" in redirect
    assert done.returncode == (1 if lost else 0), done.stderr
    assert "Traceback" not in done.stderr
    assert ("standard output: No space left on device" in done.stderr) is lost
    assert sleeper.runs


@pytest.mark.parametrize(
    "words", [["validate"], ["plan"], ["schema"], ["--help"], ["--version"], ["events"], ["status"]]
)
def test_no_command_needs_a_standard_output(sleeper, words):
    assert sleeper.run("--once", str(sleeper.tree)).returncode == 0
    path = [] if words[0] in {"schema", "--help", "--version"} else [str(sleeper.tree)]
    for more in ([], ["-o", "json"]) if path else ([],):
        done = sleeper.run(*words, *path, *more, redirect=">&-")
        assert (done.returncode, done.stderr) == (0, "")


def test_no_file_of_the_program_gets_the_number_of_a_closed_stream(sleeper):
    """The ledger was opened as descriptor 1, and a library that prints would have written into it."""
    script = (
        "import os, sys; from reconciler.__main__ import open_standard_streams; open_standard_streams();"
        "numbers = [os.open('/dev/zero', os.O_RDONLY) for _ in range(3)]; print('lost');"
        "open(sys.argv[1], 'w').write(str(min(numbers)))"
    )
    lowest = sleeper.home / "lowest"
    command = [sys.executable, "-c", script, str(lowest)]
    subprocess.run(["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *command], check=True, timeout=60)
    assert int(lowest.read_text()) > 2


def test_json_is_exact_where_the_output_is_ascii(sleeper):
    reason = "Wartung Zürich ✓"
    assert sleeper.run("--once", str(sleeper.tree)).returncode == 0
    suspended = sleeper.run("suspend", "workload/w", str(sleeper.tree), "--reason", reason)
    assert suspended.returncode == 0, suspended.stderr
    assert sleeper.run("--once", str(sleeper.tree)).returncode == 0
    for encoding in ("ascii", "latin-1", "utf-8"):
        environment = {"PYTHONIOENCODING": encoding, "LC_ALL": "C"}
        done = sleeper.run("status", str(sleeper.tree), "-o", "json", **environment)
        (suspension,) = json.loads(done.stdout)["status"]["suspensions"]
        assert suspension["reason"] == reason
    text = sleeper.run("status", str(sleeper.tree), PYTHONIOENCODING="ascii", LC_ALL="C")
    assert text.returncode == 0
    assert "Wartung Z\\xfcrich \\u2713" in text.stdout


def test_each_line_of_a_json_log_is_json_where_the_output_is_ascii(sleeper):
    (sleeper.tree / "all.yaml").write_text(SLEEPER.replace('[sleep, "300"]', '["/nicht/da/Zürich"]'))
    done = sleeper.run("--once", "--no-wait", str(sleeper.tree), "--log-format", "json", PYTHONIOENCODING="ascii")
    lines = [json.loads(line) for line in done.stderr.splitlines() if line.startswith("{")]
    assert "Zürich" in json.dumps(lines, ensure_ascii=False)


def test_bytes_that_are_no_text_are_kept_as_escapes(sleeper):
    done = sleeper.run("validate", f"{sleeper.tree}/\udcff", PYTHONIOENCODING="utf-8")
    assert done.returncode == 3
    assert "Traceback" not in done.stderr
    assert sleeper.run("--once", str(sleeper.tree)).returncode == 0
    done = sleeper.run("suspend", "workload/w", str(sleeper.tree), "--reason", "a\udcffb")
    assert done.returncode == 64
    assert "--reason is no valid text" in done.stderr


def numbers(value: object) -> Iterator[int | float]:
    if isinstance(value, dict):
        for inner in value.values():
            yield from numbers(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from numbers(inner)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield value


def test_no_document_has_a_number_that_readers_round(sleeper, tmp_path):
    """RFC 8259, section 6: integers are interoperable up to 2^53."""
    tree = str(sleeper.tree)
    assert sleeper.run("--once", tree).returncode == 0
    assert sleeper.run("restart", "workload/w", tree).returncode == 0
    assert sleeper.run("suspend", "workload/w", tree, "--reason", "x", "--for", "1h").returncode == 0
    sleeper.run("--once", "--no-wait", tree)
    commands = [["status"], ["events"], ["explain", "workload/w"], ["plan"], ["doctor"], ["validate"]]
    commands += [["get", what] for what in ("endpoints", "requests", "records", "healthchecks", "revisions")]
    commands += [["suspend", "workload/w", "--reason", "x", "--for", "1h"], ["--once", "--no-wait"]]
    for words in commands:
        text = sleeper.run(*words, tree, "-o", "json").stdout
        document = json.loads(text)
        assert all(abs(number) <= 2**53 for number in numbers(document)), words
        assert "_wall" not in text, words
    (suspension,) = sleeper.status()["status"]["suspensions"]
    assert suspension["until"].endswith("Z")


@pytest.fixture
def unnamed() -> list[str]:
    """The first words of a command line that runs as a user without a passwd entry who may read everything."""
    if os.getuid():
        pytest.skip("needs root, to run as a user without a passwd entry")
    ids = ["--reuid=70123", "--regid=70123", "--clear-groups"]
    return ["setpriv", *ids, "--inh-caps", "+dac_read_search", "--ambient-caps", "+dac_read_search"]


@pytest.mark.server("setpriv")
def test_a_user_without_a_home_can_plan_and_is_reported_where_state_may_be(sleeper, unnamed):
    with tempfile.TemporaryDirectory() as base:
        tree, state = Path(base, "manifests"), Path(base, "state")
        shutil.copytree(sleeper.tree, tree)
        for path in (Path(base), tree, *tree.iterdir()):
            os.chown(path, 70123, 70123)

        def run(*words: str) -> subprocess.CompletedProcess[str]:
            command = [*unnamed, *PROGRAM, *words]
            environment = {"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1"}
            return subprocess.run(
                command, capture_output=True, text=True, timeout=60, check=False, env=environment, cwd="/"
            )

        for command in ("validate", "plan", "doctor"):
            done = run(command, str(tree))
            assert done.returncode == 0, done.stderr
        assert "create quiet-w-" in run("plan", str(tree)).stdout
        for words in (["--once"], ["status"], ["events"], ["suspend", "workload/w", "--reason", "x"]):
            done = run(*words, str(tree))
            assert done.returncode == 1
            assert "next step: give --state-dir DIR, or set XDG_STATE_HOME" in done.stderr
            assert "unexpected" not in done.stderr
        try:
            done = run("--once", str(tree), "--state-dir", str(state))
            assert done.returncode == 0, done.stderr
        finally:
            done = run("destroy", "--yes", str(tree), "--state-dir", str(state))
        assert done.returncode == 0, done.stderr


def test_modules_of_the_current_directory_do_not_replace_ours(sleeper, tmp_path):
    here = tmp_path / "here"
    for name in ("manifests", "providers"):
        (here / name).mkdir(parents=True)
        (here / name / "__init__.py").write_text("raise SystemExit('the wrong module')\n")
    for name in ("yaml", "json", "click", "ruamel", "asyncio", "sqlite3"):
        (here / f"{name}.py").write_text("raise SystemExit('the wrong module')\n")
    (here / "manifests" / "all.yaml").write_text(SLEEPER)
    for words in (["validate", "manifests"], ["plan", "manifests", "-o", "json"], ["schema"]):
        done = subprocess.run(
            [*PROGRAM, *words], cwd=here, capture_output=True, text=True, timeout=60, check=False,
            env={**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")},
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_program_runs_from_its_source(tmp_path):
    """There the current directory is the place of our packages, so it stays on the search path."""
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-m", "reconciler", "--version"], cwd=root, capture_output=True, timeout=60, check=False
    )
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["pla", "DIR"], "reconcile plan"),
        (["evnts", "DIR", "--follow"], "reconcile events"),
        (["statsu", "--unhealthy"], "reconcile status"),
        (["shema"], "reconcile schema"),
        (["restrat", "workload/web", "DIR"], "reconcile restart"),
        (["plan", "DIR", "--prun"], "--prune"),
        (["schema", "Workloa"], "Workload"),
        (["explain", "workload/wbe", "DIR"], "workload/web"),
        (["explain", "wbe", "DIR"], "workload/web"),
        (["suspend", "--node", "locl", "DIR", "--reason", "x"], "node/local"),
        (["explain", "workload/web", "--instance-id", "smal"], "small"),
    ],
)
def test_a_typo_names_what_was_meant(words, meant, tree, stored, reconcile):
    done = reconcile(*(str(tree) if word == "DIR" else word for word in words))
    assert done.code == 64
    assert "did you mean" in done.err.lower()
    assert meant in done.err


def test_events_of_no_object_name_the_one_that_was_meant(tree, stored, reconcile):
    done = reconcile("events", tree, "--object", "workload/wbe")
    assert "no object is named 'workload/wbe'; did you mean 'workload/web'?" in done.out


@pytest.mark.parametrize("words", [["-h"], ["plan", "-h"], ["get", "-h"]])
def test_the_short_option_for_help_is_known(words, reconcile):
    done = reconcile(*words)
    assert done.code == 0
    assert done.out.startswith("Usage: reconcile")


def test_a_path_that_has_the_name_of_a_typo_is_a_path(tree, reconcile, monkeypatch):
    monkeypatch.chdir(tree.parent)
    tree.rename(tree.parent / "pla")
    assert "a mode is missing" in reconcile("pla").err
    assert reconcile("--dry-run", "pla").code == 0
