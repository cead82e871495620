"""A zone of 100,000 record sets on PowerDNS: the time of a first look, of a look without changes, and of 1,000 changes.

Run by `make bench`; prints a Markdown table. Needs `pdns_server`; starts its own on loopback, with SQLite, filled without the API.
A zone of a tenth of the size shows what does not grow in proportion. Each set has an owner mark. While a zone's `api_rectify` is
on, PowerDNS processes the whole zone at each change; one change is measured without it as well.
"""

import shutil
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from providers.actions import ChangeRecords, RecordChange
from providers.dns.common.ownership import mark_key, mark_record
from providers.facts import RecordKey, RecordSet
from providers.wrappers.owned import owned
from tests.providers.dns.powerdns.power_servers import PATH, SCHEMA, PowerServer

SIZES = (10_000, 100_000)
CHANGES = 1_000
TIMES = 3
OWNER = "bench/recordlist/big"


def zone_of(size: int) -> str:
    return f"s{size}.test."


def fill(server: PowerServer, size: int) -> None:
    """Put the sets and their marks into the server's database."""
    zone = server.new_zone(zone_of(size), soa_edit_api="DEFAULT")
    rows: list[tuple[str, str, str]] = []
    for index in range(size):
        key = RecordKey(f"n{index:06d}.{zone}", "A")
        rows.append((key.name.rstrip("."), "A", address(index, 0)))
        mark = mark_record(OWNER, key, zone)
        rows.append((mark_key(key, zone).name.rstrip("."), "TXT", mark.values[0]))
    with sqlite3.connect(server.directory / "db", timeout=60) as database:
        (number,) = database.execute("SELECT id FROM domains WHERE name = ?", (zone.rstrip("."),)).fetchone()
        database.executemany(
            "INSERT INTO records (domain_id, name, type, content, ttl, prio, disabled, auth) VALUES (?, ?, ?, ?, 300, 0, 0, 1)",
            ((number, *row) for row in rows),
        )
    database.close()


def address(index: int, turn: int) -> str:
    return f"{10 + turn}.{index >> 16}.{index >> 8 & 255}.{index & 255}"


def timed(act: Callable[[], object]) -> float:
    begun = time.perf_counter()
    act()
    return time.perf_counter() - begun


def measured(server: PowerServer, size: int) -> list[float]:
    """Median seconds of a first look, of a look without changes, of 1,000 changes with read-back, and of one change with and
    without the server's `api_rectify`.
    """
    zone, first, again, many, single, bare = zone_of(size), [], [], [], [], []
    step = size // CHANGES

    def action(turn: int, count: int) -> ChangeRecords:
        changes = (
            RecordChange(
                RecordKey(f"n{index:06d}.{zone}", "A"),
                RecordSet(300, (address(index, turn),)),
                RecordSet(300, (address(index, turn + 1),)),
                OWNER,
            )
            for index in range(0, count * step, step)
        )
        return ChangeRecords("names", zone, tuple(changes))

    for turn in range(TIMES):
        names = owned(server.provider(), "bench")
        first.append(timed(lambda looked=names: looked.observe([zone])))
        again.append(timed(lambda looked=names: looked.observe([zone])))
        changes = action(turn, CHANGES)
        many.append(timed(lambda written=names, wanted=changes: written.perform(wanted)))
        names.close()
    for turn in range(TIMES, 3 * TIMES):
        server.call("PUT", f"/zones/{zone}", {"api_rectify": turn < 2 * TIMES})
        names, change = owned(server.provider(), "bench"), action(turn, 1)
        times = single if turn < 2 * TIMES else bare
        times.append(timed(lambda written=names, wanted=change: written.perform(wanted)))
        names.close()
    return [statistics.median(times) for times in (first, again, many, single, bare)]


def main() -> int:
    if shutil.which("pdns_server", path=PATH) is None or not Path(SCHEMA).exists():
        print("not measured: PowerDNS with SQLite is not installed (apt-get install pdns-server pdns-backend-sqlite3)")
        return 0
    with tempfile.TemporaryDirectory() as name:
        server = PowerServer(Path(name))
        try:
            server.start()
            for size in SIZES:
                fill(server, size)
            medians = {size: measured(server, size) for size in SIZES}
        finally:
            server.kill()
    print("## A zone on PowerDNS\n")
    print(f"Each record set has an owner mark. Medians of {TIMES}, in ms, including the time of the server.\n")
    print(
        "| record sets | first look | look without changes | 1,000 changes, read back | one change | one change, without api_rectify |"
    )
    print("| --- | --- | --- | --- | --- | --- |")
    for size, times in medians.items():
        print(f"| {size:,} | {' | '.join(f'{time * 1000:,.0f}' for time in times)} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
