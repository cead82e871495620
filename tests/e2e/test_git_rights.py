"""The unit with `git.conf` follows a branch over ssh and https with exactly its rights: git and ssh run inside its restrictions."""

import os
import shlex
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.e2e.test_git_source import WEB, Host, eventually, sshd
from tests.e2e.test_rights import check_confined, unit_process
from tests.e2e.unit_rights import USER, Rights, own, settings
from tests.git.upstream import CERTIFICATE, served

pytestmark = [
    pytest.mark.server("setpriv"),
    pytest.mark.server("systemd-analyze"),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a process as another user"),
]


@pytest.fixture
def host() -> Iterator[Host]:
    base = Path(
        tempfile.mkdtemp(prefix="git-rights-", dir="/tmp")
    )  # every user can reach it; the directories of pytest are private
    base.chmod(0o755)
    made = Host(base)
    made.local.chmod(0o755)
    made.home.mkdir(mode=0o700)
    own(made.home)
    yield made
    for pid in made.pids():
        os.kill(pid, signal.SIGKILL)
    shutil.rmtree(base)


def unit(host: Host) -> AbstractContextManager["subprocess.Popen[bytes]"]:
    """The ExecStart of the unit with its drop-ins, from its first decision until SIGTERM ends it."""
    rights = Rights.of("git", "process", writable={"/var/lib/reconcile": host.home})
    (line,) = settings("git")["ExecStart"]
    words = [{"/etc/reconciler": str(host.local)}.get(word, word) for word in shlex.split(line)[1:]]
    return unit_process(rights.command(host.base, host.home), words, host.home)


def followed(host: Host) -> None:
    """The daemon converges with the branch, and with its next commit."""
    (host.local / "host.yaml").chmod(0o644)
    with unit(host) as process:
        eventually(lambda: host.running() == ["one"])
        check_confined(process.pid)
        host.upstream.commit({"set/web.yaml": WEB % "two"})
        eventually(lambda: host.running() == ["two"])
        assert {Path(f"/proc/{pid}").stat().st_uid for pid in host.pids()} == {USER}


@pytest.mark.server("sshd")
def test_the_unit_follows_a_branch_over_ssh(host: Host) -> None:
    with sshd(host.base) as (port, key, known):
        keys = host.base / "keys"
        keys.mkdir()
        for file in (key, known):
            shutil.copy(file, keys / file.name)
            (keys / file.name).chmod(0o600)
            own(keys / file.name)
        user = subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip()
        address = f"git+ssh://{user}@127.0.0.1:{port}{host.upstream.bare}//set"
        source = (
            f"url: '{address}', sshKey: {{file: {keys / key.name}}}, knownHosts: {keys / known.name}, interval: 10s"
        )
        host.declare(source)
        followed(host)


def test_the_unit_follows_a_branch_over_https(host: Host) -> None:
    with served(host.base) as server:
        host.declare(f"url: '{server.url}//set', caFile: {CERTIFICATE}, interval: 10s")
        followed(host)
