"""Shared by the demos of the examples (`demo.py` and `edge/demo.py`): run `reconcile`, show its output, check the results.

Every command is printed before it runs.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RECONCILE = str(Path(sys.executable).with_name("reconcile"))

TIMEOUT = 300
"""Longest time for one command, seconds."""


class CheckFailed(Exception):
    """An expectation that does not hold."""


def say(text: str) -> None:
    print(f"\n\x1b[1m# {text}\x1b[0m" if sys.stdout.isatty() else f"\n# {text}", flush=True)


def check(condition: bool, text: str) -> None:
    if not condition:
        raise CheckFailed(text)
    print(f"  ok: {text}", flush=True)


def run(*words: str) -> tuple[int, str]:
    """Run one command of `reconcile`: its exit code and its output. Raises CheckFailed when it does not end."""
    print(f"$ reconcile {' '.join(words)}", flush=True)
    try:
        done = subprocess.run(
            [RECONCILE, *words],
            cwd=ROOT,
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            timeout=TIMEOUT,
        )
    except FileNotFoundError:
        raise CheckFailed(f"{RECONCILE} does not exist: run the demo with make") from None
    except subprocess.TimeoutExpired:
        raise CheckFailed(f"the command did not end within {TIMEOUT} s") from None
    return done.returncode, done.stdout


def reconcile(*words: str, expect: int = 0) -> str:
    """Run one command, show its output and return it. Raises CheckFailed for another exit code than `expect`."""
    code, out = run(*words)
    print(out, end="", flush=True)
    if code != expect:
        raise CheckFailed(f"the exit code is {code}, expected {expect}")
    return out


def status(manifests: str) -> dict[str, Any]:
    """The status as JSON."""
    code, out = run("status", manifests, "-o", "json")
    if code != 0:
        raise CheckFailed(f"status ended with {code}")
    answer: dict[str, Any] = json.loads(out)
    return answer


def replicas(manifests: str) -> dict[str, dict[str, Any]]:
    """The replicas by name."""
    workloads = status(manifests)["status"]["workloads"]
    return {replica["replica"]: replica for workload in workloads for replica in workload["replicas"]}


def all_serve(found: Mapping[str, Mapping[str, Any]], count: int) -> bool:
    """Whether there are `count` replicas, and each is ready and has a weight."""
    return len(found) == count and all(replica["state"] == "Ready" and replica["weight"] for replica in found.values())


def in_order(out: str, *texts: str) -> bool:
    """Whether steps with these texts were done in this order."""
    lines = [line for line in out.splitlines() if line.startswith("done")]
    places = [next((number for number, line in enumerate(lines) if text in line), -1) for text in texts]
    return -1 not in places and places == sorted(places)


def main(name: str, words: list[str], commands: Mapping[str, Callable[[], None]]) -> int:
    """Run one command of a demo; the exit code is not 0 when a check fails."""
    if len(words) != 1 or words[0] not in commands:
        print(f"usage: {name} {'|'.join(commands)}", file=sys.stderr)
        return 64
    try:
        commands[words[0]]()
    except (CheckFailed, OSError) as error:
        print(f"\nFAILED: {error}", file=sys.stderr)
        return 1
    return 0
