"""`reconcile PATH --once | --watch | --dry-run`: the three ways to run, and the help of the whole program."""

from pathlib import Path
from typing import Any

import click

from reconciler.cli.app import COMMANDS
from reconciler.cli.options import (
    Options,
    common_options,
    instance_option,
    intent_options,
    log_options,
    mistake,
    state_option,
    timeout_option,
    wait_option,
)
from reconciler.exits import Exit

_SHOWN = (Exit.OK, Exit.ERROR, Exit.CHANGES, Exit.INVALID, Exit.LOCKED, Exit.UNFINISHED, Exit.PERSON, Exit.USAGE)


class _Program(click.Command):
    """The command without a name: its help is that of the program."""

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Both ways to call it."""
        del ctx
        formatter.write_usage("reconcile", "PATH --once | --watch | --dry-run [OPTIONS]")
        formatter.write_usage("reconcile", "COMMAND [OPTIONS]", prefix="       ")

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Commands and exit codes below the options."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.summary) for name, entry in COMMANDS.items()])
        with formatter.section("Exit codes"):
            rows = [(str(int(code)), code.sentence) for code in _SHOWN]
            formatter.write_dl([*rows, ("130, 143", "ended by SIGINT, by SIGTERM")])
        super().format_epilog(ctx, formatter)


@click.command(
    cls=_Program,
    epilog="""\b
Examples:
  reconcile --once manifests/              converge and exit, as in CI
  reconcile --watch manifests/             keep converging, as a daemon
  reconcile plan manifests/                the same as --dry-run
  reconcile status manifests/              what is the state of everything?
  reconcile explain workload/web           why is it so?
""",
)
@click.argument("path", type=click.Path(path_type=Path), required=False)
@click.option("--once", is_flag=True, help="Converge once and exit.")
@click.option("--watch", is_flag=True, help="Keep converging until a signal comes.")
@click.option("--dry-run", is_flag=True, help="Show the plan, change nothing.")
@timeout_option
@wait_option
@intent_options
@instance_option
@state_option
@log_options
@common_options
def converge(path: Path | None, once: bool, watch: bool, dry_run: bool, **raw: Any) -> Exit:
    """Keep containers, endpoint weights and DNS records as manifests say."""
    options = Options.of(raw)
    modes = [name for name, on in (("--once", once), ("--watch", watch), ("--dry-run", dry_run)) if on]
    if len(modes) > 1:
        raise mistake(f"{' and '.join(modes)} exclude each other", "choose one of them")
    if path is None:
        raise mistake("PATH is missing", f"write: reconcile {' '.join(modes) or '--once'} MANIFESTS")
    if not modes:
        raise _no_mode(path)
    if watch:
        _refuse_for_watch(options)
        from reconciler.cli.run import watch as run_watch  # noqa: PLC0415  (what runs is imported when it runs)

        return run_watch(path, options)
    if dry_run:
        if not options.wait:
            raise mistake("--dry-run waits for nothing anyway", "leave --no-wait out")
        from reconciler.cli.plan import show_plan  # noqa: PLC0415

        return show_plan(path, options, detailed=False)
    from reconciler.cli.run import once as run_once  # noqa: PLC0415

    return run_once(path, options)


def _no_mode(path: Path) -> click.UsageError:
    """A word alone: a mistyped command, or a path without a way to run."""
    from manifests.problems import suggest  # noqa: PLC0415  (only for the hint)

    guess = suggest(str(path), COMMANDS)
    if guess and not path.exists():
        return mistake(f"there is no command and no path '{path}'", f"did you mean 'reconcile {guess}'?")
    if not path.exists():
        return mistake(f"there is no command and no path '{path}'", f"commands: {', '.join(COMMANDS)}")
    return mistake("say how to run: --once, --watch or --dry-run", f"write: reconcile --once {path}")


def _refuse_for_watch(options: Options) -> None:
    """Options that mean something only for a run that ends."""
    if options.view.json:
        raise mistake(
            "--watch has no single result to print as JSON",
            "use --log-format json for the log, and 'reconcile status -o json' for the state",
        )
    if not options.wait:
        raise mistake("--watch and --no-wait exclude each other", "use --once --no-wait for one pass")
