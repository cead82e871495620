"""A web service that knows nothing of pushes: `reconcile push run` in front of it speaks for it. Python's standard library only.

It listens on ADDRESS:PORT, which the process runtime gives to each replica. On SIGTERM, which reaches it after `draining` was
pushed, it finishes the requests that are under way and exits with 0.
"""

import os
import signal
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Service(ThreadingHTTPServer):
    """The server."""

    daemon_threads = False  # closing waits for requests that are under way


class Handler(BaseHTTPRequestHandler):
    """One request."""

    timeout = 3  # seconds for a client to say what it wants

    def do_GET(self) -> None:
        body = f"hello from process {os.getpid()}\n".encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (named so by the base class)
        """Probes ask all the time: they are not worth a line."""


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
