"""Published ports and the addresses under which they are reached."""

import time

import pytest

from manifests.values.desired import SECOND, Container, Port, Probe, ProbeKind
from providers.facts import ContainerFact, PortFact, ProbeFact, ProbeValue
from providers.runtime.docker.inspection import read_container
from providers.runtime.docker.ports import published, read_bindings
from providers.testing.checks import wait_until
from reconciler.probes.engine import ProbeEngine
from reconciler.probes.target import Target
from tests.free_ports import free_port
from tests.providers.runtime.docker.bench import Bench
from tests.providers.runtime.docker.engine import POLITE, container, template

START, LATER = "2026-11-27T10:00:00Z", "2026-11-27T10:00:30.5Z"


def bound(*hosts: tuple[str, str], port: str = "80/tcp") -> tuple[tuple[int, str, int], ...]:
    ports = {port: [{"HostIp": address, "HostPort": number} for address, number in hosts], "9090/tcp": None}
    return read_bindings({"NetworkSettings": {"Ports": ports}})


BOTH = bound(("0.0.0.0", "8080"), ("::", "8080"))


@pytest.mark.parametrize(
    ("bindings", "address", "reached"),
    [
        (BOTH, "", ["127.0.0.1"]),
        (BOTH, "192.0.2.7", ["192.0.2.7"]),
        (BOTH, "2001:db8::7", ["2001:db8::7"]),
        (bound(("::", "8080")), "", ["::1"]),
        (bound(("::", "8080")), "192.0.2.7", []),
        (bound(("", "8080")), "192.0.2.7", ["192.0.2.7"]),
        (bound(("198.51.100.3", "8080")), "192.0.2.7", ["198.51.100.3"]),
        (bound(("127.0.0.1", "8080")), "192.0.2.7", ["127.0.0.1"]),
        (bound(("0.0.0.0", "")), "", []),
    ],
)
def test_a_port_mapping_is_reached_where_it_listens(
    bindings: tuple[tuple[int, str, int], ...], address: str, reached: list[str]
) -> None:
    assert list(published(bindings, address)) == [PortFact(80, host, 8080) for host in reached]


def test_a_port_of_another_protocol_does_not_hide_the_tcp_one() -> None:
    ports = {"53/udp": [{"HostIp": "", "HostPort": "1053"}], "53/tcp": [{"HostIp": "", "HostPort": "2053"}]}
    assert read_bindings({"NetworkSettings": {"Ports": ports}}) == ((53, "", 2053),)


def test_a_container_in_the_host_network_has_the_hosts_ports() -> None:
    inspection = {
        "Id": "x",
        "Name": "/n",
        "State": {"Status": "running", "StartedAt": START},
        "Config": {"ExposedPorts": {"8080/tcp": {}}},
        "HostConfig": {"NetworkMode": "host"},
    }
    assert published(read_container(inspection).bindings, "192.0.2.7") == (PortFact(8080, "192.0.2.7", 8080),)


def served(**ports: object) -> Container:
    return container(ports=(Port("http", 8080, **ports),))  # type: ignore[arg-type]


def test_ports_on_all_addresses_are_published_at_the_hosts_address(engine: Bench) -> None:
    fact = engine.run(template(served(host_port=18431)))
    assert fact.published == (PortFact(8080, "127.0.0.1", 18431),)
    known = engine.make(address="192.0.2.7")
    assert known.observe([fact.name])[0].published == (PortFact(8080, "192.0.2.7", 18431),)
    known.close()
    assert engine.stop(fact).published == ()


def test_a_port_on_one_address_is_published_at_that_address(engine: Bench) -> None:
    fact = engine.run(template(served(host_port=18432, host_ip="127.0.0.1")))
    known = engine.make(address="192.0.2.7")
    assert known.observe([fact.name])[0].published == (PortFact(8080, "127.0.0.1", 18432),)
    known.close()


@pytest.mark.server("dockerd")
def test_a_published_port_is_open_on_the_node(bench: Bench) -> None:
    port = free_port()
    made = container(
        "web", "/bin/httpd", "-f", "-p", "8080", "-h", "/bin", ports=(Port("http", 8080, port, "127.0.0.1"),)
    )
    fact = bench.run(template(made))
    ports = bench.api.inspect(fact.name)["NetworkSettings"]["Ports"]
    assert ports["8080/tcp"] == [{"HostIp": "127.0.0.1", "HostPort": str(port)}]


PROBE = Probe(ProbeKind.TCP, port=10, period=SECOND // 5, failure_threshold=1)


def verdicts(fact: ContainerFact, port: int, wanted: ProbeValue) -> dict[str, ProbeFact]:
    """The verdicts of a probe of a published port, once it is `wanted`, and of a probe that does not know that it is published."""
    engine = ProbeEngine(phase=False)
    verdicts_by_name: dict[str, ProbeFact] = {}
    try:
        now = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        target = Target(fact.generation, "liveness", PROBE, "127.0.0.1", port, now, published=True)
        engine.set_targets([target, target._replace(name="readiness", published=False)])

        def both() -> bool:
            verdicts_by_name.update({name: verdict for (_, name), verdict in engine.read().items()})
            return len(verdicts_by_name) == 2 and verdicts_by_name["liveness"].value is wanted

        wait_until(both, f"both probes have a verdict, the first is {wanted}")
    finally:
        engine.close()
    return verdicts_by_name


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
    by_name = verdicts(fact, port, value)
    assert by_name["readiness"].value is ProbeValue.PASS, "the proxy itself accepts"
    assert by_name["liveness"].value is value
