"""Plans and their actions as text for review, and as JSON. Called by the command line and the audit; golden tests compare the text.

`docs/plans.md` describes both forms, `docs/plan.schema.json` the JSON form.
"""

from collections.abc import Sequence
from typing import Any

from manifests.values.desired import SECOND
from providers.actions import (
    Action,
    ChangeRecords,
    CreateContainer,
    CutSessions,
    RecordChange,
    RemoveContainer,
    RemoveEndpoint,
    SetWeight,
    StartContainer,
    StopContainer,
    UpdateContainer,
)
from providers.facts import RecordKey, fingerprint
from reconciler.core import plan_review
from reconciler.core.consequences import Least
from reconciler.core.decision import Basis, Manifests, Plan, Planned
from reconciler.core.dns.records import show_set
from reconciler.core.drift.why import moved_of
from reconciler.core.model.reasons import Hold, Wait
from reconciler.core.plan_review import Review, seconds
from reconciler.core.replicas import file_diffs
from reconciler.core.replicas.field_changes import FieldChange
from reconciler.core.replicas.privilege_changes import Change, PrivilegeChange

FORMAT_VERSION = 1
"""Version of the JSON form. It rises when a field goes, or changes its meaning or type. New fields and new words in a list of words do
not raise it: readers ignore what they do not know."""

IN_A_LINE = 12
"""Record sets in the line of a step; a step with more of them has a line for each below it."""


def _key(key: RecordKey) -> str:
    return f"{key.name} {key.type} set {key.set_id}" if key.set_id else f"{key.name} {key.type}"


def _changes(action: UpdateContainer) -> str:
    joins = [f"connect to {name}" for name in action.join]
    settings = [
        f"{live.container or 'main'} cpu {f'{live.cpu}m' if live.cpu else 'unlimited'} "
        f"memory {live.memory or 'unlimited'} restart {live.restart}"
        for live in action.live
    ]
    files = [f"files of {volume} {digest[:12]} {signal}" for volume, digest, signal in action.files]
    return "; ".join(joins + settings + files)


def describe(action: Action) -> str:
    """An action in a few words."""
    match action:
        case CreateContainer():
            return f"create {action.name} on {action.node}"
        case StartContainer():
            return f"start {action.name}"
        case StopContainer():
            only = f" only {action.only}" if action.only else ""
            return f"stop {action.name}{only} grace {seconds(action.grace)}"
        case RemoveContainer():
            return f"remove {action.name}"
        case UpdateContainer():
            return f"update {action.name}: {_changes(action)}"
        case SetWeight():
            before = "absent" if action.before is None else str(action.before)
            where = f"{action.endpoint.address}:{action.endpoint.port} in {action.provider}/{action.pool}"
            return f"weight {before} -> {action.weight} {where}"
        case RemoveEndpoint():
            return f"remove {action.endpoint.address}:{action.endpoint.port} from {action.provider}/{action.pool}"
        case CutSessions():
            return (
                f"cut sessions of {action.endpoint.address}:{action.endpoint.port} in {action.provider}/{action.pool}"
            )
        case ChangeRecords():
            if len(action.changes) > IN_A_LINE:
                return f"records {len(action.changes)} record sets of {action.zone} in {action.provider}"
            return f"records {'; '.join(map(_change, action.changes))} in {action.provider}"


def spelled_out(action: Action) -> list[str]:
    """Each record set of a step that changes many, which `describe` only counts."""
    if not isinstance(action, ChangeRecords) or len(action.changes) <= IN_A_LINE:
        return []
    return [_change(change) for change in action.changes]


def _change(record_change: RecordChange) -> str:
    return f"{_key(record_change.key)} {show_set(record_change.before)} -> {show_set(record_change.after)}"


def _lines(planned: Planned) -> list[str]:
    return [_line(planned), *(f"    {change}" for change in spelled_out(planned.step.action))]


def numbered(planned: Planned) -> str:
    """How the line of a step begins: the steps before it with the delay after them, and its number."""
    needs = ",".join(str(number) for number in planned.after)
    delay = f" +{seconds(planned.delay)}" if planned.delay >= SECOND else ""
    return f"[{needs}{delay}] {planned.number}"


def _line(planned: Planned) -> str:
    step = planned.step
    return f"{numbered(planned)} {step.object}: {describe(step.action)} ({step.cause.value}: {step.message})"


def _hold(hold: Hold) -> str:
    next_step = f"; next step: {hold.next_step}" if hold.next_step else ""
    return f"hold {hold.object}: {hold.action} ({hold.rule.value}: {hold.message}{next_step})"


def _wait(wait: Wait) -> str:
    return f"wait {wait.object}: {wait.waiting.value} ({wait.message})"


_SIGNS = {
    Change.NEW: ("+", " (new)"),
    Change.UNKNOWN: ("?", " (new, or had by a container whose template is not known)"),
    Change.REMOVED: ("-", " (removed)"),
    Change.KEPT: ("=", ""),
}
"""How a privilege is marked, in the order of the lines of one workload."""


def privilege_lines(rows: Sequence[PrivilegeChange], *, names_only: bool = False) -> list[str]:
    """A line for each privilege, the new ones of a workload first. `names_only`: without the values of what runs."""
    order = {change: index for index, change in enumerate(_SIGNS)}
    lines = []
    for row in sorted(rows, key=lambda row: (row.object, order[row.change], row.privilege)):
        sign, mark = _SIGNS[row.change]
        text = row.privilege.field.value if names_only and row.change is Change.REMOVED else row.privilege.text
        lines.append(f"privilege {row.object}: {sign} {row.privilege.container}: {text}{mark}")
    return lines


def digest(plan: Plan) -> str:
    """The plan's hash: the same for the same steps and holds, whatever the time of day."""
    lines = [line for step in plan.steps for line in _lines(step)]
    return fingerprint(plan.revision, *lines, *(_hold(hold) for hold in plan.holds))


def review_of(plan: Plan) -> Review:
    """The plan for its readers."""
    steps, held = len(plan.steps), len(plan.holds)
    gained = plan_review.gained(plan)
    new = f", {gained} new privilege{'' if gained == 1 else 's'}" if gained else ""
    notes = [f"to approve the held changes, run: {plan.approve_command}"] if plan.guard_hash else []
    if plan.truncated:
        notes.append(f"the forecast ends here: {plan.truncated}")
    return Review(
        heads=(
            plan_review.head(plan),
            f"plan {digest(plan)}: {steps} step{'' if steps == 1 else 's'}, {held} held{new}",
        ),
        counts=plan_review.counts(plan),
        destroyed=plan_review.destroyed(plan),
        privileges=tuple(privilege_lines(plan.privileges)),
        groups=plan_review.groups(plan, ((step, _lines(step)) for step in plan.steps)),
        files=tuple(tuple(file_diffs.to_lines([diff])) for diff in plan.file_diffs),
        holds=tuple(_hold(hold) for hold in plan.holds),
        waits=tuple(_wait(wait) for wait in plan.waits),
        notes=tuple(notes),
    )


def to_lines(plan: Plan) -> list[str]:
    """The plan as lines; see `lines_of`."""
    return lines_of(review_of(plan))


def lines_of(review: Review) -> list[str]:
    """A review as lines: its heads, what it destroys, privileges, files, then each object with its changes, what follows, and its steps.

    A step is one line: steps before it, number, object, action, cause.
    """
    lines = list(review.heads)
    if review.counts:
        lines.append(f"summary: {plan_review.summary(review.counts)}")
    lines += [f"  ! {line}" for line in review.destroyed]
    lines += review.privileges
    lines += [line for lines_of_file in review.files for line in lines_of_file]
    for group in review.groups:
        place = f" ({group.where})" if group.where else ""
        lines.append(f"{group.object}{place}: {group.title}".rstrip())
        lines += [f"  {plan_review.change_text(field)}" for field in group.changes]
        lines += [f"  note: {note}" for note in group.notes]
        lines += [f"  follows: {text}" for text in group.follows]
        lines += [f"  {line}" for line in group.steps]
    return [*lines, *review.holds, *review.waits, *review.notes]


def to_text(plan: Plan) -> str:
    """`to_lines` as one text. It is not escaped: only for comparing plans."""
    return "\n".join(to_lines(plan)) + "\n"


def _hold_json(holds: Sequence[Hold], steady: int) -> list[dict[str, Any]]:
    return [
        {
            "object": hold.object,
            "action": hold.action,
            "rule": hold.rule.value,
            "message": hold.message,
            "retry_in_seconds": None if hold.until is None else max(0, hold.until - steady) / SECOND,
            "next_step": hold.next_step or None,
        }
        for hold in holds
    ]


def _manifests(manifests: Manifests) -> dict[str, Any] | None:
    if not manifests.revision:
        return None
    return {"revision": manifests.revision, "commit": manifests.commit or None}


def _field(field: FieldChange) -> dict[str, Any]:
    return {**field._asdict(), "effect": field.effect.value or None, "where": field.where or None}


def _least(least: Least) -> dict[str, Any]:
    return {"name": least.name or None, "least": least.least, "of": least.of}


def to_json(plan: Plan, steady: int) -> dict[str, Any]:
    """The plan as a value for JSON. `steady` is now (ns); the times of retries are relative to it."""
    return {
        "format_version": FORMAT_VERSION,
        "plan": digest(plan),
        "revision": plan.revision,
        "instance": plan.instance or None,
        "in_force": _manifests(plan.in_force),
        "planned": _manifests(plan.planned),
        "summary": {row.name: row.number for row in plan_review.counts(plan)},
        "destroyed": list(plan_review.destroyed(plan)),
        "steps": [
            {
                "number": step.number,
                "after": list(step.after),
                "delay_seconds": step.delay / SECOND,
                "id": step.step.id,
                "object": step.step.object,
                "action": describe(step.step.action),
                "kind": type(step.step.action).__name__,
                "cause": step.step.cause.value,
                "message": step.step.message,
                "why": step.step.why.value,
                "moved": [moved._asdict() for moved in moved_of(step.step)],
                "where": step.where or None,
                "fields": [_field(field) for field in step.fields],
                **({"changes": changes} if (changes := spelled_out(step.step.action)) else {}),
            }
            for step in plan.steps
        ],
        "changed": [
            {
                "object": changed.object,
                "before": changed.before,
                "after": changed.after,
                "where": changed.where or None,
                "basis": changed.basis.value,
                "fields": None if changed.basis is Basis.UNKNOWN else [_field(field) for field in changed.fields],
            }
            for changed in plan.changed
        ],
        "consequences": [
            {
                "object": row.object,
                "verb": row.verb,
                "replicas": row.count,
                "at_once": row.at_once,
                "available": _least(row.available),
                "pools": [_least(pool) for pool in row.pools],
                "names": [_least(name) for name in row.names],
                "downtime": None if row.downtime is None else {"from": row.downtime[0], "to": row.downtime[1] or None},
                "text": row.text,
            }
            for row in plan.consequences
        ],
        "privileges": [
            {
                "object": row.object,
                "container": row.privilege.container,
                "change": row.change.value,
                "privilege": row.privilege.field.value,
                "value": row.privilege.value,
                "detail": row.privilege.detail,
                "read_only": row.privilege.read_only,
                "text": row.privilege.text,
            }
            for row in plan.privileges
        ],
        "files": file_diffs.to_json(plan.file_diffs),
        "holds": _hold_json(plan.holds, steady),
        "waits": [{"object": w.object, "waiting": w.waiting.value, "message": w.message} for w in plan.waits],
        "approve": plan.guard_hash or None,
        "approve_command": plan.approve_command or None,
        "truncated": plan.truncated or None,
    }
