"""`plan --untrusted` as text and as JSON: what a stranger's pull request would do, without what only operators may know.

Its readers are authors who can open a pull request. So each line is built from names alone: objects, containers, pools, record sets, rules. Values
that were observed (addresses, weights, records, variables, commands, limits), messages of servers and the plan's hash, which is made
from them, are left out.
"""

from collections.abc import Iterable
from typing import Any

from manifests.values.desired import SECOND, Desired
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
from reconciler.cli.render.paint import Paint
from reconciler.cli.render.plan import colored
from reconciler.core import plan_review
from reconciler.core.decision import Basis, Changed, Planned
from reconciler.core.plan_markdown import to_markdown
from reconciler.core.plan_review import Review
from reconciler.core.plan_text import FORMAT_VERSION, IN_A_LINE, lines_of, numbered, privilege_lines
from reconciler.core.replicas.privilege_changes import Change
from reconciler.exits import Exit
from reconciler.wire import MadePlan


def not_looked_at(made: MadePlan, desired: Desired) -> list[str]:
    """What the plan does not rest on, a sentence each."""
    health = "health is unknown" if made.view is None else "health is what the running process knows"
    lines = [
        f"probes and health checks: none was run, so {health}",
        "secrets of the tree: none was read, so changed values are not known",
    ]
    of_tree = [provider.name for provider in desired.providers if not provider.local]
    if of_tree:
        lines.append(f"providers that the tree declares, which were not asked: {', '.join(of_tree)}")
    lines.append("of what runs only names are shown: no addresses, values, commands and messages")
    return lines


def _action(action: Action) -> str:
    match action:
        case CreateContainer():
            return f"create {action.name} on {action.node}"
        case StartContainer():
            return f"start {action.name}"
        case StopContainer():
            return f"stop {action.name}"
        case RemoveContainer():
            return f"remove {action.name}"
        case UpdateContainer():
            return f"update {action.name}"
        case SetWeight():
            return f"change a weight in {action.provider}/{action.pool}"
        case RemoveEndpoint():
            return f"remove an endpoint from {action.provider}/{action.pool}"
        case CutSessions():
            return f"cut sessions in {action.provider}/{action.pool}"
        case ChangeRecords():
            shown = [_change(change) for change in action.changes[:IN_A_LINE]]
            more = len(action.changes) - len(shown)
            return f"{'; '.join(shown)}{f' and {more} more' if more else ''} in {action.provider}"


def _change(change: RecordChange) -> str:
    verb = "create" if change.before is None else "delete" if change.after is None else "change"
    return f"{verb} {change.key.name} {change.key.type}"


def _object(key: str) -> str:
    """The key of an object without the address that keys of endpoints end with."""
    return key.rpartition("/")[0] if key.startswith("endpoint/") else key


def _changed(changed: Changed) -> dict[str, Any]:
    known = changed.basis is not Basis.UNKNOWN
    return {
        "object": changed.object,
        "fields": [field.field for field in changed.fields] if known else None,
        "effects": {field.field: field.effect.value or None for field in changed.fields},
    }


def _step(planned: Planned) -> str:
    step = planned.step
    return f"{numbered(planned)} {_object(step.object)}: {_action(step.action)} ({step.cause.value})"


def _result(made: MadePlan) -> str:
    sentence = Exit.CHANGES.sentence if made.plan.steps else "nothing to do"
    unknown = sorted(made.decision.status.unknown)
    return f"{sentence}; the plan is incomplete: {', '.join(unknown)} cannot be read" if unknown else sentence


def review_of(made: MadePlan, desired: Desired) -> Review:
    """The plan by names, after what was not looked at."""
    plan = made.plan
    steps, held = len(plan.steps), len(plan.holds)
    new = plan_review.gained(plan)
    privileges = f", {new} new privilege{'' if new == 1 else 's'}" if new else ""
    return Review(
        heads=(
            *((f"at commit {made.commit}",) if made.commit else ()),
            f"untrusted plan of instance '{desired.instance.id}'; not looked at:",
            *(f"  - {line}" for line in not_looked_at(made, desired)),
            f"plan: {steps} step{'' if steps == 1 else 's'}, {held} held{privileges}",
        ),
        counts=plan_review.counts(plan),
        destroyed=plan_review.destroyed(plan, names_only=True),
        privileges=tuple(privilege_lines(plan.privileges, names_only=True)),
        groups=plan_review.groups(plan, ((planned, [_step(planned)]) for planned in plan.steps), names_only=True),
        holds=_unique(f"hold {_object(hold.object)} ({hold.rule.value})" for hold in plan.holds),
        waits=_unique(f"wait {_object(wait.object)}: {wait.waiting.value}" for wait in plan.waits),
        notes=("the forecast ends here",) if plan.truncated else (),
    )


def untrusted_lines(made: MadePlan, desired: Desired, code: Exit, paint: Paint) -> list[str]:
    """What was not looked at, then the plan by names, then its result with the exit code."""
    lines = [colored(line, paint) for line in lines_of(review_of(made, desired))]
    return [*lines, f"result: {_result(made)} (exit {int(code)})"]


def untrusted_markdown(made: MadePlan, desired: Desired, code: Exit, command: str) -> str:
    """The same as Markdown. `command` shows the whole plan."""
    result = f"{_result(made)} (exit {int(code)})"
    return to_markdown(review_of(made, desired), instance=desired.instance.id, result=result, command=command)


def _unique(lines: Iterable[str]) -> tuple[str, ...]:
    """The lines without repeats: without messages, several holds of one object look alike."""
    return tuple(dict.fromkeys(lines))


def untrusted_json(made: MadePlan, desired: Desired, code: Exit) -> dict[str, Any]:
    """The same as a JSON object."""
    plan = made.plan
    return {
        "format_version": FORMAT_VERSION,
        "untrusted": True,
        "instance": desired.instance.id,
        "not_looked_at": not_looked_at(made, desired),
        "summary": {row.name: row.number for row in plan_review.counts(plan)},
        "destroyed": list(plan_review.destroyed(plan, names_only=True)),
        "steps": [
            {
                "number": planned.number,
                "after": list(planned.after),
                "delay_seconds": planned.delay / SECOND,
                "object": _object(planned.step.object),
                "action": _action(planned.step.action),
                "kind": type(planned.step.action).__name__,
                "cause": planned.step.cause.value,
            }
            for planned in plan.steps
        ],
        "changed": [_changed(changed) for changed in plan.changed],
        "privileges": [
            {
                "object": row.object,
                "container": row.privilege.container,
                "change": row.change.value,
                "privilege": row.privilege.field.value,
                "text": None if row.change is Change.REMOVED else row.privilege.text,
            }
            for row in plan.privileges
        ],
        "holds": [{"object": _object(hold.object), "rule": hold.rule.value} for hold in plan.holds],
        "waits": [{"object": _object(wait.object), "waiting": wait.waiting.value} for wait in plan.waits],
        "truncated": bool(plan.truncated),
        "exit_code": int(code),
        "result": _result(made),
        "unknown": sorted(made.decision.status.unknown),
    }
