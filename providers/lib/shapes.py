"""Answers of another shape than a server is documented to give. Used by providers around the code that reads answers.

Such an answer shows nothing, so the look fails and what was asked about is unknown. The cause names the exception for a report.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from providers.errors import ProviderError, Unreachable

_OF_A_SHAPE = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What code raises that reads a value of another type, a missing member, or a number that is too large."""


@contextmanager
def expected_shape(target: str, server: str) -> Iterator[None]:
    """Around the reading of answers; `server` as in "the answer of SERVER".

    Raises:
        Unreachable: the code inside could not read an answer. `ProviderError`s pass through.
    """
    try:
        yield
    except ProviderError:
        raise
    except _OF_A_SHAPE as error:
        cause = f"the answer of {server} is not as expected: {type(error).__name__}: {str(error)[:200]}"
        raise Unreachable(target, cause, "check that this version of it is supported") from error
