"""The time from a failed probe of an address to the changed answer of the name server.

    python -m bench.dns_health [--tries 50]

Prints Markdown. Needs named and dig; starts its own server and gateways on loopback. A gateway begins to fail. The time counts from
the failure that decides the verdict (the threshold is one, so the first) until BIND answers without the address. The benchmark
queries the name over UDP about every millisecond, so the figures include the queries. After each try it compares with the
answer of `dig`. The floor is nsupdate, from its start with one change to the changed answer of the same server.
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
"""Seconds until a try without a change ends the benchmark."""


def answer(world: World, name: str) -> set[str]:
    """The addresses that the server answers now."""
    query = dns.message.make_query(name, dns.rdatatype.A)
    reply = dns.query.udp(query, "127.0.0.1", port=world.server.port, timeout=3)
    return {item.to_text() for group in reply.answer for item in group if group.rdtype == dns.rdatatype.A}


def until(done: Callable[[], bool]) -> float:
    """Wait for a condition, checked about every millisecond; returns the instant at which it held."""
    end = time.perf_counter() + PATIENCE
    while not done():
        if time.perf_counter() > end:
            raise SystemExit(f"nothing changed within {PATIENCE:g} s")
        time.sleep(0.001)
    return time.perf_counter()


def withdrawals(world: World, tries: int) -> tuple[list[float], list[float]]:
    """Seconds from the failed probe to the changed answer, and from the first passing probe to the returned address."""
    world.write([{"name": "all", "addresses": world.addresses}], healthCheck=check(world))
    world.watch()
    everything = set(world.addresses)
    until(lambda: answer(world, world.host) == everything)
    out: list[float] = []
    back: list[float] = []
    for number in range(tries):
        gateway = world.gateways[number % len(world.gateways)]
        gateway.fail()
        until(lambda failing=gateway: bool(failing.failed_at))  # type: ignore[misc]
        changed_at = until(lambda failing=gateway: failing.address not in answer(world, world.host))  # type: ignore[misc]
        out.append(changed_at - gateway.failed_at)
        if set(world.published()) != everything - {gateway.address}:
            raise SystemExit(f"dig answers {world.published()}")
        gateway.recover()
        until(lambda passing=gateway: bool(passing.passed_at))  # type: ignore[misc]
        changed_at = until(lambda: answer(world, world.host) == everything)
        back.append(changed_at - gateway.passed_at)
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


def row(label: str, times: list[float]) -> str:
    """One line of the table, in milliseconds."""
    ordered = sorted(times)
    p99 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
    return f"| {label} | {statistics.median(ordered) * 1e3:.0f} ms | {p99 * 1e3:.0f} ms | {ordered[-1] * 1e3:.0f} ms |"


def main() -> None:
    arguments = argparse.ArgumentParser(prog="python -m bench.dns_health")
    arguments.add_argument("--tries", type=int, default=50)
    tries = arguments.parse_args().tries
    with tempfile.TemporaryDirectory(prefix="bench-dns-health-") as directory:
        server = NameServer("named", Path(directory) / "named")
        world = World(Path(directory) / "world", server)
        try:
            out, back = withdrawals(world, tries)
            floor_times = floor(world, tries)
        finally:
            world.close()
            server.kill()
    print("## A name follows the health of its addresses (BIND)\n")
    print(f"{tries} tries; one name with {len(world.gateways)} addresses, each probed every 500 ms.\n")
    print("| from … to the changed answer | p50 | p99 | max |\n| --- | ---: | ---: | ---: |")
    print(row("failed probe", out))
    print(row("first passing probe of a recovered address", back))
    print(row("floor: start of nsupdate by hand", floor_times))


if __name__ == "__main__":
    main()
