"""The rule of sudo in examples/gitops: what the runner's user may start as the user of reconcile, by the real sudo.

sudo reads /etc, so each call runs in a mount namespace of its own, in which the two users exist, the rule is the only one, and a program
that prints who it is stands in place of `reconcile-ci`.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

RULE = Path(__file__).resolve().parents[2] / "examples" / "gitops" / "host" / "reconcile-ci.sudoers"
WRAPPER = "/usr/local/bin/reconcile-ci"
CI, RECONCILE = 64_218, 64_219
"""Users that no machine has."""

SEEN = '#!/bin/sh\nid -un\necho "$@"\nenv\n'

pytestmark = [
    pytest.mark.server("visudo"),
    pytest.mark.server("setpriv"),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a process as another user"),
]


class Answer(NamedTuple):
    """How a call ended. `lines` are those of its standard output."""

    code: int
    lines: list[str]
    error: str


class Runner:
    """The user of a CI runner on a host where the rule is installed."""

    def __init__(self, base: Path) -> None:
        self.base = base
        (base / "bin").mkdir(mode=0o755)
        (base / "rules").mkdir(mode=0o750)
        self._put("bin/reconcile-ci", SEEN, 0o755)
        self._put("rules/reconcile-ci", RULE.read_text(), 0o440)
        users = f"root:x:0:0:root:/root:/bin/sh\nci:x:{CI}:{CI}::/tmp:/bin/sh\nreconcile:x:{RECONCILE}:{RECONCILE}::/var/lib/reconcile:/bin/false\n"
        self._put("passwd", users, 0o644)
        self._put("group", f"root:x:0:\nci:x:{CI}:\nreconcile:x:{RECONCILE}:\n", 0o644)
        self._put("shadow", "".join(f"{name}:*:19000:0:99999:7:::\n" for name in ("root", "ci", "reconcile")), 0o640)
        self._put("sudoers", "Defaults env_reset\nroot ALL=(ALL:ALL) ALL\n@includedir /etc/sudoers.d\n", 0o440)

    def _put(self, name: str, text: str, mode: int) -> None:
        file = self.base / name
        file.write_text(text)
        file.chmod(mode)

    def sudo(self, *words: str, **variables: str) -> Answer:
        """`sudo` with these arguments, as the runner's user, with these variables."""
        binds = {"passwd": "/etc/passwd", "group": "/etc/group", "shadow": "/etc/shadow", "sudoers": "/etc/sudoers"}
        binds |= {"rules": "/etc/sudoers.d", "bin": "/usr/local/bin"}
        mounts = "".join(f"mount --bind {self.base}/{name} {place} && " for name, place in binds.items())
        script = f'{mounts}exec setpriv --reuid={CI} --regid={CI} --clear-groups -- "$@"'
        done = subprocess.run(
            ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh", "sudo", *words],
            cwd="/",
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", **variables},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return Answer(done.returncode, done.stdout.splitlines(), done.stderr)


@pytest.fixture
def runner() -> Iterator[Runner]:
    base = Path(
        tempfile.mkdtemp(prefix="sudo-", dir="/tmp")
    )  # every user can reach it; the directories of pytest are private
    base.chmod(0o755)
    yield Runner(base)
    shutil.rmtree(base)


def test_visudo_accepts_the_rule() -> None:
    done = subprocess.run(
        ["/usr/sbin/visudo", "-c", "-s", "-f", "-"],
        input=RULE.read_text(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_runner_may_start_the_wrapper_without_its_variables(runner: Runner) -> None:
    code, lines, error = runner.sudo("-n", "-H", "-u", "reconcile", WRAPPER, "plan", "0" * 40, TOKEN="of-the-job")
    assert code == 0, error
    assert lines[:2] == ["reconcile", f"plan {'0' * 40}"]
    assert "HOME=/var/lib/reconcile" in lines
    assert "SUDO_USER=ci" in lines
    assert not [line for line in lines if "of-the-job" in line]


@pytest.mark.parametrize(
    "words",
    [
        ["-u", "reconcile", "/bin/sh", "-c", "id"],
        ["-u", "reconcile", "/usr/local/bin/other"],
        ["-u", "root", WRAPPER, "drift"],
        [WRAPPER, "drift"],
        ["-u", "reconcile", "TOKEN=of-the-job", WRAPPER, "drift"],
        ["-u", "reconcile", "-E", WRAPPER, "drift"],
        ["-u", "reconcile", "-i"],
        ["-u", "reconcile", "-e", "/etc/passwd"],
    ],
    ids=[
        "a shell",
        "another program",
        "as root",
        "as the default user",
        "a variable",
        "all variables",
        "login",
        "edit",
    ],
)
def test_the_runner_may_do_nothing_else(runner: Runner, words: list[str]) -> None:
    (runner.base / "bin/other").write_text(SEEN)
    (runner.base / "bin/other").chmod(0o755)
    code, lines, error = runner.sudo("-n", *words, TOKEN="of-the-job")
    assert code != 0
    assert lines == []
    assert error.startswith("sudo: "), error
