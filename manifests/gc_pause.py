"""The cyclic garbage collector while very many objects are made. Used where manifests are loaded and where zones are read."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Iterator[None]:
    """Keep the collector off: what runs inside makes many objects and no cycles, and it would walk them all, again and again."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
