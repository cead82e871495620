"""`reconcile notify test`: sends one notice through each channel, and says what happened."""

import json

import pytest

from tests.cli.test_local_documents import ALLOWED, OF_TREE
from tests.notify.servers import hook


@pytest.fixture
def local(tree, tmp_path):
    """A function that writes local documents with these channels, and returns their file."""
    (tree / "all.yaml").write_text(OF_TREE)
    path = tmp_path / "local.yaml"

    def write(*channels: str):
        fields = f"allowProcess: [web], notifications: [{', '.join(channels)}]"
        path.write_text(ALLOWED.replace("allowProcess: [web]", fields))
        path.chmod(0o600)
        return path

    return write


def channel(name: str, url: str) -> str:
    return f"{{name: {name}, type: webhook, url: '{url}'}}"


def test_every_channel_gets_a_notice_and_the_result_is_shown(tree, local, reconcile):
    with hook() as chat, hook() as ops:
        file = local(channel("chat", chat.url), channel("ops", f"{ops.url}/x"))
        done = reconcile("notify", "test", tree, "--instance", file)
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines() == [
        "sent: channel chat took the test notice",
        "sent: channel ops took the test notice",
        "result: every channel took it (exit 0)",
    ]
    assert chat.documents[0]["text"].startswith("[small] this is a test notice\n")
    assert ops.requests[0][0] == "/x"


def test_a_secret_of_a_channel_may_come_from_a_command(tree, local, reconcile):
    with hook() as chat:
        words = (
            f"url: '{chat.url}', token: {{command: hook}}}}], secretCommands: [{{name: hook, command: [echo, a-token]}}"
        )
        done = reconcile("notify", "test", tree, "--instance", local(f"{{name: chat, type: webhook, {words}"))
    assert (done.code, done.err) == (0, "")
    assert chat.requests[0][1]["authorization"] == "Bearer a-token"


def test_one_channel_is_chosen_by_its_name(tree, local, reconcile):
    with hook() as chat, hook() as ops:
        file = local(channel("chat", chat.url), channel("ops", ops.url))
        assert reconcile("notify", "test", tree, "--channel", "ops", "--instance", file).code == 0
    assert (len(chat.requests), len(ops.requests)) == (0, 1)


def test_a_channel_that_fails_says_why_and_what_to_do(tree, local, reconcile):
    with hook() as chat:
        chat.answers = [(404, {}, b'{"error": "no_team"}')]
        file = local(channel("chat", chat.url), channel("ops", "http://127.0.0.1:1"))
        done = reconcile("notify", "test", tree, "--instance", file)
        chat.answers = [(404, {}, b"")]
        machine = reconcile("notify", "test", tree, "-o", "json", "--instance", file)
    assert done.code == 1
    assert f"not sent: channel chat: {chat.url} answers 404 (no_team)" in done.out
    assert "    next step: check the address of the channel" in done.out
    assert "not sent: channel ops: no connection to http://127.0.0.1:1" in done.out
    assert done.out.endswith("result: 2 of 2 channels did not take it (exit 1)\n")
    assert [row["sent"] for row in json.loads(machine.out)["channels"]] == [False, False]


def test_a_secret_that_is_missing_is_named_by_its_place(tree, local, reconcile):
    file = local("{name: chat, type: webhook, urlFrom: {env: NO_SUCH_HOOK}}")
    done = reconcile("notify", "test", tree, "--instance", file)
    assert done.code == 1
    assert "environment variable NO_SUCH_HOOK is not set" in done.out


def test_a_channel_that_does_not_exist_is_a_wrong_command_line(tree, local, reconcile):
    file = local(channel("chat", "https://hooks.example.com"))
    done = reconcile("notify", "test", tree, "--channel", "chta", "--instance", file)
    assert done.code == 64
    assert "the Instance has no channel 'chta'" in done.err
    assert "channels: chat" in done.err
    (tree / "all.yaml").write_text(OF_TREE)
    file = local()
    assert reconcile("notify", "test", tree, "--instance", file).code == 64
