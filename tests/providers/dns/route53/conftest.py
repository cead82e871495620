"""One account of Route 53 for each test, in this process.

Every worker reads this file, and few of them run these tests: the libraries are imported by who does.
"""

from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from tests.providers.dns.route53.cloud import KEYS, Cloud


@cache
def client() -> Any:
    """One client for all tests: making one takes far longer than all calls of a test. moto answers whatever it sends."""
    import boto3  # noqa: PLC0415
    from botocore.config import Config  # noqa: PLC0415

    return boto3.client("route53", region_name="us-east-1", config=Config(), **KEYS)  # type: ignore[call-overload]


@pytest.fixture(scope="module")
def amazon() -> Iterator[None]:
    from moto import mock_aws  # noqa: PLC0415

    with mock_aws():
        yield


@pytest.fixture
def cloud(amazon: None) -> Cloud:
    """An empty account."""
    from moto.core.base_backend import BackendDict  # noqa: PLC0415

    BackendDict.reset()
    return Cloud(client())
