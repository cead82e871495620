"""Probes through a port that a real engine publishes: its proxy accepts whether anybody listens in the container or not."""

import time

import pytest

from manifests.values.desired import SECOND, Port, Probe, ProbeKind
from providers.facts import ContainerFact, ProbeFact, ProbeValue
from providers.testing.checks import wait_until
from reconciler.probes.engine import ProbeEngine
from reconciler.probes.target import Target
from tests.free_ports import free_port
from tests.providers.runtime.docker.bench import Bench
from tests.providers.runtime.docker.engine import POLITE, container, template

PROBE = Probe(ProbeKind.TCP, port=10, period=SECOND // 5, failure_threshold=1)


def verdicts(fact: ContainerFact, port: int, wanted: ProbeValue) -> dict[str, ProbeFact]:
    """What a probe that knows that the port is published says, once that is `wanted`, and what one says that does not."""
    engine = ProbeEngine(phase=False)
    found: dict[str, ProbeFact] = {}
    try:
        now = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        target = Target(fact.generation, "liveness", PROBE, "127.0.0.1", port, now, published=True)
        engine.set_targets([target, target._replace(name="readiness", published=False)])

        def both() -> bool:
            found.update({name: verdict for (_, name), verdict in engine.read().items()})
            return len(found) == 2 and found["liveness"].value is wanted

        wait_until(both, f"both probes have an answer, the first is {wanted}")
    finally:
        engine.close()
    return found


@pytest.mark.server("dockerd")
@pytest.mark.parametrize(
    ("run", "value"),
    [
        (POLITE, ProbeValue.FAIL),
        (
            (
                "/bin/sh",
                "-c",
                "trap 'exit 0' TERM; (while :; do nc -l -p 10 -e /bin/cat || sleep 1; done) & sleep 300 & wait $!",
            ),
            ProbeValue.PASS,
        ),
    ],
)
def test_a_published_port_passes_only_when_something_listens_behind_it(
    bench: Bench, run: tuple[str, ...], value: ProbeValue
) -> None:
    port = free_port()
    made = template(container("web", *run, ports=(Port("x", 10, host_port=port, host_ip="127.0.0.1"),)))
    fact = bench.run(made)
    found = verdicts(fact, port, value)
    assert found["readiness"].value is ProbeValue.PASS, "the proxy itself accepts"
    assert found["liveness"].value is value
