"""Checks of the conformance suites. A failure says what was expected, what was observed, and which rule of `spi.py` it breaks."""

import time
from collections.abc import Callable
from threading import Event

from manifests.values.desired import Role
from providers.actions import Action
from providers.errors import ProviderError
from providers.spi import Provider

RULES = {
    1: "observe is one complete, read-only look; a failed read raises",
    2: "repeating an action is harmless, and perform compares with the present state right before it acts",
    3: "errors are those of errors.py; a lost answer is OutcomeUnknown",
    4: "each call bounds its own waits, and a constructor does no I/O",
    5: "decorators do ownership, retries and dry runs",
}
"""The rules of `spi.py`, by their number there, in short."""

PATIENCE_SECONDS = 60.0
"""Longest time that the suites wait for a real event, such as the start of a process."""


def expect(holds: bool, rule: int, expected: str, observed: object) -> None:
    """Fail with all details unless `holds`."""
    if not holds:
        raise AssertionError(f"expected: {expected}\nobserved: {observed}\nrule {rule} of spi.py: {RULES[rule]}")


def same(observed: object, expected: object, rule: int, what: str) -> None:
    """Fail unless two values are equal."""
    expect(observed == expected, rule, f"{what}: {expected}", observed)


def raises(act: Callable[[], object], kinds: type[ProviderError], rule: int, what: str) -> ProviderError:
    """Fail unless `act` raises this error of the tree (or a finer one); returns the error."""
    try:
        answer = act()
    except kinds as error:
        return error
    except Exception as error:
        raise AssertionError(
            f"expected: {what} raises {kinds.__name__}\nobserved: {type(error).__name__}: {error}\n"
            f"rule {rule} of spi.py: {RULES[rule]}"
        ) from error
    raise AssertionError(
        f"expected: {what} raises {kinds.__name__}\nobserved: no error, answer {answer!r}\n"
        f"rule {rule} of spi.py: {RULES[rule]}"
    )


def perform_one(provider: Provider, action: Action) -> None:
    """Have a provider of any role do one action; raises the error of the action."""
    if provider.role is Role.ENDPOINTS:
        (error,) = provider.perform([action]).errors  # type: ignore[union-attr, arg-type, list-item]
        if error is not None:
            raise error
    else:
        provider.perform(action)  # type: ignore[arg-type]


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Check every 10 ms until the condition holds, for at most `PATIENCE_SECONDS`."""
    pause = Event()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"expected within {PATIENCE_SECONDS:.0f} s: {what}\nobserved: it did not happen")
        pause.wait(0.01)
