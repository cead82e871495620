"""The engine's own health check, and other programs that restart a container for its health."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from manifests.values.desired import Probe, ProbeKind
from providers.facts import ProbeValue
from providers.runtime.docker.health import MAX_OUTPUT, read_healer, read_health
from providers.runtime.docker.timestamps import SECOND, parse_timestamp, to_steady
from providers.testing.checks import wait_until
from tests.providers.runtime.docker.bench import Bench
from tests.providers.runtime.docker.engine import container, image_tar, template

START, LATER = "2026-11-27T10:00:00Z", "2026-11-27T10:00:30.5Z"


def health(status: str, *log: Mapping[str, Any], **fields: Any) -> dict[str, Any]:
    state = {"Health": {"Status": status, "Log": list(log) or None, **fields}}
    return {"State": state, "Config": {"Healthcheck": {"Test": ["CMD", "x"], "Interval": 5 * SECOND}}}


@pytest.mark.parametrize(
    ("status", "value"),
    [("healthy", ProbeValue.PASS), ("unhealthy", ProbeValue.FAIL), ("starting", ProbeValue.UNKNOWN)],
)
def test_a_health_check_gives_a_verdict_a_streak_and_a_time(status: str, value: ProbeValue) -> None:
    reported = read_health(health(status, {"End": LATER, "Output": " busy\n"}, FailingStreak=3), parse_timestamp(START))
    assert reported is not None
    assert (reported.value, reported.streak, reported.interval, reported.output) == (value, 3, 5 * SECOND, "busy")
    assert reported.last_at == to_steady(parse_timestamp(LATER))


@pytest.mark.parametrize("status", ["none", "", "no idea"])
def test_a_container_without_a_health_check_has_none(status: str) -> None:
    assert read_health(health(status), parse_timestamp(START)) is None
    assert read_health({"State": {}}, parse_timestamp(START)) is None


def test_a_health_check_of_an_earlier_run_is_ignored() -> None:
    reported = read_health(health("starting", {"End": START, "Output": "old"}), parse_timestamp(LATER))
    assert reported is not None
    assert (reported.last_at, reported.output) == (0, "")


def test_a_health_checks_output_is_bounded() -> None:
    reported = read_health(health("healthy", {"End": LATER, "Output": "x" * 100_000}), parse_timestamp(START))
    assert reported is not None
    assert len(reported.output) == MAX_OUTPUT


@pytest.mark.parametrize(
    ("labels", "on_failure", "words"),
    [
        ({}, "", ""),
        ({}, "none", ""),
        ({"autoheal": "TRUE"}, "", "autoheal, by the label autoheal"),
        ({"autoheal": "no"}, "kill", "Podman, which will kill it when its health check fails"),
        ({"com.docker.swarm.task.id": "t1", "autoheal": "true"}, "", "Docker Swarm, as task t1"),
        ({"io.kubernetes.pod.name": "web-1"}, "", "the kubelet, as part of pod web-1"),
        ({"PODMAN_SYSTEMD_UNIT": "web.service"}, "", "systemd, as unit web.service"),
    ],
)
def test_another_healer_is_named(labels: dict[str, str], on_failure: str, words: str) -> None:
    assert read_healer(labels, on_failure) == words


def checked(bench: Bench, script: str, interval: int = SECOND) -> str:
    """A container of others with a health check."""
    name = f"{bench.instance}-checked-{interval}"
    check = {"Test": ["CMD-SHELL", script], "Interval": interval, "Retries": 2, "Timeout": 5 * SECOND}
    bench.api.create(name, Healthcheck=check, Labels={"reconciler.instance": bench.instance})
    bench.api.start(name)
    return name


@pytest.mark.server("dockerd")
def test_each_look_has_the_latest_result_of_the_engines_health_check(bench: Bench) -> None:
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
def test_podmans_action_on_failing_health_is_another_healer(podman_socket: str, tmp_path: Path) -> None:
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
