"""A demo of the quickstart: `demo.py up` converges, breaks a replica and converges again.

It runs the real `reconcile` and prints every command before it runs. The exit code is not 0 when a check fails. `demo.py down`
removes everything.
"""

import http.client
import os
import sys
from pathlib import Path

from walk import all_serve, check, in_order, main, reconcile, replicas, say

MANIFESTS = "examples/quickstart"
PORT = 8080
"""The container port in the quickstart's manifests."""


def print_files() -> None:
    """Print the files of the pool and the zone, as a balancer and a DNS server would read them."""
    state = state_dir()
    files = sorted(file for name in ("pools", "zones") for file in (state / name).rglob("*") if file.is_file())
    for file in files:
        if file.name.startswith(".") or file.suffix == ".lock":
            continue
        print(f"$ cat {file}")
        print(file.read_text(encoding="utf-8").rstrip(), flush=True)


def state_dir() -> Path:
    """The state directory of the quickstart's instance, by the rules of `reconcile`."""
    base = os.environ.get("XDG_STATE_HOME", "")
    root = Path(base) if base and Path(base).is_absolute() else Path.home() / ".local" / "state"
    return root / "reconciler" / "quickstart"


def break_replica(address: str) -> None:
    """Make a replica answer its probes with 500 from now on."""
    print(f"$ curl -X POST http://{address}:{PORT}/break", flush=True)
    connection = http.client.HTTPConnection(address, PORT, timeout=5)
    try:
        connection.request("POST", "/break")
        answer = connection.getresponse()
        print(answer.read().decode(errors="replace").rstrip(), flush=True)
    finally:
        connection.close()


def up() -> None:
    say("Create three replicas of a small service, with a pool and a DNS name")
    reconcile("--once", MANIFESTS)
    print_files()

    say("Run again: there is nothing to do")
    again = reconcile("--once", MANIFESTS)
    check("nothing to do" in again, "a second run has nothing to do")

    before = replicas(MANIFESTS)
    check(all_serve(before, 3), "three replicas are ready, and each has a weight in the pool")

    victim = min(before)
    say(f"Break {victim}: it keeps running, but its probes fail")
    break_replica(before[victim]["address"])

    say("Converge: it leaves the pool and the name, is restarted, and returns")
    out = reconcile("--once", MANIFESTS)
    container = before[victim]["container"]
    ordered = in_order(out, "-> 0 ", f": stop {container}", f": start {container}", "weight 0 -> ")
    check(ordered, "the steps were in order: weight 0, stop, start, weight again")
    check(all_serve(replicas(MANIFESTS), 3), "all three replicas are ready and have a weight")
    print_files()

    say(f"Explain the state of {victim}")
    reconcile("explain", victim, MANIFESTS)

    say("Everything keeps running. Show it with 'reconcile status'; remove it with 'make demo-down'")


def down() -> None:
    say("Remove everything that the quickstart's instance owns")
    reconcile("destroy", MANIFESTS, "--yes")
    check(not replicas(MANIFESTS), "no replica is left")


if __name__ == "__main__":
    sys.exit(main("demo.py", sys.argv[1:], {"up": up, "down": down}))
