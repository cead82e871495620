"""The mask: long secrets anywhere and in every usual form, short ones as whole texts, and what a cut leaves of one."""

import base64
import json
import re
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manifests.load import load
from providers.facts import ContainerFact, ContainerState, ProbeFact, ProbeValue, RuntimeHealth
from reconciler.shell.secrets import LONG, SECRETS, Secrets, all_references, masked_fact, masked_verdict
from tests.manifests.trees import PROVIDERS, TYPES

SECRET = "Hunter2-Secret!/+ü"


def known(*values: str) -> Secrets:
    secrets = Secrets()
    for value in values:
        secrets.add(value)
    return secrets


FORMS = {
    "plain": SECRET,
    "repr": repr(SECRET)[1:-1],
    "json": json.dumps(SECRET)[1:-1],
    "url": quote(SECRET, safe=""),
    "lower-case url": re.sub("%..", lambda match: match.group().lower(), quote(SECRET, safe="")),
    "path": quote(SECRET),
    "form": quote_plus(SECRET),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_long_secret_is_masked_in_each_form(form):
    assert known(SECRET).mask(f"a {FORMS[form]} b") == "a *** b"


@given(st.binary(max_size=7), st.binary(max_size=7), st.booleans())
def test_a_long_secret_is_masked_inside_base64_at_any_place(before, after, safe):
    encode = base64.urlsafe_b64encode if safe else base64.b64encode
    text = encode(before + SECRET.encode() + after).decode()
    shown = known(SECRET).mask(f"Authorization: Basic {text}")
    assert "***" in shown
    assert SECRET[:6].encode() not in base64.b64decode(
        shown.partition("Basic ")[2].split("***")[0] + "====", altchars="-_" if safe else None
    )


@given(st.text(min_size=LONG, max_size=30).filter(str.strip), st.text(max_size=10), st.text(max_size=10))
def test_no_long_secret_survives(secret, before, after):
    shown = known(secret).mask(f"{before}{secret}{after}")
    for line in secret.strip().splitlines():
        assert len(line) < LONG or line not in shown


def test_a_short_secret_is_masked_only_as_the_whole_text():
    secrets = known("web", "1234567")
    assert [secrets.mask(text) for text in ("web", " web\n", "1234567")] == ["***", "***", "***"]
    assert secrets.mask("workload/web 1234567 is ready") == "workload/web 1234567 is ready"


@pytest.mark.parametrize("size", range(4, len(SECRET)))
def test_the_beginning_of_a_secret_before_a_cut_is_masked(size):
    assert known(SECRET).mask(f"exit code 1: {SECRET[:size]}...") == "exit code 1: ***..."
    assert known(SECRET).mask(f"exit code 1: {SECRET[:size]}\u2026") == "exit code 1: ***\u2026"


def test_facts_and_verdicts_are_masked_and_else_the_same():
    SECRETS.add(SECRET)
    health = RuntimeHealth(ProbeValue.FAIL, 1, 1, 1, f"token {SECRET}")
    fact = ContainerFact("n", "web-0", "id", ContainerState.RUNNING, health=health)
    assert masked_fact(fact).health.output == "token ***"
    plain = ContainerFact("n", "web-0", "id", ContainerState.RUNNING)
    assert masked_fact(plain) is plain
    verdict = ProbeFact(ProbeValue.FAIL, ProbeValue.FAIL, 1, 1, 1, 1, 1, f"said {SECRET}")
    assert masked_verdict(verdict).detail == "said ***"


def test_each_secret_of_the_instance_is_listed(tmp_path):
    tree, local = tmp_path / "tree", tmp_path / "local.yaml"
    tree.mkdir()
    (tree / "one.yaml").write_text(
        "apiVersion: reconciler/v1\nkind: HealthCheck\nmetadata: {name: x}\nspec: {address: 203.0.113.9}\n"
    )
    local.write_text(f"{EVERY_SECRET}---\n{PROVIDERS}")
    local.chmod(0o600)
    desired = load(tree, settings_model=TYPES.get, known_types=lambda: list(TYPES), instance_file=local)
    listed = [str(source) for key, sources in all_references(desired) for source in sources if key == "instance/demo"]
    assert sorted(listed) == sorted(
        [
            *(f"environment variable {name}" for name in ("METRICS", "HOOK", "URL", "KEY", "TOKEN", "PUSH", "FORGE")),
            "secret command mail",
            "age file /etc/reconciler/git.age",
        ]
    )


EVERY_SECRET = """\
apiVersion: reconciler/v1
kind: Instance
metadata: {name: this}
spec:
  id: demo
  secretCommands: [{name: mail, command: [get, mail]}]
  decryption: {identities: [{name: main, file: /etc/reconciler/age.txt}]}
  metrics: {listen: '127.0.0.1:9901', token: {env: METRICS}}
  source:
    url: git+https://git.example.com/ops.git
    token: {age: {file: /etc/reconciler/git.age}}
    webhook: {listen: '127.0.0.1:9902', secret: {env: HOOK}}
  notifications:
  - {name: chat, type: webhook, urlFrom: {env: URL}, secret: {env: KEY}, token: {env: TOKEN}}
  - {name: mail, type: smtp, host: m.example.com, from: a@example.com, to: [b@example.com], username: a,
     password: {command: mail}}
  - {name: push, type: apprise, urlFrom: {env: PUSH}}
  forge: {type: gitea, url: 'https://git.example.com', project: a/b, token: {env: FORGE}}
"""
