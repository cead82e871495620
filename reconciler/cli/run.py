"""Runs the loop from the command line: once, for ever, or for a plan only. Shared by the commands that converge or plan."""

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
from reconciler.intent import Intent
from reconciler.shell.clock import SystemClock
from reconciler.shell.logs import LogFormat, configure
from reconciler.shell.report.summary import Summary
from reconciler.tree import Location

PROBE_TIME = 30 * SECOND
"""The longest time that a plan waits for probes, whatever the time limit of the command is (ns)."""


def location(path: Path, options: Options) -> Location:
    """Where the manifests and the state of this command line are."""
    return Location(path, options.instance, options.state_dir)


def intent(options: Options, *, destroy: bool = False, approve: str = "") -> Intent:
    """What this run may do beyond the manifests."""
    return Intent(prune=options.prune, take_over=options.take_over, destroy=destroy, approve=approve)


def _reporter(options: Options, clock: SystemClock, endless: bool) -> Progress | Logged:
    """Configure the log and choose the reporter of this run."""
    view = options.view
    json_log = options.log_format == "json"
    live = not (endless or json_log or view.quiet) and terminal(sys.stderr) and view.color != "never"
    screen = Screen(sys.stderr, live)
    configure(options.log_level, LogFormat(options.log_format), stream=screen)  # type: ignore[arg-type]
    if view.quiet:
        return Silent()
    if endless or json_log:
        return Logged()
    return Progress(screen, clock, view.paint_err if view.json else view.paint, None if view.json else view.out)


def once(
    path: Path,
    options: Options,
    run_intent: Intent | None = None,
    operation: str = "reconcile --once",
    place: Location | None = None,
    stored: wire.StartManifests | None = None,
) -> Exit:
    """Converge once, print the result, and return the exit code.

    Args:
        operation: names the run in the lock's owner record.
        place, stored: stored manifests that take the place of those at `path`, and where their instance is.
    """
    clock = SystemClock()
    reporter = _reporter(options, clock, endless=False)

    async def body() -> Summary:
        async with ticking(reporter, clock):
            return await wire.run_once(
                place or location(path, options),
                intent=run_intent or intent(options),
                within=options.timeout,
                wait=options.wait,
                reporter=reporter,
                operation=operation,
                stored=stored,
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
    """Keep converging until a signal ends it."""
    reporter = _reporter(options, SystemClock(), endless=True)
    code = asyncio.run(wire.run_watch(location(path, options), intent=intent(options), reporter=reporter))
    options.view.err(f"result: {code.sentence} (exit {int(code)})")
    return code


def make_plan(
    path: Path,
    options: Options,
    run_intent: Intent,
    place: Location | None = None,
    stored: wire.StartManifests | None = None,
) -> tuple[Plan, Decision, Now]:
    """Observe everything once and make the whole plan, without a lock and without a write."""
    configure("debug" if options.view.verbose else "warning", LogFormat(options.log_format))
    return asyncio.run(
        wire.make_plan(
            place or location(path, options),
            intent=run_intent,
            deadline=min(options.timeout, PROBE_TIME),
            note=options.view.err,
            stored=stored,
        )
    )
