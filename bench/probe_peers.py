"""The other programs of `bench/probes.py`: nginx as the server, HAProxy and blackbox_exporter as peers."""

import os
import re
import select
import shlex
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from manifests.values.desired import ProbeKind

PORT, BLACKBOX_PORT = 18080, 19115
TARGETS, PERIOD_MS = 1000, 100
MANY, MANY_PERIOD = 20_000, 10
TIMEOUT = 2
CLIENT, SERVER = {0}, {1 if (os.cpu_count() or 1) > 1 else 0}
TICKS = os.sysconf("SC_CLK_TCK")

NGINX = """
worker_processes 1; daemon off; pid {dir}/nginx.pid; error_log {dir}/nginx.log;
events {{ worker_connections 20000; multi_accept on; }}
http {{ access_log off; server {{ listen 0.0.0.0:{port} backlog=8192; location / {{ return 200 "ok"; }} }} }}
"""
HAPROXY = """
global
  nbthread 1
  maxconn 100
defaults
  mode {mode}
  timeout connect {timeout}s
  timeout client 5s
  timeout server 5s
  timeout check {timeout}s
frontend none
  bind 127.0.0.1:18999
  default_backend all
backend all
  {check}
{servers}
"""
CHECKS = {
    ProbeKind.HTTP: ("http", "option httpchk GET /\n  http-check expect status 200-399"),
    ProbeKind.TCP: ("tcp", "option tcp-check\n  tcp-check connect"),
}


class Sample(NamedTuple):
    """One run of one product: probes done, seconds, CPU-seconds, lateness p50, p99 and max in ms, time-outs, RSS in MB."""

    probes: int
    seconds: float
    cpu: float
    p50: float = 0
    p99: float = 0
    late_max: float = 0
    timed_out: int = 0
    voided: int = 0
    rss: float = 0
    reading: float = 0

    @property
    def per_cpu(self) -> float:
        return self.probes / self.cpu


def address(number: int) -> str:
    return f"127.0.{1 + number // 250}.{1 + number % 250}"


def cpu_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def rss_of(pid: int) -> float:
    return int(Path(f"/proc/{pid}/status").read_text().split("VmRSS:")[1].split()[0]) / 1024


def opened() -> int:
    """Connections that this network namespace has opened since its creation."""
    names, values = (
        line.split() for line in Path("/proc/net/snmp").read_text().splitlines() if line.startswith("Tcp:")
    )
    return int(values[names.index("ActiveOpens")])


@contextmanager
def running(
    argv: Sequence[str], cores: set[int], ready: Callable[[], bool], env: dict[str, str] | None = None
) -> Iterator[int]:
    """Run a program pinned to cores: ready inside the block, ended afterwards."""
    pinned = ["taskset", "-c", ",".join(str(core) for core in sorted(cores)), *argv]
    with subprocess.Popen(pinned, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env) as process:
        try:
            deadline = time.monotonic() + 10
            while not ready():
                if process.poll() is not None or time.monotonic() > deadline:
                    raise SystemExit(f"{argv[0]} did not start: {shlex.join(argv)}")
                time.sleep(0.02)
            yield process.pid
        finally:
            process.terminate()


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def haproxy(kind: ProbeKind, directory: Path, seconds: float, settle: float) -> Sample:
    mode, check = CHECKS[kind]
    servers = "\n".join(f"  server s{n} {address(n)}:{PORT} check inter {PERIOD_MS}ms" for n in range(TARGETS))
    config = directory / f"haproxy-{mode}.cfg"
    config.write_text(HAPROXY.format(mode=mode, timeout=TIMEOUT, check=check, servers=servers))
    with running(["haproxy", "-db", "-f", str(config)], CLIENT, lambda: listens(18999)) as pid:
        time.sleep(settle)
        before, cpu, begun = opened(), cpu_of(pid), time.monotonic()
        time.sleep(seconds)
        return Sample(opened() - before, time.monotonic() - begun, cpu_of(pid) - cpu, rss=rss_of(pid))


def blackbox(kind: ProbeKind, directory: Path, seconds: float, settle: float) -> Sample:
    prober = "http" if kind is ProbeKind.HTTP else "tcp"
    config = directory / "blackbox.yml"
    config.write_text(f"modules: {{it: {{prober: {prober}, timeout: {TIMEOUT}s}}}}\n")
    argv = [
        "prometheus-blackbox-exporter",
        f"--config.file={config}",
        f"--web.listen-address=127.0.0.1:{BLACKBOX_PORT}",
        "--log.level=error",
    ]
    with running(argv, CLIENT, lambda: listens(BLACKBOX_PORT), {**os.environ, "GOMAXPROCS": "1"}) as pid:
        drive(prober, settle)
        cpu, begun = cpu_of(pid), time.monotonic()
        done = drive(prober, seconds)
        return Sample(done, time.monotonic() - begun, cpu_of(pid) - cpu, rss=rss_of(pid))


def drive(prober: str, seconds: float) -> int:
    """Request probes from blackbox_exporter over 32 kept connections, one at a time on each; returns how many succeeded."""
    epoll = select.epoll()
    socks: dict[int, tuple[socket.socket, bytearray]] = {}
    sent = done = 0

    def ask(sock: socket.socket) -> None:
        nonlocal sent
        place = f"{address(sent % TARGETS)}:{PORT}"
        target = f"http://{place}/" if prober == "http" else place
        sock.send(f"GET /probe?module=it&target={target} HTTP/1.1\r\nHost: b\r\n\r\n".encode())
        sent += 1

    for _ in range(32):
        sock = socket.create_connection(("127.0.0.1", BLACKBOX_PORT))
        socks[sock.fileno()] = (sock, bytearray())
        epoll.register(sock.fileno(), select.EPOLLIN)
        ask(sock)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for fd, _ in epoll.poll(0.1):
            sock, data = socks[fd]
            data += sock.recv(65536)
            if complete(data):
                done += b"probe_success 1" in data
                data.clear()
                ask(sock)
    for sock, _ in socks.values():
        sock.close()
    epoll.close()
    return done


def complete(data: bytearray) -> bool:
    if data.endswith(b"0\r\n\r\n"):
        return True
    header, separator, body = data.partition(b"\r\n\r\n")
    length = re.search(rb"Content-Length: (\d+)", header)
    return bool(separator) and length is not None and len(body) >= int(length[1])
