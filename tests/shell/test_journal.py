"""Log records in systemd's journal: a datagram socket stands in for it."""

import io
import logging
import os
import socket
from collections.abc import Iterator
from contextvars import copy_context
from pathlib import Path

import pytest

from reconciler.shell import log_context
from reconciler.shell.journal import LONGEST, connected, encoded
from reconciler.shell.logs import LogFormat, configure
from reconciler.shell.secrets import Secrets

SENTINEL = "s3ntinel/+\"pass'word\\é"

log = logging.getLogger("reconciler.tests")


class FakeJournal:
    """Receives what the journal would: each datagram as its fields, by the rules of the protocol."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(path))
        self.socket.settimeout(30)

    def entry(self) -> dict[str, str]:
        data, fields = self.socket.recv(1 << 20), {}
        while data:
            line, _, rest = data.partition(b"\n")
            name, equals, value = line.partition(b"=")
            if not equals:
                size = int.from_bytes(rest[:8], "little")
                value, rest = rest[8 : 8 + size], rest[9 + size :]
            fields[name.decode()] = value.decode()
            data = rest
        return fields

    def empty(self) -> bool:
        self.socket.setblocking(False)
        try:
            self.socket.recv(1)
        except BlockingIOError:
            return True
        return False


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[FakeJournal]:
    fake = FakeJournal(tmp_path / "socket")
    yield fake
    fake.socket.close()


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    handlers = list(root.handlers)
    levels = {name: logging.getLogger(name).level for name in ("", "reconciler", "manifests", "providers")}
    yield
    for handler in set(root.handlers) - set(handlers):
        handler.close()
    root.handlers[:] = handlers
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)


def test_a_record_arrives_with_priority_and_fields(journal):
    stream = io.StringIO()
    configure(stream=stream, journal=journal.path)
    extra = {"object": "workload/web/0", "rule": "BackOff", "duration_seconds": 1.5}

    def tick() -> None:
        log_context.Reconciles().begin("r1", "abc123")
        log.warning("held %s", "workload/web/0", extra=extra)

    copy_context().run(tick)
    entry = journal.entry()
    reconcile_id = entry.pop("RECONCILER_RECONCILE_ID")
    assert reconcile_id.endswith("-1")
    assert entry == {
        "MESSAGE": "held workload/web/0",
        "PRIORITY": "4",
        "SYSLOG_IDENTIFIER": "reconcile",
        "RECONCILER_LOGGER": "reconciler.tests",
        "RECONCILER_REVISION": "r1",
        "RECONCILER_COMMIT": "abc123",
        "RECONCILER_OBJECT": "workload/web/0",
        "RECONCILER_RULE": "BackOff",
        "RECONCILER_DURATION_SECONDS": "1.5",
    }
    assert stream.getvalue() == ""


@pytest.mark.parametrize(("level", "priority"), [("debug", "7"), ("info", "6"), ("error", "3"), ("critical", "2")])
def test_levels_are_the_priorities_of_syslog(journal, level, priority):
    configure("debug", stream=io.StringIO(), journal=journal.path)
    getattr(log, level)("x")
    assert journal.entry()["PRIORITY"] == priority


def test_values_with_line_breaks_cannot_forge_a_field(journal):
    configure(stream=io.StringIO(), journal=journal.path)
    log.info("first\nPRIORITY=0\nMESSAGE=forged", extra={"object": "web\nPRIORITY=0", "bad name\n=": "x"})
    entry = journal.entry()
    assert entry["MESSAGE"] == "first\nPRIORITY=0\nMESSAGE=forged"
    assert entry["RECONCILER_OBJECT"] == "web\nPRIORITY=0"
    assert entry["RECONCILER_BAD_NAME__"] == "x"
    assert entry["PRIORITY"] == "6"


def test_no_secret_reaches_the_journal(journal):
    secrets = Secrets()
    secrets.add(SENTINEL)
    configure(stream=io.StringIO(), journal=journal.path, secrets=secrets)
    try:
        int(SENTINEL)
    except ValueError:
        log.exception("a %s", SENTINEL, extra={"object": SENTINEL, "detail": {"deep": [SENTINEL]}, SENTINEL: 1})
    entry = journal.entry()
    assert "Traceback" in entry["MESSAGE"]
    assert "s3ntinel" not in repr(entry).lower()


def test_what_the_journal_does_not_take_is_written_as_text(tmp_path):
    stream = io.StringIO()
    configure(stream=stream, journal=tmp_path / "nothing")
    log.info("kept", extra={"object": "workload/web"})
    assert stream.getvalue().endswith("Z info kept\n")


def test_a_very_long_text_is_cut_and_arrives(journal):
    configure(stream=io.StringIO(), journal=journal.path)
    log.info("x" * 500_000)
    assert journal.entry()["MESSAGE"] == "x" * LONGEST


def test_json_is_written_to_the_stream_also_under_systemd(journal):
    stream = io.StringIO()
    configure(form=LogFormat.JSON, stream=stream, journal=journal.path)
    log.info("x")
    assert stream.getvalue().startswith("{")
    assert journal.empty()


def test_the_journal_is_used_only_when_standard_error_is_its_stream(tmp_path):
    with (tmp_path / "file").open("w") as file:
        status = os.fstat(file.fileno())
        mine = f"{status.st_dev}:{status.st_ino}"
        assert connected(file.fileno(), {"JOURNAL_STREAM": mine})
        assert not connected(file.fileno(), {"JOURNAL_STREAM": f"{mine}1"})
        for wrong in ("", "x", "1", ":", "1:x"):
            assert not connected(file.fileno(), {"JOURNAL_STREAM": wrong})
        assert not connected(file.fileno(), {})
    assert not connected(10_000, {"JOURNAL_STREAM": mine})


def test_a_value_that_is_no_text_is_encoded():
    assert encoded({"A": "\ud800", "B": "1"}) == b"A=?\nB=1\n"
