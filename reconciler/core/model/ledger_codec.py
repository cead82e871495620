"""The ledger as rows of text and back: (section, key) -> JSON, as the store keeps it. Called by `shell/store` and the command line.

Section names and the shape of each row are the stored format: fields of a row are positional and only ever appended.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from providers.facts import Generation
from reconciler.core.model import override, passed_probe, spec, weight_memory
from reconciler.core.model.adopted import Adopted
from reconciler.core.model.approval import read_approval
from reconciler.core.model.dns_memory import read_check, read_flap, read_held_ttl, read_name, read_written, write_check
from reconciler.core.model.drift import read_applied, read_reverts
from reconciler.core.model.had_privileges import read_had
from reconciler.core.model.instant import Instant, Now, instant, read_instant
from reconciler.core.model.ledger import (
    Absence,
    Escalation,
    ExitTimes,
    Failures,
    Grant,
    Ledger,
    Outbreak,
    PushRow,
    StepFailure,
    Suspension,
)
from reconciler.core.model.owned import read_owned
from reconciler.core.model.reasons import Reason
from reconciler.core.model.restart_request import read_request
from reconciler.core.model.revision import RevisionMark, read_rollout
from reconciler.core.model.row_types import matches, row_type


def _at(raw: Any) -> Instant:
    """A stored moment. Raises TypeError when it is none."""
    at = read_instant(raw)
    if at is None:
        raise TypeError("a moment is missing")
    return at


def _grant(raw: list[Any]) -> Grant:
    obj, generation, cause, at, names_out, ttl, weight_out, pooled, *rest = raw  # older rows are shorter
    if len(rest) > 3:
        rest[3] = read_instant(rest[3])
    return Grant(
        obj,
        Generation(*generation),
        Reason(cause),
        _at(at),
        read_instant(names_out),
        ttl,
        read_instant(weight_out),
        pooled,
        *rest,
    )


def _adopted(raw: list[Any]) -> Adopted:
    row = Adopted(*raw)  # older rows are shorter
    return row._replace(ports=tuple(row.ports), reach=tuple(row.reach))


def _step_failure(raw: list[Any]) -> StepFailure:
    failure = StepFailure(*raw)  # older rows are shorter
    return failure._replace(last=_at(failure.last), first=read_instant(failure.first))


def _push(raw: list[Any]) -> PushRow:
    generation, event, since, at, boot, seq, inflight, nonce, earlier, *time = raw  # older rows are shorter
    boots = tuple((name, started_at) for name, started_at in earlier)
    return PushRow(Generation(*generation), event, _at(since), _at(at), boot, seq, inflight, nonce, boots, *time)


_READ: Mapping[str, Any] = {
    "grants": _grant,
    "attempts": lambda raw: tuple(_at(at) for at in raw),
    "failures": lambda raw: Failures(raw[0], _at(raw[1]), Generation(*raw[2])),
    "step_failures": _step_failure,
    "wanted": _at,
    "restarted": lambda raw: tuple(_at(at) for at in raw),
    "escalations": lambda raw: Escalation(raw[0], raw[1], _at(raw[2])),
    "outbreaks": lambda raw: Outbreak(_at(raw[0]), raw[1], raw[2], read_instant(raw[3]), read_instant(raw[4])),
    "runtime_restarts": int,
    "suspensions": lambda raw: Suspension(*raw),
    "requests": read_request,
    "revisions": lambda raw: RevisionMark(*raw),
    "rollouts": read_rollout,
    "absences": lambda raw: Absence(_at(raw[0]), raw[1]),
    "adopted": _adopted,
    "pushes": _push,
    "ready": weight_memory.ready_row,
    "weighed": weight_memory.weighed_rows,
    "cuts": weight_memory.cut_rows,
    "panics": _at,
    "overrides": override.override_row,
    "names": read_name,
    "pins": lambda raw: tuple((container, digest) for container, digest in raw),
    "templates": str,
    "exit_times": lambda raw: ExitTimes(*raw),
    "specs": spec.read,
    "proven": spec.read,
    "checks": read_check,
    "owned": read_owned,
    "by_runtime": lambda raw: tuple(_at(at) for at in raw),
    "approvals": read_approval,
    "flaps": read_flap,
    "held_ttls": read_held_ttl,
    "pointers_known": _at,
    "written": read_written,
    "placed": str,
    "unread": bool,
    "applied": read_applied,
    "reverts": read_reverts,
    "privileges": read_had,
}
_WRITE: Mapping[str, Any] = {"specs": spec.write, "proven": spec.write, "checks": write_check}
"""Sections whose values JSON cannot write as they are."""

_FLAGS = ("passed", "taken_over", "zones", "nodes", "accepted", "moving")
_SINGLE = "ledger"
_TEXTS = frozenset({"source", "applied_of"})


def to_rows(
    ledger: Ledger, earlier: tuple[Ledger, Mapping[tuple[str, str], str]] | None = None
) -> dict[tuple[str, str], str]:
    """The ledger as (section, key) -> JSON text, one row per item.

    Args:
        ledger: the ledger.
        earlier: an earlier ledger and its rows; rows of unchanged sections (the same object) are reused, so that the cost follows
            the change.
    """
    same: set[str] = set()
    rows: dict[tuple[str, str], str] = {}
    if earlier is not None:
        before, known = earlier
        same = {section for section in (*_READ, *_FLAGS) if getattr(before, section) is getattr(ledger, section)}
        rows = {key: text for key, text in known.items() if key[0] in same}
    for section in _READ:
        if section not in same:
            rows |= _section(section, ledger, earlier)
    for section in _FLAGS:
        if section not in same:
            for key in getattr(ledger, section):
                rows[section, key] = "true"
    rows[_SINGLE, "source"] = json.dumps(ledger.source)
    rows[_SINGLE, "history_lost"] = json.dumps(ledger.history_lost)
    rows[_SINGLE, "clock"] = json.dumps(ledger.clock)
    rows[_SINGLE, "applied_of"] = json.dumps(ledger.applied_of)
    return rows


def _section(
    section: str, ledger: Ledger, earlier: tuple[Ledger, Mapping[tuple[str, str], str]] | None
) -> dict[tuple[str, str], str]:
    """The rows of one section. Where writing a value takes long, the text of an unchanged value (the same object) is reused."""
    values, form = getattr(ledger, section), _WRITE.get(section)
    if form is None:
        return {(section, key): json.dumps(value) for key, value in values.items()}
    before: Mapping[str, Any] = {} if earlier is None else getattr(earlier[0], section)
    known: Mapping[tuple[str, str], str] = {} if earlier is None else earlier[1]
    return {
        (section, key): known[section, key]
        if before.get(key) is value and (section, key) in known
        else json.dumps(form(value))
        for key, value in values.items()
    }


def from_rows(rows: Mapping[tuple[str, str], str]) -> Ledger:
    """The ledger from its rows; rows of sections this version does not know are ignored.

    Raises:
        ValueError: a row does not have the shape of its section.
    """
    ledger, damaged = read_rows(rows)
    for (section, key), cause in damaged.items():
        raise ValueError(f"{section} {key}: {cause}")
    return ledger


def is_migrated(ledger: Ledger, rows: Mapping[tuple[str, str], str]) -> bool:
    """Whether rows of an earlier version became other rows of this one, so that the stored text of their section cannot be reused."""
    return {key for section, key in rows if section == "passed"} != ledger.passed


def read_rows(rows: Mapping[tuple[str, str], str]) -> tuple[Ledger, dict[tuple[str, str], str]]:
    """The ledger from the rows that can be decoded, and the cause for each row that cannot."""
    sections: dict[str, dict[str, Any]] = {section: {} for section in _READ}
    flags: dict[str, set[str]] = {section: set() for section in _FLAGS}
    single: dict[str, Any] = {"source": "", "history_lost": None, "clock": None, "applied_of": ""}
    damaged: dict[tuple[str, str], str] = {}
    for (section, key), text in rows.items():
        try:
            if section in sections:
                value = _row(section, text)
                if value is not None:
                    sections[section][key] = value
            elif section in flags:
                flags[section].add(key)
            elif section == _SINGLE and key in single:
                raw = json.loads(text)
                single[key] = str(raw) if key in _TEXTS else read_instant(raw)
        except Exception as error:  # noqa: BLE001  (any shape is possible in a damaged row)
            damaged[section, key] = f"{type(error).__name__}: {error}"
    ledger = Ledger(
        **sections,
        passed=passed_probe.read(flags["passed"], sections["revisions"], sections["rollouts"]),
        taken_over=frozenset(flags["taken_over"]),
        zones=frozenset(flags["zones"]),
        nodes=frozenset(flags["nodes"]),
        accepted=frozenset(flags["accepted"]),
        source=single["source"],
        history_lost=single["history_lost"],
        clock=single["clock"],
        moving=frozenset(flags["moving"]),
        applied_of=single["applied_of"],
    )
    return ledger, damaged


def _row(section: str, text: str) -> Any:
    """The value of one row; None for one that is not kept any more. Raises an error of any kind when it cannot be read."""
    value = _READ[section](json.loads(text))
    if value is not None and not matches(value, row_type(Ledger, section)):
        raise ValueError("a member has another type than the ledger declares")
    return value


HISTORY = frozenset(
    {
        "grants",
        "attempts",
        "failures",
        "restarted",
        "escalations",
        "outbreaks",
        "runtime_restarts",
        "taken_over",
        "by_runtime",
        _SINGLE,
    }
)
"""Sections that limit restarts: without one of their rows the history is not complete."""


def protected(ledger: Ledger, damaged: Collection[tuple[str, str]], now: Now) -> Ledger:
    """The ledger without its damaged rows, on the side that holds.

    A suspension whose row is damaged stays in force until an operator resumes the object. Where a row is missing that limits
    restarts, health restarts wait until the history is complete again.
    """
    suspended = {
        key: Suspension("", "its suspension cannot be read any more, because a byte of the ledger was damaged", 0)
        for section, key in damaged
        if section == "suspensions"
    }
    if suspended:
        ledger = replace(ledger, suspensions={**ledger.suspensions, **suspended})
    if ledger.history_lost is None and any(section in HISTORY for section, _ in damaged):
        ledger = replace(ledger, history_lost=instant(now))
    return ledger
