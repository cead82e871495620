"""The time to read and to change a zone of a name server, compared with dnspython's transfer and BIND's nsupdate.

Run by `make bench`; prints a Markdown table. Needs `named` and `nsupdate`; starts its own server on loopback. Peer and provider
alternate on the same zone of the same server; the table shows medians.
"""

import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import dns.query
import dns.tsigkeyring
import dns.xfr
import dns.zone

from providers.actions import ChangeRecords, RecordChange
from providers.facts import RecordKey, RecordSet
from providers.spi import Context
from tests.providers.dns.rfc2136.name_servers import BORN, PATH, SECRETS, Named, program

BIG = "big.test."
RECORDS = 10_000
CHANGES = 1_000
TIMES = 7


def big_zone() -> str:
    """A zone of 10,000 records: 70 % A, 10 % each AAAA, CNAME, TXT."""
    lines = [BORN.format(zone=BIG)]
    for index in range(RECORDS):
        kind = index % 10
        if kind < 7:
            lines.append(f"n{index:05d} A 10.{index >> 16}.{index >> 8 & 255}.{index & 255}\n")
        elif kind == 7:
            lines.append(f"n{index:05d} AAAA 2001:db8::{index:x}\n")
        elif kind == 8:
            lines.append(f"n{index:05d} CNAME n{index - 2:05d}\n")
        else:
            lines.append(f'n{index:05d} TXT "text of record {index}"\n')
    return "".join(lines)


def timed(act: Callable[[], object]) -> float:
    begun = time.perf_counter()
    act()
    return time.perf_counter() - begun


def read(server: Named, context: Context) -> tuple[float, float]:
    """Median seconds of (dnspython's inbound_xfr, ours) for the whole zone."""
    keyring = dns.tsigkeyring.from_text({"transfer.key": SECRETS["transfer.key"]})

    def theirs() -> None:
        zone = dns.zone.Zone(BIG)
        query, _ = dns.xfr.make_query(zone, keyring=keyring, keyname="transfer.key", keyalgorithm="hmac-sha256")
        dns.query.inbound_xfr("127.0.0.1", zone, query, port=server.port, timeout=30, lifetime=30)
        assert len(zone.nodes) > RECORDS * 0.9

    def ours() -> None:
        names = server.provider(context)  # a new provider has no earlier transfer to answer from
        (fact,) = names.observe([BIG])
        assert len(fact.records) == RECORDS + 1

    pairs = [(timed(theirs), timed(ours)) for _ in range(TIMES)]
    return statistics.median(pair[0] for pair in pairs), statistics.median(pair[1] for pair in pairs)


def change(server: Named, context: Context) -> tuple[float, float, float]:
    """Median seconds for 1,000 replacements: nsupdate, the provider's update alone, the provider with look and read-back."""
    zone = server.new_zone()
    secret = f"hmac-sha256:update.key:{SECRETS['update.key']}"

    def nsupdate(value: str) -> None:
        lines = [f"server 127.0.0.1 {server.port}", f"zone {zone}"]
        for index in range(CHANGES):
            lines += [f"update delete n{index}.{zone} A", f"update add n{index}.{zone} 60 A {value}"]
        text = "\n".join([*lines, "send", ""])
        subprocess.run([program("nsupdate"), "-v", "-y", secret], input=text, text=True, check=True, timeout=30)

    names = server.provider(context)

    def perform(before: str, after: str) -> None:
        changes = tuple(
            RecordChange(
                RecordKey(f"n{index}.{zone}", "A"),
                RecordSet(60, (before,)),
                RecordSet(60, (after,)),
                "bench/dnspolicy/bench",
            )
            for index in range(CHANGES)
        )
        names.perform(ChangeRecords("names", zone, changes))

    nsupdate("192.0.2.1")
    theirs, whole, before = [], [], "192.0.2.1"
    for turn in range(TIMES):
        first, second = f"192.0.2.{10 + 2 * turn}", f"192.0.2.{11 + 2 * turn}"
        theirs.append(timed(lambda value=first: nsupdate(value)))
        whole.append(timed(lambda old=first, new=second: perform(old, new)))
        before = second
    reads = [timed(lambda: server.provider(context).observe([zone])) for _ in range(TIMES)]
    assert (RecordKey(f"n0.{zone}", "A"), RecordSet(60, (before,))) in names.observe([zone])[0].records.items()
    # Each `perform` has a look before (nsupdate has changed the zone) and a look after.
    median = statistics.median(whole)
    return statistics.median(theirs), median - 2 * statistics.median(reads), median


def main() -> int:
    missing = [name for name in ("named", "nsupdate") if shutil.which(name, path=PATH) is None]
    if missing:
        print(f"not measured: {' and '.join(missing)} not installed (apt-get install bind9 dnsutils)")
        return 0
    with tempfile.TemporaryDirectory() as directory:
        server = Named(Path(directory) / "named", {BIG: big_zone()})
        context = Context("bench", directory)
        try:
            server.start()
            theirs, ours = read(server, context)
            nsupdate, update, whole = change(server, context)
        finally:
            server.kill()
    print("| name server (BIND on loopback, TSIG) | peer | ms | reconciler, ms | ratio |")
    print("| --- | --- | --- | --- | --- |")
    print(row(f"read a zone of {RECORDS:,} records", "dnspython inbound_xfr", theirs, ours))
    print(row(f"replace {CHANGES:,} record sets, update alone", "nsupdate -v", nsupdate, update))
    print(row("the same with the look before and the read-back", "nsupdate -v", nsupdate, whole))
    print()
    print("nsupdate neither compares nor reads back; the update alone is the time without both looks.")
    return 0


def row(label: str, peer: str, theirs: float, ours: float) -> str:
    return f"| {label} | {peer} | {theirs * 1000:.0f} | {ours * 1000:.0f} | {ours / theirs:.2f} |"


if __name__ == "__main__":
    sys.exit(main())
