"""Logging of the whole program: to standard error, as text for operators or as one JSON object per line, or to systemd's journal.

A record about a change has the fields of `FIELDS`. Text does not repeat them, because its message says the same; JSON and the journal
have them, with the context of the tick (`log_context.py`). The journal is used for text when standard error is connected to it.

The command line calls `configure` once; all other modules use the standard `logging.getLogger(__name__)`. Every resolved secret
is masked in every record. Third-party libraries are logged from level warning on.

A record that cannot be written is dropped: a broken pipe must not end a reconcile loop.
"""

import json
import logging
import re
import sys
import traceback
from collections.abc import Iterable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import IO, Any

from manifests.escape import escape_line, json_text
from reconciler.shell.clock import utc
from reconciler.shell.journal import SOCKET, Journal, connected
from reconciler.shell.log_context import current
from reconciler.shell.secrets import SECRETS, Secrets

PACKAGES = ("reconciler", "manifests", "providers")

# Attributes of every record: all others came through `extra`.
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}

FIELDS = ("kind", "object", "action", "cause", "rule", "outcome", "detail", "duration_seconds", "actor")
"""Fields of a record about a change, given as `extra`; see docs/running.md."""

PRIORITIES = {"debug": 7, "info": 6, "warning": 4, "error": 3, "critical": 2}
"""The journal's priorities (those of syslog) by level."""


class LogFormat(StrEnum):
    """The format of log lines."""

    TEXT = "text"
    JSON = "json"


def configure(
    level: str = "info",
    form: LogFormat = LogFormat.TEXT,
    *,
    stream: IO[str] | None = None,
    secrets: Secrets = SECRETS,
    journal: Path | None = None,
) -> None:
    """Set up logging for the process. A later call replaces an earlier one.

    Args:
        level: the lowest level of our own loggers: debug, info, warning or error.
        form: text or JSON.
        stream: the output; standard error when not given.
        secrets: the secrets to mask.
        journal: the socket of systemd's journal, for text; the system's one when not given and standard error leads there.

    Raises:
        ValueError: the level is unknown.
    """
    number = logging.getLevelNamesMapping().get(level.upper())
    if not number:
        raise ValueError(f"log level {level!r}: unknown; use debug, info, warning or error")
    handler: logging.Handler = _Handler(stream or sys.stderr)
    encoding = str(getattr(stream or sys.stderr, "encoding", None) or sys.stderr.encoding or "")
    utf8 = encoding.lower().replace("-", "") == "utf8"
    handler.setFormatter(_JSON(secrets, ascii_only=not utf8) if form is LogFormat.JSON else _Text(secrets))
    if journal is None and connected(2):
        journal = SOCKET
    if journal is not None and form is LogFormat.TEXT:
        handler = _JournalHandler(Journal(journal), _JSON(secrets), handler)
    root = logging.getLogger()
    for old in [handler for handler in root.handlers if isinstance(handler, _Handler | _JournalHandler)]:
        root.removeHandler(old)
        old.close()
    root.addHandler(handler)
    root.setLevel(max(number, logging.WARNING))
    for name in PACKAGES:
        logging.getLogger(name).setLevel(number)


class _Handler(logging.StreamHandler[Any]):
    """Drops records that cannot be written; for a malformed record it writes a line without the arguments."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  (logging's name)
        error = sys.exc_info()[1]
        if isinstance(error, OSError):
            return
        try:
            self.stream.write(f"a log record of {record.name}:{record.lineno} is malformed ({type(error).__name__})\n")
        except (OSError, ValueError):
            return


class _JournalHandler(logging.Handler):
    """Sends records to the journal; to the other handler what the journal does not take."""

    def __init__(self, journal: Journal, formatter: "_JSON", other: logging.Handler) -> None:
        super().__init__()
        self._journal, self._fields, self._other = journal, formatter, other

    def emit(self, record: logging.LogRecord) -> None:
        """Send one record."""
        try:
            fields = self._fields.fields(record)
            message = "\n".join(str(fields[name]) for name in ("message", "exception") if name in fields)
            priority = PRIORITIES.get(str(fields["level"]), 5)
            entry = {"MESSAGE": message, "PRIORITY": str(priority), "SYSLOG_IDENTIFIER": "reconcile"}
            for name, value in fields.items():
                if name not in {"message", "exception", "level", "time"}:
                    entry[_journal_name(name)] = value if isinstance(value, str) else json.dumps(value, default=str)
            self._journal.send(entry)
        except Exception:  # noqa: BLE001  (a record that fails must not end the loop; it is written as text)
            self._other.handle(record)

    def close(self) -> None:
        """Close both."""
        self._journal.close()
        self._other.close()
        super().close()


def _journal_name(name: str) -> str:
    """The journal's name of a field: upper case, with our prefix, at most 64 characters."""
    return "RECONCILER_" + re.sub(r"[^A-Z0-9_]", "_", name.upper())[:53]


class _Text(logging.Formatter):
    """`2026-11-27T09:30:00.123Z warning message key=value`, then the traceback."""

    def __init__(self, secrets: Secrets) -> None:
        super().__init__()
        self._secrets = secrets

    def format(self, record: logging.LogRecord) -> str:
        mask = self._secrets.mask
        extra = "".join(f" {key}={mask(str(value))}" for key, value in _extra(record) if key not in FIELDS)
        line = f"{_time(record)} {record.levelname.lower()} {record.getMessage()}{extra}"
        trace = _trace(record)
        text = escape_line(self._secrets.mask(line))
        return f"{text}\n{_lines(self._secrets.mask(trace))}" if trace else text


class _JSON(logging.Formatter):
    """One object per line: time, level, logger, message, exception, the context of the tick, the fields of `extra`.

    `ascii_only`: other letters are escaped as JSON escapes them; the stream's own escapes would not be JSON.
    """

    def __init__(self, secrets: Secrets, *, ascii_only: bool = False) -> None:
        super().__init__()
        self._secrets, self._ascii_only = secrets, ascii_only

    def format(self, record: logging.LogRecord) -> str:
        return json_text(self.fields(record), ensure_ascii=self._ascii_only, default=str)

    def fields(self, record: logging.LogRecord) -> dict[str, Any]:
        """The masked values of a record, by name."""
        fields: dict[str, object] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            "exception": _trace(record),
            **current()._asdict(),
        }
        fields = {key: value for key, value in fields.items() if value != ""}
        for key, value in _extra(record):
            fields.setdefault(key, value)
        return {self._secrets.mask(key): _masked(value, self._secrets) for key, value in fields.items()}


def _time(record: logging.LogRecord) -> str:
    return utc(int(record.created * 1e9)).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _extra(record: logging.LogRecord) -> Iterable[tuple[str, Any]]:
    return ((key, value) for key, value in vars(record).items() if key not in _STANDARD)


def _trace(record: logging.LogRecord) -> str:
    """Traceback and stack as text, made for each handler: logging's own cache is unmasked."""
    parts = []
    if record.exc_info and record.exc_info[0]:
        parts.append("".join(traceback.format_exception(*record.exc_info)).rstrip())
    if record.stack_info:
        parts.append(record.stack_info)
    return "\n".join(parts)


def _lines(text: str) -> str:
    """A traceback behind a bar, so that no line of an exception's text looks like a record."""
    return "\n".join(f"| {escape_line(line)}" for line in text.split("\n"))


def _masked(value: object, secrets: Secrets) -> object:
    """The value as JSON, masked at every depth. Other types become text."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        shown = secrets.mask(str(value))
        return value if shown == str(value) else shown
    if isinstance(value, Mapping):
        return {secrets.mask(str(key)): _masked(inner, secrets) for key, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_masked(inner, secrets) for inner in value]
    return secrets.mask(str(value))
