"""One account of Route 53 for each test, in this process."""

from collections.abc import Iterator
from functools import cache
from typing import Any

import boto3
import pytest
from botocore.config import Config
from cloud import KEYS, Cloud
from moto import mock_aws
from moto.core.base_backend import BackendDict


@cache
def client() -> Any:
    """One client for all tests: making one takes far longer than all calls of a test. moto answers whatever it sends."""
    return boto3.client("route53", region_name="us-east-1", config=Config(), **KEYS)  # type: ignore[call-overload]


@pytest.fixture(scope="module")
def amazon() -> Iterator[None]:
    with mock_aws():
        yield


@pytest.fixture
def cloud(amazon: None) -> Cloud:
    """An empty account."""
    BackendDict.reset()
    return Cloud(client())
