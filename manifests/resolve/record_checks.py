"""What is doubtful or impossible about the records of a valid tree: types that a provider cannot hold, and names that cannot be meant.

Called by `resolver.py` after all documents are resolved. Names of targets are absolute, with or without a final dot, so a name that
was meant as relative is another name; a warning shows it. Lists are long: their canonical values are checked first, and the text
of the manifest is read only where one of them is doubtful.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from manifests import kinds
from manifests.kinds.validate import Declared, Path
from manifests.problems import Code
from manifests.resolve.record_list import written
from manifests.resolve.references import Scope
from manifests.types import record_types
from manifests.values.dns import DNSPolicy, Publish, Record, RecordList
from manifests.values.dns_names import within

ANSWER_OCTETS = 65_535
"""Octets of the largest DNS message (RFC 1035 section 4.2.2)."""

_RECORD_OCTETS = 12
"""Octets of a record in an answer beside its value: its name as a pointer, type, class, TTL and length."""

_MANY = 500
"""Sets with fewer and short values are not measured."""

_HOST_TYPES = frozenset(kind for kind, row in record_types.TABLE.items() if row.hosts)


class _Set(NamedTuple):
    """One declared record set. `path` leads to its values; `key` to its name."""

    declared: Declared
    zone: str
    host: str
    kind: str
    values: tuple[str, ...]


def check_records(
    scope: Scope, policies: Sequence[DNSPolicy], records: Sequence[Record], lists: Sequence[RecordList]
) -> None:
    """Report what is wrong with single record sets, or doubtful about them."""
    declared = {item.key: item for kind in ("DNSPolicy", "Record", "RecordList") for item in scope.all(kind)}
    names: dict[tuple[str, str], set[str]] = {}
    singles: list[DNSPolicy | Record] = [*policies, *records]
    for single in singles:
        names.setdefault((single.provider, single.zone), set()).add(single.host)
    for listed in lists:
        names.setdefault((listed.provider, listed.zone), set()).update(name for name, _, _ in listed.sets)
    for record in records:
        sets = [_Set(declared[record.key], record.zone, record.host, record.type, record.values)]
        _check(scope, sets, record.provider, names[record.provider, record.zone])
    for listed in lists:
        of_list = (
            _Set(declared[listed.key], listed.zone, host, kind, value[1])
            for (host, kind, _), value in listed.sets.items()
        )
        _check(scope, of_list, listed.provider, names[listed.provider, listed.zone])
    for policy in policies:
        _check_policy(scope, declared[policy.key], policy, names[policy.provider, policy.zone])


def _check(scope: Scope, sets: Iterator[_Set] | Sequence[_Set], provider: str, names: set[str]) -> None:
    can = scope.record_types.get(provider, frozenset())
    twice: dict[str, str] = {}
    for one in sets:
        if can and one.kind not in can:
            kind = scope.types.get(provider, "")
            message = f"{_label(one)}: providers of type '{kind}' cannot hold records of type {one.kind}"
            hint = f"remove it, or publish it with another provider than '{provider}'"
            scope.report(one.declared, _path(one), Code.UNSUPPORTED_TYPE, message, hint, key=True)
        doubled = twice.setdefault(one.zone, "." + one.zone + one.zone)
        if one.host.endswith(doubled):
            _doubled(scope, one.declared, _name_path(one), f"{_label(one)}: the name", one.host, one.zone)
        if one.kind in _HOST_TYPES:
            _check_hosts(scope, one, names)
        if len(one.values) > _MANY or len(one.values[0]) > ANSWER_OCTETS // _MANY:
            _check_size(scope, one)


def _check_hosts(scope: Scope, one: _Set, names: set[str]) -> None:
    indexes = record_types.TABLE[one.kind].hosts
    for value in one.values:
        for index in indexes:
            words = value.split(" ", index + 1) if one.kind != "NAPTR" else ["", *value.rsplit(" ", 1)]
            name = words[index] if one.kind != "NAPTR" else words[-1]
            if _doubtful(name, one.zone, names):
                text, path = _given(one, value)
                _report(scope, one.declared, path, f"{_label(one)}: it points at", name, text, one.zone, names)


def _doubtful(name: str, zone: str, names: set[str]) -> bool:
    """Whether a target may not be meant, whatever its spelling."""
    head, _, top = name[:-1].rpartition(".")
    if not head:
        return name != "."
    return top.isdigit() or name.endswith("." + zone + zone) or (not within(name, zone) and name + zone in names)


def _report(
    scope: Scope, declared: Declared, path: Path, subject: str, name: str, text: str, zone: str, names: set[str]
) -> None:
    """Report a doubtful target. `text` is its spelling in the manifest: a final dot says that an absolute name is meant."""
    plain = name.removesuffix(".")
    if plain.rpartition(".")[2].isdigit():
        address = all(label.isdigit() for label in plain.split(".")) and plain.count(".") == 3
        cause = "which is an address, not a name" if address else "which no host can be called: it ends in a number"
        hint = (
            "write the name of the host; to publish an address use a record of type A" if address else "write the name"
        )
        scope.report(declared, path, Code.SUSPICIOUS_NAME, f"{subject} {plain}, {cause}", hint)
    elif name.endswith("." + zone + zone):
        _doubled(scope, declared, path, subject, name, zone)
    elif not text.rstrip().endswith("."):
        known = f", and {plain}.{zone} is declared" if name + zone in names else ""
        message = f"{subject} {plain}, which is read as the absolute name {name}, not as a name below {zone}{known}"
        hint = f"write {plain}.{zone} if that is meant, or {name} with its final dot"
        scope.report(declared, path, Code.SUSPICIOUS_NAME, message, hint)


def _doubled(scope: Scope, declared: Declared, path: Path, subject: str, name: str, zone: str) -> None:
    message = f"{subject} {name} ends in the name of the zone twice"
    scope.report(declared, path, Code.SUSPICIOUS_NAME, message, f"write {name.removesuffix(zone)}")


def _check_policy(scope: Scope, declared: Declared, policy: DNSPolicy, names: set[str]) -> None:
    if policy.host.endswith("." + policy.zone + policy.zone):
        _doubled(scope, declared, ("spec", "host"), f"{declared.key}: the name", policy.host, policy.zone)
    hostnames = {target.name: target.hostname for target in policy.targets if target.publish is Publish.HOSTNAME}
    manifest = declared.manifest
    if not hostnames or not isinstance(manifest, kinds.DNSPolicy):
        return
    for index, target in enumerate(manifest.spec.targets):
        name = hostnames.get(target.name, "")
        if name and _doubtful(name, policy.zone, names):
            path: Path = ("spec", "targets", index, "hostname")
            subject = f"{declared.key}: target {target.name} points at"
            _report(scope, declared, path, subject, name, str(_value(declared, path)), policy.zone, names)


def _check_size(scope: Scope, one: _Set) -> None:
    octets = {"A": 4, "AAAA": 16}.get(one.kind)
    size = sum(_RECORD_OCTETS + (octets or len(value)) for value in one.values)
    if size > ANSWER_OCTETS:
        message = (
            f"{_label(one)}: an answer with its {len(one.values)} values has about {size} octets, more than the"
            f" {ANSWER_OCTETS} of the largest DNS message: resolvers get no answer"
        )
        scope.report(one.declared, _path(one), Code.LARGE_SET, message, "publish fewer or shorter values at this name")


# --- places -----------------------------------------------------------------------------------------------------------


def _label(one: _Set) -> str:
    return f"{one.declared.key}: {one.host} {one.kind}"


def _name_path(one: _Set) -> Path:
    """The place of the name of a set."""
    manifest = one.declared.manifest
    if isinstance(manifest, kinds.RecordList):
        return ("spec", "names", written(manifest.spec.names, one.host))
    return ("spec", "host")


def _path(one: _Set) -> Path:
    """The place of the type of a set."""
    listed = isinstance(one.declared.manifest, kinds.RecordList)
    return (*_name_path(one), one.kind) if listed else ("spec", "type")


def _given(one: _Set, canonical: str) -> tuple[str, Path]:
    """The spelling and the place of a canonical value."""
    listed = isinstance(one.declared.manifest, kinds.RecordList)
    path: Path = _path(one) if listed else ("spec", "values")
    given = _value(one.declared, path)
    if isinstance(given, Mapping):
        path, given = (*path, "values"), given.get("values")
    if not isinstance(given, list):
        return str(given), path
    index = next((at for at, text in enumerate(given) if _is(one.kind, text, canonical)), 0)
    return str(given[index]), (*path, index)


def _is(kind: str, text: object, canonical: str) -> bool:
    try:
        return isinstance(text, str) and record_types.value(kind, text) == canonical
    except ValueError:
        return False


def _value(declared: Declared, path: Path) -> object:
    """The value at a path, as the text of the manifest has it."""
    value: object = declared.document.value
    for part in path:
        if isinstance(value, Mapping) or (isinstance(value, list) and isinstance(part, int) and part < len(value)):
            value = value.get(part) if isinstance(value, Mapping) else value[int(part)]
    return value
