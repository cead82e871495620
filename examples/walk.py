"""What the walks through the examples share: run the real `reconcile`, show what it says, check what was promised.

Used by `demo.py` and `edge/demo.py`. Every command is printed before it runs.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RECONCILE = str(Path(sys.executable).with_name("reconcile"))

LONGEST = 300
"""Seconds that one command may take."""


class NotAsPromised(Exception):
    """What was expected, and what was found."""


def say(text: str) -> None:
    print(f"\n\x1b[1m# {text}\x1b[0m" if sys.stdout.isatty() else f"\n# {text}", flush=True)


def check(promise: bool, text: str) -> None:
    if not promise:
        raise NotAsPromised(text)
    print(f"  ok: {text}", flush=True)


def run(*words: str) -> tuple[int, str]:
    """Run one command of `reconcile`: its exit code and what it printed. Raises NotAsPromised when it does not end."""
    print(f"$ reconcile {' '.join(words)}", flush=True)
    try:
        done = subprocess.run(
            [RECONCILE, *words],
            cwd=ROOT,
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            timeout=LONGEST,
        )
    except FileNotFoundError:
        raise NotAsPromised(f"{RECONCILE} is not there: run this by make") from None
    except subprocess.TimeoutExpired:
        raise NotAsPromised(f"it did not end within {LONGEST} s") from None
    return done.returncode, done.stdout


def reconcile(*words: str, expect: int = 0) -> str:
    """Run one command, show what it prints, return that. Raises NotAsPromised for another exit code than `expect`."""
    code, out = run(*words)
    print(out, end="", flush=True)
    if code != expect:
        raise NotAsPromised(f"exit code {expect} was expected, {code} came")
    return out


def status(manifests: str) -> dict[str, Any]:
    """The state as a script reads it."""
    code, out = run("status", manifests, "-o", "json")
    if code != 0:
        raise NotAsPromised(f"status ended with {code}")
    answer: dict[str, Any] = json.loads(out)
    return answer


def replicas(manifests: str) -> dict[str, dict[str, Any]]:
    """The replicas by name."""
    workloads = status(manifests)["status"]["workloads"]
    return {replica["replica"]: replica for workload in workloads for replica in workload["replicas"]}


def all_serve(found: Mapping[str, Mapping[str, Any]], count: int) -> bool:
    """Whether there are so many replicas and each is ready and carries weight."""
    return len(found) == count and all(one["state"] == "Ready" and one["weight"] for one in found.values())


def in_order(out: str, *texts: str) -> bool:
    """Whether steps with these texts were done, in this order."""
    lines = [line for line in out.splitlines() if line.startswith("done")]
    place = [next((number for number, line in enumerate(lines) if text in line), -1) for text in texts]
    return -1 not in place and place == sorted(place)


def main(name: str, words: list[str], commands: Mapping[str, Callable[[], None]]) -> int:
    """Run one of the walk's commands; the exit code is not 0 when a promise is not kept."""
    if len(words) != 1 or words[0] not in commands:
        print(f"usage: {name} {'|'.join(commands)}", file=sys.stderr)
        return 64
    try:
        commands[words[0]]()
    except (NotAsPromised, OSError) as error:
        print(f"\nNOT AS PROMISED: {error}", file=sys.stderr)
        return 1
    return 0
