"""Surfaces: manifests and local documents, zone files, files of nginx, answers to probes, and rows of the ledger."""

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import h2.connection
from h2.config import H2Configuration
from hypothesis import strategies as st
from ruamel.yaml import YAML

from manifests.problems import Code, ManifestErrors, Problem
from manifests.values.desired import Desired
from providers.dns.zonefile.edit import edit, next_serial
from providers.dns.zonefile.lines import ZoneSyntaxError
from providers.dns.zonefile.parser import parse as parse_zone
from providers.endpoints.nginx import text as nginx
from providers.facts import Endpoint, RecordKey, RecordSet
from reconciler.probes.answer import FOLLOW, Rules, judge, location, waiting_for
from reconciler.probes.grpc import GrpcExchange, health_status
from reconciler.probes.messages import GRPC, Spec
from reconciler.probes.streak import CANNOT_RUN, FAIL, PASS, UNKNOWN
from reconciler.tree import load_with_warnings
from tests.fuzz.mutations import as_json, changed, changes, edited, edits
from tests.fuzz.surface import ROOT, Check, Surface, no_world

# --- manifests ----------------------------------------------------------------------------------------------------

OUTSIDE = "sentinel-of-a-file-outside"
"""Stands in a file beside the tree. No text of the program may have it."""

TREES = (
    ("confined/manifests", "confined/local"), ("hardened/manifests", "hardened/local"), ("adopt", ""), ("dns-geo", ""), ("edge", ""), ("push", ""), ("quickstart", ""),
    ("rollout", ""),
)  # fmt: skip
"""Examples: a tree, and its local documents."""

manifest_inputs = st.tuples(
    st.sampled_from(TREES), st.integers(0, 9), st.booleans(), changes, edits | st.just([]), st.sampled_from(("", "", "", "", "link", "directory", "name"))
)  # fmt: skip


def yaml_files(place: str) -> dict[str, bytes]:
    directory = ROOT / "examples" / place
    return {path.name: path.read_bytes() for path in sorted(directory.glob("*.yaml"))} if place else {}


FILES = {place: yaml_files(place) for pair in TREES for place in pair}
VALUES = {
    (place, name): list(YAML(typ="safe").load_all(data))
    for place, files in FILES.items()
    for name, data in files.items()
}


def _names(desired: Desired) -> tuple[Any, ...]:
    """What only local documents may say, without its place."""
    return ([(one.name, one.type, str(one.settings)) for one in desired.providers], desired.instance, desired.guard)


@contextlib.contextmanager
def manifest_world() -> Iterator[Check]:
    with tempfile.TemporaryDirectory() as base:
        original: dict[Any, Any] = {}

        def check(value: Any) -> str:
            trees, which, local_too, steps, raw, odd = value
            place = Path(base, "case")
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir()
            Path(place, "outside.yaml").write_text(f"{OUTSIDE}: [\n")
            targets = [(part, name) for part in trees for name in FILES[part]]
            if not local_too:
                targets = [target for target in targets if target[0] == trees[0]]
            target = targets[which % len(targets)]
            written: dict[str, bytes] = {}
            for part, directory in zip(trees, ("tree", "local"), strict=True):
                Path(place, directory).mkdir(mode=0o755)
                for name, valid in FILES[part].items():
                    data = valid
                    if (part, name) == target:
                        pieces = [as_json(one) for one in changed(VALUES[target], steps)] if steps else [valid]
                        data = edited(b"\n---\n".join(pieces), raw)
                    path = Path(place, directory, name)
                    path.write_bytes(data)
                    path.chmod(0o644)
                    written[name if directory == "tree" else str(path)] = data
            if odd == "link":
                Path(place, "tree", "link.yaml").symlink_to("../outside.yaml")
            elif odd == "directory":
                Path(place, "tree", "more.yaml").mkdir()
                Path(place, "tree", "up").symlink_to("..")
            elif odd == "name":
                Path(place, "tree", "a\n::error::b\x1b[31m.yaml").write_bytes(b"a: [\n")
            local = Path(place, "local") if trees[1] else None
            try:
                desired, warnings = load_with_warnings(Path(place, "tree"), local)
            except ManifestErrors as error:
                problems, desired = error.problems, None
            else:
                problems = warnings
            for problem in problems:
                _sound(problem, written, place)
            if desired is None:
                assert any(not problem.is_warning for problem in problems)
                return "refused"
            assert OUTSIDE not in repr(desired)
            assert odd != "link", "a file outside the tree was read"
            if trees[1] and target[0] == trees[0]:
                if trees not in original:
                    shutil.rmtree(Path(place, "tree"))
                    Path(place, "tree").mkdir()
                    for name, data in FILES[trees[0]].items():
                        Path(place, "tree", name).write_bytes(data)
                    original[trees] = _names(load_with_warnings(Path(place, "tree"), local)[0])
                assert _names(desired) == original[trees], "the tree changed what only local documents may say"
            return "accepted"

        yield check


def _sound(problem: Problem, written: dict[str, bytes], place: Path) -> None:
    """Assert that a problem is at a place that exists, in one visible line, and quotes nothing from outside."""
    assert problem.code is not Code.INTERNAL_ERROR, problem.message
    text = problem.render()
    assert OUTSIDE not in text
    assert all(line.isprintable() for line in text.split("\n")), text
    if problem.file in written:
        lines = written[problem.file].decode("utf-8", "replace").count("\n") + written[problem.file].count(b"\r") + 1
        assert 0 <= problem.line <= lines + 1, f"{problem} is not one of {lines} lines"
    else:
        file = Path(problem.file) if Path(problem.file).is_absolute() else place / "tree" / problem.file
        assert file.absolute().is_relative_to(place), f"{problem.file} is not in the tree"


# --- zone files ---------------------------------------------------------------------------------------------------

ZONE = "example.test."
ZONE_TEXT = rb"""; Zone example.test.
$TTL 300
example.test. 3600 IN SOA localhost. hostmaster.example.test. 2 3600 600 1209600 300
example.test. 3600 IN NS localhost.
_reconciler-caa.c.example.test. 300 IN TXT "reconciler/v1 owner=fuzz/record/c"
c 300 IN CAA 0 issue "a.example; x=\\\";) $INCLUDE x"
$ORIGIN sub.example.test.
www ( A ; a comment
  192.0.2.1 )
    A 192.0.2.2
t 300 IN TXT "x\027[8m\010result\010$INCLUDE x\010; \" ( \\000" plain
s SRV 1 2 5060 sip.example.net.
h HTTPS 1 . alpn="h2,h3" port=8443
u TYPE65400 \# 2 abcd
"""
NEW = RecordKey(f"new.{ZONE}", "A")


def check_zone(steps: Any) -> str:
    text = edited(ZONE_TEXT, steps).decode("latin-1")
    try:
        zone = parse_zone(text, ZONE)
    except ZoneSyntaxError:
        return "refused"
    if NEW in zone.records:
        return "accepted"
    wanted = {NEW: RecordSet(60, ("192.0.2.9",))}
    again = parse_zone(edit(text, zone, wanted, next_serial(zone.serial)), ZONE)
    assert again.records == zone.records | wanted, "an edit changed another record"
    return "accepted"


# --- nginx --------------------------------------------------------------------------------------------------------

NGINX_TEXT = b"""upstream web {
    least_conn;
    # reconciler begin fuzz
    server 192.0.2.10:8080 weight=100; # fuzz-web-0
    server 192.0.2.11:8080 down; # fuzz-web-1
    # reconciler end fuzz
    server unix:/run/x.sock backup;
    server "192.0.2.12" max_fails=3;
    # reconciler begin other
    server [2001:db8::1]:80 weight=1; # other
    # reconciler end other
}
"""


def check_nginx(steps: Any) -> str:
    text = edited(NGINX_TEXT, steps).decode("utf-8", "surrogateescape")
    try:
        pool = nginx.parse(text, "web", "fuzz")
    except ValueError:
        return "refused"
    member = nginx.Member(Endpoint("192.0.2.99", 80), 7, "fuzz-web-9", "fuzz")
    written = nginx.render(pool, {member.endpoint: member}, "fuzz")
    again = nginx.parse(written, "web", "fuzz")
    assert again.ours == {member.endpoint: member}
    assert again.foreign == pool.foreign, "an edit changed a server of another owner"
    return "accepted"


# --- answers to probes --------------------------------------------------------------------------------------------

HTTP_ANSWERS = (
    b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", b"HTTP/1.1 301 Moved\r\nLocation: /in\r\n\r\n", b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;x=y\r\nok\r\n0\r\n\r\n", b"HTTP/1.0 503 Busy\nRetry-After: 1\n\nno",
)  # fmt: skip
RULES = Rules(frozenset(range(200, 400)), 10_240, True)
RESULTS = frozenset({PASS, FAIL, FOLLOW | PASS, FOLLOW | FAIL})


def check_http(value: Any) -> str:
    base, steps, ended = value
    data = edited(base, steps)
    judgement = judge(data, ended, RULES)
    location(data)
    if judgement is None:
        assert not ended, "no judgement of an answer that has ended"
        assert waiting_for(data).isprintable()
        return "waits"
    result, detail = judgement
    assert result in RESULTS
    assert detail.isprintable()
    assert result & ~FOLLOW != PASS or b" 2" in data or b" 3" in data, "passed without a status that passes"
    return "accepted" if result & ~FOLLOW == PASS else "refused"


def grpc_answer() -> bytes:
    """The frames of a server that says SERVING."""
    client = h2.connection.H2Connection(H2Configuration(client_side=True))
    client.initiate_connection()
    client.send_headers(1, [(":method", "POST"), (":scheme", "http"), (":authority", "x"), (":path", "/")], True)
    server = h2.connection.H2Connection(H2Configuration(client_side=False))
    server.initiate_connection()
    server.receive_data(client.data_to_send())
    server.send_headers(1, [(":status", "200"), ("content-type", "application/grpc")])
    server.send_data(1, b"\0\0\0\0\2\x08\x01")
    server.send_headers(1, [("grpc-status", "0"), ("grpc-message", "x")], True)
    return bytes(server.data_to_send())


GRPC_ANSWER = grpc_answer()
GRPC_SPEC = Spec(1, GRPC, "127.0.0.1", 1, 10**9, 10**9, 1, 1, 1, 0, 0, authority="x")


def check_grpc(value: Any) -> str:
    steps, size, message = value
    health_status(edited(b"\0\0\0\0\2\x08\x01", message))
    exchange = GrpcExchange(GRPC_SPEC)
    exchange.begin()
    data = edited(GRPC_ANSWER, steps)
    for at in range(0, len(data), size):
        judgement = exchange.take(data[at : at + size], False)
        if judgement is not None:
            break
        exchange.outgoing()
    else:
        judgement = exchange.take(b"", True)
    assert judgement is not None
    result, detail = judgement
    assert result in (PASS, FAIL, UNKNOWN, CANNOT_RUN)
    assert detail.isprintable()
    return "accepted" if result == PASS else "refused"


SURFACES = (
    Surface("manifests", "authors of pull requests; local documents: operators", "no error of the program; each problem is at a line of a file of the tree; nothing outside is read; the tree changes no Provider, Guard or Instance of local documents", manifest_inputs, manifest_world),
    Surface("zone files", "writers of the file", "a ZoneSyntaxError, or an edit that keeps all other records", edits, partial(no_world, check_zone)),
    Surface("nginx files", "writers of the file", "a ValueError, or an edit that keeps all other servers", edits, partial(no_world, check_nginx)),
    Surface("HTTP answers", "a container or a health-check target", "a verdict in one visible line; a pass only for a status that passes", st.tuples(st.sampled_from(HTTP_ANSWERS), edits, st.booleans()), partial(no_world, check_http)),
    Surface("gRPC answers", "a container", "a verdict in one visible line", st.tuples(edits, st.sampled_from((1, 9, 64, 4096)), edits), partial(no_world, check_grpc)),
)  # fmt: skip
