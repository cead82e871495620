"""Changes of a manifest under load, on a real engine, balancer and name server: no request fails, and no client notices."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.changes_world import CHANGES, Change, Changes, engine_with_versions, under_load

pytestmark = [pytest.mark.server("dockerd"), pytest.mark.server("haproxy"), pytest.mark.server("named")]


@pytest.fixture
def changes(shared: Path) -> Iterator[Changes]:
    """Two replicas that are not started yet, and the servers in front of them."""
    world = Changes(engine_with_versions(shared))
    try:
        world.start_servers()
        yield world
    finally:
        world.close()


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.name)
def test_a_change_of_one_field_fails_no_request(changes: Changes, change: Change) -> None:
    under_load(changes, change).check()
