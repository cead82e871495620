"""What a surface is, and the search over one: hypothesis makes inputs until the time or their number is used up, and shrinks what fails."""

import contextlib
import resource
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.strategies import SearchStrategy

ROOT = Path(__file__).resolve().parents[2]

MEMORY = 512 * 2**20
"""A surface may add this much to the memory of its process (bytes): no input is large, so a growth beyond it is a fault."""

ROUND = 200
"""Inputs of one round. A new round has another seed."""

DIFFERENT = 5
"""The search ends with this many different failures: each costs time to shrink."""

Check = Callable[[Any], str]
"""Runs one input. Returns what became of it, in one word. Raises when what must hold does not."""


@dataclass(frozen=True)
class Surface:
    """One place where text of others enters.

    Attributes:
        name: one word or two, for the command line and the page.
        who: whose text it is.
        holds: what the check asserts.
        inputs: a strategy of hypothesis.
        world: makes what the check needs, and ends it.
    """

    name: str
    who: str
    holds: str
    inputs: SearchStrategy[Any]
    world: Callable[[], AbstractContextManager[Check]]


@dataclass
class Found:
    """What a search did: inputs by what became of them, failures by their place, seconds and bytes of memory that it added."""

    outcomes: Counter[str] = field(default_factory=Counter)
    failures: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    memory: int = 0

    @property
    def inputs(self) -> int:
        return sum(self.outcomes.values())


def search(surface: Surface, *, seconds: float = 0.0, examples: int = 0, start: int = 0) -> Found:
    """Search for `seconds`, or over `examples` inputs. The same `start` and number give the same inputs."""
    found = Found()
    before, began = _memory(), time.monotonic()
    with surface.world() as check:
        number = start
        while len(found.failures) < DIFFERENT:
            left = examples - found.inputs if examples else ROUND
            if left <= 0 or (seconds and time.monotonic() - began >= seconds):
                break
            made = found.inputs
            with contextlib.suppress(_OutOfTime):
                _round(surface, check, found, min(left, ROUND), number, began + seconds if seconds else 0.0)
            number += 1
            if found.inputs == made:
                break
    found.seconds, found.memory = time.monotonic() - began, max(0, _memory() - before)
    if found.memory > MEMORY:
        found.failures["memory"] = f"the process holds {found.memory >> 20} MiB more than before"
    return found


class _OutOfTime(BaseException):
    """Ends a round."""


def _round(surface: Surface, check: Check, found: Found, examples: int, number: int, until: float) -> None:
    failed = False

    @seed(number)
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=False,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
    )
    @given(surface.inputs)
    def one(value: Any) -> None:
        nonlocal failed
        if until and not failed and time.monotonic() >= until:
            raise _OutOfTime
        try:
            outcome = check(value)
        except Exception:
            if not failed:
                found.outcomes["failed"] += 1
            failed = True
            raise
        if not failed:  # inputs made to shrink a failure are not counted
            found.outcomes[outcome] += 1

    try:
        one()
    except Exception as error:  # noqa: BLE001  (any error is what the search is for)
        found.failures.setdefault(_place(error), _report(error))


def _place(error: Exception) -> str:
    """The kind of an error and the last line of ours that it came through: two inputs that fail there are one failure."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.startswith(str(ROOT))]
    frames = [frame for frame in frames if ".venv" not in frame.filename and frame.name != "one"]
    last = frames[-1] if frames else None
    place = f"{Path(last.filename).relative_to(ROOT)}:{last.lineno}" if last else "?"
    return f"{type(error).__name__} at {place}"


def _report(error: Exception) -> str:
    notes = getattr(error, "__notes__", [])
    return "".join(traceback.format_exception(error)[-8:]) + "\n".join(str(note) for note in notes)


def _memory() -> int:
    """The most that this process has held so far, bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@contextlib.contextmanager
def no_world(check: Check) -> Iterator[Check]:
    """For checks of pure functions."""
    yield check
