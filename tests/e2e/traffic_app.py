"""The service of the traffic tests: run inside the containers, by the Python of this host.

    GET /                which container it is
    GET /slow?S          the same, after S seconds
    GET /hold            the same, after a request for /go
    GET /healthz         200
    GET /readyz          200, or 503 after /unready
    GET /unready         makes /readyz answer 503; /ready takes that back

With the word `cold` it is not ready before /ready. With the word `polite`, SIGTERM stops it gracefully: it serves on until no
new request has come for a while, finishes the requests in flight, and ends. Without it, it ends at once, as most programs do.
"""

import os
import signal
import socket
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

READY, GO = threading.Event(), threading.Event()
UNDER_WAY: set[int] = set()
PROBED = "/readyz"
LINGER, QUIET = 2.0, 1.0
"""Seconds that it serves on at least, and without a new request at the end."""

last_asked = 0.0


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        global last_asked  # noqa: PLW0603  (of this small program)
        UNDER_WAY.add(threading.get_ident())
        if self.path != PROBED:
            last_asked = time.monotonic()
        try:
            self.answer()
        finally:
            UNDER_WAY.discard(threading.get_ident())

    def answer(self) -> None:
        path, _, value = self.path.partition("?")
        if path == "/slow":
            time.sleep(float(value))
        elif path == "/hold":
            GO.wait(600)
        elif path == "/go":
            GO.set()
        elif path == "/ready":
            READY.set()
        elif path == "/unready":
            READY.clear()
        status = 503 if path == PROBED and not READY.is_set() else 200
        body = f"hello from {socket.gethostname()}\n".encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    request_queue_size = 128
    daemon_threads = True


def main() -> None:
    if "cold" not in sys.argv:
        READY.set()
    server = Server(("0.0.0.0", 8080), Handler)

    def leave() -> None:
        time.sleep(LINGER)
        while time.monotonic() < last_asked + QUIET:
            time.sleep(0.05)
        server.shutdown()
        while UNDER_WAY:
            time.sleep(0.01)
        os._exit(0)

    def on_term(*_: object) -> None:
        if "polite" not in sys.argv:
            os._exit(0)
        threading.Thread(target=leave).start()

    signal.signal(signal.SIGTERM, on_term)
    server.serve_forever(0.05)
    threading.Event().wait()  # `leave` ends the process


if __name__ == "__main__":
    main()
