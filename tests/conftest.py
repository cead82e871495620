"""What holds for the whole suite: real servers are asked for by name, and nothing is skipped silently."""

import os
import shutil
from pathlib import Path

import pytest

PACKAGES = {"nginx": "nginx-light", "named": "bind9", "dig": "dnsutils", "nsupdate": "dnsutils", "ip": "iproute2"}
"""Debian's package of a program, where it is not called like the program."""

SERVER_PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/local/sbin", "/usr/sbin", "/sbin"])
"""Servers live in directories that are not on every user's PATH."""

E2E = Path(__file__).parent / "e2e"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What lies below tests/e2e runs in real time and is marked so: `-m "not e2e"` leaves it out."""
    for item in items:
        if E2E in item.path.parents:
            item.add_marker(pytest.mark.e2e)


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
