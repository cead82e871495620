"""A zone of 100,000 record sets of which 1 % changed: time and memory of a plan, compared with octodns-sync.

Run by `make bench`; prints a Markdown table. Needs `named`; starts its own server on loopback. octodns is installed into a new
virtual environment for the run; if that fails, the report says that it was not measured. Peer and reconciler alternate, each as a
process that reads its manifests, transfers the zone and prints its plan. reconciler also compares owner marks, so its zone has
twice as many record sets. Then `reconcile apply` writes the 1,000 changes. Finally nsupdate and the provider alternate in changing
1,000 sets of the same zones; the provider compares, writes and reads back.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from providers.actions import ChangeRecords, RecordChange
from providers.dns.common.ownership import mark_key, mark_record
from providers.facts import RecordKey, RecordSet
from providers.spi import Context
from providers.wrappers.owned import owned
from tests.providers.dns.rfc2136.name_servers import BORN, PATH, SECRETS, Named, program

ROOT = Path(__file__).resolve().parent.parent
SETS = 100_000
TIMES = 3
OURS, THEIRS = "ours.test.", "theirs.test."
OCTODNS = ("octodns==1.22.0", "octodns-bind==1.1.0")
LISTS = 2
"""A manifest file has at most 4 MiB, so the zone is in two lists."""
GOAL_TIME, GOAL_MEMORY, GOAL_CHANGES = 0.25, 0.8, 2.0
CHANGE_TIMES = 7
CHANGED = [index for index in range(SETS) if index % 100 == 60]
"""Sets that are changed in the last part, different from those of the plan. All are addresses."""


class Run(NamedTuple):
    """One process: seconds, peak of its resident memory in MB, its output."""

    seconds: float
    peak: float
    text: str


def value(index: int, zone: str, *, wanted: bool) -> tuple[str, str]:
    """(type, value) of one set: 70 % A, 10 % each AAAA, CNAME, TXT. The manifests have another value for one in a hundred."""
    kind = index % 10
    if kind < 7:
        first = 11 if wanted and index % 100 == 50 else 10
        return "A", f"{first}.{index >> 16}.{index >> 8 & 255}.{index & 255}"
    if kind == 7:
        return "AAAA", f"2001:db8::{1 + (index >> 16):x}:{index & 65535:x}"
    if kind == 8:
        return "CNAME", f"n{index - 2:06d}.{zone}"
    return "TXT", f"text of record {index}"


def list_of(index: int) -> int:
    """The number of the list that contains a set."""
    return index * LISTS // SETS


def zone_text(zone: str, marks: bool) -> str:
    """The zone on the server, without the changes."""
    lines = [BORN.format(zone=zone)]
    for index in range(SETS):
        kind, given = value(index, zone, wanted=False)
        name = f"n{index:06d}.{zone}"
        lines.append(f'{name} {kind} "{given}"\n' if kind == "TXT" else f"{name} {kind} {given}\n")
        if marks:
            key = RecordKey(name, kind)
            mark = mark_record(f"bench/recordlist/big-{list_of(index)}", key, zone)
            lines.append(f"{mark_key(key, zone).name} {mark.ttl} TXT {mark.values[0]}\n")
    return "".join(lines)


def our_manifests(server: Named, directory: Path) -> Path:
    """The whole zone as RecordLists, one per file."""
    directory.mkdir()
    keys = "".join(
        f"    {field}: {{name: {name}, secret: {{file: {server.directory / name}}}}}\n"
        for field, name in (("updateKey", "update.key"), ("transferKey", "transfer.key"))
    )
    (directory / "instance.yaml").write_text(
        "apiVersion: reconciler/v1\nkind: Instance\nmetadata: {name: bench}\nspec: {id: bench}\n---\n"
        "apiVersion: reconciler/v1\nkind: Provider\nmetadata: {name: names}\nspec:\n  type: rfc2136\n"
        f"  settings:\n    server: 127.0.0.1\n    port: {server.port}\n{keys}"
    )
    lines: list[list[str]] = [[] for _ in range(LISTS)]
    for index in range(SETS):
        kind, given = value(index, OURS, wanted=True)
        shown = f'"{given}"' if kind == "AAAA" else given
        lines[list_of(index)].append(f"    n{index:06d}.{OURS}: {{{kind}: {shown}}}\n")
    for number, part in enumerate(lines):
        head = f"apiVersion: reconciler/v1\nkind: RecordList\nmetadata: {{name: big-{number}}}\nspec:\n"
        (directory / f"zone-{number}.yaml").write_text(f"{head}  zone: {OURS}\n  names:\n{''.join(part)}")
    return directory


def their_manifests(server: Named, directory: Path) -> Path:
    """The same zone for octodns: its configuration and a zone file."""
    (directory / "zones").mkdir(parents=True)
    lines = ["---\n"]
    for index in range(SETS):
        kind, given = value(index, THEIRS, wanted=True)
        quoted = f"'{given}'" if kind in ("AAAA", "TXT") else given
        lines.append(f"n{index:06d}:\n  type: {kind}\n  value: {quoted}\n")
    (directory / "zones" / f"{THEIRS}yaml").write_text("".join(lines))
    config = directory / "config.yaml"
    config.write_text(
        "providers:\n"
        f"  files: {{class: octodns.provider.yaml.YamlProvider, directory: {directory / 'zones'}, default_ttl: 300}}\n"
        f"  server: {{class: octodns_bind.Rfc2136Provider, host: 127.0.0.1, port: {server.port}, timeout: 60,\n"
        f"    key_name: transfer.key, key_secret: {SECRETS['transfer.key']}, key_algorithm: hmac-sha256}}\n"
        f"zones:\n  {THEIRS}: {{sources: [files], targets: [server]}}\n"
    )
    return config


def octodns(directory: Path) -> Path | None:
    """octodns-sync in a new virtual environment; None when it cannot be installed."""
    try:
        venv.create(directory, with_pip=True)
        subprocess.run(
            [directory / "bin" / "pip", "install", "--quiet", "--disable-pip-version-check", *OCTODNS],
            check=True,
            capture_output=True,
            timeout=300,
        )
    except (OSError, subprocess.SubprocessError) as error:
        print(f"**octodns is NOT measured: {' '.join(OCTODNS)} cannot be installed ({type(error).__name__}).**\n")
        return None
    return directory / "bin" / "octodns-sync"


def measured(command: Sequence[str | Path], log: Path) -> Run:
    """Run a process to its end."""
    with log.open("wb") as out:
        begun = time.perf_counter()
        process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - begun
    process.returncode = os.waitstatus_to_exitcode(status)
    text = log.read_text(errors="replace")
    if process.returncode != 0:
        raise SystemExit(f"{command[0]} ended with {process.returncode}: {text[-2000:]}")
    return Run(seconds, usage.ru_maxrss / 1024, text)


def ours(verb: str, manifests: Path, state: Path, log: Path, *more: str) -> Run:
    return measured([sys.executable, "-m", "reconciler", verb, manifests, "--state-dir", state, *more], log)


def changes(server: Named, state: Path) -> tuple[float, float]:
    """Median seconds for changing 1,000 sets of the zone: nsupdate, and the provider with comparison and read-back."""
    secret = f"hmac-sha256:update.key:{SECRETS['update.key']}"
    names = owned(server.provider(Context("bench", str(state))), "bench")
    names.observe([OURS])
    theirs, mine = [], []

    def address(index: int, turn: int) -> str:
        return f"{10 + turn}.{index >> 16}.{index >> 8 & 255}.{index & 255}"

    for turn in range(CHANGE_TIMES):
        lines = [f"server 127.0.0.1 {server.port}", f"zone {THEIRS}"]
        wanted = []
        for index in CHANGED:
            name = f"n{index:06d}.{THEIRS}"
            lines += [f"update delete {name} A", f"update add {name} 300 A {address(index, turn + 1)}"]
            key = RecordKey(f"n{index:06d}.{OURS}", "A")
            before, after = (RecordSet(300, (address(index, number),)) for number in (turn, turn + 1))
            wanted.append(RecordChange(key, before, after, f"bench/recordlist/big-{list_of(index)}"))
        text = "\n".join([*lines, "send", ""])
        begun = time.perf_counter()
        subprocess.run([program("nsupdate"), "-v", "-y", secret], input=text, text=True, check=True, timeout=60)
        theirs.append(time.perf_counter() - begun)
        begun = time.perf_counter()
        names.perform(ChangeRecords("names", OURS, tuple(wanted)))
        mine.append(time.perf_counter() - begun)
    names.close()
    return statistics.median(theirs), statistics.median(mine)


def main() -> int:
    if shutil.which("named", path=PATH) is None:
        print("not measured: named is not installed (apt-get install bind9)")
        return 0
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        server = Named(directory / "named", {THEIRS: zone_text(THEIRS, False), OURS: zone_text(OURS, True)})
        sync = octodns(directory / "octodns")
        manifests, config = our_manifests(server, directory / "ours"), their_manifests(server, directory / "theirs")
        log, state = directory / "log", directory / "state"
        mine: list[Run] = []
        theirs: list[Run] = []
        try:
            server.start()
            for _ in range(TIMES):
                if sync is not None:
                    theirs.append(measured([sync, "--config-file", config], log))
                mine.append(ours("plan", manifests, state, log))
            as_json = json.loads(ours("plan", manifests, state, log, "-o", "json").text)
            planned = sum(len(step.get("changes", ())) or 1 for step in as_json["steps"])
            applied = ours("apply", manifests, state, log, "--yes")
            again = ours("plan", manifests, state, log)
            remaining = json.loads(ours("plan", manifests, state, log, "-o", "json").text)["steps"]
            assert not remaining, remaining
            nsupdate, perform = changes(server, directory)
        finally:
            server.kill()
    report(mine, theirs, planned, applied, again)
    print(f"\n| {len(CHANGED):,} changes in that zone | ms | provider / nsupdate |\n| --- | --- | --- |")
    print(f"| nsupdate -v | {nsupdate * 1000:.0f} | |")
    print(
        f"| provider: owner marks and sets compared, written, read back | {perform * 1000:.0f} | {perform / nsupdate:.2f} |"
    )
    print(f"\nGoal: at most {GOAL_CHANGES:g} times the time of nsupdate, which neither compares nor reads back.")
    return 0


def report(mine: Sequence[Run], theirs: Sequence[Run], planned: int, applied: Run, again: Run) -> None:
    assert planned == SETS // 100, planned
    print(f"## A zone of {SETS:,} record sets\n")
    print(
        f"1 % changed; each process reads and checks its manifests, transfers the zone from BIND and prints its plan. {TIMES} alternating runs, medians.\n"
    )
    print("| | s | peak MB | time / octodns | memory / octodns |")
    print("| --- | --- | --- | --- | --- |")
    our_time, our_peak = statistics.median(run.seconds for run in mine), statistics.median(run.peak for run in mine)
    ratios = "", ""
    if theirs:
        their_time = statistics.median(run.seconds for run in theirs)
        their_peak = statistics.median(run.peak for run in theirs)
        print(f"| octodns-sync | {their_time:.1f} | {their_peak:.0f} | | |")
        ratios = f"{our_time / their_time:.3f}", f"{our_peak / their_peak:.2f}"
        each = ", ".join(f"{own.seconds / peer.seconds:.3f}" for own, peer in zip(mine, theirs, strict=True))
    print(f"| reconcile plan | {our_time:.1f} | {our_peak:.0f} | {ratios[0]} | {ratios[1]} |")
    print(f"| reconcile plan, converged | {again.seconds:.1f} | {again.peak:.0f} | | |")
    print(f"| reconcile apply, {planned:,} changes, read back | {applied.seconds:.1f} | {applied.peak:.0f} | | |")
    if theirs:
        print(
            f"\nTime in each run: {each} of octodns-sync. Goals: at most {GOAL_TIME} of its time and {GOAL_MEMORY} of its memory."
        )
        print(
            f"\nThe zone of reconciler has an owner mark for each set: it transfers {2 * SETS:,} record sets, octodns transfers {SETS:,}."
        )


if __name__ == "__main__":
    sys.exit(main())
