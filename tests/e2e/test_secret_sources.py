"""Secrets from every source in a real container: set late, replaced, lost or encrypted; and the values are in no output of anything."""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.quickstart_world import until
from tests.e2e.test_engine_containers import MANIFESTS, Machine
from tests.providers.lib.encrypted import age, identity, sops, sops_program
from tests.providers.runtime.docker.bench import Bench
from tests.providers.runtime.docker.engine import IMAGE, NETWORK, ensure_docker

NOTICED = 60.0
"""Seconds in which a secret that is set or replaced must count."""

VALUES = {
    "FROM_ENV": "Sentinel-env-01!", "FROM_FILE": "Sentinel-file-02!", "FROM_COMMAND": "Sentinel-command-03!",
    "FROM_SOPS": "Sentinel-sops-04!", "FROM_AGE": "Sentinel-age-05!", "FROM_CREDENTIAL": "Sentinel-credential-06!",
}  # fmt: skip


@pytest.fixture
def machine(tmp_path: Path, shared: Path) -> Iterator[Machine]:
    (tmp_path / "bench").mkdir()
    bench = Bench(ensure_docker(shared), tmp_path / "bench")
    made = Machine(bench, tmp_path)
    try:
        yield made
    finally:
        made.close()
        bench.close()


def manifests(machine: Machine, variables: str) -> str:
    text = MANIFESTS.format(id=machine.bench.instance, socket=machine.bench.socket, image=IMAGE, network=NETWORK)
    return text.replace("replicas: 2", "replicas: 1\n  onSecretChange: restart").replace(
        '{name: VERSION, value: "1"}', variables
    )


def variables_of(machine: Machine) -> dict[str, str]:
    (name,) = machine.names()
    return dict(item.split("=", 1) for item in machine.api.inspect(name)["Config"]["Env"])


def rules(machine: Machine) -> dict[str, str]:
    _, said = machine.run("status", "-o", "json")
    return {hold["rule"]: hold["message"] for hold in json.loads(said)["holds"]}


def put(path: Path, text: str) -> None:
    new = path.with_name("new")
    new.write_text(text)
    new.chmod(0o600)
    new.rename(path)


@pytest.mark.server("dockerd")
def test_a_workload_waits_for_its_secret_and_goes_on_by_itself(machine: Machine, tmp_path: Path) -> None:
    file = tmp_path / "secret"
    machine.write(manifests(machine, f"{{name: TOKEN, valueFrom: {{secret: {{file: {file}}}}}}}"))
    code, said = machine.run("plan")
    assert code == 7, said
    assert f"{file} does not exist" in said
    code, said = machine.run("doctor")
    assert code == 6, said
    assert f"{file} does not exist; next step: create it with mode 0600" in said
    code, said = machine.run("--once", "--timeout", "20s")
    assert code == 7, said

    machine.watch()
    until(lambda: "does not exist" in rules(machine).get("SecretUnusable", ""), NOTICED)
    assert machine.names() == []
    put(file, "$ANSIBLE_VAULT;1.1;AES256\n6162\n")
    until(lambda: "Ansible Vault" in rules(machine).get("SecretUnusable", ""), NOTICED)
    assert machine.names() == []
    put(file, "first-value")
    until(lambda: len(machine.names()) == 1, NOTICED)
    assert variables_of(machine)["TOKEN"] == "first-value"

    first = machine.api.inspect(machine.names()[0])["Id"]
    put(file, "second-value")
    until(lambda: bool(machine.names()) and variables_of(machine)["TOKEN"] == "second-value", NOTICED)
    assert machine.api.inspect(machine.names()[0])["Id"] != first


@pytest.mark.server("dockerd")
@pytest.mark.server("age")
def test_a_value_of_any_source_reaches_the_container_and_nothing_else(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sops_program(tmp_path, monkeypatch)
    recipient = identity(tmp_path / "key.txt")
    monkeypatch.setenv("SENTINEL_VARIABLE", VALUES["FROM_ENV"])
    put(tmp_path / "file", VALUES["FROM_FILE"])
    credentials = tmp_path / "credentials"
    credentials.mkdir()
    put(credentials / "db", VALUES["FROM_CREDENTIAL"])
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(credentials))
    (tmp_path / "printed").write_text(VALUES["FROM_COMMAND"])
    sops(recipient, f"db:\n  password: {VALUES['FROM_SOPS']}\n", machine.tree / "secrets/prod.yaml")
    age(recipient, VALUES["FROM_AGE"], machine.tree / "token.age")
    references = {
        "FROM_ENV": "env: SENTINEL_VARIABLE", "FROM_FILE": f"file: {tmp_path}/file", "FROM_COMMAND": "command: vault",
        "FROM_SOPS": "sops: {file: secrets/prod.yaml, key: db.password}", "FROM_AGE": "age: {file: token.age}",
        "FROM_CREDENTIAL": "credential: db",
    }  # fmt: skip
    text = manifests(
        machine,
        ", ".join(f"{{name: {name}, valueFrom: {{secret: {{{given}}}}}}}" for name, given in references.items()),
    )
    *local, workload = text.split("---\n")
    rules_of = ", ".join(f"{{{given}, workload: web}}" for given in references.values())
    spec = (
        f"spec: {{id: {machine.bench.instance}, secrets: [{rules_of}], "
        f"secretCommands: [{{name: vault, command: [/bin/cat, {tmp_path}/printed]}}], "
        f"decryption: {{identities: [{{name: main, file: {tmp_path}/key.txt}}]}}}}"
    )
    written = "---\n".join(local).replace(f"spec: {{id: {machine.bench.instance}}}", spec)
    assert "secretCommands" in written
    guard = "---\napiVersion: reconciler/v1\nkind: Guard\nmetadata: {name: limits}\nspec: {}\n"
    (tmp_path / "local.yaml").write_text(written + guard)
    (tmp_path / "local.yaml").chmod(0o600)
    machine.write(workload)
    given = ("--instance", str(tmp_path / "local.yaml"))
    said = {}
    for words in (("validate",), ("plan", "-v"), ("--once", "--timeout", "40s")):
        code, said[" ".join(words)] = machine.run(*words, *given)
        assert code == 0, said
    assert VALUES.items() <= variables_of(machine).items()
    (name,) = machine.names()
    container = machine.api.inspect(name)
    said["labels"] = str(container["Config"]["Labels"])
    # The first program gives an error with a value in it; then the identity is lost, and a file is damaged.
    (tmp_path / "printed").unlink()
    (tmp_path / "key.txt").rename(tmp_path / "kept")
    for words in (
        ("plan", "-v"),
        ("doctor",),
        ("doctor", "-o", "json"),
        ("status",),
        ("explain", "workload/web"),
        ("events",),
    ):
        said[f"{' '.join(words)} afterwards"] = machine.run(*words, *given)[1]
    assert "secret command vault cannot be read" in said["doctor afterwards"]
    assert "read once, when reconcile starts" in said["doctor afterwards"]
    assert "does not exist" in said["doctor afterwards"] or "cannot be read: no such file" in said["doctor afterwards"]
    said["audit"] = str([path.read_bytes() for path in machine.home.rglob("*") if path.is_file()])
    for value in VALUES.values():
        assert not [where for where, text in said.items() if value in text]
    assert not re.search(r"Sentinel-", said["audit"])
    assert os.environ["SENTINEL_VARIABLE"] == VALUES["FROM_ENV"]
