"""Surfaces: what servers answer to the providers. Nothing but a `ProviderError` may come out, in time, and facts have their declared types."""

import contextlib
import json
import socket
import struct
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import dns.message
import dns.rrset
from botocore.config import Config
from hypothesis import strategies as st

from providers import registry
from providers.dns.route53.provider import Route53Zones
from providers.dns.route53.settings import Route53Settings
from providers.errors import ProviderError
from providers.facts import ContainerFact, PoolFact, ZoneFact
from providers.spi import Context
from tests.fuzz.fake_server import http_answer, http_requests, serving
from tests.fuzz.mutations import as_json, changed, changes, edited, edits
from tests.fuzz.surface import Check, Surface
from tests.fuzz.typed import assert_typed
from tests.providers.dns.route53.cloud import KEYS, Time

SLOWEST = 30.0
"""A look longer than this (seconds) is a fault: the time-out of each call is at most 1 s here, and a look makes few calls."""

HOLDS = "a fact whose members have their declared types, or a ProviderError, within its time-outs"
ZONE = "example.test."


def looked(observe: Any, fact: type) -> str:
    """Assert what holds for every look. Returns what became of it."""
    began = time.monotonic()
    try:
        seen = observe()
    except ProviderError as error:
        public = next(kind.__name__ for kind in type(error).__mro__ if not kind.__name__.startswith("_"))
        outcome = f"refused ({public})"
    else:
        assert_typed(seen, tuple[fact, ...])  # type: ignore[valid-type]
        outcome = "accepted"
    assert time.monotonic() - began < SLOWEST
    return outcome


# --- engine -------------------------------------------------------------------------------------------------------

ENGINE = json.loads(Path(__file__).with_name("engine_answers.json").read_text())
"""Answers of Docker Engine: version, info, a list with one container, and that container."""

engine_inputs = st.tuples(
    st.sampled_from(("version", "info", "list", "inspect")), changes, edits | st.just([]) | st.just([]), edits | st.just([]) | st.just([]) | st.just([])
)  # fmt: skip


@contextlib.contextmanager
def engine_world() -> Iterator[Check]:
    spoilt: dict[str, bytes] = {}
    head: list[Any] = []

    def talk(connection: socket.socket) -> None:
        for target in http_requests(connection):
            path = target.partition("?")[0]
            kind = next((kind for word, kind in KINDS.items() if word in path), "inspect")
            body = spoilt.get(kind) or as_json(ENGINE[kind])
            answer = http_answer(b"[]" if "networks" in path else body, more="Api-Version: 1.41\r\n")
            if head and kind in spoilt:
                top, _, rest = answer.partition(b"\r\n\r\n")
                answer = edited(top, head) + b"\r\n\r\n" + rest
                connection.sendall(answer)
                return
            connection.sendall(answer)

    with tempfile.TemporaryDirectory() as place, serving(talk, Path(place, "engine.sock")):

        def check(value: Any) -> str:
            kind, steps, raw, top = value
            spoilt.clear()
            spoilt[kind] = edited(as_json(changed(ENGINE[kind], steps)), raw)
            head[:] = top
            settings = {"socket": str(Path(place, "engine.sock"))}
            provider: Any = registry.create("docker", "here", settings, Context("fuzz", place))
            try:
                return looked(provider.observe, ContainerFact)
            finally:
                provider.close()

        yield check


KINDS = {"/version": "version", "/info": "info", "containers/json": "list"}

# --- PowerDNS -----------------------------------------------------------------------------------------------------

POWERDNS = {
    "id": ZONE, "name": ZONE, "kind": "Native", "serial": 7, "edited_serial": 7, "dnssec": False,
    "rrsets": [
        {"name": ZONE, "type": "SOA", "ttl": 60, "records": [{"content": "a. b. 1 2 3 4 5", "disabled": False}]},
        {"name": f"_reconciler-a.x.{ZONE}", "type": "TXT", "ttl": 60, "records": [{"content": '"reconciler/v1 owner=fuzz/dnspolicy/x"', "disabled": False}]},
        {"name": f"x.{ZONE}", "type": "A", "ttl": 60, "records": [{"content": "192.0.2.1", "disabled": False}], "comments": []},
    ],
}  # fmt: skip


@contextlib.contextmanager
def powerdns_world() -> Iterator[Check]:
    answer = [b""]

    def talk(connection: socket.socket) -> None:
        for _ in http_requests(connection):
            connection.sendall(answer[0])
            return

    with tempfile.TemporaryDirectory() as place, serving(talk) as port:
        Path(place, "key").write_text("sentinel-of-the-key\n")
        Path(place, "key").chmod(0o600)
        settings = {"url": f"http://127.0.0.1:{port}", "apiKey": {"file": f"{place}/key"}, "timeout": "1s"}

        def check(value: Any) -> str:
            steps, raw, top = value
            head, _, body = http_answer(edited(as_json(changed(POWERDNS, steps)), raw)).partition(b"\r\n\r\n")
            answer[0] = edited(head, top) + b"\r\n\r\n" + body
            provider: Any = registry.create("powerdns", "zones", settings, Context("fuzz", place))
            try:
                return looked(lambda: provider.observe([ZONE]), ZoneFact)
            finally:
                provider.close()

        yield check


# --- DNS messages -------------------------------------------------------------------------------------------------


def zone_answer(query: dns.message.Message) -> bytes:
    """A whole zone, whatever was asked."""

    def rrset(name: str, kind: str, *values: str) -> dns.rrset.RRset:
        return dns.rrset.from_text(name, 60, "IN", kind, *values)

    soa = rrset(ZONE, "SOA", f"a.{ZONE} b.{ZONE} 1 2 3 4 5")
    answer = dns.message.make_response(query)
    answer.flags |= dns.flags.AA
    owner = rrset(f"_reconciler-a.x.{ZONE}", "TXT", '"reconciler/v1 owner=fuzz/dnspolicy/x"')
    addresses = rrset(f"x.{ZONE}", "A", "192.0.2.1", "192.0.2.2")
    mail = rrset(f"m.{ZONE}", "MX", f"10 x.{ZONE}")
    caa = rrset(f"c.{ZONE}", "CAA", '0 issue "ca.example.net"')
    answer.answer = [soa, rrset(ZONE, "NS", f"a.{ZONE}"), owner, addresses, mail, caa, soa]
    return answer.to_wire()


@contextlib.contextmanager
def dns_world() -> Iterator[Check]:
    now: list[Any] = [[], 0, 0]

    def talk(connection: socket.socket) -> None:
        while True:
            size = connection.recv(2, socket.MSG_WAITALL)
            if len(size) < 2:
                return
            query = connection.recv(struct.unpack("!H", size)[0], socket.MSG_WAITALL)
            steps, keep, longer = now
            wire = zone_answer(dns.message.from_wire(query))
            wire = wire[:keep] + edited(wire[keep:], steps)
            connection.sendall(struct.pack("!H", min(65535, len(wire) + longer)) + wire[:65535])
            if longer:
                return

    with tempfile.TemporaryDirectory() as place, serving(talk) as port:

        def check(value: Any) -> str:
            steps, keep, longer, way = value
            now[:] = [steps, keep, longer]
            settings = {"server": "127.0.0.1", "port": port, "timeout": "500ms", "readBack": way}
            provider: Any = registry.create("rfc2136", "zones", settings, Context("fuzz", place))
            try:
                return looked(lambda: provider.observe([ZONE]), ZoneFact)
            finally:
                provider.close()

        yield check


# --- HAProxy ------------------------------------------------------------------------------------------------------

STATE = (
    "1\n# be_id be_name srv_id srv_name srv_addr srv_op_state srv_admin_state srv_uweight srv_iweight srv_time_since_last_change srv_check_status"
    " srv_check_result srv_check_health srv_check_state srv_agent_state bk_f_forced_id srv_f_forced_id srv_fqdn srv_port srvrecord srv_use_ssl"
    " srv_check_port srv_check_addr srv_agent_addr srv_agent_port\n"
) + "".join(
    f"3 web {n} web{n} 10.0.0.{n} 2 0 100 1 10 6 3 4 6 0 0 0 fuzz.slot.invalid 8080 - 0 0 - - 0\n" for n in (1, 2, 3)
)
STAT = (
    "# pxname,svname,qcur,qmax,scur,smax,slim,stot,bin,bout,dreq,dresp,ereq,econ,eresp,wretr,wredis,status,weight,act,bck,chkfail,chkdown,lastchg,downtime,"
    "qlimit,pid,iid,sid,throttle,lbtot,tracked,type,rate,rate_lim,rate_max,check_status,mode,algo\n"
) + "".join(
    f"web,{name},0,0,0,1,,5,0,0,,0,,0,0,0,0,UP,100,1,0,0,0,10,0,,1,3,{n},,5,,{kind},0,,1,L4OK,http,roundrobin\n"
    for n, (name, kind) in enumerate((("BACKEND", 1), ("web1", 2), ("web2", 2), ("web3", 2)))
)
INFO = (
    "Name: HAProxy\nVersion: 2.6.12\nPid: 42\nUptime_sec: 100\nStopping: 0\nMaxconn: 100\nStart_time_sec: 1795945681\n"
)
HAPROXY = {
    "show info": INFO,
    "show cli level": "admin\n",
    "servers state": STATE,
    "show stat": STAT,
    "backend": "# name\nweb\n",
    "CFGFILES": "HAPROXY_CFGFILES=h.cfg\n",
}
HAPROXY_WORDS = tuple(HAPROXY)


@contextlib.contextmanager
def haproxy_world() -> Iterator[Check]:
    spoilt: list[Any] = ["", [], []]

    def talk(connection: socket.socket) -> None:
        buffer = b""
        while True:
            more = connection.recv(65536)
            if not more:
                return
            buffer += more
            *lines, buffer = buffer.split(b"\n")
            for command in (part for line in lines for part in line.split(b";")):
                word = next((word for word in HAPROXY_WORDS if word.encode() in command), "")
                text = HAPROXY.get(word, "").encode()
                which, steps, whole = spoilt
                answer = (edited(text, steps) if word == which else text) + b"\n> "
                connection.sendall(edited(answer, whole) if word == which else answer)

    with tempfile.TemporaryDirectory() as place, serving(talk, Path(place, "admin.sock")):
        settings = {"sockets": [f"{place}/admin.sock"], "timeout": "200ms"}

        def check(value: Any) -> str:
            spoilt[:] = value
            provider: Any = registry.create("haproxy", "edge", settings, Context("fuzz", place))
            try:
                return looked(lambda: provider.observe(["web"]), PoolFact)
            finally:
                provider.close()

        yield check


# --- Route 53 -----------------------------------------------------------------------------------------------------

XMLNS = 'xmlns="https://route53.amazonaws.com/doc/2013-04-01/"'
ZONES_XML = (
    f'<?xml version="1.0"?><ListHostedZonesByNameResponse {XMLNS}><HostedZones><HostedZone><Id>/hostedzone/Z1</Id><Name>{ZONE}</Name>'
    "<CallerReference>x</CallerReference><Config><PrivateZone>false</PrivateZone></Config><ResourceRecordSetCount>3</ResourceRecordSetCount>"
    f"</HostedZone></HostedZones><DNSName>{ZONE}</DNSName><IsTruncated>false</IsTruncated><MaxItems>100</MaxItems></ListHostedZonesByNameResponse>"
)
SETS_XML = (
    f'<?xml version="1.0"?><ListResourceRecordSetsResponse {XMLNS}><ResourceRecordSets>'
    f"<ResourceRecordSet><Name>{ZONE}</Name><Type>NS</Type><TTL>60</TTL><ResourceRecords><ResourceRecord><Value>a.{ZONE}</Value></ResourceRecord></ResourceRecords></ResourceRecordSet>"
    f"<ResourceRecordSet><Name>x.{ZONE}</Name><Type>A</Type><TTL>60</TTL><ResourceRecords><ResourceRecord><Value>192.0.2.1</Value></ResourceRecord></ResourceRecords></ResourceRecordSet>"
    f'<ResourceRecordSet><Name>_reconciler-a.x.{ZONE}</Name><Type>TXT</Type><TTL>60</TTL><ResourceRecords><ResourceRecord><Value>"reconciler/v1 owner=fuzz/dnspolicy/x"</Value>'
    "</ResourceRecord></ResourceRecords></ResourceRecordSet></ResourceRecordSets><IsTruncated>false</IsTruncated><MaxItems>300</MaxItems></ListResourceRecordSetsResponse>"
)


@contextlib.contextmanager
def route53_world() -> Iterator[Check]:
    spoilt: list[Any] = [0, [], 200]
    calls = [0]

    def talk(connection: socket.socket) -> None:
        for target in http_requests(connection):
            calls[0] += 1
            kind = int("/rrset" in target)
            body = (ZONES_XML, SETS_XML)[kind].encode()
            status = 200
            if kind == spoilt[0]:
                body, status = edited(body, spoilt[1]), spoilt[2]
            if calls[0] > 50:  # pages that go on for ever: the time-out of the look ends them
                return
            connection.sendall(http_answer(body, "text/xml", status))

    with tempfile.TemporaryDirectory() as place, serving(talk) as port:
        config = Config(connect_timeout=1, read_timeout=1, retries={"total_max_attempts": 1})
        client: Any = boto3.client(
            "route53", region_name="us-east-1", endpoint_url=f"http://127.0.0.1:{port}", config=config, **KEYS
        )

        def check(value: Any) -> str:
            spoilt[:] = value
            calls[0] = 0
            clock = Time()
            provider = Route53Zones(
                "zones", Route53Settings(), Context("fuzz", place), steady=clock.steady, sleep=clock.sleep, connect=lambda: client
            )  # fmt: skip
            return looked(lambda: provider.observe([ZONE]), ZoneFact)

        yield check
        client.close()


SURFACES = (
    Surface("engine", "a container engine", HOLDS, engine_inputs, engine_world),
    Surface("PowerDNS", "a PowerDNS server", HOLDS, st.tuples(changes, edits | st.just([]), edits | st.just([]) | st.just([])), powerdns_world),
    Surface("DNS messages", "a name server (transfers and queries)", HOLDS, st.tuples(edits, st.sampled_from((0, 2, 12, 12, 12)), st.sampled_from((0, 0, 0, 0, 7)), st.sampled_from(("axfr", "queries"))), dns_world),
    Surface("HAProxy", "a HAProxy process", HOLDS, st.tuples(st.sampled_from(HAPROXY_WORDS), edits, edits | st.just([]) | st.just([])), haproxy_world),
    Surface("Route 53", "Amazon's API, or a server in its place", HOLDS, st.tuples(st.integers(0, 1), edits, st.sampled_from((200, 200, 200, 200, 400, 403, 500, 503))), route53_world),
)  # fmt: skip
