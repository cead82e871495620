import io
import logging

import pytest

from manifests.values.desired import SECOND
from providers.actions import StartContainer
from providers.facts import Generation
from reconciler.cli.render.paint import Paint
from reconciler.cli.render.progress import Logged, Progress, Screen, Silent, ticking
from reconciler.cli.render.times import ago, ahead, short
from reconciler.core.model.ledger_fold import Outcome, OutcomeKind
from reconciler.core.model.reasons import Reason
from reconciler.core.model.step import Step
from tests.sim.clock import VirtualClock

STEP = Step(
    "start web-0", "workload/web/0", StartContainer("local", "web-0", Generation("a", 1)), Reason.CRASHED, "down"
)
DONE = Outcome(STEP.id, OutcomeKind.DONE)


def progress(live: bool) -> tuple[Progress, io.StringIO, VirtualClock]:
    stream, clock = io.StringIO(), VirtualClock()
    return Progress(Screen(stream, live), clock, Paint(False)), stream, clock


def test_without_a_terminal_there_is_a_line_per_step_and_a_10_s_heartbeat():
    reporter, stream, clock = progress(live=False)
    reporter.started(STEP)
    clock.advance(9 * SECOND)
    reporter.tick()
    assert stream.getvalue() == ""
    clock.advance(SECOND)
    reporter.tick()
    reporter.finished(STEP, DONE)
    assert stream.getvalue().splitlines() == [
        "10s: 0 done, start web-0 for 10s",
        "done     workload/web/0: start web-0 (Crashed: down)",
    ]


def test_on_a_terminal_the_live_line_is_redrawn_and_removed_at_the_end():
    reporter, stream, clock = progress(live=True)
    reporter.started(STEP)
    clock.advance(SECOND)
    reporter.tick()
    reporter.finished(STEP, DONE)
    reporter.close()
    assert "\r\x1b[K1s: 0 done, start web-0 for 1s" in stream.getvalue()
    assert stream.getvalue().endswith("\r\x1b[K")
    assert stream.getvalue().count("\n") == 1


def test_a_line_shows_the_progress_of_operations_beside_the_steps():
    reporter, stream, clock = progress(live=False)
    under_way: list[str] = ["local: pulling app:1: 1 of 3 layers are here, 2.0 of 9.0 MB"]
    reporter.follow(lambda: tuple(under_way))
    reporter.started(STEP)
    for more in ("other: pulling app:2: no answer from the registry yet", ""):
        clock.advance(10 * SECOND)
        reporter.tick()
        under_way.append(more)
    under_way.clear()
    clock.advance(10 * SECOND)
    reporter.tick()
    assert stream.getvalue().splitlines() == [
        "10s: 0 done, local: pulling app:1: 1 of 3 layers are here, 2.0 of 9.0 MB, start web-0 for 10s",
        "20s: 0 done, local: pulling app:1: 1 of 3 layers are here, 2.0 of 9.0 MB and 1 more, start web-0 for 20s",
        "30s: 0 done, start web-0 for 30s",
    ]


def test_a_log_line_goes_above_the_live_line():
    stream = io.StringIO()
    screen = Screen(stream, live=True)
    screen.line("working")
    screen.write("a warning\n")
    assert stream.getvalue() == "\r\x1b[Kworking\r\x1b[Ka warning\nworking"


def test_a_closed_stream_never_ends_a_run():
    stream = io.StringIO()
    stream.close()
    screen = Screen(stream, live=True)
    screen.write("x\n")
    screen.line("y")
    screen.flush()


async def test_the_sign_of_life_follows_the_clock_of_the_loop():
    reporter, stream, clock = progress(live=False)
    async with ticking(reporter, clock):
        stop = __import__("asyncio").Event()
        await clock.sleep_until(clock.now().steady + 35 * SECOND, stop)
    assert [line.partition(":")[0] for line in stream.getvalue().splitlines()] == ["10s", "20s", "30s"]


def test_a_log_has_steps_and_a_quiet_run_only_failures(caplog):
    caplog.set_level(logging.INFO, logger="reconciler")
    Logged().finished(STEP, DONE)
    assert "start web-0" in caplog.text
    caplog.clear()
    Silent().finished(STEP, DONE)
    assert caplog.text == ""
    Silent().finished(STEP, Outcome(STEP.id, OutcomeKind.FAILED, "no such program"))
    assert "no such program" in caplog.text


@pytest.mark.parametrize(
    ("duration", "text"),
    [
        (0, "0s"),
        (-5, "0s"),
        (45 * SECOND, "45s"),
        (90 * SECOND, "1m30s"),
        (3600 * SECOND, "1h"),
        (90_061 * SECOND, "1d1h"),
    ],
)
def test_durations_are_short(duration, text):
    assert short(duration) == text


def test_instants_are_shown_as_ages():
    assert ago(0, SECOND // 2) == ago(SECOND, 0) == "just now"
    assert ago(0, 90 * SECOND) == "1m30s ago"
    assert ahead(0, SECOND) == "now"
    assert ahead(SECOND // 2, 0) == "in 1s"
