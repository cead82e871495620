"""One account of Route 53 for each test, in this process."""

from collections.abc import Iterator

import pytest
from cloud import Cloud
from moto import mock_aws


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    with mock_aws():
        found = Cloud()
        yield found
        found.client.close()
