"""The bench as a fixture; after each test none of its processes is left."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from manifests.values.desired import SECOND
from providers.runtime.process.shim_protocol import kill_strays, steady
from providers.testing.checks import wait_until
from tests.providers.runtime.process.bench import Bench, holders


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    root = tmp_path / "tree"
    root.mkdir()
    bench = Bench(tmp_path / "state", root)
    yield bench
    for container_id in bench.ids:
        assert kill_strays(container_id, steady() + 60 * SECOND) == 0
    held = [str(path) for path in bench.state.glob("process/*/*/lock")]
    wait_until(lambda: not holders(held), "every shim of this test has exited")
