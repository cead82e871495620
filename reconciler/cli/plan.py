"""`reconcile plan PATH`: shows the steps of a run, in order and with their causes, and changes nothing."""

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import click

from reconciler.cli.given import given
from reconciler.cli.last_good import chosen, id_option, path_or_id
from reconciler.cli.options import (
    DurationType,
    Options,
    instance_option,
    intent_options,
    review_options,
    state_option,
    usage_error,
)
from reconciler.exits import Exit

if TYPE_CHECKING:
    from reconciler.snapshots.snapshot import Snapshot
    from reconciler.tree import Given
    from reconciler.wire import MadePlan


@click.command(
    epilog="""\b
First what is destroyed, then each object: its changed fields (~ old -> new, + added, - removed)
with what they take, what follows for traffic and names, and its steps, one line each:
[numbers of the steps before it] number object: action (cause: message).

\b
-o markdown is a comment for a merge request, shorter than 65,536 characters, also for manifests
that have no plan; reconcile comment posts it.

\b
Without --instance the manifests are trusted like a script: plan asks every server, opens
every socket and reads every secret that they name.

\b
With --out the plan is also saved, as data for a review and for 'reconcile apply PATH --plan
FILE', which approves what spec.approve of the Guard asks for and refuses a stale plan.

\b
Exit codes: 0 planned, 3 invalid manifests, 6 a provider or a secret cannot be read, 7 a secret
that a container needs is missing or unusable, 8 the git source or the snapshot is refused;
with --detailed-exitcode: 2 if and only if the plan has steps.

\b
Examples:
  reconcile plan manifests/
  reconcile plan manifests/ --prune --detailed-exitcode
  reconcile plan manifests/ --instance /etc/reconciler --untrusted
  reconcile plan manifests/ --instance-id my-host
  reconcile plan manifests/ --out release.plan --expires 8h
  reconcile plan manifests/ --observed host.snapshot --observed-key host.pub
  reconcile plan manifests/ -o json | jq '.steps[].action'
  reconcile plan manifests/ -o markdown > comment.md
""",
)
@path_or_id
@click.option("--detailed-exitcode", is_flag=True, help="Exit with 2 when the plan has steps.")
@click.option(
    "--untrusted",
    is_flag=True,
    help="For a stranger's pull request: ask only providers of local documents, resolve no secret, open no connection and run no "
    "program for the manifests at PATH, and show names only.",
)
@click.option("--out", type=click.Path(path_type=Path), metavar="FILE", help="Save the plan to FILE (mode 0600).")
@click.option("--expires", type=DurationType(), metavar="DURATION", help="How long a saved plan counts; default 1h.")
@click.option(
    "--observed",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Plan from this snapshot of the host ('reconcile snapshot'): ask no server, run no probe and read no secret.",
)
@click.option(
    "--observed-key",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Public SSH key that must have signed the snapshot; without it the signature is not checked.",
)
@intent_options
@click.option(
    "--timeout",
    type=DurationType(),
    default=30 * 1_000_000_000,
    metavar="DURATION",
    help="How long to wait for the answers of probes; default 30s.",
)
@id_option
@instance_option
@state_option
@review_options
def plan(
    path: "Given | None",
    detailed_exitcode: bool,
    untrusted: bool,
    observed: Path | None,
    observed_key: Path | None,
    instance_id: str,
    out: Path | None,
    expires: int | None,
    **raw: Any,
) -> Exit:
    """Show the steps that 'reconcile --once PATH' would take, and change nothing.

    Every provider is read once. Beside a running process, the plan uses the process's probe verdicts, pushes and holds, and
    says how old they are. Network probes without such a verdict are tried once; without an answer their state stays unknown.
    """
    options = Options.of(raw)
    if out is not None or expires is not None:
        from reconciler.cli.saved import save_plan  # noqa: PLC0415  (imported when it is needed)

        if out is None:
            raise usage_error("--expires is for a plan that is saved", "add --out FILE")
        path = given(path, options)
        if path is None or untrusted or instance_id or observed is not None:
            raise usage_error(
                "--out is for the manifests at PATH", "give PATH, without --untrusted, --instance-id and --observed"
            )
        return save_plan(path, options, out, expires, detailed=detailed_exitcode)
    if observed_key is not None and observed is None:
        raise usage_error("--observed-key is for --observed", "add --observed, or remove it")
    snapshot = None
    if observed is not None:
        path = given(path, options)
        if path is None or instance_id:
            raise usage_error("--observed is for the manifests at PATH", "give PATH, without --instance-id")
        from reconciler.cli.snapshot import opened  # noqa: PLC0415  (imported when it is needed)

        snapshot = opened(observed, observed_key, options)
    if untrusted and (path is None or instance_id):
        raise usage_error("--untrusted is for the manifests at PATH", "give PATH, without --instance-id")
    try:
        if untrusted and path is not None:
            return show_untrusted(path, options, detailed=detailed_exitcode, snapshot=snapshot)
        return show_plan(path, options, detailed=detailed_exitcode, instance_id=instance_id, snapshot=snapshot)
    except Exception as error:
        if options.markdown:
            from reconciler.cli.refused_plan import show_refusal  # noqa: PLC0415  (only for manifests that have no plan)

            show_refusal(error, path, options)
        raise


def show_untrusted(path: "Given", options: Options, *, detailed: bool, snapshot: "Snapshot | None" = None) -> Exit:
    """Make the plan for an author who is not trusted, print it by names, and return the exit code."""
    from reconciler.cli import run  # noqa: PLC0415  (imported when it is needed)
    from reconciler.cli.render.untrusted import untrusted_json, untrusted_lines, untrusted_markdown  # noqa: PLC0415

    made = run.make_plan(path, options, run.intent(path, options), untrusted=True, snapshot=snapshot)
    desired = made.decision.status.desired
    assert desired is not None  # noqa: S101  (a decision of a plan is about manifests)
    code = exit_code(bool(made.plan.steps), unreadable=bool(made.decision.status.unknown), detailed=detailed)
    if options.view.json:
        options.view.document(untrusted_json(made, desired, code))
    elif options.markdown:
        options.view.markdown(untrusted_markdown(made, desired, code, command_line(path, options, "--untrusted")))
    else:
        options.view.out(*untrusted_lines(made, desired, code, options.view.paint))
    return code


def show_plan(
    path: "Given | None",
    options: Options,
    *,
    detailed: bool,
    instance_id: str = "",
    approve: str = "",
    snapshot: "Snapshot | None" = None,
) -> Exit:
    """Make the plan, print it, and return the exit code."""
    from reconciler.cli import run  # noqa: PLC0415  (imported when it is needed)
    from reconciler.cli.render.plan import plan_json, plan_lines, plan_markdown  # noqa: PLC0415

    place, stored = chosen(path, options, instance_id)
    run_intent = run.intent(place.path, options, approve=approve)
    made = run.make_plan(place.path, options, run_intent, place, stored, snapshot=snapshot)
    code = code_of(made, detailed=detailed)
    if options.view.json:
        options.view.document(plan_json(made, code))
    elif options.markdown:
        shown = f"--instance-id {instance_id}" if instance_id else ""
        options.view.markdown(plan_markdown(made, code, command_line(path, options, shown)))
    else:
        options.view.out(*plan_lines(made, code, options.view.paint))
    return code


def command_line(path: "Given | None", options: Options, *more: str) -> str:
    """The command that shows this plan whole, for a comment that has no room for it."""
    words = ["reconcile plan", "" if path is None else quote(str(path))]
    words += [f"--instance {quote(str(options.instance))}" if options.instance is not None else ""]
    words += [f"--env {options.env}" if options.env is not None else "", *more]
    return " ".join(word for word in words if word)


def code_of(made: "MadePlan", *, detailed: bool) -> Exit:
    """The exit code of a plan that reads secrets too."""
    from reconciler.core.model.reasons import Rule  # noqa: PLC0415

    rules = {hold.rule for hold in made.plan.holds}
    return exit_code(
        bool(made.plan.steps),
        unreadable=bool(made.decision.status.unknown) or Rule.SECRET_UNKNOWN in rules,
        unusable=Rule.SECRET_UNUSABLE in rules,
        detailed=detailed,
    )


def exit_code(has_steps: bool, *, unreadable: bool, detailed: bool, unusable: bool = False) -> Exit:
    """The exit code of a plan. With `detailed` it is CHANGES exactly when there are steps.

    unreadable: a provider or secret gave no answer. unusable: a secret is missing or unusable, which an operator must mend.
    """
    if detailed and has_steps:
        return Exit.CHANGES
    if unreadable:
        return Exit.UNFINISHED
    return Exit.MANUAL if unusable else Exit.OK
