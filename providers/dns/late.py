"""The work behind a provider of names, loaded with its first call.

Manifests are checked with the provider's class alone, often where no provider is ever asked, and clients of name servers are
slow to load. Used by `powerdns.py`, `rfc2136.py` and `route53.py`.
"""

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar


class Closable(Protocol):
    """What is loaded."""

    def close(self) -> None:
        """Close connections and forget what was read."""


W = TypeVar("W", bound=Closable)


class Late(Generic[W]):
    """Call it for the work itself; `load` makes it once, and again after `close`."""

    __slots__ = ("_load", "_loaded")

    def __init__(self, load: Callable[[], W]) -> None:
        self._load = load
        self._loaded: W | None = None

    def __call__(self) -> W:
        """The work, loaded if it was not yet. Raises what `load` raises."""
        if self._loaded is None:
            self._loaded = self._load()
        return self._loaded

    def close(self) -> None:
        """Close what was loaded. Loads nothing, and may be called twice."""
        loaded, self._loaded = self._loaded, None
        if loaded is not None:
            loaded.close()
