"""Parses and writes one pool file (JSON). Pure; used by `provider.py`.

    {"format_version": 1, "pool": "web",
     "members": [{"address": "127.64.0.1", "port": 8080, "weight": 100, "name": "...", "owner": "demo"}]}

`owner` is the instance that added a member; a member without an owner was added by hand. Unknown keys of the file and of its
members are kept, so that other programs can use the file too.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from providers.errors import Unreachable
from providers.facts import Endpoint

FORMAT_VERSION = 1
MAX_PORT = 65535

Extra = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Member:
    """One member of a pool file; `extra` holds unknown keys."""

    weight: int
    name: str = ""
    owner: str = ""
    extra: Extra = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Pool:
    """A pool file: members by endpoint; `extra` holds unknown keys."""

    name: str
    members: Mapping[Endpoint, Member] = field(default_factory=dict)
    extra: Extra = field(default_factory=dict)


def parse(pool: str, path: str, data: bytes) -> Pool:
    """Read a pool file.

    Raises:
        Unreachable: the text is not a complete pool file of this pool. A part never counts as the whole.
    """

    def bad(cause: str) -> Unreachable:
        return Unreachable(f"pool {pool}", f"{path}: {cause}", "repair the file, or remove it to build the pool again")

    try:
        document = json.loads(
            data.decode(), object_pairs_hook=_no_duplicates, parse_constant=_no_constant, parse_float=_finite
        )
    except (ValueError, RecursionError) as error:
        raise bad(f"is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise bad("is not a JSON object")
    extra = dict(document)
    version, name, rows = extra.pop("format_version", None), extra.pop("pool", None), extra.pop("members", None)
    if version != FORMAT_VERSION:
        raise bad(f"has format_version {version!r}; this program supports {FORMAT_VERSION}")
    if name != pool:
        raise bad(f"is about pool {name!r}")
    if not isinstance(rows, list):
        raise bad("has no list of members")
    members: dict[Endpoint, Member] = {}
    for index, row in enumerate(rows):
        try:
            endpoint, member = _member(row)
        except ValueError as error:
            raise bad(f"members[{index}]: {error}") from error
        if endpoint in members:
            raise bad(f"members[{index}]: {endpoint.address} port {endpoint.port} comes twice")
        members[endpoint] = member
    return Pool(pool, members, extra)


def render(pool: Pool) -> bytes:
    """A pool file: members in the order of their endpoints, one per line, so that a diff shows what changed."""
    head = {"format_version": FORMAT_VERSION, "pool": pool.name, **pool.extra}
    lines = [json.dumps(_row(endpoint, pool.members[endpoint])) for endpoint in sorted(pool.members)]
    text = json.dumps(head)[:-1] + ', "members": ['
    text += ("\n  " + ",\n  ".join(lines) + "\n") if lines else ""
    return (text + "]}\n").encode()


def _member(row: object) -> tuple[Endpoint, Member]:
    if not isinstance(row, dict):
        raise ValueError("is not a JSON object")  # noqa: TRY004  (bad data, not a bad call)
    extra = dict(row)
    address, port, weight = extra.pop("address", None), extra.pop("port", None), extra.pop("weight", None)
    name, owner = extra.pop("name", ""), extra.pop("owner", "")
    if not isinstance(address, str) or not address:
        raise ValueError("has no address")
    if not _is_int(port) or not 1 <= port <= MAX_PORT:
        raise ValueError(f"port {port!r} is not a number from 1 to {MAX_PORT}")
    if not _is_int(weight) or weight < 0:
        raise ValueError(f"weight {weight!r} is not a number of 0 or more")
    if not isinstance(name, str) or not isinstance(owner, str):
        raise ValueError("name and owner must be texts")  # noqa: TRY004  (bad data, not a bad call)
    return Endpoint(address, port), Member(weight, name, owner, extra)


def _row(endpoint: Endpoint, member: Member) -> dict[str, object]:
    row: dict[str, object] = {"address": endpoint.address, "port": endpoint.port, "weight": member.weight}
    if member.name:
        row["name"] = member.name
    if member.owner:
        row["owner"] = member.owner
    return {**row, **member.extra}


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _no_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    values = dict(pairs)
    if len(values) != len(pairs):
        raise ValueError("a key comes twice in one object")
    return values


def _no_constant(text: str) -> object:
    raise ValueError(f"{text} is not a JSON number")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is too large")
    return number
