"""Parses and writes nginx's configuration as far as pools need it: statements with their places, servers of an upstream. Pure.

A pool is one file with one `upstream` block. Our servers are the lines between two markers. Everything else belongs to other
writers and stays as it is, byte for byte:

    upstream web {
        least_conn;
        # reconciler begin demo
        server 192.0.2.10:8080 weight=100; # demo-web-0
        server 192.0.2.11:8080 down; # demo-web-1
        # reconciler end demo
    }

nginx refuses weight 0, so that is written as `down`. It refuses an upstream without a server, so an empty block has one server
that is down and not a member. Used by the other modules of this provider.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from ipaddress import ip_address
from typing import NamedTuple

from providers.facts import Endpoint
from providers.naming import endpoint_text

PLACEHOLDER = Endpoint("127.0.0.1", 1)
"""The server of an empty block: it is down, and nothing listens on port 1 (tcpmux) of the loopback."""

DEFAULT_PORT = 80
"""The port of a server without one (module ngx_http_upstream_module, `server`)."""

_TOKEN = re.compile(
    r"""\s+|\#[^\n]*|(?P<mark>[{};])|(?P<word>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|(?:\\.|\$\{[^}]*\}|[^\s{};\\])+)""",
    re.DOTALL,
)
_OURS = re.compile(r"\s*server (\S+?)(?: weight=(\d+))?( down)?;(?: # (\S+))?\s*")
_NAME = re.compile(r"[A-Za-z0-9_.:/-]{1,200}")


class Statement(NamedTuple):
    """One directive: its words without quotes, its end (`;`, `{` or `}`), and where it starts and stops in the text."""

    words: tuple[str, ...]
    end: str
    start: int
    stop: int


class Member(NamedTuple):
    """One server. `owner` is the instance of its block; empty outside all blocks."""

    endpoint: Endpoint
    weight: int
    name: str
    owner: str


class Upstream(NamedTuple):
    """One pool file: its text, the place of this instance's block with its markers (`begin` == `end` without a block), our
    members, and the others."""

    text: str
    begin: int
    end: int
    ours: Mapping[Endpoint, Member]
    foreign: Mapping[Endpoint, Member]


def statements(text: str) -> Iterator[Statement]:
    """The directives of a configuration, flat: the start and the end of a block are statements of their own.

    Raises:
        ValueError: it cannot be parsed; the rest is unknown then.
    """
    words: list[str] = []
    start = at = 0
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None:
            raise ValueError(f"cannot parse line {text.count(chr(10), 0, at) + 1}")
        mark, word = token.group("mark"), token.group("word")
        if word is not None:
            if not words:
                start = at
            words.append(_unquoted(word))
        if mark is not None:
            yield Statement(tuple(words), mark, start if words else at, token.end())
            words = []
        at = token.end()
    if words:
        raise ValueError(f"it ends in the middle of directive {words[0][:40]!r}")


def parse(text: str, pool: str, instance: str) -> Upstream:
    """Read a pool file.

    Raises:
        ValueError: it does not have exactly one upstream of that name, or has a marker without its partner or inside of a
            directive (a quoted word may have several lines), or a line in our block that we did not write.
    """
    body = _body(text, pool)
    blocks = dict(_blocks(text, *body))
    begin, end = blocks.pop(instance, (body[1], body[1]))
    ours = {line.endpoint: line for line in _our_lines(text[begin:end], instance)}
    foreign: dict[Endpoint, Member] = {}
    edges = sorted({begin, end, *(edge for block in blocks.values() for edge in block)})
    for statement in statements(text[body[0] : body[1]]):
        at = body[0] + statement.start
        if any(at < edge < body[0] + statement.stop for edge in edges):
            raise ValueError(f"a marker stands inside of directive {statement.words[0][:40]!r}")
        if statement.words[:1] != ("server",) or begin <= at < end:
            continue
        owner = next((name for name, (first, last) in blocks.items() if first <= at < last), "")
        member = _server(statement.words, owner)
        if member.endpoint != PLACEHOLDER:
            foreign[member.endpoint] = member
    return Upstream(text, begin, end, ours, foreign)


def render(upstream: Upstream, members: Mapping[Endpoint, Member], instance: str) -> str:
    """The file with these members between our markers."""
    lines = [f"    {_mark('begin', instance)}", *(_line(members[place]) for place in sorted(members))]
    if not members:
        lines.append(f"    server {endpoint_text(PLACEHOLDER)} down;")
    block = "\n".join([*lines, f"    {_mark('end', instance)}", ""])
    head, tail = upstream.text[: upstream.begin], upstream.text[upstream.end :]
    if upstream.begin == upstream.end and head and not head.endswith("\n"):
        block = "\n" + block
    return head + block + tail


def empty(pool: str) -> str:
    """The text of a new pool, before our block is added."""
    return f"upstream {pool} {{\n}}\n"


def _mark(which: str, instance: str) -> str:
    return f"# reconciler {which} {instance}"


def _line(member: Member) -> str:
    state = f"weight={member.weight}" if member.weight else "down"
    name = f" # {member.name}" if _NAME.fullmatch(member.name) else ""
    return f"    server {endpoint_text(member.endpoint)} {state};{name}"


def _unquoted(word: str) -> str:
    if word[0] in "\"'":
        return re.sub(r"\\(.)", r"\1", word[1:-1])
    return word


def _body(text: str, pool: str) -> tuple[int, int]:
    """Where the body of the upstream begins and ends. The end is the start of the line with the closing brace."""
    bodies: list[tuple[int, int]] = []
    depth, first = 0, -1
    for statement in statements(text):
        if statement.end == "{":
            if depth == 0 and statement.words == ("upstream", pool):
                first = statement.stop
            depth += 1
        elif statement.end == "}":
            depth -= 1
            if depth == 0 and first >= 0:
                line = text.rfind("\n", 0, statement.stop) + 1
                bodies.append(
                    (
                        first,
                        max(
                            first,
                            line
                            if text[line : statement.stop - 1].isspace() or line == statement.stop - 1
                            else statement.stop - 1,
                        ),
                    )
                )
                first = -1
    if len(bodies) != 1 or depth:
        raise ValueError(f"it has {len(bodies)} complete blocks 'upstream {pool} {{...}}', not one")
    return bodies[0]


def _blocks(text: str, start: int, stop: int) -> Iterator[tuple[str, tuple[int, int]]]:
    """The marked blocks in the body of an upstream: the instance, and where the block starts and stops, with its markers."""
    open_at: tuple[str, int] | None = None
    closed: set[str] = set()
    at = start
    for line in text[start:stop].splitlines(keepends=True):
        words = line.split()
        if words[:2] == ["#", "reconciler"] and len(words) == 4 and words[2] in ("begin", "end"):
            opens, name = words[2] == "begin", words[3]
            if opens != (open_at is None) or (open_at is not None and open_at[0] != name) or (opens and name in closed):
                raise ValueError(f"marker {line.strip()!r} has no partner, or comes twice")
            if open_at is None:
                open_at = (name, at)
            else:
                yield name, (open_at[1], at + len(line))
                closed.add(name)
                open_at = None
        at += len(line)
    if open_at is not None:
        raise ValueError(f"marker {_mark('begin', open_at[0])!r} has no partner")


def _our_lines(block: str, instance: str) -> Iterator[Member]:
    """The members of our block. It must contain nothing else, because it is written as a whole."""
    places: set[Endpoint] = set()
    for line in block.splitlines()[1:-1]:
        match = _OURS.fullmatch(line)
        place = _endpoint(match.group(1)) if match else None
        if match is None or place is None or place in places:
            raise ValueError(f"line {line.strip()[:80]!r} between our markers is not ours, or comes twice")
        places.add(place)
        if place != PLACEHOLDER:
            weight = 0 if match.group(3) else int(match.group(2) or 1)
            yield Member(place, weight, match.group(4) or "", instance)


def _server(words: Sequence[str], owner: str) -> Member:
    if len(words) < 2:
        raise ValueError("a server has no address")
    weights = [int(word[7:]) for word in words[2:] if word.startswith("weight=") and word[7:].isdecimal()]
    weight = 0 if "down" in words[2:] else (weights or [1])[-1]
    return Member(_endpoint(words[1]) or Endpoint(words[1], DEFAULT_PORT), weight, "", owner)


def _endpoint(text: str) -> Endpoint | None:
    """`address:port`, `[address]:port` or an address alone; None for names and Unix sockets."""
    host, colon, port = text.rpartition(":")
    if text.endswith("]") or not colon:
        host, port = text, str(DEFAULT_PORT)
    if host.startswith("[") != host.endswith("]") or not port.isdecimal():
        return None
    try:
        return Endpoint(str(ip_address(host.strip("[]"))), int(port))
    except ValueError:
        return None
