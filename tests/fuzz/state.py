"""Surfaces: rows of the ledger that were damaged on the disk, and stored or observed text in what a command prints."""

import contextlib
import io
import json
import sqlite3
import string
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from providers.facts import Known
from reconciler.cli.render.paint import Paint
from reconciler.cli.render.plan import plan_lines
from reconciler.cli.render.status import progress_lines, status_lines
from reconciler.cli.render.summary import summary_lines
from reconciler.cli.view import View
from reconciler.core.decide import decide
from reconciler.core.forecast import forecast
from reconciler.core.model.ledger_codec import protected, read_rows, to_rows
from reconciler.core.model.ledger_fold import Outcome, OutcomeKind
from reconciler.core.model.observed import Observed
from reconciler.exits import Exit
from reconciler.shell.clock import SystemClock
from reconciler.shell.report.summary import decision_document, summarize
from reconciler.wire import MadePlan
from tests.cli.conftest import DESIRED, last_decision
from tests.cli.test_hostile_text import leaves, poisoned, safe
from tests.fuzz.mutations import as_json, changed, changes, edited, edits
from tests.fuzz.surface import ROOT, Check, Surface

OLD_STATE = ROOT / "tests" / "shell" / "store" / "states" / "0.1.0.sql"
"""A state with rows of every section that its version had."""


def _observed(decision: Any) -> Observed:
    sight = decision.status.sight
    return Observed(
        runtimes={node: Known(facts, node, sight.until) for node, facts in sight.runtimes.items()},
        pools={key: Known(fact, key[0], sight.until) for key, fact in sight.pools.items()},
        ledger=replace(decision.ledger, suspensions={}),
    )


def stored_rows() -> dict[tuple[str, str], str]:
    """Rows of every section: those of the old state, about the objects of DESIRED where it can be."""
    with closing(sqlite3.connect(":memory:")) as db:
        db.executescript(OLD_STATE.read_text())
        rows = {(section, key): text for section, key, text in db.execute("SELECT section, key, value FROM ledger")}
    unreadable = read_rows(rows)[1]
    return {one: text for one, text in rows.items() if one[0] != "ledger" and one not in unreadable}


@contextlib.contextmanager
def rows_world() -> Iterator[Check]:
    clock = SystemClock()
    decision, now = last_decision(clock), clock.now()
    rows = stored_rows() | to_rows(decision.ledger)
    assert not read_rows(rows)[1]
    sections = sorted({section for section, _ in rows})
    observed = _observed(decision)

    def check(value: Any) -> str:
        which, other, steps, raw, name = value
        section = sections[which % len(sections)]
        keys = sorted(key for one, key in rows if one == section)
        key = keys[other % len(keys)]
        values = changed([json.loads(rows[section, key])], steps)
        text = edited(as_json(values[0] if values else None), raw).decode("utf-8", "replace")
        damaged = {one: row for one, row in rows.items() if one != (section, key)} | {(section, name or key): text}
        ledger, wrong = read_rows(damaged)
        assert set(wrong) <= {(section, name or key)}, "a row that is not damaged was lost"
        ledger = replace(protected(ledger, wrong, now), source=DESIRED.source)
        made = decide(DESIRED, replace(observed, ledger=ledger), now)
        assert read_rows(to_rows(made.ledger))[1] == {}, "a row that is written cannot be read"
        return "refused" if wrong else "accepted"

    yield check


hostile = st.text(
    st.one_of(st.sampled_from("\n\r\t\x1b\x9b\x85\u2028\u2029\u202e\u2066\u200b\ufeff\u3164\x00\x7f:#[]-+~^ "), st.characters(codec="utf-8"), st.sampled_from(string.ascii_letters)),
    max_size=30,
) | st.sampled_from(("\n::error::x", "\n##[error]x", "\nresult: converged (exit 0)\n", "\x1b[8m", "\x1b]0;x\x07", "##vso[task.setvariable]"))  # fmt: skip


@contextlib.contextmanager
def output_world() -> Iterator[Check]:
    clock = SystemClock()
    decision, now = last_decision(clock), clock.now()
    document = json.loads(json.dumps(decision_document(decision, DESIRED, now)))
    places = list(leaves(document))
    plan = forecast(DESIRED, _observed(decision), now)
    assert plan.steps
    made = MadePlan(plan, decision, now, None)

    def printed(colour: bool, *lines: str) -> str:
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            View(color="always" if colour else "never").out(*lines)
        return out.getvalue()

    def check(value: Any) -> str:
        which, text, colour = value
        paint = Paint(colour)
        altered = json.loads(json.dumps(document))
        path = places[which % len(places)]
        place: Any = altered
        for part in path[:-1]:
            place = place[part]
        place[path[-1]] += text
        shown = printed(colour, *status_lines(altered, paint, now.wall), *progress_lines(altered, paint, now.wall))
        safe(shown, colour=colour)
        forged = made._replace(plan=poisoned(made.plan, text=text))
        safe(printed(colour, *plan_lines(forged, Exit.CHANGES, paint)), colour=colour)
        hurt = replace(decision, holds=poisoned(decision.holds, text=text), waits=poisoned(decision.waits, text=text))
        done = tuple(
            (poisoned(one.step, text=text), Outcome(one.step.id, OutcomeKind.FAILED, text)) for one in plan.steps
        )
        safe(printed(colour, *summary_lines(summarize(hurt, done, now), now, paint)), colour=colour)
        return "accepted" if text.isprintable() else "escaped"

    yield check


SURFACES = (
    Surface("ledger rows", "a damaged disk, or a process of the user of reconcile", "only the damaged row is set aside; the decision is made, and what it writes can be read", st.tuples(st.integers(0, 2**16), st.integers(0, 2**16), changes, edits | st.just([]) | st.just([]), st.sampled_from(("", "", "", "workload/x\n\x1b[31m"))), rows_world),
    Surface("output", "writers of texts that are shown", "only printable characters and our own colours; no line of a CI system's command; no forged result", st.tuples(st.integers(0, 2**16), hostile, st.booleans()), output_world),
)  # fmt: skip
