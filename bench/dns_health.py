"""How fast a name follows the health of what is behind it: from a failed probe to the changed answer of a name server.

    python -m bench.dns_health [--tries 50]

Prints Markdown. Needs named and dig; starts its own server and gateways on loopback. A gateway begins to fail; time counts from
the moment it has sent the failure that makes the verdict (the threshold is one, so the first) until BIND answers without it.
The name is asked over UDP about every millisecond, so the figures hold the cost of asking; that `dig` sees the same is checked after
each try. The floor is nsupdate sending one change to the same server, until the answer has changed.
"""

import argparse
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import dns.message
import dns.query
import dns.rdatatype

from tests.e2e.dns_world import NameServer, World
from tests.providers.dns.rfc2136.name_servers import SECRETS, program

PATIENCE = 30.0
"""Seconds until a try that shows nothing ends the benchmark."""


def answer(world: World, name: str) -> set[str]:
    """The addresses that the server answers now."""
    query = dns.message.make_query(name, dns.rdatatype.A)
    reply = dns.query.udp(query, "127.0.0.1", port=world.server.port, timeout=3)
    return {item.to_text() for group in reply.answer for item in group if group.rdtype == dns.rdatatype.A}


def until(done: Callable[[], bool]) -> float:
    """Wait for a condition, looking about every millisecond; the instant at which it was seen."""
    end = time.perf_counter() + PATIENCE
    while not done():
        if time.perf_counter() > end:
            raise SystemExit(f"nothing changed within {PATIENCE:g} s")
        time.sleep(0.001)
    return time.perf_counter()


def withdrawals(world: World, tries: int) -> tuple[list[float], list[float]]:
    """Seconds from the failed probe to the changed answer, and from the first good probe to the address being back."""
    world.write([{"name": "all", "addresses": world.addresses}], healthCheck=check(world))
    world.watch()
    everybody = set(world.addresses)
    until(lambda: answer(world, world.host) == everybody)
    out: list[float] = []
    back: list[float] = []
    for number in range(tries):
        gateway = world.gateways[number % len(world.gateways)]
        gateway.fail()
        until(lambda failing=gateway: bool(failing.failed_at))  # type: ignore[misc]
        seen = until(lambda failing=gateway: failing.address not in answer(world, world.host))  # type: ignore[misc]
        out.append(seen - gateway.failed_at)
        if set(world.published()) != everybody - {gateway.address}:
            raise SystemExit(f"dig sees {world.published()}")
        gateway.recover()
        until(lambda passing=gateway: bool(passing.passed_at))  # type: ignore[misc]
        seen = until(lambda: answer(world, world.host) == everybody)
        back.append(seen - gateway.passed_at)
    world.stop()
    return out, back


def check(world: World) -> dict[str, object]:
    return {"protocol": "HTTP", "port": world.port, "path": "/", "interval": "500ms", "failureThreshold": 1}


def floor(world: World, tries: int) -> list[float]:
    """Seconds from starting nsupdate with one change to the changed answer."""
    name, secret = f"floor.{world.server.zone}", f"hmac-sha256:update.key:{SECRETS['update.key']}"
    times = []
    for number in range(tries):
        value = f"192.0.2.{number % 250 + 1}"
        text = f"server 127.0.0.1 {world.server.port}\nzone {world.server.zone}\nupdate delete {name} A\n"
        text += f"update add {name} 1 A {value}\nsend\n"
        begun = time.perf_counter()
        subprocess.run([program("nsupdate"), "-v", "-y", secret], input=text, text=True, check=True, timeout=30)
        times.append(until(lambda wanted=value: answer(world, name) == {wanted}) - begun)  # type: ignore[misc]
    return times


def row(what: str, times: list[float]) -> str:
    """One line of the table, in milliseconds."""
    ordered = sorted(times)
    last = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
    return f"| {what} | {statistics.median(ordered) * 1e3:.0f} ms | {last * 1e3:.0f} ms | {ordered[-1] * 1e3:.0f} ms |"


def main() -> None:
    arguments = argparse.ArgumentParser(prog="python -m bench.dns_health")
    arguments.add_argument("--tries", type=int, default=50)
    tries = arguments.parse_args().tries
    with tempfile.TemporaryDirectory(prefix="bench-dns-health-") as place:
        server = NameServer("named", Path(place) / "named")
        world = World(Path(place) / "world", server)
        try:
            out, back = withdrawals(world, tries)
            least = floor(world, tries)
        finally:
            world.close()
            server.kill()
    print("## A name follows the health of its addresses (BIND)\n")
    print(f"{tries} tries; one name with {len(world.gateways)} addresses, each asked every 500 ms.\n")
    print("| from … to the changed answer | p50 | p99 | most |\n| --- | ---: | ---: | ---: |")
    print(row("failed probe", out))
    print(row("first good probe of one that comes back", back))
    print(row("floor: starting nsupdate by hand", least))


if __name__ == "__main__":
    main()
