"""Probes per CPU-second, compared with HAProxy and blackbox_exporter, and the lateness of probes.

    python -m bench.probes [--seconds 5] [--rounds 3] [--beside "COMMAND"]

Prints Markdown. Every row is the median of its rounds; products alternate within a round, so ratios are valid for this run on
this machine only. The measured process is pinned to core 0, the server (nginx, `return 200`) to core 1. As root everything runs
in a network namespace of its own with only `lo`, so that connection tracking does not count.

CPU is user + system time of the measured process. The kernel counts HAProxy's checks (opened connections), the probe engine counts
its own; blackbox_exporter gets requests over 32 kept connections as fast as it answers.
"""

import argparse
import os
import re
import select
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.probe_peers import (
    CHECKS,
    CLIENT,
    NGINX,
    PERIOD_MS,
    PORT,
    SERVER,
    TARGETS,
    TIMEOUT,
    Sample,
    address,
    blackbox,
    cpu_of,
    haproxy,
    listens,
    rss_of,
    running,
)
from manifests.values.desired import SECOND, Probe, ProbeKind
from providers.facts import Generation
from reconciler.probes.engine import ProbeEngine
from reconciler.probes.target import Target

MANY, MANY_PERIOD = 20_000, 10
SETTLE = 1.6 * MANY_PERIOD
"""Seconds until every target has had its second probe; the cadence is even from then on."""
ALL = os.sched_getaffinity(0)
BESIDE = f"{sys.executable} -m bench.decide"
NEEDED = ("nginx", "haproxy", "prometheus-blackbox-exporter", "taskset")


class Beside:
    """A busy command, started again whenever it ends."""

    def __init__(self, command: str) -> None:
        self._argv = shlex.split(command)
        self._process: subprocess.Popen[bytes] | None = None

    def keep(self) -> None:
        if self._process is None or self._process.poll() is not None:
            self._process = subprocess.Popen(self._argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            os.sched_setaffinity(self._process.pid, ALL)

    def end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def engine(
    kind: ProbeKind, count: int, period: int, seconds: float, settle: float, beside: Beside | None = None
) -> Sample:
    """Run the engine over `count` targets; `period` in ns. With a busy command beside it, nothing is pinned."""
    made = ProbeEngine()
    try:
        os.sched_setaffinity(made.pid, CLIENT if beside is None else ALL)
        probe = Probe(kind=kind, port=PORT, period=period, timeout=TIMEOUT * SECOND)
        now = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        made.set_targets(
            [Target(Generation(str(n), 1), "liveness", probe, address(n), PORT, now) for n in range(count)]
        )
        pump(made, settle, beside)
        before, cpu, mine, begun = made.stats, cpu_of(made.pid), time.process_time(), time.monotonic()
        got = pump(made, seconds, beside)
        after, cpu, mine, took = (
            made.stats,
            cpu_of(made.pid) - cpu,
            time.process_time() - mine,
            time.monotonic() - begun,
        )
        if before is None or after is None or made.silent():
            raise SystemExit(f"the engine did not answer: {made.silent()}")
        return Sample(
            after.finished - before.finished,
            took,
            cpu,
            after.late_quantile(0.5, before) / 1e6,
            after.late_quantile(0.99, before) / 1e6,
            after.late_max / 1e6,
            after.timed_out,
            after.voided,
            rss_of(made.pid),
            mine / max(1, got) * 1e6,
        )
    finally:
        made.close()


def pump(made: ProbeEngine, seconds: float, beside: Beside | None = None) -> int:
    """Read batches like a caller; returns the number of facts. Ends at a heartbeat, so that the counters are current."""
    until = time.monotonic() + seconds
    got, stats = 0, made.stats
    while time.monotonic() < until or made.stats is stats:
        if beside is not None:
            beside.keep()
        select.select([made], [], [], 0.1)
        got += len(made.read())
        if time.monotonic() < until:
            stats = made.stats
        if not made.alive():
            break
    return got


def median(samples: Sequence[Sample], of: Callable[[Sample], float]) -> float:
    return statistics.median(of(sample) for sample in samples)


def throughput(kind: ProbeKind, title: str, directory: Path, options: argparse.Namespace) -> None:
    """One table: the engine and its peers at TARGETS / PERIOD_MS, with their cost."""
    peers: dict[str, Callable[[], Sample]] = {
        "reconciler": lambda: engine(kind, TARGETS, PERIOD_MS * 1_000_000, options.seconds, 1.5),
        f"HAProxy {CHECKS[kind][1].split()[1]}": lambda: haproxy(kind, directory, options.seconds, 1.5),
        "blackbox_exporter": lambda: blackbox(kind, directory, options.seconds, 0.5),
    }
    results: dict[str, list[Sample]] = {name: [] for name in peers}
    for _ in range(options.rounds):
        for name, run in peers.items():
            results[name].append(run())
    ours = median(results["reconciler"], lambda s: s.per_cpu)
    print(f"\n### {title}: {TARGETS} targets every {PERIOD_MS} ms\n")
    print(
        "| product | probes/s | per CPU-second | us of CPU each | reconciler / product | RSS MB | lateness p50 / p99 / max ms | timed out |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for name, samples in results.items():
        rate = median(samples, lambda s: s.probes / s.seconds)
        each = median(samples, lambda s: s.per_cpu)
        late = "" if name != "reconciler" else f"{late_text(samples)} | {sum(s.timed_out for s in samples)}"
        print(
            f"| {name} | {rate:,.0f} | {each:,.0f} | {1e6 / each:.1f} | {ours / each:.2f} | {median(samples, lambda s: s.rss):.0f} | {late or ' | '} |"
        )
    print(
        f"\nThe parent process needs {median(results['reconciler'], lambda s: s.reading):.1f} us of CPU to read each result."
    )


def late_text(samples: Sequence[Sample]) -> str:
    p50, p99 = median(samples, lambda s: s.p50), median(samples, lambda s: s.p99)
    return f"{p50:.2f} / {p99:.2f} / {max(s.late_max for s in samples):.1f}"


def lateness(options: argparse.Namespace) -> None:
    """Many targets with a long period, alone and beside a busy process."""
    rows: dict[str, list[Sample]] = {"alone, pinned": [], f"beside `{shown(options.beside)}`, not pinned": []}
    seconds = max(options.seconds, MANY_PERIOD)
    for _ in range(options.rounds):
        for (_, samples), beside in zip(rows.items(), (None, Beside(options.beside)), strict=True):
            try:
                samples.append(engine(ProbeKind.HTTP, MANY, MANY_PERIOD * SECOND, seconds, SETTLE, beside))
            finally:
                if beside is not None:
                    beside.end()
    print(f"\n### Lateness: {MANY:,} HTTP targets every {MANY_PERIOD} s\n")
    print("| run | probes/s | CPU of a core | lateness p50 / p99 / max ms | timed out | void | RSS MB |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name, samples in rows.items():
        rate, cpu = median(samples, lambda s: s.probes / s.seconds), median(samples, lambda s: s.cpu / s.seconds)
        lost = f"{sum(s.timed_out for s in samples)} | {sum(s.voided for s in samples)}"
        print(
            f"| {name} | {rate:,.0f} | {cpu:.1%} | {late_text(samples)} | {lost} | {median(samples, lambda s: s.rss):.0f} |"
        )


def shown(command: str) -> str:
    """A command for the report, without the paths of this machine."""
    return " ".join(Path(word).name if word.startswith("/") else word for word in shlex.split(command))


def start_up() -> None:
    took = []
    for _ in range(5):
        begun = time.monotonic()
        made = ProbeEngine()
        select.select([made], [], [], 5)
        took.append(time.monotonic() - begun)
        rss = rss_of(made.pid)
        made.close()
    print(
        f"\nThe child sends its first batch {statistics.median(took) * 1000:.0f} ms after its start; it then uses {rss:.0f} MB."
    )


def versions() -> str:
    found = [f"CPython {sys.version.split()[0]}", f"Linux {os.uname().release}", f"{os.cpu_count()} cores"]
    for argv, pattern in (
        (["nginx", "-v"], r"nginx/(\S+)"),
        (["haproxy", "-v"], r"version (\S+)"),
        (["prometheus-blackbox-exporter", "--version"], r"version (\S+)"),
    ):
        out = subprocess.run(argv, capture_output=True, text=True, check=False)
        match = re.search(pattern, out.stdout + out.stderr)
        found.append(f"{argv[0]} {match[1].rstrip(',') if match else '?'}")
    return ", ".join(found)


def main() -> None:
    parser = argparse.ArgumentParser(description="Probes per CPU-second and lateness, with peers. Prints Markdown.")
    parser.add_argument("--seconds", type=float, default=5.0, help="length of one measurement")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--beside", default=BESIDE, metavar="COMMAND", help="command that runs beside the engine in the last table"
    )
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    missing = [name for name in NEEDED if shutil.which(name) is None]
    if missing:
        raise SystemExit(
            f"not installed: {', '.join(missing)} (Debian: nginx-light, haproxy, prometheus-blackbox-exporter)"
        )
    if not options.inside and os.geteuid() == 0 and shutil.which("ip"):
        raise SystemExit(in_namespace())
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        os.chmod(directory, 0o755)
        config = directory / "nginx.conf"
        config.write_text(NGINX.format(dir=directory, port=PORT))
        print(f"## Probes\n\n{versions()}. {options.rounds} rounds of {options.seconds:g} s.")
        if not options.inside:
            print(
                "\nWithout a network namespace of its own (needs root and `ip`): the figures may include connection tracking."
            )
        os.sched_setaffinity(0, SERVER)
        with running(["nginx", "-c", str(config)], SERVER, lambda: listens(PORT)):
            throughput(ProbeKind.HTTP, "HTTP", directory, options)
            throughput(ProbeKind.TCP, "TCP", directory, options)
            lateness(options)
        start_up()


def in_namespace() -> int:
    """Run this program again inside a network namespace that has only `lo`."""
    name = f"bench-probes-{os.getpid()}"
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        subprocess.run(["ip", "-n", name, "link", "set", "lo", "up"], check=True)
        argv = ["ip", "netns", "exec", name, sys.executable, "-m", "bench.probes", *sys.argv[1:], "--inside"]
        return subprocess.run(argv, check=False).returncode
    finally:
        subprocess.run(["ip", "netns", "delete", name], check=False)


if __name__ == "__main__":
    main()
