"""A Route 53 whose answers never end, trickle or are compressed: the zone is unknown, a change has an unknown outcome."""

import http.server
import threading
import time
import zlib
from collections.abc import Callable, Iterator

import pytest

from providers.dns.route53 import answers
from providers.dns.route53.client import Client
from providers.dns.route53.settings import Route53Settings
from providers.errors import OutcomeUnknown, Rejected, Unreachable

Answer = Callable[[http.server.BaseHTTPRequestHandler], None]
ZONES = b"""<?xml version="1.0"?><ListHostedZonesByNameResponse xmlns="https://route53.amazonaws.com/doc/2013-04-01/">
<HostedZones/><IsTruncated>false</IsTruncated><MaxItems>100</MaxItems></ListHostedZonesByNameResponse>"""


@pytest.fixture
def amazon(tmp_path) -> Iterator[Callable[[Answer], Client]]:
    running: list[tuple[http.server.ThreadingHTTPServer, Client]] = []
    for file in ("id", "secret"):
        (tmp_path / file).write_text("sentinel0001\n")
        (tmp_path / file).chmod(0o600)

    def start(answer: Answer, timeout: str = "2s") -> Client:
        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                try:
                    answer(self)
                except OSError:
                    self.close_connection = True

            do_POST = do_GET

            def log_message(self, *arguments: object) -> None:
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        settings = {
            "endpoint": f"http://127.0.0.1:{server.server_port}",
            "accessKeyId": {"file": str(tmp_path / "id")},
            "secretAccessKey": {"file": str(tmp_path / "secret")},
            "timeout": timeout,
        }
        client = Client(Route53Settings.model_validate(settings), time.monotonic_ns, time.sleep)
        running.append((server, client))
        return client

    yield start
    for server, client in running:
        client.close()
        server.shutdown()
        server.server_close()


def read(client: Client) -> object:
    return client.read("zone example.test", "list_hosted_zones_by_name", DNSName="example.test")


def change(client: Client) -> str:
    batch = {
        "Changes": [
            {
                "Action": "CREATE",
                "ResourceRecordSet": {
                    "Name": "a.example.test",
                    "Type": "A",
                    "TTL": 60,
                    "ResourceRecords": [{"Value": "192.0.2.1"}],
                },
            }
        ]
    }
    return client.change("zone example.test", HostedZoneId="Z1", ChangeBatch=batch)


def head(handler: http.server.BaseHTTPRequestHandler, **headers: str) -> None:
    handler.rfile.read(int(handler.headers.get("Content-Length", 0)))
    handler.send_response(200)
    for name, value in headers.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()


def endless(handler: http.server.BaseHTTPRequestHandler) -> None:
    head(handler, Connection="close")
    while True:
        handler.wfile.write(b"<a>" * 20_000)


def chunks(handler: http.server.BaseHTTPRequestHandler) -> None:
    """One chunk that is announced as a terabyte."""
    head(handler, Transfer_Encoding="chunked")
    handler.wfile.write(b"%x\r\n" % (1 << 40))
    while True:
        handler.wfile.write(b"<a>" * 20_000)


def compressed(handler: http.server.BaseHTTPRequestHandler) -> None:
    body = zlib.compress(b" " * (64 << 20))
    head(handler, Content_Encoding="deflate", Content_Length=str(len(body)))
    handler.wfile.write(body)


def trickle(handler: http.server.BaseHTTPRequestHandler) -> None:
    head(handler, Content_Length="1000000")
    while True:
        handler.wfile.write(b" ")
        time.sleep(0.05)


@pytest.mark.parametrize("answer", [endless, chunks])
def test_an_answer_without_end_is_unknown(amazon, answer):
    with pytest.raises(Unreachable, match=f"more than {answers.MAX_ANSWER} octets"):
        read(amazon(answer, "30s"))
    with pytest.raises(OutcomeUnknown, match=f"more than {answers.MAX_ANSWER} octets"):
        change(amazon(answer, "30s"))


def test_a_compressed_answer_is_not_expanded(amazon):
    with pytest.raises(Unreachable, match="compressed"):
        read(amazon(compressed))


def test_an_answer_that_trickles_ends_with_the_whole_time(amazon):
    began = time.monotonic()
    with pytest.raises(Unreachable):
        read(amazon(trickle, "1s"))
    assert time.monotonic() - began < 20


def test_a_refusal_without_end_is_unknown_too(amazon):
    def refuse(handler: http.server.BaseHTTPRequestHandler) -> None:
        handler.send_response(400)
        handler.end_headers()
        while True:
            handler.wfile.write(b"x" * 65536)

    with pytest.raises((Unreachable, Rejected)):
        read(amazon(refuse, "30s"))


def test_an_answer_within_the_limits_is_read_and_the_connection_kept(amazon):
    peers = []

    def answer(handler: http.server.BaseHTTPRequestHandler) -> None:
        peers.append(handler.client_address)
        head(handler, Content_Length=str(len(ZONES)))
        handler.wfile.write(ZONES)

    client = amazon(answer)
    assert read(client)["HostedZones"] == []
    assert read(client)["MaxItems"] == "100"
    assert len(set(peers)) == 1
