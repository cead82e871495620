"""Programs outside: their deadline counts for the whole group, and what they print is bounded."""

import time

import pytest

from providers.lib.program import Missing, TimedOut, TooMuch, run


def test_output_errors_and_code_come_back() -> None:
    ran = run(["sh", "-c", "cat; echo bad >&2; exit 3"], timeout=30, stdin=b"x" * 300_000)
    assert (ran.code, len(ran.out), ran.err_text) == (3, 300_000, "bad\n")
    assert run(["true"], timeout=30, stdin=b"x" * 300_000).code == 0


def test_a_child_that_ignores_the_signal_is_killed_with_its_group() -> None:
    script = "trap '' TERM; (trap '' TERM; sleep 61.7) & sleep 61.7"
    begun = time.monotonic()
    with pytest.raises(TimedOut, match=r"did not end within 0.5s"):
        run(["sh", "-c", script], timeout=0.5)
    assert time.monotonic() - begun < 10
    end = time.monotonic() + 10
    while run(["pgrep", "-f", "^sleep 61.7$"], timeout=30).code == 0:
        assert time.monotonic() < end, "a process of the group is left"
        time.sleep(0.05)


def test_a_child_that_keeps_the_pipes_does_not_hold_the_caller() -> None:
    begun = time.monotonic()
    assert run(["sh", "-c", "sleep 62.7 & echo done"], timeout=60).out == b"done\n"
    assert time.monotonic() - begun < 20


def test_closed_pipes_do_not_hide_the_deadline() -> None:
    with pytest.raises(TimedOut):
        run(["sh", "-c", "exec >&- 2>&-; sleep 63.7"], timeout=0.5)


def test_output_is_bounded() -> None:
    with pytest.raises(TooMuch, match="more than 1000 bytes"):
        run(["yes"], timeout=60, output=1000)
    assert len(run(["sh", "-c", "head -c 1000000 /dev/zero >&2"], timeout=60).err) == 64 * 1024


def test_a_program_that_is_missing_is_named() -> None:
    with pytest.raises(Missing, match="no-such-program: cannot be started"):
        run(["no-such-program"], timeout=5)


def test_variables_that_steer_programs_are_not_inherited(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GIT_DIR", "GIT_SSH_COMMAND", "SSH_AUTH_SOCK", "GNUPGHOME", "LANGUAGE"):
        monkeypatch.setenv(name, "stray")
    assert b"stray" not in run(["env"], timeout=30, env={"OWN": "1"}).out
    assert b"OWN=1" in run(["env"], timeout=30, env={"OWN": "1"}).out
