"""Shared fixtures of the provider tests."""

from collections.abc import Callable
from pathlib import Path

import pytest

from providers.spi import Context


@pytest.fixture
def here(tmp_path: Path) -> Callable[..., Context]:
    """Makes the context of an instance; all share one state directory."""
    state = tmp_path / "state"
    state.mkdir(mode=0o700, exist_ok=True)

    def make(instance: str = "demo") -> Context:
        return Context(instance, str(state))

    return make
