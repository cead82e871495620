"""What metrics cost a daemon with 1,000 replicas: its CPU time, and the latency of its ticks.

    python -m bench.metrics_cost [--seconds 60] [--rounds 2]

Run by `make bench`; prints Markdown. The daemon is the real program over in-memory providers, without probes, so that its own work is
as small as it can be. Rounds without and with metrics alternate within one run. A scrape comes every 15 s. The latency is that of decisions about 1,000 replicas of which one changes each time, in this process.
"""

import argparse
import gc
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from dataclasses import replace
from pathlib import Path

from bench.decide import NOW, settled, world
from providers.facts import Probes, ProbeValue
from reconciler.core.decide import decide
from reconciler.metrics.monitoring import Monitoring
from reconciler.shell.clock import SystemClock
from reconciler.shell.monitor import Tick
from tests.free_ports import free_port

REPLICAS = 1_000
SCRAPE_SECONDS = 15.0

BLOCK_SECONDS = 5.0
"""Length of a block of decisions; each one with metrics has a scrape."""

HEAD = """\
apiVersion: reconciler/v1
kind: Instance
metadata: {{name: this}}
spec: {{id: cost{metrics}}}
---
apiVersion: reconciler/v1
kind: Provider
metadata: {{name: pool}}
spec: {{type: memory-endpoints}}
"""

NODE = """\
---
apiVersion: reconciler/v1
kind: Provider
metadata: {{name: node{number}}}
spec: {{type: memory-runtime}}
"""

NODES = 25
"""Containers start on each node a few at a time, so that many nodes are ready sooner."""

WORKLOAD = """\
---
apiVersion: reconciler/v1
kind: Workload
metadata: {{name: w{number}}}
spec:
  replicas: 1
  nodes: [node{node}]
  template:
    metadata: {{labels: {{app: w{number}}}}}
    spec: {{containers: [{{name: main, image: x, command: [run], ports: [{{name: http, containerPort: 8080}}]}}]}}
---
apiVersion: reconciler/v1
kind: Service
metadata: {{name: w{number}}}
spec: {{selector: {{app: w{number}}}, port: http, balancers: [{{provider: pool, pool: w{number}}}]}}
"""


def cpu(pid: int) -> float:
    """CPU seconds that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def scrape(port: int) -> bytes:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        return answer.read()


def daemon(directory: Path, metrics: bool, seconds: float) -> tuple[float, int]:
    """(CPU seconds that a converged daemon uses per second, series of a scrape)."""
    port = free_port()
    text = f", metrics: {{listen: '127.0.0.1:{port}'}}" if metrics else ""
    manifests = directory / f"manifests-{metrics}"
    manifests.mkdir(exist_ok=True)
    documents = [HEAD.format(metrics=text), *(NODE.format(number=number) for number in range(NODES))]
    documents += [WORKLOAD.format(number=number, node=number % NODES) for number in range(REPLICAS)]
    (manifests / "all.yaml").write_text("".join(documents))
    state = Path(tempfile.mkdtemp(dir=directory))
    command = [sys.executable, "-m", "reconciler", "--watch", str(manifests), "--state-dir", str(state / "state")]
    with (directory / "log").open("w") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        settle(process, state / "state")
        began, used, series, end = time.monotonic(), cpu(process.pid), 0, time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(SCRAPE_SECONDS)
            if metrics:
                series = sum(not line.startswith(b"#") for line in scrape(port).splitlines())
        return (cpu(process.pid) - used) / (time.monotonic() - began), series
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def settle(process: "subprocess.Popen[bytes]", state: Path) -> None:
    """Wait until the daemon has created everything."""
    end = time.monotonic() + 500
    command = [sys.executable, "-m", "reconciler", "status", "--state-dir", str(state), "--exit-code", "-o", "json"]
    while time.monotonic() < end:
        time.sleep(5)
        if process.poll() is not None:
            raise SystemExit("the daemon ended")
        if subprocess.run(command, capture_output=True, check=False).returncode == 0:
            time.sleep(5)
            return
    raise SystemExit("the daemon did not converge")


def latencies(seconds: float) -> dict[bool, list[float]]:
    """Seconds of each decision about 1,000 replicas, with what the monitor does in a tick.

    Short blocks without and with metrics alternate, because other work on the machine comes and goes. In the middle of each block
    with metrics comes a scrape, on another thread.
    """
    desired, observed = settled(*world(REPLICAS // 3))
    generations = list(observed.probes)
    monitors = {metrics: Monitoring(SystemClock(), textfile=metrics) for metrics in (False, True)}
    for monitoring in monitors.values():
        monitoring.begin(desired)
    took: dict[bool, list[float]] = {False: [], True: []}
    number = 0
    for block in range(2 * max(1, round(seconds / BLOCK_SECONDS))):
        metrics = bool(block % 2)
        monitoring = monitors[metrics]
        scraping = threading.Timer(BLOCK_SECONDS / 2, lambda: monitors[True].meter and monitors[True].meter.text())
        if metrics:
            scraping.start()
        end = time.monotonic() + BLOCK_SECONDS
        while time.monotonic() < end:
            generation = generations[number % len(generations)]
            before = observed.probes[generation]
            assert before.readiness is not None
            value = ProbeValue.FAIL if number % 2 else ProbeValue.PASS
            changed = Probes(None, before.liveness, before.readiness._replace(value=value))
            seen = replace(observed, probes={**observed.probes, generation: changed})
            gc.disable()
            begun = time.perf_counter()
            decision = decide(desired, seen, NOW)
            at = NOW.steady + number
            monitoring.ticked(Tick(decision, desired, NOW, at, 10**7, observed.ledger.owned, at, at, at, complete=True))
            took[metrics].append(time.perf_counter() - begun)
            gc.enable()
            number += 1
        if metrics:
            scraping.join()
    return took


def p99(values: list[float]) -> float:
    return sorted(values)[int(len(values) * 0.99)]


def main() -> int:
    arguments = argparse.ArgumentParser(prog="python -m bench.metrics_cost")
    arguments.add_argument("--seconds", type=float, default=60, help="length of each round (default: %(default)s)")
    arguments.add_argument("--rounds", type=int, default=2, help="rounds of each kind (default: %(default)s)")
    options = arguments.parse_args()
    print(f"## The cost of metrics, {REPLICAS:,} replicas, a scrape every {SCRAPE_SECONDS:g} s\n")
    print("| | without metrics | with metrics | ratio |\n|---|---|---|---|", flush=True)
    shares: dict[bool, list[float]] = {False: [], True: []}
    series = 0
    with tempfile.TemporaryDirectory() as directory:
        for _ in range(options.rounds):
            for metrics in (False, True):
                share, counted = daemon(Path(directory), metrics, options.seconds)
                shares[metrics].append(share)
                series = max(series, counted)
    off_cpu, on_cpu = (statistics.median(shares[metrics]) for metrics in (False, True))
    print(
        f"| CPU of a converged daemon, of one core | {off_cpu:.2%} | {on_cpu:.2%} | {on_cpu / off_cpu:.3f} |",
        flush=True,
    )
    took = latencies(options.seconds * options.rounds)
    for name, of in (("median", statistics.median), ("p99", p99)):
        off, on = of(took[False]), of(took[True])
        print(f"| a tick with its decision, {name}, ms | {off * 1e3:.2f} | {on * 1e3:.2f} | {on / off:.3f} |")
    print(f"\nA scrape has {series:,} series. Metrics use {on_cpu - off_cpu:.2%} of one core.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
