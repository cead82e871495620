"""Drift on a real engine: limits and networks that another program changes are listed, left or corrected as the manifests say."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.test_engine_containers import Machine
from tests.providers.runtime.docker.bench import Bench
from tests.providers.runtime.docker.engine import NETWORK, ensure_docker

pytestmark = pytest.mark.server("dockerd")
DECLARED = 16 << 20
OTHER = 24 << 20


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


def drift(machine: Machine, code: int) -> list[dict]:
    answer, said = machine.run("drift", "--detailed-exitcode", "-o", "json")
    assert answer == code, said
    return list(json.JSONDecoder().raw_decode(said)[0]["drift"])


def memory(machine: Machine, name: str) -> int:
    return int(machine.api.inspect(name)["HostConfig"]["Memory"])


def another_program(machine: Machine, name: str) -> None:
    """As `docker update` does."""
    body = {"Memory": OTHER, "MemorySwap": OTHER * 2}
    machine.api.link.post(f"/containers/{name}/update", name, body)


def test_a_limit_that_another_program_sets_is_listed_and_corrected(machine: Machine) -> None:
    machine.once()
    name = machine.names()[0]
    assert drift(machine, 0) == []
    another_program(machine, name)
    [row] = drift(machine, 2)
    assert (row["object"], row["field"], row["answer"]) == ("workload/web/0", "resources", "corrected")
    assert str(DECLARED) in row["declared"]
    assert str(OTHER) in row["observed"]
    machine.once()
    assert memory(machine, name) == DECLARED


def test_rules_leave_drift_in_plans_and_runs_and_a_new_limit_is_set(machine: Machine) -> None:
    machine.change("  replicas: 2\n", "  replicas: 1\n  drift: {resources: report, networks: ignore}\n")
    machine.once()
    (name,) = machine.names()
    another_program(machine, name)
    machine.once()
    assert memory(machine, name) == OTHER
    code, plan = machine.run("plan", "--detailed-exitcode")
    assert code == 0, plan
    machine.bench.disconnect(machine.bench.fact(name), NETWORK)
    [row] = drift(machine, 2)
    assert (row["field"], row["answer"]) == ("resources", "reported"), "an ignored field is nowhere"
    machine.change("memory: 16Mi", "memory: 20Mi")
    machine.once()
    assert memory(machine, name) == 20 << 20, "the manifests moved"
