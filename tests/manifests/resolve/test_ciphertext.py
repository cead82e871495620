"""Ciphertext and placeholders in manifests: each is an error at its line and field, and plain text that looks a little like one is not."""

from pathlib import Path
from time import process_time

import pytest

from manifests.problems import Code, Problem
from manifests.values.ciphertext import marker
from tests.manifests.trees import (
    ENGINE_PROVIDERS,
    GOOD,
    HEALTH_CHECK,
    INSTANCE,
    WORKLOAD,
    load_path,
    problems_at,
    write,
)

SOPS = "ENC[AES256_GCM,data:x5Q=,iv:abc=,tag:def=,type:str]"
AGE = "-----BEGIN AGE ENCRYPTED FILE-----\nYWdl\n-----END AGE ENCRYPTED FILE-----"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (SOPS, "SOPS"), (f"postgres://u:{SOPS}@db", "SOPS"), (AGE, "age"), ("age-encryption.org/v1\n-> X25519 a", "age"),
        ("-----BEGIN PGP MESSAGE-----\nx", "PGP"), ("$ANSIBLE_VAULT;1.2;AES256;prod\n33", "Ansible"), ("\0GITCRYPT\0ab", "git-crypt"),
        ("ENC[PKCS7,MIIB]", "eyaml"), ('{"kind": "SealedSecret"}', "SealedSecret"), ("***", "placeholder"), ("********", "placeholder"),
        ("<redacted>", "placeholder"), ("[REDACTED]", "placeholder"), ("***REDACTED***", "placeholder"), ("(sensitive)", "placeholder"),
        ("(sensitive value)", "placeholder"), ("[MASKED]", "placeholder"), ("(secret)", "placeholder"), ("Bearer ***", "placeholder"),
        ("postgres://app:***@db:5432/x", "placeholder"), ("https://u:<redacted>@h/", "placeholder"), (" ***\n", "placeholder"),
    ],
)  # fmt: skip
def test_each_mark_is_recognized(text: str, name: str) -> None:
    found = marker(text)
    assert found is not None
    assert name in found.name
    assert found.next_step


@pytest.mark.parametrize("text", ["\n" * 40_000, "kind\n" * 10_000, "{\n" * 20_000, " \n\t" * 15_000])
@pytest.mark.parametrize("hint", ["SealedSecret", "$ANSIBLE_VAULT", "ENC["])
def test_no_text_takes_time_with_the_square_of_its_length(text: str, hint: str) -> None:
    begin = process_time()
    assert marker(text + hint) is None
    assert process_time() - begin < 2


@pytest.mark.parametrize(
    "text", ["a: 1\n  $ANSIBLE_VAULT;1.1;AES256", "{\n\n 'kind': SealedSecret}", "a: 1\n\tkind: SealedSecret"]
)
def test_a_mark_may_stand_in_any_line(text: str) -> None:
    assert marker(text) is not None


@pytest.mark.parametrize(
    "text",
    [
        "", "*", "**", "* * * * *", "a***", "*** a", "ENC[", "hunter2", "${DB_PASSWORD}", "$1$abc", "redacted", "secret", "sensitive",
        "-----BEGIN CERTIFICATE-----\nx", "-----BEGIN AGE", "age1c2e7", "echo '***' | wc", "postgres://u:p@db/x", "kind: Secret", "(secret",
        "vault:v1:abc", "https://h/***", "[a]", "<b>", "x" * 10_000,
    ],
)  # fmt: skip
def test_plain_text_has_no_mark(text: str) -> None:
    assert marker(text) is None


def only(root: Path) -> Problem:
    (problem,) = problems_at(root)
    assert problem.code is Code.CIPHERTEXT
    assert problem.hint
    return problem


@pytest.mark.parametrize(
    ("old", "new", "place"),
    [
        ("value: production", f"value: '{SOPS}'", "web.yaml:16:35: ciphertext: workload/web: spec.template.spec.containers[0].env[0].value"),
        ("value: production", "value: '***'", "web.yaml:16:35"),
        ("httpGet: {path: /live, port: http}", "httpGet: {path: /live, port: http, httpHeaders: [{name: A, value: 'Bearer <redacted>'}]}", "web.yaml:"),
        ("args: [", f"args: ['{SOPS}', ", "web.yaml:14"),
    ],
)  # fmt: skip
def test_what_would_reach_a_container_names_file_line_and_field(old, new, place, tmp_path):
    assert old in WORKLOAD
    root = write(tmp_path, {**GOOD, "web.yaml": WORKLOAD.replace(old, new, 1)})
    problem = only(root)
    assert problem.render().startswith(place)
    assert SOPS not in problem.render(), "the text itself is not shown"


def test_a_placeholder_in_a_header_of_a_health_check_is_found(tmp_path):
    text = HEALTH_CHECK.replace("valueFrom: {secret: {env: CHECK_TOKEN}}", "value: '[MASKED]'")
    assert text != HEALTH_CHECK
    assert "placeholder" in only(write(tmp_path, {**GOOD, "check.yaml": text})).message


@pytest.mark.parametrize(
    "content",
    [b"$ANSIBLE_VAULT;1.1;AES256\n6162\n", b"\0GITCRYPT\0\x01\xfe", AGE.encode(), b"-----BEGIN PGP MESSAGE-----\n\nx\n", b"age-encryption.org/v1\n\xff"],
)  # fmt: skip
def test_an_encrypted_file_is_one_problem(content, tmp_path):
    problem = only(write(tmp_path, {**GOOD, "web.yaml": WORKLOAD, "db.yaml": content}))
    assert (problem.file, problem.line) == ("db.yaml", 1)
    assert "the file is encrypted" in problem.message


def test_a_manifest_that_sops_has_encrypted_is_one_problem(tmp_path):
    text = WORKLOAD.replace("value: production", f"value: '{SOPS}'") + f"sops:\n  mac: '{SOPS}'\n  version: 3.11.0\n"
    problem = only(write(tmp_path, {**GOOD, "web.yaml": text}))
    assert "the manifest is encrypted with SOPS" in problem.message
    assert "valueFrom.secret.sops" in problem.hint


def test_a_sealed_secret_is_one_problem(tmp_path):
    text = (
        "apiVersion: bitnami.com/v1alpha1\nkind: SealedSecret\nmetadata: {name: a}\nspec: {encryptedData: {a: AgB}}\n"
    )
    assert "SealedSecret" in only(write(tmp_path, {**GOOD, "sealed.yaml": text})).message


def test_a_sops_file_beside_manifests_is_data_where_it_is_named(tmp_path):
    data = f"db:\n  password: {SOPS}\nsops:\n  mac: {SOPS}\n  version: 3.11.0\n"
    engine = {"providers.yaml": ENGINE_PROVIDERS}
    web = WORKLOAD.replace("- name: app", "- name: app\n          image: shop/web:1")
    named = web.replace(
        "value: production", "valueFrom: {secret: {sops: {file: ./secrets/prod.yaml, key: db.password}}}"
    )
    assert named != web
    root = write(tmp_path / "named", {**GOOD, **engine, "web.yaml": named, "secrets/prod.yaml": data})
    (workload,) = load_path(root).workloads
    ((_, source),) = workload.template.container.engine.secret_env
    assert (source.sops_file, source.sops_key) == ("secrets/prod.yaml", "db.password")
    problem = only(write(tmp_path / "unnamed", {**GOOD, **engine, "web.yaml": web, "secrets/prod.yaml": data}))
    assert "no reference names it" in problem.message


def test_nothing_is_substituted_in_shell_text(tmp_path):
    text = "for f in $(ls); do echo ${HOME} $1 '$$'; done"
    root = write(tmp_path, {**GOOD, "web.yaml": WORKLOAD.replace("value: production", f'value: "{text}"')})
    (workload,) = load_path(root).workloads
    assert dict(workload.template.container.env)["MODE"] == text


def test_commands_and_decryption_of_a_tree_are_refused(tmp_path):
    for field in ("secretCommands: [{name: a, command: [/bin/cat]}]", "decryption: {}"):
        root = write(
            tmp_path / field[:5], {**GOOD, "instance.yaml": INSTANCE.replace("{id: demo}", f"{{id: demo, {field}}}")}
        )
        (problem,) = problems_at(root)
        assert problem.code is Code.LOCAL_ONLY
        assert "--instance" in problem.hint
