"""The options that commands share, and the value made of them. Light on purpose: imported for every command line."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import click

from manifests.escape import escape
from reconciler.cli.view import View

F = TypeVar("F", bound=Callable[..., Any])

TIMEOUT = 600 * 1_000_000_000
"""The default time limit of a run (ns): 10 minutes."""


class DurationType(click.ParamType[int]):
    """A duration as in manifests, `90s` or `1h30m`, in nanoseconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The value in ns; a usage error when it is not a duration."""
        if isinstance(value, int):
            return value
        from pydantic_core import PydanticCustomError  # noqa: PLC0415  (only when a duration is given)

        from manifests.types.durations import parse_duration  # noqa: PLC0415

        try:
            return int(parse_duration(value))
        except PydanticCustomError:
            self.fail(f"'{value}' is not a duration: use a number with a unit, such as 90s, 10m or 1h30m", param, ctx)


class When(NamedTuple):
    """A point in time on a command line: a wall-clock instant, or so long ago (ns). One of the two is None."""

    wall: int | None = None
    ago: int | None = None

    def at(self, now: int) -> int:
        """The wall-clock instant (ns). `now` is the wall clock."""
        return self.wall if self.wall is not None else now - (self.ago or 0)


class WhenType(click.ParamType[When]):
    """A time of RFC 3339, or a duration that is counted back from now."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> When:
        """The point in time; a usage error when it is neither."""
        if isinstance(value, When):
            return value
        from pydantic_core import PydanticCustomError  # noqa: PLC0415  (only when a time is given)

        from manifests.types.durations import parse_duration  # noqa: PLC0415
        from manifests.types.moments import parse_moment  # noqa: PLC0415

        with suppress(PydanticCustomError):
            return When(ago=int(parse_duration(value)))
        try:
            return When(wall=int(parse_moment(value)))
        except PydanticCustomError as error:
            self.fail(
                f"{error.message()}: use a time such as 2030-01-31T22:00:00Z, or how long ago: 90s, 1h30m", param, ctx
            )


@dataclass(frozen=True, slots=True)
class Options:
    """The shared options of one command line. Options that the command does not have keep their defaults.

    timeout is in ns. prune is None without `--prune` and `--no-prune`: then the Instance decides.
    """

    view: View
    instance: Path | None = None
    env: str | None = None
    state_dir: Path | None = None
    timeout: int = TIMEOUT
    wait: bool = True
    prune: bool | None = None
    take_over: bool = False
    log_format: str = "text"
    textfile: Path | None = None
    markdown: bool = False

    @classmethod
    def of(cls, raw: Mapping[str, Any]) -> "Options":
        """Make it from the parameters that click parsed."""
        view = View(
            json=raw.get("output") == "json",
            color=raw.get("color", "auto"),
            verbose=raw.get("verbose", False),
            quiet=raw.get("quiet", False),
        )
        if view.verbose and view.quiet:
            raise click.UsageError("--verbose and --quiet cannot be used together")
        return cls(
            view=view,
            instance=raw.get("instance"),
            env=raw.get("env"),
            state_dir=raw.get("state_dir"),
            timeout=raw.get("timeout", TIMEOUT),
            wait=not raw.get("no_wait", False),
            prune=raw.get("prune"),
            take_over=raw.get("take_over", False),
            log_format=raw.get("log_format", "text"),
            textfile=raw.get("metrics_textfile"),
            markdown=raw.get("output") == "markdown",
        )

    @property
    def log_level(self) -> str:
        """The lowest level of logs that are written."""
        return "debug" if self.view.verbose else "warning" if self.view.quiet else "info"


def _version(context: click.Context, _param: click.Parameter, value: bool) -> None:
    if not value or context.resilient_parsing:
        return
    from reconciler.version import version  # noqa: PLC0415  (only when asked for)

    click.echo(f"reconcile {version()}")
    context.exit()


_PATH = click.Path(path_type=Path)


def _add(*options: Callable[[F], F]) -> Callable[[F], F]:
    def apply(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return apply


def _common(*formats: str) -> Callable[[F], F]:
    """The options of a command with these forms of output."""
    return _add(
        click.option("-o", "--output", type=click.Choice(formats), default=formats[0], help="Output format."),
        click.option(
            "--color",
            type=click.Choice(["auto", "always", "never"]),
            default="auto",
            help="When to use colours; auto: on a terminal, unless NO_COLOR is set.",
        ),
        click.option(
            "-v", "--verbose", is_flag=True, help="Write debug logs, and show tracebacks of unexpected errors."
        ),
        click.option(
            "--version",
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_version,
            help="Show the version and exit.",
        ),
    )


common_options = _common("text", "json")
"""The options of every command (beside `--help`)."""

render_options = _common("yaml", "json")
"""The options of a command that shows manifests."""

review_options = _common("text", "json", "markdown")
"""The options of a command whose result may be a comment on a merge request."""


class _LocalPath(click.Path):
    """The file or directory of local documents. An empty text is no path: a variable that is not set must not mean the current directory."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path; a usage error when it is empty."""
        if value == "":
            self.fail("the path of the local documents is empty", param, ctx)
        return super().convert(value, param, ctx)


def _environment(_context: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    """Refuse what cannot be the name of an environment; an empty text too, because a variable that is not set must not mean the base."""
    if value is None:
        return None
    from manifests.source.directory import ENVIRONMENT_NAME, ENVIRONMENTS  # noqa: PLC0415  (only with the option)

    if not ENVIRONMENT_NAME.fullmatch(value):
        shown = f"'{value}' is not the name of an environment" if value else "the name of the environment is empty"
        raise usage_error(f"--env: {shown}", f"give the name of a directory in {ENVIRONMENTS} of PATH")
    return value


instance_option = _add(
    click.option(
        "--instance",
        type=_LocalPath(path_type=Path),
        metavar="FILE|DIR",
        help="Local documents: Instance, Guard and Providers, which say what the manifests at PATH may reach.",
    ),
    click.option(
        "--env",
        metavar="NAME",
        default=None,
        callback=_environment,
        help="Environment: merge environments/NAME/ of PATH over its other manifests; default: spec.source.env of the local Instance.",
    ),
)
"""What belongs to PATH of every command that takes one: local documents, and the environment."""

state_option = click.option(
    "--state-dir",
    type=_PATH,
    metavar="DIR",
    help="State directory; default: reconciler/ID below $XDG_STATE_HOME or ~/.local/state.",
)

log_options = _add(
    click.option(
        "--log-format", type=click.Choice(["text", "json"]), default="text", help="Format of the logs on stderr."
    ),
    click.option(
        "-q", "--quiet", is_flag=True, help="Show no progress, and no result when nothing changed and all is converged."
    ),
)

timeout_option = click.option(
    "--timeout",
    type=DurationType(),
    default=TIMEOUT,
    metavar="DURATION",
    help="Time limit of the run; default 10m.",
)


def _prom(_context: click.Context, _param: click.Parameter, value: Path | None) -> Path | None:
    """Refuse a file that the collector would not read, before the run."""
    if value is not None and value.suffix != ".prom":
        raise click.BadParameter(f"'{value.name}' does not end in .prom, so node_exporter would not read it")
    if value is not None and not value.parent.is_dir():
        raise click.BadParameter(f"the directory {value.parent} does not exist")
    return value


textfile_option = click.option(
    "--metrics-textfile",
    type=_PATH,
    metavar="FILE",
    callback=_prom,
    help="Write the metrics of the run to this .prom file, for node_exporter.",
)
"""For runs that end; a daemon is scraped."""

wait_option = click.option("--no-wait", is_flag=True, help="Take the steps that are due now, and wait for nothing.")

approve_option = click.option(
    "--approve",
    metavar="HASH",
    default="",
    help="Approve the held changes of the plan or status that shows this hash, for 24h; a running daemon does them.",
)

intent_options = _add(
    click.option(
        "--prune/--no-prune",
        default=None,
        help="Remove what this instance owns and no manifest names; default: spec.prune of the Instance.",
    ),
    click.option("--take-over", is_flag=True, help="Also prune objects that came from another source."),
)


def target_options(function: F) -> F:
    """The options that name the instance of a command that only reads its state: PATH, its id, or its state directory."""
    return _add(
        instance_option,
        click.option("--instance-id", metavar="ID", default="", help="Id of the instance, instead of PATH."),
        state_option,
    )(function)


def usage_error(message: str, hint: str = "") -> click.UsageError:
    """A usage error: what is wrong, and in a line of its own what to write instead."""
    return click.UsageError(f"{escape(message)}\n{escape(hint)}" if hint else escape(message))
