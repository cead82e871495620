"""Mutations of valid texts and JSON values: what a careless or hostile author would change."""

import copy
import json
from typing import Any

from hypothesis import strategies as st

BYTES = (
    b"\n", b"\r\n\r\n", b"\0", b"\xff\xfe", b"-1", b"9" * 30, b"1e400", b"NaN", b"null", b'"\\ud800"', b"{}", b"[]", b"[[[[[[[[", b" ", b",", b"true",
    b"-0", b"\x1b[31m", b".", b"..", b"../../etc/passwd", b"*", b'"', b"'", b"(", b")", b";", b"#", b"\\", b"$INCLUDE /etc/passwd\n", b"$ORIGIN .\n",
    b"$GENERATE 1-999999999 a$ A 192.0.2.1\n", b"$TTL 99999999999999\n", b"\t", b"\xe2\x80\xa8", b"\xe2\x80\xae", b"\xef\xbb\xbf", b"&a ", b"*a ", b"<<: ",
    b"!!python/object:os.system ", b"!!binary ", b"? ", b"- ", b"|\n", b">\n", b"%YAML 1.1\n", b"---\n", b"...\n", b": ", b"::error::x\n",
)  # fmt: skip

VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**63, -(2**70), 10**400, 1.5, float("inf"), float("nan"), "", " ", "\0", "a\0b", "\n", "a\nb", "\r\nSet: x", "; rm -rf /",
    "\x1b]0;x\x07", "../../etc/passwd", "/etc/passwd", "..", "/", "~", "{}", "$(id)", "${HOME}", "%s%n", "é", "\u202e", "\u2028", "a" * 300, "a" * 20000, "9" * 5000,
    "0x10", "1e400", "1:2:3", "2001:db8::1", "::ffff:127.0.0.1", "127.0.0.1", "169.254.169.254", "fe80::1%lo", "0.0.0.0/0", "1s", "-1s", "9" * 50 + "s", "100%", "-5%",
    "* * * * *", "60 24 32 13 8", "2026-02-30T00:00:00Z", "9999-12-31T23:59:59.999999999+23:59", "0001-01-01T00:00:00Z", "../../../etc/localtime", "workload/web",
    "workload/../x", "*.example.test", "-a", "xn--", "a." * 130, ".", "@", "example.test.", [], {}, [[]], [{}], {"": ""}, {"a": None}, [None], ["a"] * 50, "Always",
    "[::1]:80", "[::1", "http://[::1", "127.0.0.1:99999", "sha256:" + "0" * 64, "a@sha256:zz", "unix:///var/run/docker.sock", "http://169.254.169.254/",
)  # fmt: skip
"""Values in place of others, in JSON and YAML."""

KEYS = (
    "spec",
    "name",
    "env",
    "valueFrom",
    "secret",
    "file",
    "<<",
    "__class__",
    "x",
    "",
    "\x1b[31m",
    "hostConfig",
    "Privileged",
    "volumes",
)

_edit = st.tuples(
    st.integers(0, 5), st.integers(0, 2**16), st.integers(1, 60), st.sampled_from(BYTES) | st.binary(max_size=6)
)

edits = st.lists(_edit, max_size=6)
"""Changes of a text, for `edited`."""

_change = st.tuples(
    st.integers(0, 6), st.integers(0, 2**16), st.integers(0, 2**16), st.sampled_from(VALUES), st.sampled_from(KEYS)
)

changes = st.lists(_change, max_size=4)
"""Changes of a JSON value, for `changed`."""


def edited(text: bytes, steps: list[tuple[int, int, int, bytes]]) -> bytes:
    """The text with the edits: replaced, cut, inserted and repeated pieces."""
    out = bytearray(text)
    for kind, place, length, piece in steps:
        at = place % (len(out) + 1)
        if kind == 0:
            out[at : at + len(piece)] = piece
        elif kind == 1:
            del out[at : at + length]
        elif kind == 2:
            out[at:at] = piece
        elif kind == 3:
            del out[at:]
        elif kind == 4:
            out[at:at] = out[(place * 7) % (len(out) + 1) :][:length]
        elif out:
            out[at % len(out)] = length + (place % 196)
    return bytes(out)


def changed(value: Any, steps: list[tuple[int, int, int, Any, str]]) -> Any:
    """A copy of the value with the changes: replaced, removed, renamed, copied and nested members."""
    value = copy.deepcopy(value)
    for kind, place, other, new, key in steps:
        spots = list(_spots(value))
        if not spots:
            return value
        inside, at = spots[place % len(spots)]
        if kind in (0, 1):
            inside[at] = copy.deepcopy(new)
        elif kind == 2:
            del inside[at]
        elif kind == 3 and isinstance(inside, dict):
            inside[key] = inside.pop(at)
        elif kind == 4:
            there, name = spots[other % len(spots)]
            inside[at] = copy.deepcopy(there[name])
        elif kind == 5 and isinstance(inside, list):
            inside.insert(at, copy.deepcopy(inside[at]))
        elif kind == 6:
            for _ in range(other % 120):
                inside[at] = [inside[at]]
    return value


def _spots(value: Any) -> Any:
    """Every (container, key) of a JSON value."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in list(pairs):
        yield value, key
        yield from _spots(inner)


def as_json(value: Any) -> bytes:
    """JSON as an unchecked writer writes it: NaN and lone surrogates included."""
    return json.dumps(value).encode("utf-8", "surrogatepass")
