"""Docker and Podman as two nodes: one engine is killed, and the replicas of the other roll out, heal and carry traffic."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.edge_world import until
from tests.e2e.two_engines import NODES, TwoEngines, revision

pytestmark = [pytest.mark.server("dockerd"), pytest.mark.server("podman"), pytest.mark.server("haproxy")]


@pytest.fixture
def both(engine: str, podman: Path) -> Iterator[TwoEngines]:
    world = TwoEngines(engine, podman)
    try:
        world.start_servers()
        yield world
    finally:
        world.close()


@pytest.mark.parametrize(("silent", "stalls"), [("docker", False), ("docker", True), ("podman", False)])
def test_beside_a_silent_engine_the_other_rolls_out_heals_and_serves(
    both: TwoEngines, silent: str, stalls: bool
) -> None:
    other = next(node for node in NODES if node != silent)
    with both.watching():
        both.settle_all()
        before, kept = both.on(other), both.on(silent)
        old = revision(next(iter(before)))

        both.take_away(silent, stalls)
        until(lambda: f"held provider/{silent}" in both.log(), f"{silent} is known to be silent")
        with both.clients() as log:
            both.edit(
                "          command: [/serve]\n", '          command: [/serve]\n          env: [{name: V, value: "2"}]\n'
            )
            until(lambda: _rolled_out(both, other, old), f"both replicas on {other} have the new template and serve")
        log.check_all_served()
        log.check_never_empty()
        pages = dict(log.pages)
        assert len(pages) >= 4, pages

        victim = next(iter(both.on(other)))
        started = both.on(other)[victim][1]
        with both.clients() as log:
            both.apis[other].kill(victim)
            until(lambda: both.on(other).get(victim, ("", started))[1] != started, f"{victim} runs again")
            until(lambda: _serve(both, other), f"all replicas on {other} serve again")
        log.check_never_empty()
        assert sum(log.pages.values()) > len(log.failures)

        both.give_back(silent)
        assert both.on(silent).items() >= kept.items() or not both.on(silent).keys() & kept.keys()
        both.settle_all(old)


def _serve(both: TwoEngines, node: str) -> bool:
    """Whether two containers of a node run, with full weight and under the name."""
    addresses, pool = both.addresses_on(node), both.pool()
    return len(addresses) == 2 and all(pool.get(address) == 100 for address in addresses) and addresses <= both.names()


def _rolled_out(both: TwoEngines, node: str, old: str) -> bool:
    names = both.on(node)
    return len(names) == 2 and all(revision(name) != old for name in names) and _serve(both, node)
