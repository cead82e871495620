"""References to encrypted files, checked without an identity: the file, its format and its key; and the names that the Instance defines."""

from dataclasses import replace
from pathlib import Path

import pytest

from manifests.problems import Code, Problem
from manifests.resolve.encrypted_paths import encrypted_paths
from tests.manifests.trees import ENGINE_PROVIDERS, INSTANCE, WORKLOAD, load_path, problems_at, write

ENC = "ENC[AES256_GCM,data:eA==,iv:a,tag:b,type:str]"
SOPS_YAML = f"db:\n  password: {ENC}\nlist:\n  - {ENC}\ntls.key: {ENC}\nsops:\n  mac: {ENC}\n  version: 3.11.0\n"
SOPS_ENV = f"TOKEN={ENC}\nsops_mac={ENC}\nsops_version=3.11.0\n"
SOPS_INI = f"[db]\npassword = {ENC}\n\n[sops]\nmac = {ENC}\nversion = 3.11.0\n"
AGE = "age-encryption.org/v1\n-> X25519 a\n"
IDENTITY = ", decryption: {identities: [{name: main, file: /etc/age.txt}]}"
COMMAND = ", secretCommands: [{name: vault, command: [/usr/bin/vault, read]}]"


def instance(more: str) -> str:
    return INSTANCE.replace("{id: demo}", f"{{id: demo{more}}}")


def problems(
    base: Path, reference: str, files: dict[str, str | bytes], more: str = "", rule: str = ""
) -> tuple[Problem, ...]:
    web = WORKLOAD.replace("- name: app", "- name: app\n          image: shop/web:1")
    web = web.replace("value: production", f"valueFrom: {{secret: {{{reference}}}}}")
    rules = f", secrets: [{{{rule or reference}, workload: web}}]"
    write(base, {"local.yaml": f"{instance(more + rules)}---\n{ENGINE_PROVIDERS}"})
    root = write(base / "tree", {"web.yaml": web, **files})
    return problems_at(root, base / "local.yaml", check_files=True)


@pytest.mark.parametrize(
    ("reference", "name", "content"),
    [
        ("sops: {file: s/p.yaml, key: db.password}", "s/p.yaml", SOPS_YAML), ("sops: {file: s/p.yaml, key: list.0}", "s/p.yaml", SOPS_YAML),
        ("sops: {file: s/p.yaml, key: tls.key}", "s/p.yaml", SOPS_YAML), ("sops: {file: s/p.yaml}", "s/p.yaml", SOPS_YAML),
        ("sops: {file: p.env, key: TOKEN}", "p.env", SOPS_ENV), ("sops: {file: p.ini, key: db.password}", "p.ini", SOPS_INI),
        ("age: {file: t.age}", "t.age", AGE), ("age: {file: t.age, identity: main}", "t.age", AGE),
    ],
)  # fmt: skip
def test_an_encrypted_file_with_its_key_is_valid(reference, name, content, tmp_path):
    assert problems(tmp_path, reference, {name: content}, IDENTITY) == ()


@pytest.mark.parametrize(
    ("reference", "files", "expected"),
    [
        ("sops: {file: none.yaml, key: a}", {}, "no such file"),
        ("sops: {file: p.yaml, key: db.passwort}", {"p.yaml": SOPS_YAML}, "no key 'passwort' below 'db'"),
        ("sops: {file: p.yaml, key: db}", {"p.yaml": SOPS_YAML}, "not a single value"),
        ("sops: {file: p.env, key: TOKEN}", {"p.env": "TOKEN=plain\n"}, "not encrypted with SOPS"),
        ("sops: {file: p.bin, key: a}", {"p.bin": f'{{"data": "{ENC}", "sops": {{"mac": "{ENC}"}}}}'}, "has no keys"),
        ("age: {file: t.age}", {"t.age": "plain"}, "not encrypted with age"),
        ("age: {file: none.age}", {}, "no such file"),
    ],
)  # fmt: skip
def test_what_can_be_known_without_an_identity_is_an_error_at_its_line(reference, files, expected, tmp_path):
    (problem,) = problems(tmp_path, reference, files, IDENTITY)
    assert problem.code is Code.BAD_SECRET_FILE
    assert expected in problem.message
    assert (problem.file, problem.line) == ("web.yaml", 17)
    assert problem.hint


def test_a_link_out_of_the_tree_is_not_followed(tmp_path):
    (tmp_path / "outside.age").write_text(AGE)
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree/t.age").symlink_to(tmp_path / "outside.age")
    (problem,) = problems(tmp_path, "age: {file: t.age}", {}, IDENTITY)
    assert "outside of the manifests' directory" in problem.message
    # A run, which does not check the file itself, refuses the link too.
    (problem,) = problems_at(tmp_path / "tree", tmp_path / "local.yaml")
    assert (problem.code, problem.file) == (Code.LINK_LEAVES_TREE, "web.yaml")


def test_encrypted_files_are_named_wherever_a_reference_can_stand(tmp_path):
    web = WORKLOAD.replace("- name: app", "- name: app\n          image: shop/web:1")
    web = web.replace("value: production", "valueFrom: {secret: {sops: {file: ./s/a.yaml, key: a}}}")
    headers = "httpHeaders: [{name: A, valueFrom: {secret: {age: {file: b.age, identity: main}}}}]"
    web = web.replace("httpGet: {path: /live, port: http}", f"httpGet: {{path: /live, port: http, {headers}}}")
    secrets = "{sops: {file: s/a.yaml, key: a}, workload: web}, {age: {file: b.age, identity: main}, workload: web, header: A}"
    write(tmp_path, {"local.yaml": f"{instance(f'{IDENTITY}, secrets: [{secrets}]')}---\n{ENGINE_PROVIDERS}"})
    desired = load_path(write(tmp_path / "tree", {"web.yaml": web}), tmp_path / "local.yaml")
    settings = {"apiKey": {"sops": {"file": "c.env", "key": "K"}, "env": None}, "other": {"file": "/d"}}
    provider = replace(desired.providers[0], settings=settings)
    assert list(encrypted_paths(replace(desired, providers=(provider,)))) == ["s/a.yaml", "b.age", "c.env"]


@pytest.mark.parametrize(
    ("reference", "more", "expected"),
    [
        ("command: vault", "", "there is no secret command 'vault'"), ("command: vaul", COMMAND, "did you mean 'vault'?"),
        ("age: {file: t.age}", "", "there is no identity"), ("age: {file: t.age, identity: mian}", IDENTITY, "did you mean 'main'?"),
    ],
)  # fmt: skip
def test_a_name_that_no_local_document_defines_is_an_error(reference, more, expected, tmp_path):
    rule, problem = problems(tmp_path, reference, {"t.age": AGE}, more)
    assert (rule.code, problem.file) == (Code.UNKNOWN_REFERENCE, "web.yaml")
    assert problem.code is Code.UNKNOWN_REFERENCE
    assert expected in f"{problem.message}\n{problem.hint}"


@pytest.mark.parametrize(
    ("reference", "rule"),
    [
        ("command: vault", "command: other"), ("credential: db", "credential: dc"), ("credential: db", "env: db"),
        ("sops: {file: p.yaml, key: db.password}", "sops: {file: p.yaml, key: tls.key}"),
        ("sops: {file: p.yaml, key: db.password}", "sops: {file: other.yaml, key: db.password}"),
        ("sops: {file: p.yaml, key: db.password}", "sops: {file: p.yaml}"), ("age: {file: t.age}", "age: {file: u.age}"),
    ],
)  # fmt: skip
def test_a_rule_lets_the_tree_use_this_secret_and_no_other(reference, rule, tmp_path):
    files = {"p.yaml": SOPS_YAML, "t.age": AGE}
    if "sops" not in reference:
        del files["p.yaml"]
    others = ", secretCommands: [{name: vault, command: [/bin/a]}, {name: other, command: [/bin/b]}]"
    (problem,) = problems(tmp_path, reference, files, IDENTITY + others, rule)
    assert problem.code is Code.SECRET_NOT_ALLOWED
    assert f"- {{{reference}, workload: web}}" in problem.hint


@pytest.mark.parametrize(
    "reference",
    ["credential: ../x", "credential: ..", "credential: a/b", "sops: {file: ../x.yaml}", "age: {file: ''}", "sops: {file: a.yaml, key: a..b}",
     "command: [/bin/sh]", "env: A, file: /b", "sops: {key: a}"],
)  # fmt: skip
def test_a_reference_that_cannot_be_right_is_refused(reference, tmp_path):
    assert {problem.code for problem in problems(tmp_path, reference, {}, IDENTITY, "env: X")} <= {
        Code.BAD_VALUE, Code.WRONG_TYPE, Code.MISSING_FIELD,
    }  # fmt: skip
