"""The scope of a suspension: all actions, new revisions of the manifests only, or healing only.

The key of a suspension in the ledger carries it: `workload/web` stops all actions on it, `healing:workload/web` only healing,
`commits:*` only new revisions. So suspensions of different scopes stand beside each other, and each is resumed alone. Called by
`limits/suspensions`, `limits/commits`, reports and the command line.
"""

from enum import StrEnum
from typing import NamedTuple


class Scope(StrEnum):
    """What a suspension stops."""

    ALL = "all"
    COMMITS = "commits"
    HEALING = "healing"


class Suspended(NamedTuple):
    """A key of the ledger's suspensions, taken apart: what it stops, and on which object (`*` = everything)."""

    scope: Scope
    object: str


def key_of(scope: Scope, obj: str) -> str:
    """The key of a suspension in the ledger."""
    return obj if scope is Scope.ALL else f"{scope.value}:{obj}"


def parse(key: str) -> Suspended:
    """The scope and the object of a key."""
    for scope in (Scope.COMMITS, Scope.HEALING):
        prefix = f"{scope.value}:"
        if key.startswith(prefix):
            return Suspended(scope, key[len(prefix) :])
    return Suspended(Scope.ALL, key)


def shown(key: str) -> str:
    """What is suspended, as text: `everything`, `workload/web`, `new commits`, `healing of workload/web`."""
    scope, obj = parse(key)
    name = "everything" if obj == "*" else obj
    if scope is Scope.COMMITS:
        return "new commits"
    return name if scope is Scope.ALL else f"healing of {name}"


def resume_command(key: str) -> str:
    """The command line that ends the suspension."""
    scope, obj = parse(key)
    if scope is Scope.COMMITS:
        return "reconcile resume --commits"
    flag = "" if scope is Scope.ALL else " --healing"
    return f"reconcile resume{flag} --all" if obj == "*" else f"reconcile resume{flag} {obj}"
