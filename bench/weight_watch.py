"""Reports when the weight of an address in HAProxy changes. Used by `edge_latency.py` and `push_latency.py`.

It runs in a process of its own, so that it neither waits for the measured interpreter nor delays it.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

WATCH = """
import socket, sys, time
link = socket.socket(socket.AF_UNIX)
link.connect(sys.argv[1])
def ask(command):
    link.sendall(command)
    data = b""
    while not data.endswith(b"\\n> "):
        data += link.recv(65536)
    return data
ask(b"prompt\\n")
before = None
while True:
    data = ask(b"show servers state be_web\\n")
    now = time.perf_counter()
    rows = [line.split() for line in data.decode().splitlines() if f" {sys.argv[2]} " in line]
    weight = max((int(row[7]) for row in rows if not int(row[6]) & 0x2B), default=0)
    if weight != before:
        print(weight, now, flush=True)
        before = weight
        sys.stdin.buffer.raw.read(64)
    time.sleep(0.0003)
"""
"""Prints the weight of one address and its instant on the clock of all processes. Then it waits for a byte, polls until the
weight has changed, prints the new one, and so on."""


class Watch:
    """Polls the weight of one address in a process of its own, from each `begin` until it has changed."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def begin(self) -> None:
        """Poll from now on."""
        assert self._process.stdin is not None
        os.write(self._process.stdin.fileno(), b"\n")

    def wait(self, down: bool) -> float:
        """Wait until the address has no weight (True) or has some (False). Returns the instant of the change."""
        while True:
            weight, when = self.next()
            if (weight == 0) is down:
                return when

    def next(self) -> tuple[int, float]:
        """The next weight and its instant."""
        assert self._process.stdout is not None
        weight, when = self._process.stdout.readline().split()
        return int(weight), float(when)


@contextmanager
def watched(admin: Path, address: str) -> Iterator[Watch]:
    """A watch on the weight of an address over HAProxy's admin socket, after its first poll."""
    command = [sys.executable, "-c", WATCH, str(admin), address]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            watch = Watch(process)
            watch.next()
            yield watch
        finally:
            process.kill()
