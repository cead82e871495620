"""The quickstart as a person would walk through it: `demo.py up` converges, breaks a replica and converges again.

Every command is the real `reconcile`, printed before it runs. Each promise is checked; the exit code is not 0 when one is not
kept. `demo.py down` removes everything again.
"""

import http.client
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
MANIFESTS = "examples/quickstart"
RECONCILE = str(Path(sys.executable).with_name("reconcile"))
PORT = 8080
"""The container port in the quickstart's manifests."""

LONGEST = 300
"""Seconds that one command may take."""


class NotAsPromised(Exception):
    """What was expected, and what was found."""


def say(text: str) -> None:
    print(f"\n\x1b[1m# {text}\x1b[0m" if sys.stdout.isatty() else f"\n# {text}", flush=True)


def show(*words: str) -> None:
    print(f"$ reconcile {' '.join(words)}", flush=True)


def reconcile(*words: str, expect: int = 0) -> str:
    """Run one command, show what it prints, return that. Raises NotAsPromised for another exit code than `expect`."""
    show(*words)
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
        raise NotAsPromised(f"{RECONCILE} is not there: run this as 'make demo'") from None
    except subprocess.TimeoutExpired:
        raise NotAsPromised(f"it did not end within {LONGEST} s") from None
    print(done.stdout, end="", flush=True)
    if done.returncode != expect:
        raise NotAsPromised(f"exit code {expect} was expected, {done.returncode} came")
    return done.stdout


def status() -> dict[str, Any]:
    """The state as a script reads it."""
    show("status", MANIFESTS, "-o", "json")
    done = subprocess.run(
        [RECONCILE, "status", MANIFESTS, "-o", "json"],
        cwd=ROOT,
        check=False,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        timeout=LONGEST,
    )
    if done.returncode != 0:
        raise NotAsPromised(f"status ended with {done.returncode}")
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def replicas(state: dict[str, Any]) -> list[dict[str, Any]]:
    return [replica for workload in state["status"]["workloads"] for replica in workload["replicas"]]


def check(promise: bool, text: str) -> None:
    if not promise:
        raise NotAsPromised(text)
    print(f"  ok: {text}", flush=True)


def print_files() -> None:
    """The pool and the zone as a balancer and a DNS server would read them."""
    place = state_dir()
    files = sorted(file for name in ("pools", "zones") for file in (place / name).rglob("*") if file.is_file())
    for file in files:
        if file.name.startswith(".") or file.suffix == ".lock":
            continue
        print(f"$ cat {file}")
        print(file.read_text(encoding="utf-8").rstrip(), flush=True)


def state_dir() -> Path:
    """Where the quickstart's instance keeps its state: as the program itself chooses it."""
    base = os.environ.get("XDG_STATE_HOME", "")
    root = Path(base) if base and Path(base).is_absolute() else Path.home() / ".local" / "state"
    return root / "reconciler" / "quickstart"


def break_one(address: str) -> None:
    """Make one replica answer its probes with 500 from now on."""
    print(f"$ curl -X POST http://{address}:{PORT}/break", flush=True)
    connection = http.client.HTTPConnection(address, PORT, timeout=5)
    try:
        connection.request("POST", "/break")
        answer = connection.getresponse()
        print(answer.read().decode(errors="replace").rstrip(), flush=True)
    finally:
        connection.close()


def up() -> None:
    say("Three replicas of a small service, in a pool and under a name")
    reconcile("--once", MANIFESTS)
    print_files()

    say("Once more: nothing is to do")
    again = reconcile("--once", MANIFESTS)
    check("nothing to do" in again, "a second run has nothing to do")

    before = {one["replica"]: one for one in replicas(status())}
    check(len(before) == 3 and all(one["state"] == "Ready" for one in before.values()), "three replicas are ready")
    check(all(one["weight"] for one in before.values()), "each has a weight in the pool")

    victim = min(before)
    say(f"Break {victim}: it keeps running, but its probes fail")
    break_one(before[victim]["address"])

    say("Converge: it is taken out, restarted, and brought back")
    lines = reconcile("--once", MANIFESTS).splitlines()
    container = before[victim]["container"]
    place = [
        next((number for number, line in enumerate(lines) if line.startswith("done") and text in line), -1)
        for text in ("-> 0 ", f": stop {container}", f": start {container}", "weight 0 -> ")
    ]
    check(-1 not in place and place == sorted(place), "weight 0, stop, start, weight again: in this order")
    after = {one["replica"]: one for one in replicas(status())}
    check(
        len(after) == 3 and all(one["state"] == "Ready" and one["weight"] for one in after.values()),
        "all three are ready and carry weight",
    )
    print_files()

    say("Why is it as it is?")
    reconcile("explain", victim, MANIFESTS)

    say("Everything keeps running. Look at it with 'reconcile status', and remove it with 'make demo-down'")


def down() -> None:
    say("Remove everything that the quickstart's instance owns")
    reconcile("destroy", MANIFESTS, "--yes")
    check(not replicas(status()), "no replica is left")


def main(words: list[str]) -> int:
    commands = {"up": up, "down": down}
    if len(words) != 1 or words[0] not in commands:
        print("usage: demo.py up|down", file=sys.stderr)
        return 64
    try:
        commands[words[0]]()
    except NotAsPromised as error:
        print(f"\nNOT AS PROMISED: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"\nNOT AS PROMISED: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
