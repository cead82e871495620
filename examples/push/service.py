"""A web service without any code for pushes: `reconcile push run` starts it and pushes for it. Python's standard library only.

It listens on ADDRESS:PORT, which the process runtime sets for each replica. `reconcile push run` pushes `draining` before it
forwards SIGTERM; then the service finishes its requests in flight and exits with 0.
"""

import os
import signal
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Service(ThreadingHTTPServer):
    """The server."""

    daemon_threads = False  # closing waits for requests in flight


class Handler(BaseHTTPRequestHandler):
    """One request."""

    timeout = 3  # seconds for a client to send its request

    def do_GET(self) -> None:
        body = f"hello from process {os.getpid()}\n".encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (named so by the base class)
        """Log nothing: most requests are probes."""


def main() -> int:
    service = Service((os.environ.get("ADDRESS", "127.0.0.1"), int(os.environ.get("PORT", "8080"))), Handler)
    # `shutdown` waits for the loop below to end, so it is called from another thread.
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=service.shutdown).start())
    signal.signal(signal.SIGINT, lambda *_: threading.Thread(target=service.shutdown).start())
    service.serve_forever(poll_interval=0.05)
    service.server_close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
