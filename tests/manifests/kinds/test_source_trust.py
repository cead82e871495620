"""`source.verify` and `source.webhook` of a local Instance: what is refused, with what to write instead, and what becomes of them."""

import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from manifests.kinds.source import Source
from manifests.load import Sources, resolve_sources
from manifests.problems import Code, ManifestErrors
from manifests.source.directory import read_tree
from manifests.source.local import read_local
from manifests.values.desired import Instance, WebhookListener
from manifests.values.pod import SecretSource
from manifests.values.verify import SignaturePolicy, VerifyMode
from providers import registry

URL = "git+https://git.example.com/ops.git//prod?ref=main"
KEYS = [{"ssh": "/etc/reconciler/signers"}, {"pgp": "/etc/reconciler/carol.asc"}]
WEBHOOK = {"listen": "127.0.0.1:9903", "secret": {"file": "/etc/reconciler/webhook.secret"}}


def source(**fields: object) -> Source:
    return Source.model_validate({"url": URL, **fields})


def test_nothing_must_be_signed_by_default() -> None:
    assert source().verify is None


def test_a_policy_keeps_its_files_by_their_kind() -> None:
    verify = source(verify={"mode": "head", "keys": KEYS, "revoked": "/etc/reconciler/revoked"}).verify
    assert verify is not None
    assert verify.policy() == SignaturePolicy(
        VerifyMode.HEAD, ("/etc/reconciler/signers",), ("/etc/reconciler/carol.asc",), "/etc/reconciler/revoked"
    )


def test_a_policy_can_be_switched_off_with_its_keys_kept() -> None:
    verify = source(verify={"mode": "none", "keys": KEYS}).verify
    assert verify is not None
    assert not verify.policy().wanted


@pytest.mark.parametrize(
    ("verify", "said"),
    [
        ({}, "mode"),
        ({"mode": "commit", "keys": KEYS}, "mode"),
        ({"mode": "head"}, "mode head needs keys"),
        ({"mode": "tag", "keys": []}, "mode tag needs keys"),
        ({"mode": "head", "keys": [{}]}, "exactly one of ssh and pgp"),
        ({"mode": "head", "keys": [{"ssh": "/a", "pgp": "/b"}]}, "exactly one of ssh and pgp"),
        ({"mode": "head", "keys": [{"ssh": "signers"}]}, "absolute"),
        ({"mode": "head", "keys": [{"ssh": "/a"}, {"ssh": "/a"}]}, "twice"),
        ({"mode": "head", "keys": [{"pgp": "/a"}], "revoked": "/b"}, "revoked is for SSH keys"),
        ({"mode": "head", "keys": KEYS, "trust": "all"}, "trust"),
    ],
)
def test_a_policy_that_means_nothing_is_refused(verify: dict, said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        source(verify=verify)


@pytest.mark.parametrize(
    ("webhook", "said"),
    [
        ({"listen": "127.0.0.1:9903"}, "secret"),
        ({"listen": "0.0.0.0:9903"}, "secret"),
        ({**WEBHOOK, "secret": "geheim"}, "secret"),
        ({**WEBHOOK, "secret": {}}, "exactly one of env, file, command, credential, sops and age"),
        ({**WEBHOOK, "listen": "localhost:9903"}, "no IP address"),
        ({**WEBHOOK, "listen": "127.0.0.1:99999"}, "no port"),
        ({**WEBHOOK, "provider": "bitbucket"}, "provider"),
    ],
)
def test_a_webhook_without_a_secret_or_address_is_refused(webhook: dict, said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        source(webhook=webhook)


def resolved(place: Path, spec: dict, *, local: bool = True) -> Instance:
    """The Instance of these local documents, or of a tree."""
    tree, documents = place / "tree", place / "local"
    tree.mkdir()
    documents.mkdir(mode=0o700)
    host = f"apiVersion: reconciler/v1\nkind: Instance\nmetadata: {{name: here}}\nspec: {json.dumps(spec)}\n"
    provider = "apiVersion: reconciler/v1\nkind: Provider\nmetadata: {name: local}\nspec: {type: process}\n"
    for directory, text in ((documents if local else tree, host), (documents, provider)):
        with open(directory / "all.yaml", "a") as file:
            file.write(f"---\n{text}")
        (directory / "all.yaml").chmod(0o600)
    if local:
        (tree / "check.yaml").write_text(CHECK)
    read = Sources(read_tree(tree), read_local(documents, tree) if local else None)
    return resolve_sources(
        read,
        settings_model=registry.settings_model,
        known_types=registry.known_types,
        template_support=registry.template_support,
    ).desired.instance


CHECK = """\
apiVersion: reconciler/v1
kind: HealthCheck
metadata: {name: check}
spec: {address: 192.0.2.1, protocol: HTTP, port: 80}
"""


@pytest.mark.parametrize(("mode", "tags"), [("head", False), ("tag", True)])
def test_the_listener_knows_the_ref_and_whether_tags_concern_it(tmp_path: Path, mode: str, tags: bool) -> None:
    declared = {"url": URL, "webhook": {**WEBHOOK, "provider": "gitea"}, "verify": {"mode": mode, "keys": KEYS}}
    found = resolved(tmp_path, {"id": "here", "source": declared}).webhook
    secret = SecretSource(file="/etc/reconciler/webhook.secret")
    assert found == WebhookListener(("127.0.0.1", 9903), secret, "gitea", "main", tags)


def test_a_tree_cannot_choose_keys_or_listeners(tmp_path: Path) -> None:
    declared = {"url": URL, "webhook": WEBHOOK, "verify": {"mode": "none"}}
    with pytest.raises(ManifestErrors) as error:
        resolved(tmp_path, {"id": "here", "source": declared}, local=False)
    assert [problem.code for problem in error.value.problems if not problem.is_warning] == [Code.LOCAL_ONLY]
