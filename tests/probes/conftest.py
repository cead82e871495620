"""Engines for the tests, closed afterwards."""

from collections.abc import Iterator

import pytest

from reconciler.probes.engine import ProbeEngine
from tests.probes.helpers import Watch


@pytest.fixture
def engine() -> Iterator[ProbeEngine]:
    made = ProbeEngine(phase=False)
    yield made
    made.close()


@pytest.fixture
def watch(engine: ProbeEngine) -> Watch:
    return Watch(engine)
