"""`reconcile PATH --once | --watch | --dry-run`: the three ways to run, and the help of the program."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from reconciler.cli.app import COMMANDS
from reconciler.cli.given import path_argument, required
from reconciler.cli.options import (
    Options,
    approve_option,
    common_options,
    instance_option,
    intent_options,
    log_options,
    state_option,
    textfile_option,
    timeout_option,
    usage_error,
    wait_option,
)
from reconciler.exits import Exit

if TYPE_CHECKING:
    from reconciler.tree import Given

_SHOWN = (
    Exit.OK,
    Exit.ERROR,
    Exit.CHANGES,
    Exit.INVALID,
    Exit.STALE,
    Exit.LOCKED,
    Exit.UNFINISHED,
    Exit.MANUAL,
    Exit.SOURCE,
    Exit.USAGE,
)


class _Program(click.Command):
    """The command without a name; its help is the help of the program."""

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write both forms of the command line."""
        del ctx
        formatter.write_usage("reconcile", "PATH --once | --watch | --dry-run [OPTIONS]")
        formatter.write_usage("reconcile", "COMMAND [OPTIONS]", prefix="       ")

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write commands and exit codes below the options."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.summary) for name, entry in COMMANDS.items()])
        with formatter.section("Exit codes"):
            rows = [(str(int(code)), code.sentence) for code in _SHOWN]
            formatter.write_dl([*rows, ("130, 143", "interrupted by SIGINT, terminated by SIGTERM")])
        super().format_epilog(ctx, formatter)


@click.command(
    cls=_Program,
    epilog="""\b
Examples:
  reconcile --once manifests/              converge and exit, as in CI
  reconcile --watch manifests/             keep converging, as a daemon
  reconcile --watch --instance DIR         the same, from the git source that the Instance in DIR names
  reconcile plan manifests/                show the steps of a run (same as --dry-run)
  reconcile status manifests/              show the state of all objects
  reconcile explain workload/web           explain the state of one object
""",
)
@path_argument
@click.option("--once", is_flag=True, help="Converge once and exit.")
@click.option("--watch", is_flag=True, help="Keep converging until interrupted or terminated.")
@click.option("--dry-run", is_flag=True, help="Show the plan, and change nothing.")
@timeout_option
@wait_option
@approve_option
@textfile_option
@intent_options
@instance_option
@state_option
@log_options
@common_options
def converge(path: "Given | None", once: bool, watch: bool, dry_run: bool, approve: str, **raw: Any) -> Exit:
    """Make containers, load-balancer weights and DNS records match the manifests at PATH."""
    options = Options.of(raw)
    modes = [name for name, on in (("--once", once), ("--watch", watch), ("--dry-run", dry_run)) if on]
    if len(modes) > 1:
        raise usage_error(f"{' and '.join(modes)} cannot be used together", "choose one of them")
    path = required(path, options, f"reconcile {' '.join(modes) or '--once'}")
    if not modes:
        raise _no_mode(path)
    if watch:
        _refuse_for_watch(options, approve)
        from reconciler.cli.run import watch as run_watch  # noqa: PLC0415  (imported when it is needed)

        return run_watch(path, options)
    if dry_run:
        if options.textfile is not None:
            raise usage_error(
                "--dry-run and --metrics-textfile cannot be used together", "leave out --metrics-textfile"
            )
        if not options.wait:
            raise usage_error(
                "--dry-run and --no-wait cannot be used together", "leave out --no-wait: a dry run never waits"
            )
        from reconciler.cli.plan import show_plan  # noqa: PLC0415

        return show_plan(path, options, detailed=False, approve=approve)
    from reconciler.cli import run  # noqa: PLC0415

    return run.once(path, options, run.intent(path, options, approve=approve))


def _no_mode(path: "Given") -> click.UsageError:
    """The error for a PATH without a mode. `cli/app.py` has refused a mistyped command."""
    if isinstance(path, Path) and not path.exists():
        return usage_error(f"'{path}' is neither a command nor an existing path", f"commands: {', '.join(COMMANDS)}")
    return usage_error("a mode is missing: --once, --watch or --dry-run", f"run: reconcile --once {path}")


def _refuse_for_watch(options: Options, approve: str) -> None:
    """Refuse options that have a meaning only for a run that ends."""
    if options.view.json:
        raise usage_error(
            "--watch and --output json cannot be used together",
            "use --log-format json for the log, and 'reconcile status -o json' for the state",
        )
    if approve:
        raise usage_error(
            "--watch and --approve cannot be used together",
            "start the daemon first, then give it the hash: reconcile apply PATH --yes --approve HASH",
        )
    if options.textfile is not None:
        raise usage_error(
            "--watch and --metrics-textfile cannot be used together",
            "declare spec.metrics in the Instance, and let Prometheus scrape the daemon",
        )
    if not options.wait:
        raise usage_error("--watch and --no-wait cannot be used together", "use --once --no-wait for one pass")
