"""The application of the incidents with real processes: it answers what `real.py` orders in the file $ORDERS/$ADDRESS.

Orders from before its own start count as none: then it answers 503. A hung answer never comes.
"""

import json
import os
import signal
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

ORDERS = Path(os.environ["ORDERS"]) / os.environ["ADDRESS"]
TICKS = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
AGE = time.clock_gettime(time.CLOCK_BOOTTIME) - TICKS / os.sysconf("SC_CLK_TCK")
BORN = time.time() - AGE - 0.02  # noqa: TID251  (compared with the times of files; the kernel counts in hundredths of a second)
"""When this process began: orders for it may be older than this interpreter."""
HANG = 3.0
"""Seconds, longer than the time-outs of probes and clients."""


def answer(path: str) -> str:
    """The order for this path: pass, fail or timeout."""
    try:
        if ORDERS.stat().st_mtime < BORN:
            return "fail"
        return json.loads(ORDERS.read_text()).get(path.strip("/"), "fail")
    except (OSError, ValueError):
        return "fail"


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        given = answer(self.path)
        if given == "timeout":
            time.sleep(HANG)
            self.close_connection = True
            return
        self.send_response(200 if given == "pass" else 503)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *words: object) -> None:
        """It is asked every second."""


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    ThreadingHTTPServer((os.environ["ADDRESS"], int(os.environ["PORT"])), Handler).serve_forever()
