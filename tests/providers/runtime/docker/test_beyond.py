"""What an engine tells beyond a container's life: health checks, restarts, memory, mappings of ports, changed secrets."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from manifests.values.desired import Container, Port, Probe, ProbeKind, Template
from manifests.values.pod import Live, Mount, SecretSource, VolumeKind
from providers.errors import ProviderError
from providers.facts import ContainerFact, ContainerState, ExitCause, PortFact, ProbeValue
from providers.runtime.docker.secrets import LABEL_SECRETS, read_label
from providers.testing.checks import wait_until
from tests.providers.runtime.docker.bench import Bench
from tests.providers.runtime.docker.engine import container, image_tar, template

SECOND = 1_000_000_000
MEMORY = 8 << 20
EATER = ("/bin/sh", "-c", "x=0123456789abcdef; while :; do x=$x$x; done")
"""Doubles a text until the memory is full."""


def limited(*argv: str) -> Template:
    return template(container("web", *argv), live=(Live("", memory=MEMORY, restart="no"),))


def ended(bench: Bench, name: str) -> ContainerFact:
    wait_until(lambda: bench.state(name) is ContainerState.EXITED, f"{name} has ended")
    return bench.fact(name)


def starved(bench: Bench, made: Template) -> ContainerFact:
    """A container that has ended at its memory limit, and of which the engine knows that.

    Now and then the end of a container overtakes the kernel's word on why: then the engine takes it for a kill like any other,
    and so must we. Whoever is killed again is told again.
    """
    fact = bench.create(made)
    for _ in range(20):
        fact = ended(bench, bench.start(fact).name)
        if bench.api.inspect(fact.name)["State"]["OOMKilled"]:
            return fact
        assert fact.exit_cause is not ExitCause.OOM_KILLED
    raise AssertionError("the engine never told that memory ran out")


@pytest.mark.server("dockerd")
def test_a_container_at_its_memory_limit_is_told_as_out_of_memory(bench: Bench) -> None:
    fact = starved(bench, limited(*EATER))
    assert (fact.exit_cause, fact.exit_code) == (ExitCause.OOM_KILLED, 137)
    assert bench.looked(fact.name) == fact


@pytest.mark.server("dockerd")
def test_a_child_at_the_memory_limit_is_told_as_out_of_memory_too(bench: Bench) -> None:
    fact = starved(bench, limited("/bin/sh", "-c", f"({EATER[2]}) & wait $!; exit 3"))
    assert (fact.exit_cause, fact.exit_code) == (ExitCause.OOM_KILLED, 3)


@pytest.mark.server("dockerd")
def test_an_earlier_death_by_memory_does_not_stick(bench: Bench, tmp_path: Path) -> None:
    script = "if [ -e /shared/fed ]; then exit 5; fi; " + EATER[2]
    shared = Mount(VolumeKind.BIND, str(tmp_path), "/shared")
    hungry = container("web", "/bin/sh", "-c", script, mounts=(shared,))
    fact = starved(bench, template(hungry, live=(Live("", memory=MEMORY, restart="no"),)))
    assert fact.exit_cause is ExitCause.OOM_KILLED
    (tmp_path / "fed").touch()
    bench.start(fact)
    again = ended(bench, fact.name)
    assert (again.exit_cause, again.exit_code) == (ExitCause.EXITED, 5)


def test_a_paused_container_is_paused_and_keeps_its_generation(engine: Bench) -> None:
    fact = engine.run()
    engine.api.link.post(f"/containers/{fact.name}/pause", fact.name)
    paused = engine.looked(fact.name)
    assert (paused.state, paused.generation, paused.exit_cause) == (ContainerState.PAUSED, fact.generation, None)
    engine.api.link.post(f"/containers/{fact.name}/unpause", fact.name)
    assert engine.looked(fact.name).state is ContainerState.RUNNING


@pytest.mark.server("dockerd")
def test_what_the_engine_restarts_is_counted(bench: Bench) -> None:
    fact = bench.run(template(restart="unless-stopped"))
    assert fact.restarts == 0
    bench.api.kill(fact.name)
    wait_until(lambda: bench.state(fact.name) is ContainerState.RUNNING, "the engine restarted it")
    again = bench.looked(fact.name)
    assert again.restarts == 1
    assert again.generation != fact.generation


@pytest.mark.server("dockerd")
def test_a_policy_is_taken_away_while_the_engine_keeps_restarting(bench: Bench) -> None:
    fact = bench.run(template(container("web", "/bin/sh", "-c", "exit 4"), restart="unless-stopped"))
    wait_until(lambda: bench.state(fact.name) is ContainerState.RESTARTING, "the engine waits to restart it")

    def taken() -> bool:
        now = bench.fact(fact.name)
        try:
            return bench.update(now, Live("", restart="no")).live[0].restart == "no"
        except ProviderError:  # the engine has just restarted it, or is about to
            return False

    wait_until(taken, "the policy was taken away")
    down = ended(bench, fact.name)
    assert (down.exit_cause, down.exit_code, down.live[0].restart) == (ExitCause.EXITED, 4, "no")
    assert bench.start(down).live[0].restart == "no", "a start does not give back what was taken away for good"


@pytest.mark.server("dockerd")
def test_a_policy_that_was_changed_after_a_stop_is_not_given_back(bench: Bench) -> None:
    stopped = bench.stop(bench.run(template(restart="unless-stopped")))
    assert stopped.live[0].restart == "no"
    bench.update(stopped, Live("", restart="no"))
    assert bench.start(stopped).live[0].restart == "no"


def checked(bench: Bench, script: str, interval: int = SECOND) -> str:
    """A container of others with a health check."""
    name = f"{bench.instance}-checked-{interval}"
    check = {"Test": ["CMD-SHELL", script], "Interval": interval, "Retries": 2, "Timeout": 5 * SECOND}
    bench.api.create(name, Healthcheck=check, Labels={"reconciler.instance": bench.instance})
    bench.api.start(name)
    return name


@pytest.mark.server("dockerd")
def test_the_engines_own_health_check_is_told_and_kept_fresh(bench: Bench) -> None:
    unasked = bench.looked(checked(bench, "true", 3600 * SECOND)).health
    assert unasked is not None
    assert (unasked.value, unasked.last_at, unasked.interval) == (ProbeValue.UNKNOWN, 0, 3600 * SECOND)
    name = checked(bench, "echo busy; test ! -e /tmp/sick")
    first = bench.looked(name)

    def value() -> ProbeValue | None:
        health = bench.looked(name).health
        return health.value if health else None

    wait_until(lambda: value() is ProbeValue.PASS, "it is healthy")
    passed = bench.looked(name).health
    assert passed is not None
    assert (passed.output, passed.streak) == ("busy", 0)
    assert passed.last_at >= first.running_since
    assert bench.api.exec(name, "/bin/touch", "/tmp/sick") == 0
    wait_until(lambda: value() is ProbeValue.FAIL, "it is unhealthy")
    failed = bench.looked(name).health
    assert failed is not None
    assert failed.streak >= 2
    assert failed.last_at > passed.last_at
    bench.api.kill(name)
    assert bench.fact(name).health is None, "what does not run has no health"


@pytest.mark.server("dockerd")
def test_the_images_health_check_runs_only_where_a_probe_reads_it(bench: Bench) -> None:
    image = f"reconciler-test/{bench.instance}:1"
    bench.api.import_image(image, image_tar(), 'HEALTHCHECK --interval=1s CMD ["/bin/true"]')
    try:
        read = replace(container(image=image), liveness=Probe(ProbeKind.RUNTIME))
        fact = bench.run(template(read))
        assert fact.health is not None
        assert fact.health.interval == SECOND
        other = bench.run(template(container(image=image)), ordinal=1)
        assert other.health is None
    finally:
        bench.api.clean(bench.instance)
        bench.api.link.delete(f"/images/{image}", image, force="1")


@pytest.mark.server("podman")
def test_podmans_action_on_failing_health_is_told_as_another_healer(podman_socket: str, tmp_path: Path) -> None:
    bench = Bench(podman_socket, tmp_path)
    name = f"{bench.instance}-checked"
    spec = {
        "name": name,
        "image": "docker.io/reconciler-test/busybox:1",
        "command": ["/bin/sleep", "300"],
        "labels": {"reconciler.instance": bench.instance},
        "healthconfig": {"Test": ["CMD-SHELL", "/bin/true"], "Interval": 30 * SECOND, "Retries": 3},
        "health_check_on_failure_action": 3,  # restart
    }
    try:
        bench.api.link.request("POST", "/containers/create", name, api="/v4.0.0/libpod", body=spec)
        bench.api.start(name)
        fact = bench.looked(name)
        assert fact.healer == "Podman, which will restart it when its health check fails"
        assert fact.health is not None
        assert fact.health.interval == 30 * SECOND
    finally:
        bench.close()


def served(**ports: object) -> Container:
    return container(ports=(Port("http", 8080, **ports),))  # type: ignore[arg-type]


def test_ports_on_all_addresses_are_told_under_the_hosts_address(engine: Bench) -> None:
    fact = engine.run(template(served(host_port=18431)))
    assert fact.published == (PortFact(8080, "127.0.0.1", 18431),)
    known = engine.make(address="192.0.2.7")
    assert known.observe([fact.name])[0].published == (PortFact(8080, "192.0.2.7", 18431),)
    known.close()
    assert engine.stop(fact).published == ()


def test_a_port_on_one_address_is_told_under_that_one(engine: Bench) -> None:
    fact = engine.run(template(served(host_port=18432, host_ip="127.0.0.1")))
    known = engine.make(address="192.0.2.7")
    assert known.observe([fact.name])[0].published == (PortFact(8080, "127.0.0.1", 18432),)
    known.close()


# --- secrets ----------------------------------------------------------------------------------------------------


def with_secret(path: Path, value: str) -> Template:
    put(path, value)
    secret = ("PASSWORD", SecretSource(file=str(path)))
    return template(container("web", secret_env=(secret,)), container("log", secret_env=(secret,)))


def put(path: Path, value: str) -> None:
    path.write_text(value)
    path.chmod(0o600)


def test_a_changed_secret_is_told_by_container_and_variable_and_an_unreadable_one_is_not(
    engine: Bench, tmp_path: Path
) -> None:
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


@pytest.mark.server("dockerd")
def test_the_label_says_where_a_secret_is_and_never_what_it_is(bench: Bench, tmp_path: Path) -> None:
    path = tmp_path / "password"
    fact = bench.run(with_secret(path, "a sentinel"))
    labels = {name: bench.api.inspect(name)["Config"]["Labels"] for name in (fact.name, f"{fact.name}-log")}
    texts = [found[LABEL_SECRETS] for found in labels.values()]
    assert "sentinel" not in "".join(texts)
    (one,), (other,) = (read_label(text) for text in texts)
    assert (one.name, one.source) == ("web/PASSWORD", SecretSource(file=str(path)))
    assert one.salt != other.salt
    assert one.digest != other.digest


@pytest.mark.server("dockerd")
def test_a_container_without_secrets_has_an_empty_label(bench: Bench) -> None:
    fact = bench.create()
    assert bench.api.inspect(fact.name)["Config"]["Labels"][LABEL_SECRETS] == ""
