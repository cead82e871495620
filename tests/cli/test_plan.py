import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.cli.plan import exit_code
from reconciler.exits import Exit


@given(steps=st.booleans(), unreadable=st.booleans())
def test_code_2_means_steps_and_steps_mean_code_2(steps, unreadable):
    assert (exit_code(steps, unreadable=unreadable, detailed=True) is Exit.CHANGES) == steps
    assert exit_code(steps, unreadable=unreadable, detailed=False) is (Exit.UNFINISHED if unreadable else Exit.OK)


def test_the_plan_of_a_small_tree(tree, reconcile, golden):
    done = reconcile("plan", tree)
    assert done.code == 0
    golden("cli/plan-small.txt", done.out)


def test_planning_writes_nothing_at_all(tree, reconcile, home):
    before = sorted(path for path in tree.parent.rglob("*"))
    assert reconcile("plan", tree).code == 0
    assert reconcile(tree, "--dry-run").code == 0
    assert sorted(path for path in tree.parent.rglob("*")) == before


@pytest.mark.parametrize("replicas", [0, 1, 3])
def test_the_detailed_exit_code_the_steps_and_the_sentence_agree(tree, reconcile, replicas):
    manifest = tree / "all.yaml"
    manifest.write_text(manifest.read_text().replace("replicas: 2", f"replicas: {replicas}"))
    text = reconcile("plan", tree, "--detailed-exitcode")
    document = reconcile("plan", tree, "--detailed-exitcode", "-o", "json")
    steps = json.loads(document.out)["steps"]
    assert (text.code == 2) == (document.code == 2) == bool(steps) == (replicas > 0)
    sentence = text.out.splitlines()[-1]
    assert sentence.startswith("result: changes are planned" if steps else "result: nothing to do")
    assert f"(exit {text.code})" in sentence
    first, second, *_ = text.out.splitlines()
    assert first.startswith("instance 'small': ")
    assert second.startswith(f"plan {document.document['plan']}: {len(steps)} step")
    comment = reconcile("plan", tree, "--detailed-exitcode", "-o", "markdown")
    assert comment.code == text.code
    assert comment.out.splitlines()[-1] == f"**Result:** `{sentence.removeprefix('result: ')}`"
    assert ("<details>" in comment.out) == bool(steps)


def test_dry_run_and_plan_print_the_same(tree, reconcile):
    assert reconcile("--dry-run", tree).out == reconcile("plan", tree).out


def test_a_variable_of_a_file_has_its_line_and_a_moved_one_is_no_change(tree, reconcile):
    manifest, variables = tree / "all.yaml", tree / "app.env"
    manifest.write_text(
        manifest.read_text().replace("          ports:", "          envFile: app.env\n          ports:", 1)
    )
    manifest.write_text(manifest.read_text().replace("replicas: 2", "replicas: 1"))
    variables.write_text("A=1\n")
    try:
        assert reconcile("--once", tree, "--timeout", "20s").code in (0, 6)
        variables.write_text("# a comment\nA=1\n")
        assert reconcile("plan", tree, "-o", "json").document["changed"] == []
        variables.write_text("# a comment\nA=2\n")
        (row,) = reconcile("plan", tree, "-o", "json").document["changed"]
        (field,) = row["fields"]
        assert (field["field"], field["where"]) == ("containers[web].env[A]", "app.env:2:1")
    finally:
        manifest.write_text(manifest.read_text().replace("replicas: 1", "replicas: 0"))
        reconcile("--once", tree, "--timeout", "20s")
