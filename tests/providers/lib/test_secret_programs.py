"""Secrets that other programs give, with the real age and the real SOPS: what is resolved, what is refused, and what no message has."""

import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from manifests.values.desired import SECOND
from manifests.values.secret_sources import NO_PROGRAMS, Decryption, SecretCommand, SecretPrograms, SecretSource
from providers.errors import ProviderError, Rejected, Unreachable
from providers.lib import secrets
from providers.lib.secrets import define, present, resolve
from tests.e2e.quickstart_world import until
from tests.providers.lib.encrypted import SENTINEL, age, identity, sops, sops_program


@pytest.fixture(autouse=True)
def defined() -> Iterator[None]:
    yield
    define(NO_PROGRAMS, "")


def decryption(tmp_path: Path, **more) -> Decryption:
    key = tmp_path / "key.txt"
    return Decryption((("main", str(key)),), str(key), key_services=(), **more)


def refusal(source: SecretSource) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        resolve(source, "workload/web")
    assert SENTINEL not in repr(caught.value)
    assert SENTINEL not in repr(caught.value.__cause__)
    return caught.value


def script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def command(name: str, argv: str, **more) -> SecretCommand:
    return SecretCommand(name, (argv,), more.pop("timeout", 5 * SECOND), more.pop("refresh", 60 * SECOND), **more)


def commands(*given: SecretCommand) -> None:
    define(SecretPrograms(given), "")


# --- commands --------------------------------------------------------------------------------------------------------


def test_a_command_prints_the_secret_and_gets_only_its_own_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("VAULT_TOKEN", "for-vault")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not-for-it")
    program = script(tmp_path / "get", f'env > {tmp_path}/env; pwd > {tmp_path}/cwd; echo "{SENTINEL}"')
    commands(command("db", program, env=(("ADDRESS", "here"),), pass_env=("VAULT_TOKEN", "NOT_SET")))

    assert resolve(SecretSource(command="db"), "x").reveal() == SENTINEL
    env = (tmp_path / "env").read_text()
    assert "VAULT_TOKEN=for-vault" in env
    assert "ADDRESS=here" in env
    assert "not-for-it" not in env
    assert (tmp_path / "cwd").read_text() == "/\n"


def test_an_output_is_used_for_its_time_and_then_read_again(tmp_path):
    program = script(tmp_path / "get", f"echo . >> {tmp_path}/runs; wc -l < {tmp_path}/runs")
    commands(command("long", program), command("short", program, refresh=0))
    values = [resolve(SecretSource(command="long"), "x").reveal() for _ in range(3)]
    assert values == ["1", "1", "1"]
    assert [resolve(SecretSource(command="short"), "x").reveal() for _ in range(2)] == ["2", "3"]
    assert present(SecretSource(command="short")).reveal() == "3", "a look runs no program"


def test_a_command_that_fails_gives_no_secret_and_is_not_run_at_once_again(tmp_path):
    program = script(tmp_path / "get", f'echo . >> {tmp_path}/runs; echo "{SENTINEL}"; echo "{SENTINEL}" >&2; exit 3')
    commands(command("db", program))
    error = refusal(SecretSource(command="db"))
    assert isinstance(error, Unreachable)
    assert "secret command db cannot be read: the program ended with exit code 3" in str(error)
    assert refusal(SecretSource(command="db")).cause == error.cause
    assert (tmp_path / "runs").read_text() == ".\n"
    assert present(SecretSource(command="db")) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("trap '' TERM; sleep 60 & sleep 60", "did not end within 1s"),
        ("yes", "printed more than 65536 bytes"),
        ("true", "is empty"),
        ("printf '***'", "placeholder"),
        ("echo 'ENC[AES256_GCM,data:x,iv:y,tag:z,type:str]'", "SOPS ciphertext"),
        ("printf '\\377'", "is not UTF-8 text"),
    ],
)
def test_an_output_that_is_no_secret_is_refused(text, expected, tmp_path):
    commands(command("db", script(tmp_path / "get", text), timeout=1 * SECOND))
    assert expected in str(refusal(SecretSource(command="db")))


def test_the_children_of_a_command_end_with_its_time(tmp_path):
    program = script(tmp_path / "get", f"trap '' TERM; sleep 1234.5 & echo $! > {tmp_path}/child; wait")
    commands(command("db", program, timeout=1 * SECOND))
    refusal(SecretSource(command="db"))
    child = int((tmp_path / "child").read_text())
    until(
        lambda: not Path(f"/proc/{child}").exists() or "Z" in Path(f"/proc/{child}/stat").read_text().split(") ")[1][0]
    )


def test_a_program_leaves_no_core_dump(tmp_path):
    program = script(tmp_path / "get", "sleep 0.3; ulimit -c; ulimit -H -c")
    commands(command("db", program))
    assert resolve(SecretSource(command="db"), "x").reveal() == "0\n0"


def test_an_unknown_or_missing_command_says_what_to_do(tmp_path):
    commands(command("other", str(tmp_path / "nothing")))
    assert "define it in secretCommands" in str(refusal(SecretSource(command="db")))
    assert isinstance(refusal(SecretSource(command="other")), Rejected)


# --- age -------------------------------------------------------------------------------------------------------------


@pytest.mark.server("age")
@pytest.mark.parametrize("options", [(), ("--armor",)])
def test_an_age_file_of_the_tree_is_decrypted(options, tmp_path):
    recipient = identity(tmp_path / "key.txt")
    tree = tmp_path / "tree"
    tree.mkdir()
    age(recipient, f"{SENTINEL}\n", tree / "token.age", *options)
    define(SecretPrograms((), decryption(tmp_path)), str(tree))
    for name in ("", "main"):
        assert resolve(SecretSource(age_file="token.age", identity=name), "x").reveal() == SENTINEL


@pytest.mark.server("age")
def test_another_identity_or_a_plain_file_gives_no_secret(tmp_path):
    identity(tmp_path / "key.txt")
    other = identity(tmp_path / "other.txt")
    age(other, SENTINEL, tmp_path / "token.age")
    (tmp_path / "plain.age").write_text(SENTINEL)
    define(SecretPrograms((), decryption(tmp_path)), str(tmp_path))
    assert "age ended with exit code 1" in str(refusal(SecretSource(age_file="token.age")))
    assert "is not encrypted with age" in str(refusal(SecretSource(age_file="plain.age")))
    assert "does not exist in the manifests' directory" in str(refusal(SecretSource(age_file="none.age")))
    assert "there is no identity 'x'" in str(refusal(SecretSource(age_file="token.age", identity="x")))
    # The right identity arrives at the same place: it is tried at once, although the file is the same.
    (tmp_path / "key.txt").write_bytes((tmp_path / "other.txt").read_bytes())
    assert resolve(SecretSource(age_file="token.age"), "x").reveal() == SENTINEL
    (tmp_path / "key.txt").chmod(0o644)
    assert "world-readable" in str(refusal(SecretSource(age_file="token.age")))


@pytest.mark.server("age")
def test_a_link_of_the_tree_to_another_file_of_the_host_is_refused(tmp_path):
    recipient = identity(tmp_path / "key.txt")
    tree = tmp_path / "tree"
    tree.mkdir()
    age(recipient, SENTINEL, tmp_path / "outside.age")
    (tree / "link.age").symlink_to(tmp_path / "outside.age")
    (tree / "up").symlink_to(tmp_path)
    define(SecretPrograms((), decryption(tmp_path)), str(tree))
    for path in ("link.age", "up/outside.age", "../outside.age"):
        assert "outside" in str(refusal(SecretSource(age_file=path)))


# --- SOPS ------------------------------------------------------------------------------------------------------------

YAML = (
    f"db:\n  password: {SENTINEL}\n  port: 5432\n  ratio: 1.10\n  on: true\n  none: null\nlist: [a, b]\ntls.key: top\n"
)


@pytest.fixture
def sealed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A tree with files of every format; the recipient."""
    sops_program(tmp_path, monkeypatch)
    recipient = identity(tmp_path / "key.txt")
    tree = tmp_path / "tree"
    sops(recipient, YAML, tree / "s.yaml")
    sops(recipient, '{"a": {"b": "json"}}', tree / "s.json")
    sops(recipient, "TOKEN=dotenv value\n", tree / "s.env")
    sops(recipient, "[db]\npassword = ini\n", tree / "s.ini")
    sops(recipient, "binary\nfile\n", tree / "s.bin")
    define(SecretPrograms((), decryption(tmp_path)), str(tree))
    return recipient


@pytest.mark.server("age")
@pytest.mark.parametrize(
    ("file", "key", "expected"),
    [
        ("s.yaml", "db.password", SENTINEL), ("s.yaml", "db.port", "5432"), ("s.yaml", "db.on", "true"),
        ("s.yaml", "list.1", "b"), ("s.yaml", "tls.key", "top"), ("s.json", "a.b", "json"), ("s.env", "TOKEN", "dotenv value"),
        ("s.ini", "db.password", "ini"), ("s.bin", "", "binary\nfile"), ("s.json", "", '{\n\t"a": {\n\t\t"b": "json"\n\t}\n}'),
    ],
)  # fmt: skip
def test_a_value_of_a_sops_file_is_decrypted_by_sops_itself(file, key, expected, sealed):
    assert resolve(SecretSource(sops_file=file, sops_key=key), "x").reveal() == expected


@pytest.mark.server("age")
def test_plain_text_of_sops_files_is_on_no_disk_and_in_no_argument(sealed, tmp_path):
    resolve(SecretSource(sops_file="s.yaml", sops_key="db.password"), "x")
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and SENTINEL.encode() in path.read_bytes()]


@pytest.mark.server("age")
@pytest.mark.parametrize(
    ("key", "expected"),
    [("db.pasword", "no key 'pasword' below 'db'"), ("db", "not a single value"), ("db.none", "not a single value"), ("list.7", "no key '7'")],
)  # fmt: skip
def test_a_key_that_is_not_there_is_named(key, expected, sealed):
    assert expected in str(refusal(SecretSource(sops_file="s.yaml", sops_key=key)))


@pytest.mark.server("age")
def test_a_changed_or_plain_or_foreign_sops_file_is_refused(sealed, tmp_path):
    file, source = tmp_path / "tree/s.yaml", SecretSource(sops_file="s.yaml", sops_key="db.password")
    text = file.read_text()
    moved = text.replace("password:", "other:").replace("port:", "password:").replace("other:", "port:")
    file.write_text(moved)  # ciphertext under another name
    assert "changed without sops" in str(refusal(source))
    file.write_text(text)
    identity_text = (tmp_path / "key.txt").read_text()
    (tmp_path / "key.txt").unlink()
    identity(tmp_path / "key.txt")
    error = refusal(source)
    assert "no identity or key service gives its key" in str(error)
    (tmp_path / "key.txt").write_text(identity_text)
    assert resolve(source, "x").reveal() == SENTINEL
    file.write_text(YAML)
    assert "not encrypted with SOPS" in str(refusal(source))


@pytest.mark.server("age")
def test_sops_sends_its_credentials_to_no_address_that_a_file_chooses(sealed, tmp_path):
    file = tmp_path / "tree/s.yaml"
    vault = '    hc_vault:\n        - vault_address: http://127.0.0.1:9/\n          engine_path: t\n          key_name: k\n          created_at: "2026-01-01T00:00:00Z"\n          enc: x\n'
    file.write_text(file.read_text().replace("sops:\n", f"sops:\n{vault}"))
    source = SecretSource(sops_file="s.yaml", sops_key="db.password")
    assert "keyServices: http://127.0.0.1:9" in str(refusal(source))
    settings = decryption(tmp_path)
    allowed = Decryption(settings.identities, settings.sops_identity, key_services=("http://127.0.0.1:9",))
    define(SecretPrograms((), allowed), str(tmp_path / "tree"))
    assert resolve(source, "x").reveal() == SENTINEL


@pytest.mark.server("age")
def test_a_sops_that_knows_only_the_command_is_asked_by_it(sealed, tmp_path, monkeypatch):
    real = os.path.realpath(tmp_path / "sops-bin/sops")
    (tmp_path / "sops-bin/sops").unlink()
    guard = f'case "$1" in --*) echo "no such flag {SENTINEL}" >&2; exit 1;; esac; exec {real} "$@"'
    script(tmp_path / "sops-bin/sops", guard)
    assert resolve(SecretSource(sops_file="s.json", sops_key="a.b"), "x").reveal() == "json"


# --- files and credentials -------------------------------------------------------------------------------------------


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o600)
    return path


def test_a_rotated_file_counts_at_once_however_it_is_replaced(tmp_path):
    source = SecretSource(file=str(tmp_path / "secret"))
    assert isinstance(refusal(source), Rejected)
    write(tmp_path / "secret", "first")
    seen = [resolve(source, "x").reveal()]
    for text in ("again", "thrid"):  # in place and of the same size, within one tick of the file system's clock
        (tmp_path / "secret").write_text(text)
        seen.append(resolve(source, "x").reveal())
    write(tmp_path / "new", "named").rename(tmp_path / "secret")
    seen.append(resolve(source, "x").reveal())
    assert seen == ["first", "again", "thrid", "named"]


def test_a_swapped_link_counts_at_once_as_kubernetes_swaps_it(tmp_path):
    for number in (1, 2):
        (tmp_path / f"..{number}").mkdir()
        write(tmp_path / f"..{number}/token", f"token-{number}")
    (tmp_path / "..data").symlink_to("..1")
    (tmp_path / "token").symlink_to("..data/token")
    source = SecretSource(file=str(tmp_path / "token"))
    assert resolve(source, "x").reveal() == "token-1"
    (tmp_path / "..data_tmp").symlink_to("..2")
    (tmp_path / "..data_tmp").rename(tmp_path / "..data")
    assert resolve(source, "x").reveal() == "token-2"


def test_a_file_with_an_old_time_is_read_again_after_a_change(tmp_path):
    path = write(tmp_path / "secret", "first")
    resolve(SecretSource(file=str(path)), "x")
    os.utime(path, (1, 1))
    resolve(SecretSource(file=str(path)), "x")
    path.write_text("other")
    os.utime(path, (1, 1))  # tools restore times; the inode's own time cannot be set
    assert resolve(SecretSource(file=str(path)), "x").reveal() == "other"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"\0GITCRYPT\0\x01\x02\xff", "git-crypt"),
        (b"age-encryption.org/v1\n-> X25519 abc\n\xff\xfe", "an age file"),
        (b"-----BEGIN PGP MESSAGE-----\n\nhQEM\n", "a PGP message"),
        (b"$ANSIBLE_VAULT;1.1;AES256\n6162\n", "Ansible Vault"),
        (b"apiVersion: bitnami.com/v1alpha1\nkind: SealedSecret\nspec: {}\n", "SealedSecret"),
        (b"<REDACTED>\n", "placeholder"),
        (b"", "is empty"),
    ],
)
def test_a_file_that_holds_ciphertext_is_refused_with_the_next_step(content, expected, tmp_path):
    path = write(tmp_path / "secret", "")
    path.write_bytes(content)
    error = refusal(SecretSource(file=str(path)))
    assert expected in str(error)
    assert str(path) in str(error)
    assert error.next_step


def test_a_credential_of_the_unit_is_read_from_its_directory(tmp_path, monkeypatch):
    source = SecretSource(credential="db.password")
    monkeypatch.delenv("CREDENTIALS_DIRECTORY", raising=False)
    assert "LoadCredential=db.password" in str(refusal(source))
    directory = tmp_path / "credentials"
    directory.mkdir()
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(directory))
    assert "does not exist" in str(refusal(source))
    write(directory / "db.password", SENTINEL)
    assert resolve(source, "x").reveal() == SENTINEL
    write(tmp_path / "outside", SENTINEL)
    (directory / "link").symlink_to(tmp_path / "outside")
    for name in ("link", "../outside", "..", "."):
        refusal(SecretSource(credential=name))
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", "relative")
    refusal(source)


def test_kept_secrets_have_no_printed_form(tmp_path):
    path = write(tmp_path / "secret", SENTINEL)
    assert SENTINEL not in repr(resolve(SecretSource(file=str(path)), "x"))
    assert SENTINEL not in repr(secrets._store._kept)


def test_no_secret_is_in_the_arguments_of_a_program(tmp_path):
    seen = tmp_path / "ps"
    program = script(tmp_path / "get", f"cat /proc/$PPID/cmdline /proc/$$/cmdline > {seen}; echo {SENTINEL}")
    commands(command("db", program))
    resolve(SecretSource(command="db"), "x")
    assert SENTINEL not in seen.read_text()
    assert stat.S_IMODE(seen.stat().st_mode)
    assert subprocess.run(["ps", "axe"], capture_output=True, text=True, check=False).stdout.count(SENTINEL) == 0
