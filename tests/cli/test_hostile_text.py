"""Text from outside in every field of everything that a command shows: it never forges a line, a colour or a command of a CI system."""

import dataclasses
import json
import logging
import re
import sqlite3
import sys
from contextlib import closing
from enum import Enum

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manifests.escape import escape, escape_json, escape_line
from manifests.problems import Code, ManifestErrors, Problem
from providers.facts import Known
from reconciler.cli.failures import report_error
from reconciler.cli.render.paint import Paint, finished
from reconciler.cli.render.plan import plan_lines
from reconciler.cli.render.status import progress_lines, status_lines
from reconciler.cli.render.summary import summary_lines
from reconciler.cli.view import View
from reconciler.core.forecast import forecast
from reconciler.core.model.ledger_fold import Outcome, OutcomeKind
from reconciler.core.model.observed import Observed
from reconciler.exits import Exit
from reconciler.push.client import message_of
from reconciler.push.http import Answer
from reconciler.shell import logs
from reconciler.shell.clock import SystemClock
from reconciler.shell.report.summary import decision_document, summarize
from reconciler.shell.store.state_db import Store
from reconciler.wire import MadePlan
from tests.cli.conftest import DESIRED, last_decision

NASTY = (
    "\n::error file=a::forged\r\n##[error]x ##vso[task.setvariable] ##teamcity[x]\t\x1b[8m\x1b]0;t\x07\x9b31m\x85"
    "\u2028\u2029\u202e\u2066\u200b\u200d\ufeff\u00a0\u3164\u2800\ufe0f\U000e0001\x00\x7f\nresult: converged (exit 0)\n"
)
"""Every kind of character that changes what a reader or a program sees."""

SGR = re.compile(r"\x1b\[\d*m")
COMMAND = re.compile(r"^\s*::|^(---|\+\+\+|~~~|\^\^\^) |##\w*\[", re.MULTILINE)
FORGED = "result: converged (exit 0)"


def safe(text: str, *, colour: bool = False) -> None:
    """Assert that a whole output is what we wrote and nothing else."""
    shown = SGR.sub("", text) if colour else text
    wrong = {c for c in shown if not c.isprintable() and c != "\n"} | (set(shown) & set("\u3164\u2800\ufe0f"))
    assert not wrong, wrong
    assert not COMMAND.search(shown)
    assert FORGED not in shown.split("\n")


KEYS = frozenset({"key", "object", "replica", "workload", "service", "instance"})


def poisoned(value, keys: bool = False, text: str = NASTY):
    """A value with `text` behind every text in it; words that a schema lists stay."""
    if isinstance(value, Enum) or value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return value + text
    if isinstance(value, dict):
        return {
            (key + text if keys and not key.isidentifier() else key): (
                inner if key in KEYS and isinstance(inner, str) else poisoned(inner, keys, text)
            )
            for key, inner in value.items()
        }
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(poisoned(inner, keys, text) for inner in value))
    if isinstance(value, list | tuple | set | frozenset):
        return type(value)(poisoned(inner, keys, text) for inner in value)
    if dataclasses.is_dataclass(value):
        fields = [field.name for field in dataclasses.fields(value) if field.init]
        return dataclasses.replace(value, **{name: poisoned(getattr(value, name), keys, text) for name in fields})
    return value


# --- the function -------------------------------------------------------------------------------------------------


@given(st.text(max_size=40))
@settings(max_examples=300)
def test_an_escaped_text_is_visible_one_line_and_no_command(text):
    line = escape_line(text)
    safe(line)
    assert "\n" not in line
    assert escape(escape(text)) == escape(text)


@given(st.text(alphabet=st.characters(min_codepoint=32, max_codepoint=126)))
def test_plain_text_stays_as_it_is(text):
    assert escape(text) == re.sub(r"##(?=\w*\[)", r"#\\#", text)


@given(
    st.recursive(
        st.none() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    )
)
@settings(max_examples=200)
@pytest.mark.parametrize("ascii_only", [True, False])
def test_escaped_json_is_the_same_value(ascii_only, value):
    text = escape_json(json.dumps(value, ensure_ascii=ascii_only, indent=2))
    assert json.loads(text) == value
    safe(text)


@given(st.text(max_size=60), st.text(max_size=60))
@settings(max_examples=200)
def test_a_line_has_only_our_colours(first, second):
    line = finished(f"{first} {Paint(True).bad(second)} {first}")
    assert SGR.findall(line) == (["\x1b[31m", "\x1b[0m"] if second else [])
    safe(line, colour=True)
    assert SGR.sub("", line) == finished(f"{first} {second} {first}")


# --- commands on what is stored -----------------------------------------------------------------------------------


def leaves(value, path=()):
    """The places of all texts in a JSON document."""
    if isinstance(value, str):
        yield path
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from leaves(inner, (*path, index))


@pytest.fixture
def poison(stored):
    """Put hostile text into the rows of the store: in those cells that are free text, by whatever writer."""

    def run(*, decision: bool) -> None:
        with closing(sqlite3.connect(stored / "state.db")) as db, db:
            tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            for table in tables:
                columns = [row[1] for row in db.execute(f"PRAGMA table_info({table})") if row[2].upper() == "TEXT"]
                for column in {"message", "step", "actor", "who", "cause", "detail", "text", "outcome"} & set(columns):
                    db.execute(f"UPDATE {table} SET {column} = {column} || ?", (NASTY,))
            for rowid, value in (
                db.execute("SELECT rowid, value FROM evidence").fetchall() if "evidence" in tables else ()
            ):
                db.execute(
                    "UPDATE evidence SET value = ? WHERE rowid = ?", (json.dumps(poisoned(json.loads(value))), rowid)
                )
        if decision:
            _poison_decision(stored)

    return run


def _poison_decision(state) -> None:
    clock = SystemClock()
    document = json.loads(json.dumps(decision_document(last_decision(clock), DESIRED, clock.now())))
    with Store.open(state, clock) as store:
        store.put_decision(poisoned(document, keys=True))


COMMANDS = [
    ["status"],
    ["status", "--unhealthy"],
    ["events"],
    ["explain", "workload/web"],
    ["explain", "workload/web/1"],
    ["explain", "dnspolicy/app"],
    ["get", "endpoints"],
    ["get", "records"],
    ["get", "healthchecks"],
    ["get", "revisions"],
    ["get", "requests"],
]


@pytest.mark.parametrize("output", [["--color", "never"], ["--color", "always"], ["-o", "json"]], ids=" ".join)
@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("decision", [False, True], ids=["rows", "decision"])
def test_no_stored_text_forges_the_output_of_a_command(words, output, decision, poison, reconcile):
    poison(decision=decision)
    done = reconcile(*words, "--instance-id", "small", *output)
    assert "unexpected" not in done.err
    for text in (done.out, done.err):
        safe(text, colour="always" in output)
    if output[0] == "-o":
        json.loads(done.out)


def test_hostile_text_in_any_one_field_adds_no_line(capsys):
    clock = SystemClock()
    now = clock.now().wall
    document = json.loads(json.dumps(decision_document(last_decision(clock), DESIRED, clock.now())))

    def shown(value) -> str:
        lines = [*status_lines(value, Paint(False), now), *progress_lines(value, Paint(False), now)]
        View().out(*lines)
        return capsys.readouterr().out

    count = shown(document).count("\n")
    seen = 0
    for path in leaves(document):
        changed = json.loads(json.dumps(document))
        place = changed
        for part in path[:-1]:
            place = place[part]
        place[path[-1]] += NASTY
        text = shown(changed)
        safe(text)
        seen += "::error" in text
        assert abs(text.count("\n") - count) <= 2, path  # a state that no schema has may show or hide a line of ours
    assert seen > 30


# --- plans, results, problems, errors, logs -----------------------------------------------------------------------


@pytest.mark.parametrize("colour", [False, True])
def test_no_text_forges_a_plan_or_a_result(colour, capsys):
    clock = SystemClock()
    now = clock.now()
    decision = last_decision(clock)
    observed_plan = forecast(DESIRED, _observed(decision), now)
    made = MadePlan(poisoned(observed_plan), decision, now, None)
    view = View(color="always" if colour else "never")
    view.out(*plan_lines(made, Exit.CHANGES, view.paint))
    steps = [step.step for step in observed_plan.steps]
    assert steps
    done = tuple((poisoned(step), Outcome(step.id, OutcomeKind.FAILED, f"x{NASTY}")) for step in steps)
    hurt = dataclasses.replace(
        decision, holds=poisoned(decision.holds), waits=poisoned(decision.waits), steps=poisoned(decision.steps)
    )
    view.out(*summary_lines(summarize(hurt, done, now), now, view.paint))
    out = capsys.readouterr().out
    assert "::error" in out
    safe(out, colour=colour)


def _observed(decision):
    sight = decision.status.sight
    return Observed(
        runtimes={node: Known(facts, node, sight.until) for node, facts in sight.runtimes.items()},
        pools={key: Known(fact, key[0], sight.until) for key, fact in sight.pools.items()},
        ledger=dataclasses.replace(decision.ledger, suspensions={}),
    )


PROBLEM = Problem(f"::error file=a{NASTY}", 3, 1, Code.BAD_VALUE, f"spec{NASTY}", f"is '{NASTY}'", f"write{NASTY}")
ERRORS = [
    ManifestErrors([PROBLEM]),
    ValueError(NASTY),
    OSError(2, NASTY, NASTY),
    ManifestErrors([dataclasses.replace(PROBLEM, code=Code.EMPTY_TREE)]),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("json_output", [False, True])
@pytest.mark.parametrize("verbose", [False, True])
def test_no_error_forges_the_output(error, json_output, verbose, capsys):
    report_error(error, View(json=json_output, verbose=verbose))
    for text in capsys.readouterr():
        safe(text)


@pytest.mark.parametrize("color", ["never", "always"])
def test_validate_and_every_renderer_of_problems_escapes(color, tree, reconcile):
    (tree / "a\n::error::b\x1b[31m.yaml").write_text(
        'apiVersion: reconciler/v1\nkind: Workload\nmetadata: {name: "x\\n::error::y\\e[31m\\u202e"}\nspec: {}\n'
    )
    for words in (["validate", tree], ["plan", tree], ["--once", tree]):
        done = reconcile(*words, "--color", color)
        assert done.code == 3
        for text in (done.out, done.err):
            safe(text, colour=color == "always")


@pytest.mark.parametrize("form", [logs.LogFormat.TEXT, logs.LogFormat.JSON])
def test_no_log_record_is_forged(form, capsys):
    before = list(logging.getLogger().handlers)
    logs.configure("debug", form, stream=sys.stderr)
    try:
        log = logging.getLogger("reconciler.test")
        log.warning("%s", NASTY, extra={"object": NASTY, "more": NASTY})
        log.error("it failed: %s", NASTY, exc_info=ValueError(NASTY))
    finally:
        for handler in [handler for handler in logging.getLogger().handlers if handler not in before]:
            logging.getLogger().removeHandler(handler)
    err = capsys.readouterr().err
    assert "forged" in err
    safe(err)


def test_an_answer_to_a_push_is_one_visible_line():
    safe(message_of(Answer(400, json.dumps({"message": NASTY}).encode())))
