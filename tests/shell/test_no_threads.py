"""Calls while the system starts no thread: a real limit of processes, in a process of another user, because it does not bind root."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

CALLS = """
import asyncio, os, resource, threading, time
from providers.errors import ProviderError
from providers.spi import Context
from providers.testing.memory import MemorySettings, MemoryWorld
from providers.testing.memory_runtime import MemoryRuntime
from providers.wrappers.limited import limited
from reconciler.shell.providers import ThreadRunner

ran = []

async def main():
    runner, runtime = ThreadRunner(), limited(MemoryRuntime("n", MemorySettings(), Context("demo", "/"), MemoryWorld()))
    os.setresuid(USER, USER, USER)
    resource.setrlimit(resource.RLIMIT_NPROC, (1, LIMIT))

    async def refused(call):
        try:
            await runner.run(call)
        except ProviderError as error:
            return "no thread can be started" in str(error)
        return False

    assert await refused(lambda: ran.append("too early"))
    try:
        runtime.observe()
        raise SystemExit("the look was made")
    except ProviderError as error:
        assert "no thread can be started" in str(error), error
    resource.setrlimit(resource.RLIMIT_NPROC, (LIMIT, LIMIT))
    assert await runner.run(runtime.observe) == ()
    assert ran == [], "a refused call was made later"
    resource.setrlimit(resource.RLIMIT_NPROC, (1, LIMIT))
    assert await runner.run(runtime.observe) == (), "threads that run already are enough"
    runtime.close()
    runner.close()

USER, LIMIT = 61_000 + os.getpid() % 4_000, 1_000
asyncio.run(main())
"""


def test_a_call_without_a_thread_is_refused_and_never_made():
    if os.geteuid():
        pytest.skip("limits of another user need root")
    done = subprocess.run(
        [sys.executable, "-c", CALLS], cwd=ROOT, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
