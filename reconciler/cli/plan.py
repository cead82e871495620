"""`reconcile plan PATH`: what would be done, in order and with causes, without changing anything."""

from pathlib import Path
from typing import Any

import click

from reconciler.cli.options import (
    DurationType,
    Options,
    common_options,
    instance_option,
    intent_options,
    path_argument,
    state_option,
)
from reconciler.exits import Exit


@click.command(
    epilog="""\b
A line a step: [the numbers it comes after] number object: action (cause: message).

\b
Exit codes: 0 planned, 6 something cannot be read, 3 invalid manifests;
with --detailed-exitcode 2 if and only if there are steps.

\b
Examples:
  reconcile plan manifests/
  reconcile plan manifests/ --prune --detailed-exitcode
  reconcile plan manifests/ -o json | jq '.steps[].action'
""",
)
@path_argument
@click.option("--detailed-exitcode", is_flag=True, help="Exit with 2 when the plan has steps.")
@intent_options
@click.option(
    "--timeout",
    type=DurationType(),
    default=30 * 1_000_000_000,
    metavar="DURATION",
    help="How long probes may take to answer; default 30s.",
)
@instance_option
@state_option
@common_options
def plan(path: Path, detailed_exitcode: bool, **raw: Any) -> Exit:
    """Show what applying the manifests at PATH would do, and change nothing.

    Each provider is asked once and each network probe tried once; what they do not answer stays unknown.
    """
    return show_plan(path, Options.of(raw), detailed=detailed_exitcode)


def show_plan(path: Path, options: Options, *, detailed: bool) -> Exit:
    """Make the plan, print it, return how it ended."""
    from reconciler.cli import run  # noqa: PLC0415  (what runs is imported when it runs)
    from reconciler.cli.render.plan import plan_json, plan_text  # noqa: PLC0415

    made, decision, now = run.look(path, options, run.intent(options))
    code = judge(bool(made.steps), blind=bool(decision.status.unknown), detailed=detailed)
    if options.view.json:
        options.view.document(plan_json(made, decision, now, code))
    else:
        options.view.out(plan_text(made, decision, code, options.view.paint))
    return code


def judge(steps: bool, *, blind: bool, detailed: bool) -> Exit:
    """The exit code of a plan: with `detailed`, CHANGES exactly when there are steps; blind means a provider gave no answer."""
    if detailed and steps:
        return Exit.CHANGES
    return Exit.UNFINISHED if blind else Exit.OK
