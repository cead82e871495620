"""The push credentials of a new container, and the key behind them."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from manifests.values.desired import Container, PushListener, Template
from manifests.values.pod import Mount, VolumeKind
from providers.actions import CreateContainer
from providers.errors import Unreachable
from providers.facts import Mark
from providers.runtime.process.runtime import ProcessRuntime
from providers.spi import Context
from providers.testing.memory import MemorySettings, MemoryWorld
from providers.testing.memory_runtime import MemoryRuntime
from providers.wrappers.push_credentials import CredentialedRuntime, shares_files
from reconciler.push import tokens
from reconciler.shell.pushing.credentials import DIRECTORY, KEY, Credentials
from reconciler.shell.secrets import SECRETS
from reconciler.shell.store.directory import StoreError
from tests.sim.clock import VirtualClock

TEMPLATE = Template((), Container("web", ("serve",)), revision="0123456789abcdef")
MARK = Mark("shop", "web", 0, "0123456789abcdef")
CREATE = CreateContainer("node-a", "shop-web-01234567-0", MARK, TEMPLATE, "/", push=True)
BOTH = PushListener(tcp=("::1", 9902))


def credentials(state: Path, listener: PushListener | None = BOTH) -> Credentials:
    return Credentials(state, VirtualClock(), listener)


def test_a_container_gets_its_generation_its_token_and_both_targets(tmp_path):
    made = credentials(tmp_path)
    action = made.prepare(CREATE, shares_files=False)
    env = dict(action.extra_env)
    name, _ = tokens.split(env["RECONCILER_PUSH_GENERATION"])
    assert name == CREATE.name
    assert env["RECONCILER_PUSH_TOKEN"] == made.token(env["RECONCILER_PUSH_GENERATION"])
    assert env["RECONCILER_PUSH_SOCKET"] == "/run/reconciler/push.sock"
    assert env["RECONCILER_PUSH_URL"] == "http://[::1]:9902"
    assert action.extra_mounts == (
        Mount(VolumeKind.BIND, str(tmp_path / DIRECTORY), "/run/reconciler", read_only=True),
    )
    assert (tmp_path / DIRECTORY).is_dir(), "an engine mounts only an existing directory"


def test_a_process_of_this_host_gets_the_host_path_of_the_socket(tmp_path):
    action = credentials(tmp_path, PushListener()).prepare(CREATE, shares_files=True)
    env = dict(action.extra_env)
    assert env["RECONCILER_PUSH_SOCKET"] == str(tmp_path / DIRECTORY / "push.sock")
    assert "RECONCILER_PUSH_URL" not in env
    assert action.extra_mounts == ()


def test_containers_of_one_name_have_other_tokens_and_rising_nonces(tmp_path):
    clock = VirtualClock()
    made = Credentials(tmp_path, clock, BOTH)
    first = dict(made.prepare(CREATE, False).extra_env)
    clock.advance(1)
    second = dict(made.prepare(CREATE, False).extra_env)
    assert first["RECONCILER_PUSH_TOKEN"] != second["RECONCILER_PUSH_TOKEN"]
    assert tokens.split(first["RECONCILER_PUSH_GENERATION"])[1] < tokens.split(second["RECONCILER_PUSH_GENERATION"])[1]


def test_the_token_is_in_no_text_of_the_action_and_is_masked_in_logs(tmp_path):
    action = credentials(tmp_path).prepare(CREATE, False)
    secret = dict(action.extra_env)["RECONCILER_PUSH_TOKEN"]
    assert secret not in repr(action)
    assert secret not in SECRETS.mask(f"the token is {secret}")


def test_the_key_survives_a_restart_and_is_private(tmp_path):
    assert credentials(tmp_path).token("g") == credentials(tmp_path).token("g")
    assert os.stat(tmp_path / KEY).st_mode & 0o777 == 0o600


@pytest.mark.parametrize("text", ["short", "z" * 64, "0" * 65])
def test_a_damaged_key_is_an_error_and_is_not_replaced(tmp_path, text):
    (tmp_path / KEY).write_text(text)
    with pytest.raises(StoreError, match="does not contain a key; remove it"):
        credentials(tmp_path).token("g")
    with pytest.raises(Unreachable, match="its push token cannot be created"):
        credentials(tmp_path).prepare(CREATE, False)
    assert (tmp_path / KEY).read_text() == text


def test_without_a_listener_a_container_gets_no_credentials(tmp_path):
    assert credentials(tmp_path, None).prepare(CREATE, False) == CREATE
    assert not (tmp_path / KEY).exists()


def test_only_containers_that_push_are_prepared():
    asked: list[str] = []

    def prepare(action: CreateContainer, shared: bool) -> CreateContainer:
        asked.append(action.name)
        return action

    inner = MemoryRuntime("node-a", MemorySettings(), Context("shop", "/nowhere"), MemoryWorld())
    runtime = CredentialedRuntime(inner, prepare, shares_files=False)
    runtime.perform(CREATE)
    other = replace(CREATE, name="shop-web-01234567-1", mark=MARK._replace(ordinal=1), push=False)
    runtime.perform(other)
    assert asked == [CREATE.name]
    assert len(runtime.observe()) == 2


def test_processes_share_our_files_and_containers_do_not():
    assert shares_files(ProcessRuntime)
    assert not shares_files(MemoryRuntime)
