"""Why a secret cannot be used now. Made by the shell, turned into holds by `limits/secret_gate`."""

from typing import NamedTuple


class SecretProblem(NamedTuple):
    """Why a container that needs a secret cannot be created.

    Attributes:
        cause: names the reference and what is wrong, never a value.
        next_step: what the operator can do; empty when a retry is enough.
        until: steady instant (ns) of the next try, where the secret is only unknown; None where it is known to be unusable: it is looked at
            again all the same, and counts as soon as it can be used.
    """

    cause: str
    next_step: str = ""
    until: int | None = None
