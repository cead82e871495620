"""Plans and their actions as text for review, and as JSON. Called by the command line and the audit; golden tests compare the text."""

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
from reconciler.core.decision import Changed, Plan, Planned
from reconciler.core.dns.records import show_set
from reconciler.core.drift.why import moved_of
from reconciler.core.model.reasons import Hold, Wait
from reconciler.core.replicas import file_diffs
from reconciler.core.replicas.privilege_changes import Change, PrivilegeChange

FORMAT_VERSION = 1
"""Version of the JSON form; it changes when a field changes its meaning or goes."""

IN_A_LINE = 12
"""Record sets in the line of a step; a step with more of them has a line for each below it."""


def seconds(duration: int) -> str:
    """A duration in ns, as short text in seconds."""
    return f"{duration / SECOND:.1f}".removesuffix(".0") + "s"


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


def _changed(changed: Changed) -> list[str]:
    """A line for each field that differs."""
    head = f"change {changed.object}"
    revisions = f"revision {changed.before[:8]} -> {changed.after[:8]}"
    if changed.fields is None:
        return [f"{head}: {revisions}; the ledger does not have the earlier template, so its fields are not known"]
    return [f"{head}: {field.field}: {field.before} -> {field.after}" for field in changed.fields] or [
        f"{head}: {revisions}"
    ]


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


def gained(plan: Plan) -> str:
    """The number of privileges that nothing is known to have, for the first line."""
    gained = sum(1 for row in plan.privileges if row.change in (Change.NEW, Change.UNKNOWN))
    return f", {gained} new privilege{'' if gained == 1 else 's'}" if gained else ""


def digest(plan: Plan) -> str:
    """The plan's hash: the same for the same steps and holds, whatever the time of day."""
    lines = [line for step in plan.steps for line in _lines(step)]
    return fingerprint(plan.revision, *lines, *(_hold(hold) for hold in plan.holds))


def to_lines(plan: Plan) -> list[str]:
    """The plan as lines: one a step (steps before it, number, object, action, cause), then holds and waits.

    Before the steps stand the privileges of the workloads that are created or changed, and the fields that differ.
    """
    count = f"{len(plan.steps)} step{'' if len(plan.steps) == 1 else 's'}, {len(plan.holds)} held"
    lines = [f"plan {digest(plan)}: {count}{gained(plan)}"]
    lines += privilege_lines(plan.privileges)
    lines += [line for changed in plan.changed for line in _changed(changed)]
    lines += file_diffs.to_lines(plan.file_diffs)
    lines += [line for step in plan.steps for line in _lines(step)]
    lines += [_hold(hold) for hold in plan.holds]
    lines += [_wait(wait) for wait in plan.waits]
    if plan.guard_hash:
        lines.append(f"to approve the held changes, run: {plan.approve_command}")
    if plan.truncated:
        lines.append(f"the forecast ends here: {plan.truncated}")
    return lines


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


def to_json(plan: Plan, steady: int) -> dict[str, Any]:
    """The plan as a value for JSON. `steady` is now (ns); the times of retries are relative to it."""
    return {
        "format_version": FORMAT_VERSION,
        "plan": digest(plan),
        "revision": plan.revision,
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
                **({"changes": changes} if (changes := spelled_out(step.step.action)) else {}),
            }
            for step in plan.steps
        ],
        "changed": [
            {
                "object": changed.object,
                "before": changed.before,
                "after": changed.after,
                "fields": None if changed.fields is None else [field._asdict() for field in changed.fields],
            }
            for changed in plan.changed
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
