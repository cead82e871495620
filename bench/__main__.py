"""Runs the benchmarks that are there, one after another, and keeps their reports: `python -m bench [--write] [NAME ...]`.

A benchmark is a module of this package that prints a Markdown report when it is run by itself (`python -m bench.probes`).
Each runs in a process of its own, so that none measures what another left behind. With `--write`, its report replaces the
section of the same name in docs/benchmarks.md; sections of benchmarks that did not run, or failed, stay as they are.
"""

import argparse
import os
import platform
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from reconciler.shell.clock import SystemClock, utc

BENCHMARKS = (
    "probes",
    "manifest_loading",
    "decide",
    "haproxy_weights",
    "dns_updates",
    "dns_zone",
    "dns_powerdns",
    "dns_health",
    "docker_look",
    "edge_latency",
    "restart_storm",
    "push_rate",
    "push_latency",
    "drain",
)
ROOT = Path(__file__).resolve().parent.parent
REPORT = ROOT / "docs" / "benchmarks.md"

PREAMBLE = """# Benchmarks

Made by `make bench BENCH_ARGS=--write`. Peers and product alternate within one run, so ratios can be compared between
machines and absolute figures cannot. Each section says when and where it was measured.
"""


def main() -> int:
    arguments = argparse.ArgumentParser(prog="python -m bench", description="Measure, and compare with peers.")
    arguments.add_argument("--write", action="store_true", help="put the reports into docs/benchmarks.md")
    arguments.add_argument("names", nargs="*", metavar="NAME", help=f"which: {', '.join(BENCHMARKS)} (default: all)")
    asked = arguments.parse_args()
    unknown = [name for name in asked.names if name not in BENCHMARKS]
    if unknown:
        arguments.error(f"no such benchmark: {', '.join(unknown)}; there are {', '.join(BENCHMARKS)}")
    failed = [name for name in asked.names or BENCHMARKS if not run(name, asked.write)]
    if failed:
        print(f"bench: failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def run(name: str, write: bool) -> bool:
    """Run one benchmark, passing its report through as it comes. Returns whether it is fine."""
    if find_spec(f"bench.{name}") is None:
        print(f"bench: {name}: not in this tree, left out", file=sys.stderr)
        return True
    print(f"bench: {name}", file=sys.stderr)
    report = []
    with subprocess.Popen(
        [sys.executable, "-m", f"bench.{name}"], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            report.append(line)
    if process.returncode != 0:
        print(f"bench: {name}: ended with status {process.returncode}; its section is left as it was", file=sys.stderr)
        return False
    if write:
        text = REPORT.read_text(encoding="utf-8") if REPORT.exists() else PREAMBLE
        REPORT.parent.mkdir(exist_ok=True)
        REPORT.write_text(replaced(text, name, f"{machine()}\n\n{''.join(report).strip()}"), encoding="utf-8")
    return True


def replaced(text: str, name: str, report: str) -> str:
    """The document with the section between the two marks of `name` replaced, or added at its end."""
    section = f"<!-- bench:{name} -->\n{report}\n<!-- /bench:{name} -->"
    found = re.compile(f"<!-- bench:{name} -->\n.*?<!-- /bench:{name} -->", re.DOTALL)
    if found.search(text):
        return found.sub(lambda _: section, text)
    return f"{text.rstrip()}\n\n{section}\n"


def machine() -> str:
    """One line on when and where: date, processor, cores, memory, kernel, Python."""
    cpu = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"Measured on {utc(SystemClock().now().wall):%Y-%m-%d}: {cpu.group(1) if cpu else platform.machine()},"
        f" {os.cpu_count()} cores, {memory:.0f} GiB, Linux {platform.release()}, Python {platform.python_version()}."
    )


if __name__ == "__main__":
    sys.exit(main())
