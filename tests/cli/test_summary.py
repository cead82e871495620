import json
import re
from dataclasses import replace

import pytest

from manifests.values.desired import SECOND
from providers.actions import StartContainer
from providers.facts import Generation
from reconciler.cli.render.paint import Paint, finished
from reconciler.cli.render.summary import summary_json, summary_lines
from reconciler.core.model.ledger_fold import Outcome, OutcomeKind
from reconciler.core.model.reasons import Reason
from reconciler.core.model.step import Step
from reconciler.exits import Exit
from reconciler.shell.clock import SystemClock
from reconciler.shell.report.summary import Summary, summarize

STEP = Step(
    "start web-0", "workload/web/0", StartContainer("local", "web-0", Generation("a", 1)), Reason.CRASHED, "it ended"
)


def _text(*args, **options) -> str:
    return "\n".join(finished(line) for line in summary_lines(*args, **options))


@pytest.fixture
def ended(decided) -> tuple[Summary, SystemClock]:
    clock = SystemClock()
    done = (
        (STEP, Outcome(STEP.id, OutcomeKind.FAILED, "local: no such program; install it")),
        (STEP, Outcome(STEP.id, OutcomeKind.DONE)),
    )
    return summarize(decided(clock), done, clock.now()), clock


def test_the_text_has_steps_holds_state_and_the_exit_code_last(ended, golden):
    summary, clock = ended
    later = replace(summary, run_again=(("workload/web/0: drain", clock.now().steady + 90 * SECOND + SECOND // 2),))
    text = _text(later, clock.now(), Paint(False))
    assert text.splitlines()[-1] == f"result: {summary.exit.sentence} (exit {int(summary.exit)})"
    golden("cli/summary.txt", re.sub(r"\d+s ago", "AGE", f"{text}\n"))


def test_steps_that_were_printed_as_they_ended_are_not_printed_again(ended):
    summary, clock = ended
    assert "start web-0" not in _text(summary, clock.now(), Paint(False), streamed=True)


def test_nothing_done_means_nothing_to_do_only_when_converged(ended):
    summary, clock = ended
    quiet = replace(summary, done=())
    assert _text(quiet, clock.now(), Paint(False)).startswith("nothing was done\n")
    fine = replace(quiet, exit=Exit.OK)
    assert _text(fine, clock.now(), Paint(False)).startswith("nothing to do\n")


def test_colour_changes_no_word(ended):
    summary, clock = ended
    now = clock.now()
    colored = _text(summary, now, Paint(True))
    assert re.sub(r"\x1b\[\d+m", "", colored) == _text(summary, now, Paint(False))


def test_the_document_holds_the_same_for_scripts(ended):
    summary, clock = ended
    document = json.loads(json.dumps(summary_json(summary, clock.now())))
    assert document["exit_code"] == int(summary.exit) == 6
    assert [row["outcome"] for row in document["done"]] == ["failed", "done"]
    assert document["done"][0]["detail"] == "local: no such program; install it"
    assert {row["rule"] for row in document["holds"]} == {"Suspended", "ZoneUnknown"}
    assert document["status"]["unknown"] == {"zone/example.test.": "permission denied"}
    assert any("ZoneUnknown" in reason for reason in document["reasons"])
