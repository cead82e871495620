"""The tables of docs/healing.md are those of `make incidents`, and complete."""

import re

from tests.incidents.cases import RULES, Outcome, everything
from tests.incidents.page import PAGE, SECTION, WHAT_HAPPENS, cell, section, shown
from tests.incidents.test_scoring import GOOD
from tests.incidents.traces import TRACES


def table(text: str, heading: str) -> list[list[str]]:
    """The cells of the rows below a heading, without the head of the table."""
    part = text.partition(f"### {heading}\n")[2]
    rows = re.findall(r"^\| (.+) \|$", part.partition("\n###")[0], re.MULTILINE)
    return [row.split(" | ") for row in rows][2:]


def test_the_page_has_a_row_for_each_incident_and_a_cell_for_each_rule():
    (text,) = SECTION.findall(PAGE.read_text(encoding="utf-8"))
    words = re.findall(r"^\| (\w+) \| (.+) \| (.+) \|$", text.partition("\n###")[0], re.MULTILINE)
    assert [(key, trace.title, WHAT_HAPPENS[key]) for key, trace in TRACES.items()] == words[1:]
    for heading, cases in shown().items():
        rows = table(text, heading)
        assert [row[0] for row in rows] == [case.key for case in cases]
        assert all(len(row) == 1 + len(RULES) for row in rows)


def test_the_table_is_made_of_cases_that_are_run():
    run = set(everything())
    assert [case for cases in shown().values() for case in cases if case not in run] == []


def test_the_section_is_written_again_between_its_markers():
    outcomes = [Outcome(case, dict.fromkeys(RULES, GOOD)) for cases in shown().values() for case in cases]
    text = section(outcomes)
    assert SECTION.fullmatch(text)
    assert cell(GOOD) in text
