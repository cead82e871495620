"""Saves a plan, and applies a saved one: `reconcile plan --out` and `reconcile apply --plan`.

Nothing is executed from the file. The plan is made again, compared with the file (`reconciler/saved_plan.py`), and then the run decides
by the same rules as every run; the file only limits what it may remove or disrupt, and approves what the Guard asks to approve.
"""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from manifests.values.desired import SECOND
from reconciler import saved_plan
from reconciler.cli import run
from reconciler.cli.inbox import send_and_report
from reconciler.cli.options import Options, usage_error
from reconciler.cli.plan import code_of, command_line
from reconciler.cli.render.plan import plan_json, plan_lines, plan_markdown, result
from reconciler.cli.render.saved import approves_json, approves_lines, saved_line
from reconciler.cli.view import masked
from reconciler.cli.where import find
from reconciler.core.plan_text import digest, to_lines
from reconciler.exits import Exit
from reconciler.intent import Intent
from reconciler.saved_plan import EXPIRES, SavedPlan, StalePlan
from reconciler.shell.clock import SystemClock
from reconciler.shell.store.lock import holder
from reconciler.version import version
from reconciler.wire import WATCH, MadePlan

if TYPE_CHECKING:
    from reconciler.tree import Given

LONGEST = 30 * 86_400 * SECOND
"""The longest time that a plan may count (ns)."""


def save_plan(path: "Given", options: Options, out: Path, expires: int | None, *, detailed: bool) -> Exit:
    """Make a plan as if it were approved, save it, print it, and return the exit code. An incomplete plan is not saved."""
    lasts = EXPIRES if expires is None else expires
    if not SECOND <= lasts <= LONGEST:
        raise usage_error("--expires must be between 1s and 720h", "give a time such as 8h")
    saved_plan.check_target(out, path if isinstance(path, Path) else None)
    made = run.make_plan(path, options, run.intent(path, options), approving=True)
    code, complete = code_of(made, detailed=detailed), code_of(made, detailed=False)
    saved = None
    if complete is Exit.UNFINISHED:
        next_step = "make all providers and secrets reachable"
        options.view.err(f"the plan is incomplete, so {out} was not written; next step: {next_step}")
        code = Exit.UNFINISHED
    else:
        saved = _saved(path, options, made, lasts)
        saved_plan.write(out, saved)
    if options.view.json:
        document = {**plan_json(made, code), **approves_json(made.plan)}
        options.view.document({**document, "saved": None if saved is None else str(out)})
        return code
    if options.markdown:
        options.view.markdown(plan_markdown(made, code, command_line(path, options)))
        return code
    lines = approves_lines(made.plan)
    if saved is not None:
        lines.append(saved_line(out, saved, made.now.wall, command_line(path, options)))
    *shown, last = plan_lines(made, code, options.view.paint)
    options.view.out(*shown, *lines, last)
    return code


def _saved(path: "Given", options: Options, made: MadePlan, lasts: int) -> SavedPlan:
    """The content of the file. Raises StalePlan when the manifests changed while the plan was made."""
    desired, observed = made.decision.status.desired, made.decision.status.observed
    assert desired is not None  # noqa: S101  (a decision of a plan is about manifests)
    sources = run.location(path, options).read()
    if sources.revision != desired.revision:
        raise StalePlan(["the manifests changed while the plan was made"])
    text = [*to_lines(made.plan), *approves_lines(made.plan), f"result: {result(made.plan, made.decision)}"]
    return saved_plan.make(
        made.plan,
        desired,
        observed,
        sources,
        text=[masked(line) for line in text],
        digest=digest(made.plan),
        commit=made.plan.planned.commit,
        lineage=made.lineage,
        tool=version(),
        wall=SystemClock().now().wall,
        expires=lasts,
    )


def apply_saved(path: "Given", options: Options, file: Path, approve: str) -> Exit:
    """Compare a saved plan with what is there, and converge once when nothing has moved. Returns the exit code.

    Raises:
        PlanFileError, StalePlan: the file cannot be used, or is not about what is there.
    """
    saved = saved_plan.read(file)
    if options.prune not in (None, saved.prune) or (options.take_over and not saved.take_over):
        raise usage_error("the plan was made with other options of --prune and --take-over", "leave them out")
    options = replace(options, prune=saved.prune, take_over=saved.take_over)
    intent = run.intent(path, options, approve=approve)
    made = run.make_plan(path, options, intent, approving=True)
    _compare(path, options, saved, made)
    intent = replace(
        intent,
        planned=saved.items,
        approves=tuple(sorted({change.item for change in saved.approvals})),
        approves_text=_text(saved, file),
        revision=saved.revision,
    )
    place = run.location(path, options)
    state = place.state_of(saved.instance)
    running = holder(state, SystemClock())
    owner = None if running is None else running.owner
    if saved.approvals and owner is not None and owner.operation.startswith(WATCH):
        return _approved_by_daemon(path, options, saved, intent)
    return run.once(path, options, intent, "reconcile apply --plan")


def _compare(path: "Given", options: Options, saved: SavedPlan, made: MadePlan) -> None:
    """Raise StalePlan with everything that has moved."""
    desired, observed = made.decision.status.desired, made.decision.status.observed
    assert desired is not None  # noqa: S101  (a decision of a plan is about manifests)
    sources = run.location(path, options).read()
    commit, wall = made.plan.planned.commit, SystemClock().now().wall
    moved = saved_plan.moved_sources(saved, desired, sources, commit, made.lineage, wall)
    if sources.revision != desired.revision:
        moved.append("the manifests changed while the plan was compared")
    if saved.instance == desired.instance.id:
        unknown = made.decision.status.unknown
        moved += [
            f"{name} cannot be read, so nothing is known of what the plan changes there" for name in sorted(unknown)
        ]
        if not unknown:
            moved += saved_plan.moved_outcome(saved, made.plan, observed, desired)
    if moved:
        raise StalePlan([masked(line) for line in moved])


def _text(saved: SavedPlan, file: Path) -> str:
    """What is approved with the plan, for the audit."""
    listed = "; ".join(f"{change.class_} {change.object}: {change.text}" for change in saved.approvals[:20])
    more = f"; and {len(saved.approvals) - 20} more" if len(saved.approvals) > 20 else ""
    return f"with the plan {saved.plan} in {file.name}: {listed}{more}"


def _approved_by_daemon(path: "Given", options: Options, saved: SavedPlan, intent: Intent) -> Exit:
    """Give the approvals of the plan to the running process, which takes the steps."""
    payload = {
        "object": saved_plan.approvals_hash(saved),
        "items": list(intent.approves),
        "reason": intent.approves_text,
    }
    effect = "approved for 24h, to be done by the running daemon"
    return send_and_report("approve", [payload], find(path, options, ""), options, f"plan {saved.plan}", effect)
