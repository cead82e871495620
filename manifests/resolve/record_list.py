"""From a checked RecordList to its value. Called by `resolver.py`.

A list may hold 100,000 names, so the path of a good record is short and creates only the tuples of the result. Problems are
reported record by record, with the line of each.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

from pydantic_core import PydanticCustomError

from manifests import kinds
from manifests.kinds.validate import Declared, Path
from manifests.problems import Code, did_you_mean
from manifests.resolve.dns import NOT_AT_APEX, apex_problem
from manifests.resolve.references import Scope
from manifests.types import durations, rdata, record_types
from manifests.types.durations import DAY
from manifests.types.errors import type_name
from manifests.values import dns
from manifests.values.desired import SECOND, Role
from manifests.values.dns import SetKey, SetValue

_PLAIN = re.compile(r"(?:\*\.)?(?:[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?\.)+")
"""Names in canonical spelling: nearly all."""

_KINDS = {kind: kind for kind in record_types.TYPES}
_TTL_FIELDS = ("ttl", "values")
_TTL = durations.between(SECOND, 7 * DAY)


class _BadRecords(Exception):
    """A problem of the records of one type at one name."""

    def __init__(self, code: Code, message: str, hint: str = "", at: Path = ()) -> None:
        super().__init__(message)
        self.code, self.message, self.hint, self.at = code, message, hint, at


class _Given(NamedTuple):
    """The given values of one type of a name."""

    ttl: int
    values: list[object]
    at: Path
    listed: bool = True


def record_list(declared: Declared, scope: Scope) -> dns.RecordList | None:
    """All record sets of a list. Every problem is reported at its record."""
    manifest = declared.manifest
    if not isinstance(manifest, kinds.RecordList):
        return None
    spec = manifest.spec
    if spec.provider is None:
        provider = scope.only_provider(Role.DNS, declared, ("spec",), "spec.provider")
    else:
        provider = spec.provider
        scope.provider(provider, Role.DNS, declared, ("spec", "provider"))
    sets = _Sets(declared, scope, spec.zone, int(spec.ttl) // SECOND)
    for name, types in spec.names.items():
        sets.add(name, types)
    return dns.RecordList(
        declared.key, declared.name, provider, spec.zone, sets.values, declared.document.where, spec.adopt
    )


def written(names: Mapping[str, object], host: str) -> str:
    """The spelling of a name in a list, for the place of a problem."""
    for name in (host, host[:-1]):
        if name in names:
            return name
    return next((name for name in names if _canonical(name) == host), host)


def _canonical(name: str) -> str:
    try:
        return rdata.record_name(name)
    except ValueError:
        return ""


class _Sets:
    """The record sets of one list, collected name by name."""

    def __init__(self, declared: Declared, scope: Scope, zone: str, ttl: int) -> None:
        self._declared, self._scope, self._zone, self._below, self._ttl = declared, scope, zone, "." + zone, ttl
        self._hosts: set[str] = set()
        self.values: dict[SetKey, SetValue] = {}

    def add(self, name: str, types: object) -> None:
        """Add one name with its records."""
        host = name if name.endswith(".") else name + "."
        if len(host) > rdata.MAX_NAME or not _PLAIN.fullmatch(host):
            try:
                host = rdata.record_name(name)
            except ValueError as error:
                return self._report((name,), Code.BAD_VALUE, str(error), key=True)
        if not (host.endswith(self._below) or host == self._zone):
            hint = f"write the absolute name {host}{self._zone.removesuffix('.')}"
            return self._report(
                (name,), Code.OUTSIDE_ZONE, f"{host} is not in zone {self._zone}", hint if "." in host else "", True
            )
        if host.startswith("_acme-challenge"):
            message = f"records at {host} belong to the ACME client that creates them"
            return self._report((name,), Code.CONFLICT, message, "remove them", True)
        if host in self._hosts:
            message = f"{host} is in the list twice, in different spellings"
            return self._report((name,), Code.DUPLICATE_KEY, message, "put all its records under one spelling", True)
        self._hosts.add(host)
        if type(types) is not dict or not types:
            message = f"expected a mapping of types to values, found {type_name(types)}"
            return self._report((name,), Code.WRONG_TYPE, message, f"write {name}: {{A: 192.0.2.1}}")
        for kind, given in types.items():
            known = _KINDS.get(kind) or self._unnamed(name, kind)
            if not known:
                continue
            if type(given) is str:
                try:
                    self.values[host, known, ""] = (self._ttl, (record_types.value(known, given),), None, "", False)
                except ValueError as error:
                    self._report((name, kind), Code.BAD_VALUE, str(error))
                continue
            try:
                read = _read(given, self._ttl)
                self.values[host, known, ""] = (read.ttl, _values(known, read), None, "", False)
            except _BadRecords as problem:
                self._report((name, kind, *problem.at), problem.code, problem.message, problem.hint)
        self._check_types(name, host, types)
        return None

    def _unnamed(self, name: str, kind: str) -> str:
        """A type without a name, such as TYPE65280; empty after reporting that the type cannot be declared."""
        try:
            return record_types.type_name(kind)
        except ValueError as error:
            known = kind in record_types.OTHERS or kind.startswith("TYPE")
            message = str(error) if known else f"there is no record type '{kind[:40]}'"
            hint = "" if known else did_you_mean(kind, record_types.TYPES, "types")
            self._report((name, kind), Code.UNKNOWN_FIELD, message, hint, True)
            return ""

    def _check_types(self, name: str, host: str, types: Mapping[str, object]) -> None:
        """Report types that exclude each other at one name, or that the apex of the zone cannot have."""
        if "CNAME" in types and len(types) > 1:
            others = ", ".join(sorted(set(types) - {"CNAME"}))
            message = f"a CNAME cannot share its name with other types: {others}"
            self._report((name, "CNAME"), Code.CONFLICT, message, "keep only the CNAME, or remove it")
        if host != self._zone:
            return
        for kind in NOT_AT_APEX:
            if kind in types:
                message, hint = apex_problem(kind)
                self._report((name, kind), Code.CONFLICT, message, hint)

    def _report(self, at: Path, code: Code, message: str, hint: str = "", key: bool = False) -> None:
        where = " ".join(str(part) for part in at[:2])
        self._scope.report(
            self._declared, ("spec", "names", *at), code, f"{self._declared.key}: {where}: {message}", hint, key=key
        )


def _read(given: object, ttl: int) -> _Given:
    """A list of values, or a mapping with values and their TTL. Raises `_BadRecords`."""
    if type(given) is list:
        return _Given(ttl, given, ())
    if type(given) is not dict:
        hint = "put it in quotes" if isinstance(given, bool | int | float) else "write a value, or a list of values"
        raise _BadRecords(Code.WRONG_TYPE, f"expected a string, a list or a mapping, found {type_name(given)}", hint)
    for field in given:
        if field not in _TTL_FIELDS:
            raise _BadRecords(Code.UNKNOWN_FIELD, f"there is no field '{field[:40]}'", "use ttl and values", (field,))
    if "values" not in given:
        raise _BadRecords(
            Code.MISSING_FIELD, "the field 'values' is missing", "add values: a value, or a list of values"
        )
    inner = given["values"]
    values = [inner] if type(inner) is str else inner
    if type(values) is not list:
        raise _BadRecords(Code.WRONG_TYPE, f"expected a string or a list, found {type_name(inner)}", "", ("values",))
    return _Given(_seconds(given["ttl"]) if "ttl" in given else ttl, values, ("values",), values is inner)


def _seconds(given: object) -> int:
    """A TTL in seconds. Raises `_BadRecords`."""
    try:
        return int(_TTL(durations.whole_seconds(durations.parse_duration(given)))) // SECOND
    except PydanticCustomError as error:
        context = error.context or {}
        raise _BadRecords(Code.BAD_VALUE, str(context.get("message")), str(context.get("hint", "")), ("ttl",)) from None


def _values(kind: str, given: _Given) -> tuple[str, ...]:
    """The canonical values of one type, sorted. Raises `_BadRecords`."""
    if not given.values:
        raise _BadRecords(Code.OUT_OF_RANGE, "the list of values is empty", "add a value, or remove the type", given.at)
    if len(given.values) > 1 and kind in record_types.SINGLE:
        raise _BadRecords(Code.BAD_VALUE, f"a name may have at most one {kind}", "keep one value", given.at)
    canonical_values: set[str] = set()
    for index, value in enumerate(given.values):
        at: Path = (*given.at, index) if given.listed else given.at
        if type(value) is not str:
            hint = "put it in quotes" if isinstance(value, bool | int | float) else ""
            raise _BadRecords(Code.WRONG_TYPE, f"expected a string, found {type_name(value)}", hint, at)
        try:
            canonical = record_types.value(kind, value)
        except ValueError as error:
            raise _BadRecords(Code.BAD_VALUE, str(error), "", at) from None
        if canonical in canonical_values:
            raise _BadRecords(Code.BAD_VALUE, "this value is in the list twice", "remove one of the two", at)
        canonical_values.add(canonical)
    return tuple(sorted(canonical_values))
