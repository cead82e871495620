import json
from pathlib import Path

import pytest

from manifests.problems import Code, ManifestErrors, Problem
from providers.errors import Unreachable
from reconciler.cli.failures import report_error
from reconciler.cli.view import View
from reconciler.exits import Exit
from reconciler.shell.secrets import SECRETS
from reconciler.shell.store.lock import Locked
from reconciler.shell.store.state_db import StoreError


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (ManifestErrors([Problem("a.yaml", 1, 2, Code.BAD_VALUE, "x", "bad")]), Exit.INVALID, "a.yaml:1:2: bad-value"),
        (ManifestErrors([Problem(".", 0, 0, Code.EMPTY_TREE, "", "empty")]), Exit.MANUAL, "delete all"),
        (Locked(Path("/s"), "pid 1", None), Exit.LOCKED, "locked by pid 1"),
        (StoreError("/s/state.db", "no space left", "make room"), Exit.ERROR, "make room"),
        (Unreachable("pool web", "timed out"), Exit.UNFINISHED, "pool web: timed out"),
        (PermissionError(13, "Permission denied", "/s"), Exit.ERROR, "/s: Permission denied"),
        (ZeroDivisionError("division by zero"), Exit.ERROR, "unexpected ZeroDivisionError"),
    ],
)
def test_every_error_becomes_a_line_an_exit_code_and_a_document(error, code, said, capsys):
    assert report_error(error, View(json=True)) is code
    out, err = capsys.readouterr()
    assert said in err
    assert f"(exit {int(code)})" in err
    assert "Traceback" not in err
    document = json.loads(out)
    assert (document["format_version"], document["exit_code"]) == (2, int(code))


def test_a_traceback_is_shown_only_when_asked_for(capsys):
    with pytest.raises(ZeroDivisionError) as caught:
        1 / 0  # noqa: B018
    report_error(caught.value, View(verbose=True))
    assert "Traceback" in capsys.readouterr().err


def test_secrets_are_masked_and_control_characters_escaped_in_errors(capsys):
    SECRETS.add("correct-horse-battery")
    report_error(ValueError("token correct-horse-battery \x1b]0;title\x07"), View(json=True))
    out, err = capsys.readouterr()
    assert "correct-horse-battery" not in out + err
    assert "\x1b" not in out + err
    assert "\\x07" in err
