"""How many examples a costly law looks at by default. Used by the laws that run whole worlds, or many decisions, for each example."""

import os

from hypothesis import settings

PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "default")
"""The name of the profile, as in tests/conftest.py."""


def examples(count: int, steps: int | None = None) -> settings:
    """This many examples, of a state machine with so many steps each; other profiles decide for themselves."""
    if PROFILE != "default":
        return settings()
    return settings(max_examples=count) if steps is None else settings(max_examples=count, stateful_step_count=steps)
