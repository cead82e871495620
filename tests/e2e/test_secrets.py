"""A secret of a container that its own probes and logs repeat: it is in no output, no file of the state directory, no label, no argument."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.test_engine_containers import MANIFESTS, Machine
from tests.providers.runtime.docker.bench import Bench
from tests.providers.runtime.docker.engine import IMAGE, NETWORK, ensure_docker

SECRET = "Hunter2-Secret!"
FORMS = (SECRET, "SHVudGVyMi1TZWNyZXQ", "Hunter2-Secret%21")

PROBE = (
    'echo "login with $DBPW or $(echo -n "$DBPW" | busybox base64) failed"; echo "$DBPW" > /proc/1/fd/1; '
    'test "$(cat /proc/uptime | busybox cut -d. -f1)" = 0'
)


@pytest.fixture
def machine(tmp_path: Path, shared: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    (tmp_path / "bench").mkdir()
    bench = Bench(ensure_docker(shared), tmp_path / "bench")
    made = Machine(bench, tmp_path)
    monkeypatch.setenv("DB_PASSWORD", SECRET)
    text = MANIFESTS.format(id=bench.instance, socket=bench.socket, image=IMAGE, network=NETWORK)
    text = text.replace('{name: VERSION, value: "1"}', "{name: DBPW, valueFrom: {secret: {env: DB_PASSWORD}}}")
    probes = "".join(
        f"          {kind}: {{exec: {{command: [/bin/sh, -c, {json.dumps(PROBE)}]}}, periodSeconds: 1, failureThreshold: 1}}\n"
        for kind in ("livenessProbe", "readinessProbe")
    )
    made.write(
        text.replace("replicas: 2", "replicas: 1").replace("          resources:", f"{probes}          resources:")
    )
    try:
        yield made
    finally:
        made.close()
        bench.close()


@pytest.mark.server("dockerd")
def test_a_secret_that_a_probe_prints_is_nowhere(machine: Machine) -> None:
    said = {}
    # The second process did not create the container, so it knows the secret only from the manifests.
    for number in ("first", "second"):
        code, said[f"{number} run"] = machine.run("--once", "--timeout", "6s")
        assert code in {6, 7}, said
    (name,) = machine.names()
    for words in (
        ("explain", "workload/web/0"),
        ("explain", "workload/web", "-o", "json"),
        ("events",),
        ("events", "-o", "json"),
        ("status",),
        ("status", "-o", "json"),
        ("plan", "-v"),
    ):
        said[" ".join(words)] = machine.run(*words)[1]
    assert "login with *** or ***" in said["explain workload/web/0"]
    files = {str(path): path.read_bytes() for path in machine.home.rglob("*") if path.is_file()}
    assert any(b"login with ***" in content for content in files.values()), "nothing was stored"
    container = machine.api.inspect(name)
    assert SECRET in str(container["Config"]["Env"]), "the container has no secret"
    said["labels"] = str(container["Config"]["Labels"])
    said["arguments"] = str([container["Path"], container["Args"]])
    for form in FORMS:
        assert not [where for where, text in said.items() if form in text]
        assert not [path for path, content in files.items() if form.encode() in content]
