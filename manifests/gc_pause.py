"""Pauses the cyclic garbage collector while very many objects are created: in `load.py`, and where providers read zones."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Iterator[None]:
    """Keep the collector off: the code inside creates many objects and no cycles, and the collector would walk them again and again."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
