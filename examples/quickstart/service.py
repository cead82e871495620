"""The quickstart's web service. It needs Python's standard library only.

It listens on ADDRESS:PORT, which the process runtime sets for each replica, and answers:

    GET /         its address and process id
    GET /healthz  200 while it is healthy (for the liveness probe)
    GET /readyz   200 while it accepts traffic (for the readiness probe)
    POST /break   makes both answer 500 until the process is restarted

On SIGTERM it answers /readyz with 500, finishes its requests in flight, and exits with 0.
"""

import os
import signal
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Service(ThreadingHTTPServer):
    """The server and its health."""

    daemon_threads = False  # closing waits for requests in flight
    request_queue_size = 128

    def __init__(self, address: str, port: int) -> None:
        super().__init__((address, port), Handler)
        self.broken = False
        self.leaving = False

    def leave(self) -> None:
        """Stop accepting. Runs in a thread of its own, because `shutdown` waits for the loop to end."""
        self.leaving = True
        threading.Thread(target=self.shutdown).start()


class Handler(BaseHTTPRequestHandler):
    """One request."""

    server: Service
    timeout = 3  # seconds for a client to send its request

    def do_GET(self) -> None:
        if self.path == "/":
            host, port = self.server.server_address[:2]
            self.answer(200, f"hello from {host}:{port}, process {os.getpid()}")
        elif self.path == "/healthz":
            self.answer(500 if self.server.broken else 200, "broken" if self.server.broken else "ok")
        elif self.path == "/readyz":
            ready = not (self.server.broken or self.server.leaving)
            self.answer(200 if ready else 500, "ready" if ready else "not ready")
        else:
            self.answer(404, "no such page")

    def do_POST(self) -> None:
        if self.path != "/break":
            self.answer(404, "no such page")
            return
        self.server.broken = True
        print("broken on request", flush=True)
        self.answer(200, "broken until restarted")

    def answer(self, status: int, text: str) -> None:
        body = f"{text}\n".encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (named so by the base class)
        """Log all requests but the probes, which come every second."""
        if getattr(self, "path", "") not in ("/healthz", "/readyz"):
            print(self.address_string(), format % args, flush=True)


def main() -> int:
    service = Service(os.environ.get("ADDRESS", "127.0.0.1"), int(os.environ.get("PORT", "8080")))
    signal.signal(signal.SIGTERM, lambda *_: service.leave())
    signal.signal(signal.SIGINT, lambda *_: service.leave())
    print("listening on {}:{}".format(*service.server_address[:2]), flush=True)
    service.serve_forever(poll_interval=0.05)
    service.server_close()
    print("all requests answered, bye", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
