"""docs/gitops.md, walked through as a new user does: each block of commands in order, in one shell, and what they print."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import pytest

from tests.e2e.edge_world import image
from tests.e2e.quickstart_world import ROOT
from tests.providers.runtime.docker.claims import Claim
from tests.providers.runtime.docker.engine import DOCKER_SOCKET, ensure_docker

PAGE = ROOT / "docs/gitops.md"
PATIENCE = 150
"""Seconds that one block may take on a busy machine."""
MINUTES = 10
"""What the page promises."""

BLOCK = re.compile(r"^\*\*(.+?)\*\*|(<!-- not run: .+? -->\n)?```(sh|text)\n(.*?)```\n", re.DOTALL | re.MULTILINE)

SETUP = ("A repository", "The host", "Start the daemon")
PARTS = {
    "a failure is healed": (
        "A repository",
        "The host",
        "Look first.",
        "Start the daemon",
        "Break it.",
        "Remove it all",
    ),
    "a change is reviewed and merged": (*SETUP, "Propose a change", "Merge it.", "Remove it all"),
    "a mistake changes nothing": (*SETUP, "A commit with a mistake", "Take it back", "Remove it all"),
}
"""Sections of the walk, by how each begins. Each part stands alone, from an empty host to an empty host."""


class Block(NamedTuple):
    """Commands of a section, and what they print; None where the page does not show it."""

    section: str
    commands: str
    shown: str | None


def blocks(page: str) -> tuple[list[Block], list[str]]:
    """The blocks of the walk, and the commands that are shown but not run."""
    walk = page.partition("<!-- walk -->")[2].partition("<!-- walk: end -->")[0]
    assert walk
    found: list[Block] = []
    left: list[str] = []
    section = ""
    for begins, skipped, kind, text in BLOCK.findall(walk):
        if begins:
            section = begins
        elif skipped:
            left.append(text)
        elif kind == "sh":
            found.append(Block(section, text, None))
        else:
            assert found, f"an output before the first command: {text}"
            assert found[-1].shown is None, f"two outputs of one block: {text}"
            found[-1] = found[-1]._replace(shown=text)
    return found, left


def as_shown(shown: str, printed: str) -> bool:
    """Whether an output is as the page shows it: `…` stands for a part of a line, a line of its own for any lines. Columns may be wider."""
    pattern = ""
    for line in shown.splitlines():
        words = [re.sub(r"(\\ )+", r"[ ]+", re.escape(part)) for part in line.split("…")]
        pattern += r"(?:.*\n)*?" if line == "…" else r"[^\n]*?".join(words) + r"[ ]*\n"
    return re.fullmatch(pattern, printed if printed.endswith("\n") else f"{printed}\n") is not None


class Shell:
    """One shell for all blocks, so that directories, variables and jobs stay. A command that fails ends its block."""

    def __init__(self, home: Path) -> None:
        self.home, self._end = home, f"end-{uuid4().hex}"
        kept = {name: os.environ[name] for name in ("LANG", "PYTHONPATH") if name in os.environ}
        env = {
            **kept,
            "HOME": str(home),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "NO_COLOR": "1",
        }
        self._output = home / ".output"
        self.process = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            env=env,
            cwd=home,
            stdin=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, commands: str) -> str:
        """Run a block: what it prints. Fails when a command of it fails."""
        code = self.home / ".code"
        code.unlink(missing_ok=True)
        script = self.home / ".block"
        script.write_text(commands)
        assert self.process.stdin is not None
        # An error trap, not `set -e`: the shell must outlive the block. The first failure is kept.
        self.process.stdin.write(
            f"failed=0; trap '[ $failed != 0 ] || {{ failed=$?; echo \"failed: $BASH_COMMAND\"; }}' ERR\n"
            f"source {script} >{self._output} 2>&1 </dev/null; trap - ERR; echo $failed >{code}.new; mv {code}.new {code}\n"
        )
        self.process.stdin.flush()
        end = time.monotonic() + PATIENCE
        while not code.exists():
            assert self.process.poll() is None, "the shell ended"
            assert time.monotonic() < end, f"it did not end:\n{commands}\n{self._output.read_text()}"
            time.sleep(0.1)
        printed = self._output.read_text()
        assert code.read_text().strip() == "0", f"{commands}\n{printed}"
        return printed

    def close(self) -> None:
        """End the shell and what it started."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(timeout=PATIENCE)


@pytest.fixture
def names(shared: Path, tmp_path: Path) -> Iterator[dict[str, str]]:
    """Names of the page, and those that this run uses on the engine of the machine."""
    ensure_docker(shared)
    instance = f"w{uuid4().hex[:8]}"
    claim = Claim(instance, DOCKER_SOCKET, str(tmp_path))
    tag = f"reconciler-test/{instance}:1.37"
    # A stand-in for the image of the registry, which tests do not reach: Debian's busybox under another name.
    image.ensure(DOCKER_SOCKET, tag)
    try:
        yield {"first-host": instance, "busybox:1.37": tag}
    finally:
        home = {**os.environ, "HOME": str(tmp_path)}
        home.pop("XDG_STATE_HOME", None)
        command = [sys.executable, "-m", "reconciler", "destroy", "--instance-id", instance, "--yes"]
        subprocess.run(command, cwd=ROOT, env=home, capture_output=True, timeout=PATIENCE, check=False)
        image.ask(DOCKER_SOCKET, "DELETE", f"/images/{tag}?force=1")
        claim.drop()


@pytest.mark.server("dockerd")
@pytest.mark.server("docker")
@pytest.mark.parametrize("part", PARTS)
def test_the_walk_is_as_the_page_shows_it(
    part: str, names: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def named(text: str) -> str:
        for name, own in names.items():
            text = text.replace(name, own)
        return text

    found, _ = blocks(PAGE.read_text())
    shell = Shell(tmp_path)
    began = time.monotonic()
    try:
        for section, commands, shown in found:
            if section not in PARTS[part]:
                continue
            printed = shell.run(named(commands))
            expected = "" if shown is None else named(shown)
            assert as_shown(expected, printed) if expected else not printed.strip(), (
                f"{commands}\n--- the page shows\n{expected}\n--- it prints\n{printed}"
            )
    finally:
        shell.close()
    took = time.monotonic() - began
    with capsys.disabled():
        print(f"\nthe walk of docs/gitops.md, {part}: {took:.0f} s, without the installation")
    assert took < MINUTES * 60 / len(PARTS)
    assert [path.name for path in tmp_path.iterdir() if not path.name.startswith(".")] == []
    assert shutil.which("reconcile", path=str(Path(sys.executable).parent))


def test_the_parts_of_the_walk_are_the_whole_walk() -> None:
    found, left = blocks(PAGE.read_text())
    assert len(found) >= 10
    assert [text for text in left if "pip install" not in text] == []  # nothing else is left out
    sections = list(dict.fromkeys(block.section for block in found))
    assert {*sections} == {name for names in PARTS.values() for name in names}
    assert all([name for name in sections if name in names] == list(names) for names in PARTS.values())


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("a … c\n", "a b c\n", True),
        ("a … c\n", "a b d\n", False),
        ("a\n…\nz\n", "a\nb\nc\nz\n", True),
        ("a\n…\nz\n", "a\nz\n", True),
        ("a\nz\n", "a\nb\nz\n", False),
        ("a  b\n", "a     b\n", True),
        ("a\n", "a\nb\n", False),
        ("1.0\n", "1x0\n", False),
    ],
)
def test_an_output_is_compared_with_its_gaps(shown: str, printed: str, same: bool) -> None:
    assert as_shown(shown, printed) == same


def test_a_block_whose_command_fails_is_a_failure(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    try:
        assert shell.run("x=1\ncd /\n") == ""
        assert shell.run('echo "$x $PWD"\nfalse || true\nuntil true; do false; done\n') == "1 /\n"
        with pytest.raises(AssertionError, match="failed: false"):
            shell.run("false\necho after\n")
    finally:
        shell.close()
