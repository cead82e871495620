"""Running the loop from the command line: once, for ever, or just looking. Shared by the commands that converge or plan."""

import asyncio
import sys
from pathlib import Path

from manifests.values.desired import SECOND
from reconciler import wire
from reconciler.cli.options import Options
from reconciler.cli.render.progress import Logged, Progress, Screen, Silent, ticking
from reconciler.cli.render.summary import summary_json, summary_text
from reconciler.cli.view import terminal
from reconciler.core.decision import Decision, Plan
from reconciler.core.model.instant import Now
from reconciler.exits import Exit
from reconciler.shell.clock import SystemClock
from reconciler.shell.logs import LogFormat, configure
from reconciler.shell.report.summary import Summary

LOOK = 30 * SECOND
"""How long probes get to answer at most before a run that may go on for longer (ns)."""


def _reporter(options: Options, clock: SystemClock, endless: bool) -> Progress | Logged:
    """Set up the log and choose who tells what happens."""
    view = options.view
    as_json = options.log_format == "json"
    live = not (endless or as_json or view.quiet) and terminal(sys.stderr) and view.color != "never"
    screen = Screen(sys.stderr, live)
    configure(options.log_level, LogFormat(options.log_format), stream=screen)  # type: ignore[arg-type]
    if view.quiet:
        return Silent()
    if endless or as_json:
        return Logged()
    return Progress(screen, clock, view.paint_err if view.json else view.paint, None if view.json else view.out)


def intent(options: Options, *, destroy: bool = False, approve: str = "") -> wire.Intent:
    """What this run may do beyond the manifests."""
    return wire.Intent(prune=options.prune, take_over=options.take_over, destroy=destroy, approve=approve)


def once(path: Path, options: Options, wanted: wire.Intent | None = None, operation: str = "reconcile --once") -> Exit:
    """Converge once, print the result, return how it ended. `operation` names the run to whoever finds the lock taken."""
    clock = SystemClock()
    reporter = _reporter(options, clock, endless=False)

    async def body() -> Summary:
        async with ticking(reporter, clock):
            return await wire.run_once(
                path,
                instance_file=options.instance,
                state=options.state_dir,
                intent=wanted or intent(options),
                within=options.timeout,
                wait=options.wait,
                reporter=reporter,
                operation=operation,
            )

    summary = asyncio.run(body())
    _print(summary, clock.now(), options, streamed=reporter.streams)
    return summary.exit


def _print(summary: Summary, now: Now, options: Options, *, streamed: bool) -> None:
    view = options.view
    if view.json:
        view.document(summary_json(summary, now))
    elif not (view.quiet and summary.exit is Exit.OK and not summary.done):
        view.out(summary_text(summary, now, view.paint, streamed=streamed))


def watch(path: Path, options: Options) -> Exit:
    """Keep converging until a signal comes."""
    reporter = _reporter(options, SystemClock(), endless=True)
    code = asyncio.run(
        wire.run_watch(
            path,
            instance_file=options.instance,
            state=options.state_dir,
            intent=intent(options),
            reporter=reporter,
        )
    )
    options.view.err(f"result: {code.sentence} (exit {int(code)})")
    return code


def look(path: Path, options: Options, wanted: wire.Intent) -> tuple[Plan, Decision, Now]:
    """Look once and make the whole plan; nothing is locked or written."""
    configure("debug" if options.view.verbose else "warning", LogFormat(options.log_format))
    return asyncio.run(
        wire.make_plan(
            path,
            instance_file=options.instance,
            state=options.state_dir,
            intent=wanted,
            deadline=min(options.timeout, LOOK),
            note=options.view.err,
        )
    )
