"""Runs the loop from the command line: once, for ever, or for a plan only. Shared by the commands that converge or plan."""

import asyncio
import json
import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from manifests.values.desired import SECOND
from reconciler import wire
from reconciler.cli.failures import code_of
from reconciler.cli.inbox import current_user, present_decision, refreshed, send_and_report
from reconciler.cli.options import Options, usage_error
from reconciler.cli.render.progress import Logged, Progress, Screen, Silent, ticking
from reconciler.cli.render.summary import summary_json, summary_lines
from reconciler.cli.view import terminal
from reconciler.cli.where import find, joined
from reconciler.core.limits import approvals
from reconciler.core.model.instant import Now
from reconciler.exits import Exit
from reconciler.intent import Intent
from reconciler.metrics.monitoring import Monitoring
from reconciler.shell.clock import SystemClock
from reconciler.shell.logs import LogFormat, configure
from reconciler.shell.report.summary import Summary
from reconciler.shell.store.directory import StoreError
from reconciler.shell.store.lock import holder
from reconciler.snapshots.snapshot import Snapshot
from reconciler.start import StartManifests
from reconciler.tree import Location
from reconciler.wire import WATCH

if TYPE_CHECKING:
    from reconciler.tree import Given

_HASH = re.compile(r"[0-9a-f]{16}")

PROBE_TIME = 30 * SECOND
"""The longest time that a plan waits for probes, whatever the time limit of the command is (ns)."""


def location(path: "Given", options: Options) -> Location:
    """Where the manifests and the state of this command line are."""
    return Location(path, options.instance, options.state_dir, environment=options.env)


def intent(path: "Given", options: Options, *, destroy: bool = False, approve: str = "") -> Intent:
    """What this run may do beyond the manifests. Raises a usage error when `approve` cannot be a hash."""
    if approve and not _HASH.fullmatch(approve):
        raise usage_error(
            f"'{approve}' is not a hash of held changes", "give the 16 digits that the plan or status shows"
        )
    return Intent(
        prune=options.prune,
        take_over=options.take_over,
        destroy=destroy,
        approve=approve,
        who=current_user(),
        apply_command=apply_command(path, options),
        where="" if options.state_dir is None else shlex.join(["--state-dir", str(options.state_dir.absolute())]),
    )


def apply_command(path: "Given", options: Options) -> str:
    """The command line of `reconcile apply` for the same manifests and state, to be run in any directory and without a terminal."""
    words = ["reconcile", "apply", str(path.absolute() if isinstance(path, Path) else path), "--yes"]
    if options.prune is not None:
        words.append("--prune" if options.prune else "--no-prune")
    if options.take_over:
        words.append("--take-over")
    for name, given in (("--instance", options.instance), ("--state-dir", options.state_dir)):
        if given is not None:
            words += [name, str(given.absolute())]
    if options.env is not None:
        words += ["--env", options.env]
    return shlex.join(words)


def _reporter(options: Options, clock: SystemClock, actor: str, endless: bool) -> Progress | Logged:
    """Configure the log and choose the reporter of this run. `actor`: the operation, as the audit names it."""
    view = options.view
    json_log = options.log_format == "json"
    live = not (endless or json_log or view.quiet) and terminal(sys.stderr) and view.color != "never"
    screen = Screen(sys.stderr, live)
    configure(options.log_level, LogFormat(options.log_format), stream=screen)  # type: ignore[arg-type]
    if view.quiet:
        return Silent()
    if endless or json_log:
        return Logged(clock, actor)
    return Progress(screen, clock, view.paint_err if view.json else view.paint, None if view.json else view.out)


def once(
    path: "Given",
    options: Options,
    run_intent: Intent | None = None,
    operation: str = "reconcile --once",
    place: Location | None = None,
    stored: StartManifests | None = None,
) -> Exit:
    """Converge once, print the result, and return the exit code.

    Args:
        operation: names the run in the lock's owner record.
        place, stored: stored manifests that take the place of those at `path`, and where their instance is.
    """
    clock = SystemClock()
    run_intent = run_intent or intent(path, options)
    if run_intent.approve:
        handed_over = _approved_by_daemon(path, options, run_intent.approve, clock)
        if handed_over is not None:
            return handed_over
    reporter = _reporter(options, clock, f"{operation} {path}", endless=False)
    monitoring = Monitoring(clock, textfile=options.textfile is not None)

    async def body() -> Summary:
        async with ticking(reporter, clock):
            return await wire.run_once(
                place or location(path, options),
                intent=run_intent,
                within=options.timeout,
                wait=options.wait,
                reporter=reporter,
                operation=operation,
                stored=stored,
                monitoring=monitoring,
            )

    with _textfile(path, options, monitoring) as ended:
        summary = asyncio.run(body())
        ended.append(summary.exit)
    _print(summary, summary.now, options, streamed=reporter.streams)
    return summary.exit


def _approved_by_daemon(path: "Given", options: Options, approve: str, clock: SystemClock) -> Exit | None:
    """Give the approval to the daemon of this instance; None when none runs, so that this run acts on it."""
    place = find(path, options, "")
    running = holder(place.state_dir, clock)
    if running is None or running.owner is None or not running.owner.operation.startswith(WATCH):
        return None

    def held() -> str:
        refreshed(place)
        with joined(place) as store:
            last = store.last_decision()
        holds = json.loads(last.text)["holds"] if last is not None else []
        return next((hold["message"] for hold in holds if f"the approval of {approve} is" in hold["message"]), "")

    effect = f"approved for {approvals.LASTS // (3600 * SECOND)}h, to be done by the running daemon"
    return send_and_report("approve", [{"object": approve}], place, options, f"held changes {approve}", effect, held)


@contextmanager
def _textfile(path: "Given", options: Options, monitoring: Monitoring) -> Iterator[list[Exit]]:
    """Write the textfile when the run in the body has ended, also by an error. The body adds its exit code to the list."""
    ended: list[Exit] = []
    try:
        yield ended
    except Exception as error:
        ended = [code_of(error)]
        raise
    except KeyboardInterrupt:
        ended = [Exit.INTERRUPTED]
        raise
    finally:
        if options.textfile is not None:
            from reconciler.metrics.textfile import write  # noqa: PLC0415  (only where metrics are on)

            try:
                write(options.textfile, monitoring, path, int(ended[0] if ended else Exit.ERROR))
            except StoreError as error:
                options.view.err(f"{options.view.paint_err.bad('error:')} the metrics were not written: {error}")


def _print(summary: Summary, now: Now, options: Options, *, streamed: bool) -> None:
    view = options.view
    if view.json:
        view.document(summary_json(summary, now))
    elif not (view.quiet and summary.exit is Exit.OK and not summary.done):
        view.out(*summary_lines(summary, now, view.paint, streamed=streamed))


def watch(path: "Given", options: Options) -> Exit:
    """Keep converging until a signal ends it."""
    reporter = _reporter(options, SystemClock(), f"{WATCH} {path}", endless=True)
    code = asyncio.run(wire.run_watch(location(path, options), intent=intent(path, options), reporter=reporter))
    options.view.err(f"result: {code.sentence} (exit {int(code)})")
    return code


def make_plan(
    path: "Given",
    options: Options,
    run_intent: Intent,
    place: Location | None = None,
    stored: StartManifests | None = None,
    *,
    untrusted: bool = False,
    approving: bool = False,
    snapshot: Snapshot | None = None,
) -> wire.MadePlan:
    """Observe everything once and make the whole plan, without a lock and without a write.

    Beside a running process its verdicts, pushes and holds count. `untrusted`: the reader may not be an operator, so logs and notes,
    which have texts of servers, are not written. `approving` as in `forecast`. `snapshot`: takes the place of every look.
    """
    level = "critical" if untrusted else "debug" if options.view.verbose else "warning"
    configure(level, LogFormat(options.log_format))
    note = _silence if untrusted else options.view.err
    return asyncio.run(
        wire.make_plan(
            place or location(path, options),
            intent=run_intent,
            deadline=min(options.timeout, PROBE_TIME),
            note=note,
            stored=stored,
            ask=lambda state: present_decision(state, note),
            untrusted=untrusted,
            approving=approving,
            snapshot=snapshot,
        )
    )


def take_snapshot(
    options: Options, run_intent: Intent, lasts: int, place: Location, stored: StartManifests | None
) -> Snapshot:
    """Observe everything once, for `reconcile snapshot`. `lasts`: ns until the snapshot expires."""
    configure("debug" if options.view.verbose else "warning", LogFormat(options.log_format))
    return asyncio.run(
        wire.take_snapshot(
            place,
            intent=run_intent,
            deadline=min(options.timeout, PROBE_TIME),
            lasts=lasts,
            note=options.view.err,
            stored=stored,
            ask=lambda state: present_decision(state, options.view.err),
        )
    )


def _silence(_text: str) -> None:
    """Write nothing."""
