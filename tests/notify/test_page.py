"""docs/notifications.md: its manifest is valid, its check of a signature works, and its figures are those of the code."""

import re
from pathlib import Path

import pytest

from manifests.load import load
from manifests.types.durations import DAY
from manifests.values.notices import Channel, Topic, Webhook
from manifests.values.pod import SecretSource
from reconciler.core.notices import incidents, outbox
from reconciler.core.notices.model import MINUTE
from tests.manifests.trees import PROVIDERS, TYPES
from tests.notify.servers import hook
from tests.notify.test_senders import WALL, send

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "notifications.md").read_text(encoding="utf-8")


def block(language: str) -> str:
    found = re.search(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_manifest_of_the_page_is_valid(tmp_path):
    pytest.importorskip("apprise")
    tree, local = tmp_path / "tree", tmp_path / "local.yaml"
    tree.mkdir()
    (tree / "one.yaml").write_text(
        "apiVersion: reconciler/v1\nkind: HealthCheck\nmetadata: {name: x}\nspec: {address: 203.0.113.9}\n"
    )
    local.write_text(f"{block('yaml')}---\n{PROVIDERS}")
    local.chmod(0o600)
    informed = load(
        tree, settings_model=TYPES.get, known_types=lambda: list(TYPES), instance_file=local
    ).instance.informed
    assert [channel.name for channel in informed.channels] == ["chat", "ops", "phone"]
    assert informed.forge is not None


def test_the_check_of_a_signature_on_the_page_works(monkeypatch):
    monkeypatch.setenv("HOOK_KEY", "a-key-of-the-hook")
    with hook() as served:
        send(Webhook(served.url, None, SecretSource(env="HOOK_KEY")))
    ((_, headers, body),) = served.requests
    names: dict = {}
    exec(block("python"), names)
    given = {"-".join(part.capitalize() for part in name.split("-")): value for name, value in headers.items()}
    check = names["is_genuine"]
    assert check(given, body, b"a-key-of-the-hook", WALL + 10)
    assert not check(given, body + b" ", b"a-key-of-the-hook", WALL + 10)
    assert not check(given, body, b"another-key", WALL + 10)
    assert not check(given, body, b"a-key-of-the-hook", WALL + 600)


def test_the_page_names_every_topic_and_the_figures_of_the_code():
    for topic in Topic:
        assert f"| `{topic.value}` |" in PAGE
    assert (incidents.QUIET, incidents.GATHER, incidents.JOIN) == (MINUTE // 3, 3 * MINUTE, 5 * MINUTE)
    assert (incidents.SETTLE, incidents.RETURNS, incidents.LONGEST_SETTLE) == (2 * MINUTE, 360 * MINUTE, 60 * MINUTE)
    assert (outbox.QUEUE, outbox.KEEP, outbox.REFUSALS) == (100, 3 * DAY, 5)
    assert Channel("x", Webhook("https://x")).per_hour == 20
