"""The shell snippets of docs/push.md, against the real listener."""

import asyncio
import os
import re
import shutil
import time
from pathlib import Path

import pytest

from reconciler.core.model.push_fact import PushEvent
from reconciler.shell.pushing.credentials import SOCKET, url
from tests.web.push_world import PushWorld

PAGE = Path(__file__).parents[2] / "docs" / "push.md"
SHELLS = [["busybox", "sh"], ["sh"]]


def snippet(name: str) -> str:
    match = re.search(rf"<!-- snippet: {name} -->\n```sh\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert match is not None
    return match[1]


async def run(shell: list[str], program: str, world: PushWorld) -> tuple[int, str]:
    sender = world.sender()
    env = {
        "PATH": os.environ["PATH"],
        "RECONCILER_PUSH_GENERATION": sender.generation,
        "RECONCILER_PUSH_TOKEN": sender.token,
        "RECONCILER_PUSH_SOCKET": str(world.credentials.directory / SOCKET),
        "RECONCILER_PUSH_URL": url(*world.listener.tcp),
    }
    done = await asyncio.create_subprocess_exec(
        *shell, "-euc", program, env=env, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    out, _ = await asyncio.wait_for(done.communicate(), 120)
    return done.returncode or 0, out.decode()


@pytest.fixture
async def world(tmp_path: Path) -> PushWorld:
    world = PushWorld(tmp_path)
    world.clock.step_wall(time.time_ns() - world.clock.now().wall)  # the snippets send their time
    world.begin()
    world.create()
    await world.look()
    return world


@pytest.mark.server("busybox")
@pytest.mark.parametrize("shell", SHELLS, ids=lambda shell: shell[0])
async def test_the_snippet_for_a_bare_shell_signs_a_push_over_tcp(world, shell, tmp_path):
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("cut", "date", "printf", "sed", "sha256sum", "timeout", "tr", "wget"):
        (tools / name).symlink_to(shutil.which("busybox"))
    async with world.listening():
        code, out = await run(shell, f"PATH={tools}\n{snippet('busybox')}push ready", world)
        assert (code, out) == (0, '{"message":"accepted","remembered":true}')
        assert world.pushing.facts()[world.generation()].event is PushEvent.READY


@pytest.mark.server("curl")
async def test_the_snippet_for_curl_pushes_over_the_socket(world):
    async with world.listening():
        code, out = await run(["sh"], snippet("curl") + "push draining", world)
        assert (code, out) == (0, '{"message":"accepted","remembered":true}')
        assert world.pushing.facts()[world.generation()].event is PushEvent.DRAINING


@pytest.mark.server("curl")
async def test_a_refused_push_fails_the_snippet(world):
    async with world.listening():
        code, _ = await run(["sh"], snippet("curl") + "push running", world)
        assert code != 0
