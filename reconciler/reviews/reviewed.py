"""What a reviewer saw of a plan, as far as it is compared after the merge. Pure. Used by the child that plans and by the reviewer.

A plan is compared by its changes (`core/outcome`) and changed fields, without order, times and what follows health. Each is kept as a name that
may be shown anywhere and a digest of everything in it, so that a comparison is exact and shows no value.
"""

from collections.abc import Iterable
from hashlib import sha256
from typing import NamedTuple

from providers.facts import fingerprint
from reconciler.core.decision import Plan

SHOWN = 3
"""Differences that a message names."""

LINES = 2_000
"""Changes that are kept of one plan. A larger one is compared by its hash alone."""


class Line(NamedTuple):
    """One change. `name` has names of objects, containers, fields and records; `digest` is of the whole change."""

    name: str
    digest: str


class Reviewed(NamedTuple):
    """A plan that was shown, bound to the tree that it is of.

    Attributes:
        tree: the git tree of the set. commit: the head that was planned. hash: of all changes.
        lines: the changes, sorted; none of a plan with more than `LINES`.
    """

    tree: str
    commit: str
    hash: str
    lines: tuple[Line, ...] = ()


def of_plan(plan: Plan, tree: str, commit: str) -> Reviewed:
    """What is compared of a plan."""
    lines = sorted(set(_lines(plan)))
    total = sha256("\n".join(f"{line.name}\t{line.digest}" for line in lines).encode()).hexdigest()[:16]
    return Reviewed(tree, commit, total, tuple(lines) if len(lines) <= LINES else ())


def _lines(plan: Plan) -> Iterable[Line]:
    for change in plan.outcome:
        if change.compared:
            # The text behind the colon has values.
            yield Line(f"{change.object}: {change.text.partition(': ')[0]}", fingerprint(change.text))
    for changed in plan.changed:
        for field in changed.fields:
            digest = fingerprint(field.before, field.after, field.effect.value)
            yield Line(f"{changed.object}: {field.field}", digest)


def compared(reviewed: Reviewed, merged: Reviewed, number: int) -> tuple[bool, str]:
    """Whether a merged plan is the reviewed one, and that in a sentence without values."""
    where = f"merge request {number}"
    if merged.hash == reviewed.hash:
        return True, f"as reviewed in {where} (plan {merged.hash})"
    before, after = dict(reviewed.lines), dict(merged.lines)
    if not before and not after:
        return False, f"differs from the plan reviewed in {where}: it has other changes"
    new = [f"+ {name}" for name in after if name not in before]
    gone = [f"- {name}" for name in before if name not in after]
    other = [f"~ {name}" for name in after if name in before and before[name] != after[name]]
    found = [*new, *gone, *other] or ["the number of changes"]
    more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    return False, f"differs from the plan reviewed in {where}: {'; '.join(found[:SHOWN])}{more}"
