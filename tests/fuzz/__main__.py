"""Searches all surfaces, or those named: `python -m tests.fuzz [--seconds N] [--seed N] [--write] [SURFACE ...]`.

Each surface is searched in a process of its own, so that its memory is its own, for an equal share of the time. With `--write` the
table of results replaces the section in docs/security.md. A failure is printed with its input, and the exit code is 1.
"""

import argparse
import json
import os
import platform
import re
import subprocess
import sys

from reconciler.shell.clock import SystemClock, utc
from tests.fuzz import answers, apis, deployments, pushes, snapshots, state, texts, webhooks
from tests.fuzz.surface import ROOT, Found, Surface, search

SURFACES: tuple[Surface, ...] = (
    *texts.SURFACES,
    *answers.SURFACES,
    *pushes.SURFACES,
    *webhooks.SURFACES,
    *snapshots.SURFACES,
    *deployments.SURFACES,
    *apis.SURFACES,
    *state.SURFACES,
)
PAGE = ROOT / "docs" / "security.md"
SECTION = re.compile(r"<!-- fuzz -->\n.*?<!-- /fuzz -->", re.DOTALL)
GRACE = 300.0
"""A surface that takes so much longer (seconds) hangs."""


def main() -> int:
    arguments = argparse.ArgumentParser(
        prog="python -m tests.fuzz", description="Search for inputs that break the program."
    )
    arguments.add_argument("--seconds", type=float, default=180.0, help="time of the whole search (default: 180)")
    arguments.add_argument("--seed", type=int, default=-1, help="begin with this seed (default: at random)")
    arguments.add_argument("--write", action="store_true", help="write the results into docs/security.md")
    arguments.add_argument("--alone", metavar="SURFACE", help=argparse.SUPPRESS)
    arguments.add_argument("names", nargs="*", metavar="SURFACE", help=", ".join(one.name for one in SURFACES))
    options = arguments.parse_args()
    seed = options.seed if options.seed >= 0 else int.from_bytes(os.urandom(4), "big")
    if options.alone:
        (surface,) = (one for one in SURFACES if one.name == options.alone)
        print(json.dumps(vars(search(surface, seconds=options.seconds, start=seed))))
        return 0
    unknown = set(options.names) - {one.name for one in SURFACES}
    if unknown or (options.write and options.names):
        arguments.error(f"no such surface: {', '.join(sorted(unknown))}" if unknown else "--write needs all surfaces")
    chosen = [one for one in SURFACES if not options.names or one.name in options.names]
    print(f"fuzz: {len(chosen)} surfaces, {options.seconds:g} s, seed {seed}", file=sys.stderr)
    results = {one.name: searched(one, options.seconds / len(chosen), seed) for one in chosen}
    print(report(chosen, results))
    for name, found in results.items():
        for place, text in found.failures.items():
            print(f"\nfuzz: {name}: {place}\n{text}", file=sys.stderr)
    if options.write:
        text = f"<!-- fuzz -->\n{report(chosen, results)}\n<!-- /fuzz -->"
        PAGE.write_text(SECTION.sub(lambda _: text, PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    return 1 if any(found.failures for found in results.values()) else 0


def searched(surface: Surface, seconds: float, seed: int) -> Found:
    """What a process found that searches one surface."""
    command = [
        sys.executable,
        "-m",
        "tests.fuzz",
        "--alone",
        surface.name,
        "--seconds",
        str(seconds),
        "--seed",
        str(seed),
    ]
    print(f"fuzz: {surface.name}", file=sys.stderr)
    try:
        done = subprocess.run(
            command, cwd=ROOT, stdout=subprocess.PIPE, text=True, timeout=seconds + GRACE, check=False
        )
    except subprocess.TimeoutExpired:
        return Found(failures={"hang": f"the search did not end within {seconds + GRACE:g} s"})
    if done.returncode != 0:
        return Found(failures={"crash": f"the process ended with status {done.returncode}"})
    return Found(**json.loads(done.stdout.splitlines()[-1]))


def report(surfaces: list[Surface], results: dict[str, Found]) -> str:
    """The table of the page."""
    found = results.values()
    rows = [
        f"{sum(sum(one.outcomes.values()) for one in found):,} inputs in {sum(one.seconds for one in found):.0f} s,"
        f" {sum(len(one.failures) for one in found)} failures, on {utc(SystemClock().now().wall):%Y-%m-%d}:"
        f" {os.cpu_count()} cores, Linux {platform.release()}, Python {platform.python_version()}.",
        "",
        "| surface | whose text | what must hold | inputs | of these accepted | failures | memory added |",
        "| --- | --- | --- | ---: | ---: | ---: | ---: |",
    ]
    for surface in surfaces:
        one = results[surface.name]
        total, good = sum(one.outcomes.values()), one.outcomes.get("accepted", 0)
        memory = f"{one.memory / 2**20:.0f} MiB"
        rows.append(
            f"| {surface.name} | {surface.who} | {surface.holds} | {total:,} | {good:,} | {len(one.failures)} | {memory} |"
        )
    return "\n".join(rows)


if __name__ == "__main__":
    sys.exit(main())
