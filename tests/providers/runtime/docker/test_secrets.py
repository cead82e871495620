"""Secret variables: they reach the container and nothing else, and a changed value is detected without keeping it."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manifests.values.desired import Template
from manifests.values.secret_sources import SecretSource
from providers.errors import Rejected
from providers.facts import (
    container_name,
    mark_labels,
)
from providers.lib.secrets import on_resolve
from providers.runtime.docker.container import Pod
from providers.runtime.docker.inspection import read_container
from providers.runtime.docker.secrets import DIGESTS_PER_LOOK, LABEL_SECRETS, Secrets, read_label, secrets_label
from tests.providers.runtime.docker.bench import Bench
from tests.providers.runtime.docker.containers import MARK
from tests.providers.runtime.docker.engine import container, template


def pod(sources: tuple[tuple[str, SecretSource], ...], values: dict[str, str], container_id: str = "x") -> Pod:
    labels = {**mark_labels(MARK, 1), LABEL_SECRETS: secrets_label("web", sources, values)}
    inspection = {"Id": container_id, "Name": container_name(MARK), "State": {}, "Config": {"Labels": labels}}
    return Pod(read_container(inspection), ())


def secret(path: Path, value: str) -> SecretSource:
    path.write_text(value)
    path.chmod(0o600)
    return SecretSource(file=str(path))


def test_a_look_computes_few_digests_and_the_next_looks_the_rest(tmp_path: Path) -> None:
    names = [f"S{number}" for number in range(DIGESTS_PER_LOOK + 3)]
    source = secret(tmp_path / "password", "old")
    replica = pod(tuple((name, source) for name in names), dict.fromkeys(names, "old"))
    secret(tmp_path / "password", "new")
    secrets = Secrets()
    assert len(secrets.look().stale(replica)) == DIGESTS_PER_LOOK
    assert secrets.look().stale(replica) == tuple(sorted(f"web/{name}" for name in names))
    assert secrets.look().stale(replica) == tuple(sorted(f"web/{name}" for name in names))


def test_a_digest_is_computed_once_per_change(tmp_path: Path) -> None:
    source = secret(tmp_path / "password", "old")
    replica, secrets = pod((("S", source),), {"S": "old"}), Secrets()
    (entry,) = read_label(replica.main.labels[LABEL_SECRETS])
    assert secrets.known(replica.main, entry, "old") is None
    assert secrets.look().stale(replica) == ()
    assert secrets.known(replica.main, entry, "old") is False
    assert secrets.known(replica.main, entry, "new") is None
    secret(tmp_path / "password", "new")
    assert secrets.look().stale(replica) == ("web/S",)
    assert secrets.known(replica.main, entry, "new") is True


def test_a_secret_that_cannot_be_resolved_is_unknown_and_no_change(tmp_path: Path) -> None:
    source = secret(tmp_path / "password", "old")
    replica, secrets = pod((("S", source),), {"S": "old"}), Secrets()
    os.chmod(tmp_path / "password", 0o644)  # a world-readable file is refused
    assert secrets.look().stale(replica) == ()
    os.unlink(tmp_path / "password")
    assert secrets.look().stale(replica) == ()


@given(st.text() | st.from_type(type(None)).map(json.dumps) | st.just('{"container": "a", "variables": {"b": {}}}'))
def test_a_label_of_another_program_has_no_entries(text: str) -> None:
    assert read_label(text) == ()


def test_a_label_without_a_source_is_unknown_and_no_change() -> None:
    replica = pod((("S", SecretSource()),), {"S": "old"})
    assert Secrets().look().stale(replica) == ()


def with_secret(path: Path, value: str) -> Template:
    put(path, value)
    secret = ("PASSWORD", SecretSource(file=str(path)))
    return template(container("web", secret_env=(secret,)), container("log", secret_env=(secret,)))


@contextmanager
def listening() -> Iterator[list[str]]:
    """The secrets that are resolved in the body."""
    resolved: list[str] = []
    with on_resolve(resolved.append):
        yield resolved


def put(path: Path, value: str) -> None:
    path.write_text(value)
    path.chmod(0o600)


def test_a_changed_secret_is_stale_and_an_unreadable_one_is_not(engine: Bench, tmp_path: Path) -> None:
    path = tmp_path / "password"
    fact = engine.run(with_secret(path, "first sentinel"))
    assert fact.stale_secrets == ()
    put(path, "second sentinel")
    assert engine.looked(fact.name).stale_secrets == ("log/PASSWORD", "web/PASSWORD")
    os.unlink(path)
    assert engine.looked(fact.name).stale_secrets == ()
    put(path, "first sentinel\n")
    assert engine.looked(fact.name).stale_secrets == ()
    again = engine.make()
    put(path, "third sentinel")
    assert again.observe([fact.name])[0].stale_secrets == ("log/PASSWORD", "web/PASSWORD")
    again.close()
    blind = engine.make(compare_secrets=False)
    with listening() as resolved:
        assert blind.observe([fact.name])[0].stale_secrets == ()
    assert resolved == []
    blind.close()


@pytest.mark.server("dockerd")
def test_the_label_has_the_source_of_a_secret_and_never_its_value(bench: Bench, tmp_path: Path) -> None:
    path = tmp_path / "password"
    fact = bench.run(with_secret(path, "a sentinel"))
    labels = {name: bench.api.inspect(name)["Config"]["Labels"] for name in (fact.name, f"{fact.name}-log")}
    texts = [container_labels[LABEL_SECRETS] for container_labels in labels.values()]
    assert "sentinel" not in "".join(texts)
    (entry,), (other,) = (read_label(text) for text in texts)
    assert (entry.name, entry.source) == ("web/PASSWORD", SecretSource(file=str(path)))
    assert entry.salt != other.salt
    assert entry.digest != other.digest


@pytest.mark.server("dockerd")
def test_a_container_without_secrets_has_an_empty_label(bench: Bench) -> None:
    fact = bench.create()
    assert bench.api.inspect(fact.name)["Config"]["Labels"][LABEL_SECRETS] == ""


@pytest.mark.server("dockerd")
def test_a_secret_reaches_the_container_and_nothing_else(bench: Bench, tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("sentinel-of-this-test\n")
    file.chmod(0o600)
    made = container(
        "web",
        "/bin/sh",
        "-c",
        "echo got ${#TOKEN}; exec sleep 300",
        secret_env=(("TOKEN", SecretSource(file=str(file))),),
    )
    fact = bench.run(template(made))
    bench.logged(fact.name, "got 21")
    labels = bench.api.inspect(fact.name)["Config"]["Labels"]
    assert "sentinel" not in f"{fact} {labels} {made} {bench.runtime.logs(fact.name, 9)}"


@pytest.mark.server("dockerd")
def test_a_missing_secret_is_refused_and_nothing_is_created(bench: Bench, tmp_path: Path) -> None:
    action = bench.creation(template(container(secret_env=(("A", SecretSource(file=str(tmp_path / "none"))),))))
    with pytest.raises(Rejected, match="does not exist"):
        bench.runtime.perform(action)
    assert bench.runtime.observe([action.name]) == ()
