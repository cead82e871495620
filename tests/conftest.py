"""Rules of the whole suite: tests name the servers that they need, nothing is skipped silently, and the user's files stay as they are."""

import gc
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings

PACKAGES = {
    "dig": "dnsutils",
    "dockerd": "docker.io",
    "gpg": "gnupg",
    "ip": "iproute2",
    "knotd": "knot",
    "named": "bind9",
    "nginx": "nginx-light",
    "nsupdate": "dnsutils",
    "sshd": "openssh-server",
    "setpriv": "util-linux",
    "ssh-keygen": "openssh-client",
    "pdns_server": "pdns-server pdns-backend-sqlite3",
    "promtool": "prometheus",
    "systemd-analyze": "systemd",
    "visudo": "sudo",
}
"""Debian's package of a program, if its name differs from that of the program."""

SERVER_PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/local/sbin", "/usr/sbin", "/sbin"])
"""Servers are in directories that are not on every user's PATH."""

E2E = Path(__file__).parent / "e2e"

LONGEST = "test_soak.py"

GOLDEN = Path(__file__).parent / "golden"


# The tests start the program a hundred times, and every worker imports every test. With PYTHONDONTWRITEBYTECODE (set in many
# container images), each of these processes would compile all modules again: a third of the time of the whole suite.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

BASES = ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME")
"""Variables that move a part of the home to another place."""


def _state_of_the_user() -> Path:
    """Where the program keeps the state of instances, when a test does not say where."""
    base = os.environ.get("XDG_STATE_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path.home() / ".local" / "state") / "reconciler"


# The suite has a home of its own, because a command without a state directory would write to the user's, and programs like git
# would read the user's settings. The workers inherit it.
USERS_STATE = _state_of_the_user()
HOME = "" if "PYTEST_XDIST_WORKER" in os.environ else tempfile.mkdtemp(prefix="reconciler-test-home-")
if HOME:
    os.environ["HOME"] = HOME
    for base in BASES:
        os.environ.pop(base, None)

# Collecting the tests creates half a million objects that live to the end. Garbage collections over them take a twentieth of the
# time of the suite in every worker.
gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


def pytest_unconfigure() -> None:
    gc.freeze()
    if HOME:
        shutil.rmtree(HOME, ignore_errors=True)


# Profiles of hypothesis, set before the first test module is imported. `default` runs the same few examples each time, without
# deadlines, because a busy machine is no failure. `ci` (if the environment has CI) runs more of them. HYPOTHESIS_PROFILE=search
# searches long and at random; `quick` is for reproducing a failure by hand, with STEPS actions in each run of a state machine.
COMMON = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large]}

settings.register_profile(
    "default", derandomize=True, max_examples=10, stateful_step_count=12, print_blob=True, **COMMON
)
settings.register_profile("ci", derandomize=True, max_examples=25, stateful_step_count=20, print_blob=True, **COMMON)
settings.register_profile("search", max_examples=1500, stateful_step_count=40, print_blob=True, **COMMON)
settings.register_profile(
    "quick",
    max_examples=250,
    stateful_step_count=int(os.environ.get("STEPS", "8")),
    phases=(Phase.explicit, Phase.generate),
    report_multiple_bugs=False,
    **COMMON,
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "default"))


WATCHED = pytest.StashKey[Any]()
"""The view of the machine at the start of this run."""

LEFT = pytest.StashKey[list[str]]()
"""What the run changed on the machine."""


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Look at the machine's engines and the user's state, in the process that has the workers, before they start."""
    config = session.config
    if (
        hasattr(config, "workerinput")
        or config.option.collectonly
        or not Path(__file__).with_name("machine.py").exists()
    ):
        return
    from tests.machine import Watched  # noqa: PLC0415  (the suite of test_suite_rules has no such module)

    config.stash[WATCHED] = Watched(USERS_STATE)


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> Iterator[None]:
    """Look again, after the workers have ended and before the summary: a difference fails the run."""
    yield
    watched = session.config.stash.get(WATCHED, None)
    if watched is None:
        return
    session.config.stash[LEFT] = watched.end()
    if session.config.stash[LEFT] and session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the output of the program to tests/golden")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """`golden("plan/rolling.txt", text)`: the text must equal that file below tests/golden, byte for byte.

    With --update-golden the file is written instead; review the change like any other.
    """

    def compare(name: str, text: str) -> None:
        file = GOLDEN / name
        if request.config.getoption("--update-golden"):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(text.encode())
            return
        if not file.exists():
            pytest.fail(
                f"tests/golden/{name} is missing; review the text, then run with --update-golden:\n{text}",
                pytrace=False,
            )
        assert text == file.read_bytes().decode(), (
            f"differs from tests/golden/{name}; if the change is intended, run with --update-golden"
        )

    return compare


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests below tests/e2e, which run in real time: `-m "not e2e"` deselects them.

    They come first: one worker waits in real time while the others compute. The longest computation comes next, so that no worker
    waits for it at the end.
    """
    real = f"{E2E}{os.sep}"
    turn = {
        path: 0 if str(path).startswith(real) else 1 if path.name == LONGEST else 2
        for path in {item.path for item in items}
    }
    for item in items:
        if not turn[item.path]:
            item.add_marker(pytest.mark.e2e)
    items.sort(key=lambda item: turn[item.path])


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test marked `server("haproxy")` if that program is missing; fail it where servers are required."""
    for marker in item.iter_markers("server"):
        name = marker.args[0]
        if shutil.which(name, path=SERVER_PATH):
            continue
        reason = f"needs {name}, which is not installed: apt-get install {PACKAGES.get(name, name)}"
        if os.environ.get("REQUIRE_SERVERS") == "1":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print a line for each reason to skip, with the number of tests: a green run must not hide skipped tests."""
    counts: dict[str, int] = {}
    for report in terminalreporter.stats.get("skipped", []):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        reason = reason.removeprefix("Skipped: ")
        counts[reason] = counts.get(reason, 0) + 1
    for line in terminalreporter.config.stash.get(LEFT, []):
        terminalreporter.write_line(f"THE RUN CHANGED THIS MACHINE: {line}", red=True, bold=True)
    for reason, count in sorted(counts.items()):
        terminalreporter.write_line(f"SKIPPED {count} test{'s' if count > 1 else ''}: {reason}", yellow=True, bold=True)
