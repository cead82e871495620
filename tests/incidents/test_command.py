"""`python -m tests.incidents`: what may be chosen, and what it prints."""

import pytest

from tests.incidents.__main__ import arguments, main, report, selection
from tests.incidents.cases import Case, everything
from tests.incidents.judge import AS_BEFORE, Finding, load_reference
from tests.incidents.page import shown
from tests.incidents.traces import Cadence


def selected(*words: str) -> list[Case]:
    parser = arguments()
    return selection(parser.parse_args(words), parser)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nope"], "no such trace: nope; choose from 1, 2, 3a"),
        (["--write", "2"], "--write and --reference need everything"),
        (["--reference", "--seeds", "2"], "--write and --reference need everything"),
        (["8a", "--sizes", "1"], "no trace has these sizes"),
        (["--probes", "10"], "'10' is not PERIODxFAILURES, such as 10x3"),
    ],
)
def test_a_choice_that_cannot_be_is_refused(words, message, capsys):
    with pytest.raises(SystemExit) as end:
        main(words)
    assert end.value.code == 2
    assert message in capsys.readouterr().err


def test_without_a_choice_everything_is_run():
    assert selected() == everything()
    assert selected("--write") == everything()
    assert selected("--table") == [case for table in shown().values() for case in table]


def test_a_choice_has_all_its_combinations():
    cases = selected("2", "8a", "--sizes", "1,4", "--seeds", "5,6", "--drain", "uncounted", "--probes", "2x3")
    assert cases == [
        *(Case("2", size, seed, False, Cadence(2, 3)) for size in (1, 4) for seed in (5, 6)),
        *(Case("8a", 4, seed, False, Cadence(2, 3)) for seed in (5, 6)),
    ]


def test_the_reference_has_each_case_that_is_compared_with_it():
    wanted = {str(case) for case in everything() if case.key in AS_BEFORE}
    assert set(load_reference()) == wanted
    assert set(map(str, selected("--reference"))) == wanted


def test_the_report_shows_broken_bounds_and_ends_with_one(capsys):
    kept, broken = Finding(Case("2", 3), "useless restarts", 0, 1), Finding(Case("6", 3), "useless restarts", 17, 1)
    assert report([kept], False) == 0
    assert report([kept, broken], False) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines.count("FAIL 6 n=3 seed=1 counted: useless restarts 17, at most 1") == 1
    assert "1 of 2 cases keep all bounds; 1 of 2 bounds are broken" in lines
    assert report([kept], True) == 0
    assert "ok   2 n=3 seed=1 counted: useless restarts 0, at most 1" in capsys.readouterr().out
