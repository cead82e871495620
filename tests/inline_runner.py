"""A runner that calls providers in place: for virtual time, where a call takes none."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class InlineRunner:
    """Calls in place, after one turn of the event loop."""

    async def run(self, call: Callable[[], T]) -> T:
        """The call's result; what it raises is raised here."""
        await asyncio.sleep(0)
        return call()

    def close(self) -> None:
        """Nothing to let go of."""
