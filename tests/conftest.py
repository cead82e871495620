"""What holds for the whole suite: real servers are asked for by name, and nothing is skipped silently."""

import gc
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings

PACKAGES = {
    "dig": "dnsutils",
    "dockerd": "docker.io",
    "ip": "iproute2",
    "knotd": "knot",
    "named": "bind9",
    "nginx": "nginx-light",
    "nsupdate": "dnsutils",
    "pdns_server": "pdns-server pdns-backend-sqlite3",
}
"""Debian's package of a program, where it is not called like the program."""

SERVER_PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/local/sbin", "/usr/sbin", "/sbin"])
"""Servers live in directories that are not on every user's PATH."""

E2E = Path(__file__).parent / "e2e"

LONGEST = "test_soak.py"

GOLDEN = Path(__file__).parent / "golden"


# The tests start the program a hundred times, and every worker reads every test. Where PYTHONDONTWRITEBYTECODE is set (images
# of containers do that), each of these processes would compile all modules again: a third of the time of the whole suite.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Half a million objects are made by collecting the tests and live to the end. To look for garbage among them while they are made,
# before each full collection of the run, and once more at the end is a twentieth of the time of the suite, in every worker.
gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


def pytest_unconfigure() -> None:
    gc.freeze()


# How hypothesis searches, set before the first test module is read. By default the same examples on every run, few enough for
# the suite to stay quick, and no deadlines: a busy machine is no failure. CI looks at more of them (`ci`, where the environment
# says CI). HYPOTHESIS_PROFILE=search looks long and at random; `quick` is for hunting a failure by hand, with STEPS actions in each
# run of a state machine.
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


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write what the program prints into tests/golden")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """`golden("plan/rolling.txt", text)`: the text must equal that file below tests/golden, byte for byte.

    With --update-golden the file is written instead; the change is then reviewed like any other.
    """

    def compare(name: str, text: str) -> None:
        file = GOLDEN / name
        if request.config.getoption("--update-golden"):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(text.encode())
            return
        if not file.exists():
            pytest.fail(
                f"tests/golden/{name} is missing; look at the text, then run with --update-golden:\n{text}",
                pytrace=False,
            )
        assert text == file.read_bytes().decode(), (
            f"differs from tests/golden/{name}; if that is meant: --update-golden"
        )

    return compare


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What lies below tests/e2e runs in real time and is marked so: `-m "not e2e"` leaves it out.

    It comes first: one worker waits for the world while the others compute. The longest computation comes next, so that nobody
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
    """A test marked `server("haproxy")` needs that program."""
    for marker in item.iter_markers("server"):
        name = marker.args[0]
        if shutil.which(name, path=SERVER_PATH):
            continue
        reason = f"needs {name}, which is not installed: apt-get install {PACKAGES.get(name, name)}"
        if os.environ.get("REQUIRE_SERVERS") == "1":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line for each reason to skip, with the number of tests: a green run must not hide what it left out."""
    counts: dict[str, int] = {}
    for report in terminalreporter.stats.get("skipped", []):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        reason = reason.removeprefix("Skipped: ")
        counts[reason] = counts.get(reason, 0) + 1
    for reason, count in sorted(counts.items()):
        terminalreporter.write_line(f"SKIPPED {count} test{'s' if count > 1 else ''}: {reason}", yellow=True, bold=True)
