"""A plan as a review: what it destroys, what it counts, and per object what changes, what follows and which steps are taken.

One value for the text, the Markdown and the JSON form, so that all three say the same. Everything in it is plain text from anywhere:
the writer of a form escapes it. `review_of` makes it of a plan; `cli/render/untrusted.py` makes one of names only.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from manifests.values.desired import SECOND
from manifests.values.image_choice import IMAGE_POLICY
from providers.actions import (
    ChangeRecords,
    CreateContainer,
    CutSessions,
    RemoveContainer,
    RemoveEndpoint,
    SetWeight,
    StartContainer,
    StopContainer,
    UpdateContainer,
)
from reconciler.core import plan_changes
from reconciler.core.consequences import downtime_text
from reconciler.core.decision import Basis, Changed, Manifests, Plan, Planned
from reconciler.core.replicas.field_changes import ABSENT, FieldChange
from reconciler.core.replicas.privilege_changes import Change

LONGEST = 160
"""Characters of a value in a line; a longer one is cut. JSON has all of it."""


class Count(NamedTuple):
    """How often a plan does something; `what` is in the singular. `destroys`: it takes away, interrupts or grants a privilege."""

    name: str
    what: str
    number: int
    destroys: bool

    @property
    def text(self) -> str:
        """The count in words."""
        if self.number == 1:
            return f"1 {self.what}"
        head, _, tail = self.what.partition(" ")
        for noun in ("record set", "new privilege", "container", "endpoint", "session", "weight", "downtime"):
            if self.what.startswith(noun):
                head, tail = noun, self.what[len(noun) :].strip()
        return f"{self.number} {head}s {tail}".rstrip()


@dataclass(frozen=True, slots=True)
class Group:
    """Everything about one object. `title` is what becomes of it, after its key; empty where only steps are known.

    `changes` are fields, `follows` is what follows for traffic and names, `steps` have a line each.
    """

    object: str
    title: str = ""
    where: str = ""
    changes: tuple[FieldChange, ...] = ()
    notes: tuple[str, ...] = ()
    follows: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Review:
    """A whole plan for its reader. `heads` are its first lines, `destroyed` one line for each thing that is taken away.

    `files` are the files of the repository that differ: for each one line, and the lines of its difference.
    """

    heads: tuple[str, ...]
    counts: tuple[Count, ...]
    destroyed: tuple[str, ...]
    privileges: tuple[str, ...]
    groups: tuple[Group, ...]
    files: tuple[tuple[str, ...], ...] = ()
    holds: tuple[str, ...] = ()
    waits: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def masked(review: Review, mask: Callable[[str], str]) -> Review:
    """The review with every text masked, before a form of it cuts any."""

    def all_of(texts: Iterable[str]) -> tuple[str, ...]:
        return tuple(map(mask, texts))

    return replace(
        review,
        heads=all_of(review.heads),
        destroyed=all_of(review.destroyed),
        privileges=all_of(review.privileges),
        files=tuple(all_of(lines) for lines in review.files),
        groups=tuple(
            replace(
                group,
                changes=tuple(
                    field._replace(before=mask(field.before), after=mask(field.after)) for field in group.changes
                ),
                follows=all_of(group.follows),
                steps=all_of(group.steps),
            )
            for group in review.groups
        ),
        holds=all_of(review.holds),
        waits=all_of(review.waits),
        notes=all_of(review.notes),
    )


# --- counts ------------------------------------------------------------------------------------------------------------------


def counts(plan: Plan) -> tuple[Count, ...]:
    """What a plan does in numbers: what destroys first; only numbers above 0."""
    number: dict[str, int] = {}

    def add(name: str, more: int = 1) -> None:
        number[name] = number.get(name, 0) + more

    for planned in plan.steps:
        match planned.step.action:
            case ChangeRecords() as action:
                for change in action.changes:
                    deleted = "record_sets_deleted" if change.after is None else "record_sets_changed"
                    add("record_sets_created" if change.before is None and change.after is not None else deleted)
            case SetWeight() as action:
                out = action.weight == 0 and bool(action.before)
                add("endpoints_taken_out" if out else "weights_changed")
            case RemoveEndpoint():
                add("endpoints_removed")
            case CutSessions():
                add("sessions_cut")
            case CreateContainer():
                add("containers_created")
            case StartContainer():
                add("containers_started")
            case StopContainer():
                add("containers_stopped")
            case RemoveContainer():
                add("containers_removed")
            case UpdateContainer():
                add("containers_updated")
    number["downtimes"] = sum(1 for row in plan.consequences if row.downtime is not None)
    number["new_privileges"] = gained(plan)
    return tuple(Count(name, what, number[name], destroys) for name, what, destroys in _COUNTS if number.get(name))


_COUNTS = (
    ("downtimes", "downtime", True),
    ("record_sets_deleted", "record set deleted", True),
    ("containers_removed", "container removed", True),
    ("containers_stopped", "container stopped", True),
    ("new_privileges", "new privilege", True),
    ("sessions_cut", "session cut", True),
    ("endpoints_removed", "endpoint removed", True),
    ("endpoints_taken_out", "endpoint taken out of traffic", True),
    ("record_sets_changed", "record set changed", False),
    ("record_sets_created", "record set created", False),
    ("containers_created", "container created", False),
    ("containers_started", "container started", False),
    ("containers_updated", "container updated in place", False),
    ("weights_changed", "weight changed", False),
)
"""(name in JSON, text, whether it destroys), in the order of the summary."""


def gained(plan: Plan) -> int:
    """The number of privileges that nothing is known to have."""
    return sum(1 for row in plan.privileges if row.change in (Change.NEW, Change.UNKNOWN))


def destroyed(plan: Plan, *, names_only: bool = False) -> tuple[str, ...]:
    """A line for each downtime, each deleted record set, and the containers that are removed for good.

    A container that another one replaces is not among them: the object says so. `names_only`: without numbers and values.
    """
    lines = [
        f"downtime of {row.object}{'' if names_only else f': {downtime_text(row.downtime)}'}"
        for row in plan.consequences
        if row.downtime is not None
    ]
    created = {planned.step.object for planned in plan.steps if isinstance(planned.step.action, CreateContainer)}
    for planned in plan.steps:
        step, action = planned.step, planned.step.action
        if isinstance(action, ChangeRecords):
            for change in action.changes:
                if change.after is None:
                    lines.append(f"delete {change.key.name} {change.key.type} in {action.provider} ({step.object})")
        elif isinstance(action, RemoveContainer) and step.object not in created:
            lines.append(f"remove {action.name} ({step.object}: {step.cause.value})")
    return tuple(lines)


# --- the head ----------------------------------------------------------------------------------------------------------------


def head(plan: Plan) -> str:
    """Whose plan it is, and from which manifests to which."""
    planned = named(plan.planned)
    if not plan.in_force.revision:
        return f"instance '{plan.instance}': no manifests are known to be in force -> {planned}"
    if plan.in_force.revision == plan.planned.revision:
        return f"instance '{plan.instance}': {planned}, which is in force"
    return f"instance '{plan.instance}': {named(plan.in_force)} in force -> {planned}"


def named(manifests: Manifests) -> str:
    """Manifests by their revision and commit, shortened."""
    commit = f" (commit {manifests.commit[:12]})" if manifests.commit else ""
    return f"revision {manifests.revision[:12]}{commit}"


def summary(rows: Sequence[Count]) -> str:
    """The counts in one line; what destroys stands before the semicolon."""
    parts = [", ".join(row.text for row in rows if row.destroys is destroys) for destroys in (True, False)]
    return "; ".join(part for part in parts if part)


# --- objects -----------------------------------------------------------------------------------------------------------------


def title(changed: Changed) -> str:
    """What becomes of the revision of a workload; empty for everything else, and where the revision stays."""
    if changed.is_new:
        return f"new, revision {changed.after[:8]}"
    if changed.before == changed.after:
        return ""
    return f"revision {changed.before[:8]} -> {changed.after[:8]}"


def notes(changed: Changed) -> tuple[str, ...]:
    """What the reader has to know about the fields of an object."""
    if changed.basis is Basis.UNKNOWN:
        return (
            "the ledger does not have the earlier template, and the runtime shows none of it: its fields are not known",
        )
    if changed.basis is Basis.RUNTIME:
        return ("the ledger does not have the earlier template; compared with what the runtime shows of a container",)
    if changed.before != changed.after and not any(field.effect for field in changed.fields) and not changed.is_new:
        return ("no value differs: a field is written that has its default, or no longer; that forces a new container",)
    return ()


def groups(
    plan: Plan, lines: Iterable[tuple[Planned, Sequence[str]]], *, names_only: bool = False
) -> tuple[Group, ...]:
    """The objects of a plan in the order of their first steps, then those that change without a step.

    Args:
        lines: each step with its lines.
        names_only: without values, and without what follows.
    """
    changed = {row.object: row for row in plan.changed}
    follows = {row.object: row for row in plan.consequences}
    steps: dict[str, list[str]] = {}
    places: dict[str, str] = {}
    for planned, shown in lines:
        key = plan_changes.document_key(planned.step.object)
        steps.setdefault(key, []).extend(shown)
        places.setdefault(key, planned.where)
    found = []
    for key in dict.fromkeys([*steps, *changed]):
        row = changed.get(key)
        fields = () if row is None else row.fields
        if names_only:
            fields = tuple(field._replace(before="", after="", where="") for field in fields)
        found.append(
            Group(
                key,
                "" if row is None else title(row) if not names_only else "new" if row.is_new else "changed",
                "" if names_only else places.get(key, "") or ("" if row is None else row.where),
                fields,
                () if row is None else notes(row),
                (follows[key].text,) if key in follows and not names_only else (),
                tuple(steps.get(key, ())),
            )
        )
    return tuple(found)


def change_text(field: FieldChange) -> str:
    """A changed field in one line: added, removed or changed, both values, and what it takes."""
    effect = f" ({field.effect.text})" if field.effect.text else ""
    if not field.before and not field.after:
        return f"~ {field.field}{effect}"
    before, after = clipped(field.before, field.after)
    place = f" {'by' if field.where == IMAGE_POLICY else 'at'} {field.where}" if field.where else ""
    if field.before == ABSENT:
        return f"+ {field.field}: {after}{effect}{place}"
    if field.after == ABSENT:
        return f"- {field.field}: {before}{effect}{place}"
    return f"~ {field.field}: {before} -> {after}{effect}{place}"


def clipped(before: str, after: str) -> tuple[str, str]:
    """Two values, cut to `LONGEST` around the first character that differs."""
    if max(len(before), len(after)) <= LONGEST:
        return before, after
    same = next((at for at, pair in enumerate(zip(before, after, strict=False)) if pair[0] != pair[1]), 0)
    same = same or min(len(before), len(after))
    begin = max(0, min(same, max(len(before), len(after))) - LONGEST // 4)
    return _cut(before, begin), _cut(after, begin)


def _cut(text: str, begin: int) -> str:
    begin = min(begin, max(0, len(text) - LONGEST // 4)) if len(text) > LONGEST else 0
    part = text[begin : begin + LONGEST]
    return f"{'…' if begin else ''}{part}{'…' if begin + LONGEST < len(text) else ''}"


def seconds(duration: int) -> str:
    """A duration in ns, as short text in seconds."""
    return f"{duration / SECOND:.1f}".removesuffix(".0") + "s"
