import io
import json
import logging
import os
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest

from reconciler.shell.logs import LogFormat, configure
from reconciler.shell.secrets import Secrets

SENTINEL = "s3ntinel/+\"pass'word\\é"

log = logging.getLogger("reconciler.tests")


@pytest.fixture
def stream() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def secrets() -> Secrets:
    secrets = Secrets()
    secrets.add(SENTINEL)
    return secrets


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    handlers, levels = (
        list(root.handlers),
        {name: logging.getLogger(name).level for name in ("", "reconciler", "manifests", "providers")},
    )
    yield
    root.handlers[:] = handlers
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)


def lines(stream: io.StringIO) -> list[dict]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_text_line_has_time_level_message_and_extra_fields(stream):
    configure(stream=stream)
    log.warning("restarted %d times", 3, extra={"limit": 5})
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z warning restarted 3 times limit=5\n", stream.getvalue()
    )


def test_a_json_line_has_the_same_parts_as_fields(stream):
    configure(form=LogFormat.JSON, stream=stream)
    log.warning("restarted %d times", 3, extra={"limit": 5, "nodes": ("a", "b"), "message_": None})
    log.info("plain")
    first, second = lines(stream)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", first.pop("time"))
    assert first == {
        "level": "warning",
        "logger": "reconciler.tests",
        "message": "restarted 3 times",
        "limit": 5,
        "nodes": ["a", "b"],
        "message_": None,
    }
    assert second["message"] == "plain"
    assert "limit" not in second


def fail() -> None:
    try:
        {}[SENTINEL]
    except KeyError as error:
        raise ValueError(f"token {SENTINEL}") from error


@pytest.mark.parametrize("form", LogFormat)
def test_a_secret_is_masked_in_messages_arguments_extras_and_exceptions(stream, secrets, form):
    configure("debug", form, stream=stream, secrets=secrets)
    log.info(f"plain {SENTINEL}")
    log.info("argument %s", SENTINEL)
    log.info("in a container %s", [SENTINEL])
    log.info("in a URL %s", "http://u:s3ntinel%2F%2B%22pass%27word%5C%C3%A9@host/")
    log.info("extra", extra={"deep": {"list": [SENTINEL, {SENTINEL: 1}]}, "object_": ValueError(SENTINEL)})
    log.info("as text in a text %r", f"'{SENTINEL}")
    try:
        fail()
    except ValueError:
        log.exception("failed", stack_info=True)
    written = stream.getvalue()
    assert "s3ntinel" not in written
    assert "word" not in written.replace("password", "")
    assert written.count("***") >= 8
    assert "ValueError" in written


def test_each_line_of_a_secret_is_masked_and_an_empty_line_is_not(secrets):
    secrets.add("-----BEGIN KEY-----\nabc12345\n\ndef45678\n")
    secrets.add("")
    secrets.add("\n")
    assert secrets.mask("x abc12345 y def45678 z") == "x *** y *** z"
    assert secrets.mask("nothing to hide") == "nothing to hide"


def test_a_longer_secret_is_masked_whole_when_a_shorter_one_begins_it(secrets):
    secrets.add("abcdefgh")
    secrets.add("abcdefghijkl")
    assert secrets.mask("abcdefghijkl abcdefgh") == "*** ***"


def test_a_number_that_is_a_secret_is_masked_too(stream, secrets):
    secrets.add("123456")
    configure(form=LogFormat.JSON, stream=stream, secrets=secrets)
    log.info("pin", extra={"pin": 123456, "count": 7})
    assert (lines(stream)[0]["pin"], lines(stream)[0]["count"]) == ("***", 7)


def test_third_party_loggers_log_from_warning_on_at_any_level(stream):
    configure("debug", stream=stream)
    logging.getLogger("watchfiles.main").info("3 changes detected")
    logging.getLogger("watchfiles.main").warning("trouble")
    log.debug("ours")
    assert [line.split(" ", 1)[1] for line in stream.getvalue().splitlines()] == ["warning trouble", "debug ours"]


def test_records_below_the_level_are_dropped_and_a_later_call_wins(stream):
    configure("debug", stream=io.StringIO())
    configure("error", stream=stream)
    log.warning("no")
    logging.getLogger("watchfiles").warning("no")
    log.error("yes")
    assert stream.getvalue().count("\n") == 1


def test_an_unknown_level_is_refused(stream):
    with pytest.raises(ValueError, match="log level 'loud': unknown; use debug, info, warning or error"):
        configure("loud", stream=stream)


def test_external_text_cannot_begin_a_line_or_control_the_terminal(stream):
    configure(stream=stream)
    log.info("name %s", "a\n2026 error forged\x1b[2J\r")
    assert stream.getvalue().endswith("name a\\n2026 error forged\\x1b[2J\\r\n")
    assert stream.getvalue().count("\n") == 1


def test_a_malformed_record_becomes_one_line_without_its_arguments(stream, secrets):
    configure(stream=stream, secrets=secrets)
    logging.getLogger().handlers[:] = logging.getLogger().handlers[-1:]  # the test runner's own raise
    log.info("%d", SENTINEL)
    assert re.fullmatch(r"a log record of reconciler\.tests:\d+ is malformed \(TypeError\)\n", stream.getvalue())


def test_a_program_with_closed_standard_error_goes_on():
    script = (
        "import logging, sys\n"
        "from reconciler.shell.logs import configure\n"
        "configure()\n"
        "sys.stdin.readline()\n"
        "for _ in range(3): logging.getLogger('reconciler').warning('lost')\n"
        "print('still here')\n"
    )
    read, write = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=write,
        text=True,
        env=dict(os.environ, PYTHONPATH="."),
    )
    os.close(write)
    os.close(read)
    out, _ = process.communicate("go\n", timeout=60)
    assert out == "still here\n"
