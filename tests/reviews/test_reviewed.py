"""What was merged is compared with what was reviewed: exactly, and without a value in any message."""

from dataclasses import replace

from reconciler.core.decision import Changed, Plan
from reconciler.core.outcome import Outcome
from reconciler.core.replicas.field_changes import Effect, FieldChange
from reconciler.reviews import file
from reconciler.reviews.file import KEPT, Head, Remembered
from reconciler.reviews.reviewed import LINES, compared, of_plan

FIELD = FieldChange("containers[web].image", "app:1", "app:2", Effect.NEW_CONTAINER)
RECORD = Outcome("record/www", "www.example.test. A: 203.0.113.1 -> 203.0.113.2", "1")
PLAN = Plan("r", (), (), (), changed=(Changed("workload/web", "a", "b", (FIELD,)),), outcome=(RECORD,))


def test_equal_plans_of_different_commits_are_as_reviewed():
    same, text = compared(of_plan(PLAN, "t1", "c1"), of_plan(PLAN, "t1", "c2"), 7)
    assert same
    assert text.startswith("as reviewed in merge request 7")


def test_order_and_what_follows_health_do_not_count():
    healing = Outcome("dnspolicy/a", "a.example.test. A: x -> nothing", "2", compared=False)
    other = Outcome("workload/b", "create b on node", "3")
    one = replace(PLAN, outcome=(RECORD, other))
    two = replace(PLAN, outcome=(other, healing, RECORD))
    assert compared(of_plan(one, "t", "c"), of_plan(two, "t", "d"), 7)[0]


def test_a_difference_is_named_without_its_value():
    image = replace(PLAN.changed[0], fields=(FIELD._replace(after="evil:9"),))
    record = RECORD._replace(text="www.example.test. A: 203.0.113.1 -> 203.0.113.99")
    gone = replace(PLAN, changed=())
    new = replace(PLAN, outcome=(RECORD, Outcome("workload/x", "end x on node (Pruned)", "4")))
    for changed, name in (
        (replace(PLAN, changed=(image,)), "~ workload/web: containers[web].image"),
        (replace(PLAN, outcome=(record,)), "~ record/www: www.example.test. A"),
        (gone, "- workload/web: containers[web].image"),
        (new, "+ workload/x: end x on node (Pruned)"),
    ):
        same, text = compared(of_plan(PLAN, "t", "c"), of_plan(changed, "t", "d"), 7)
        assert not same
        assert text == f"differs from the plan reviewed in merge request 7: {name}"
        assert "203.0.113" not in text
        assert "evil" not in text


def test_a_large_plan_is_compared_by_its_hash():
    many = tuple(Outcome(f"workload/w{number}", "create w on node", str(number)) for number in range(LINES + 1))
    large = of_plan(replace(PLAN, outcome=many), "t", "c")
    assert large.lines == ()
    assert compared(large, of_plan(replace(PLAN, outcome=many), "t", "d"), 7)[0]
    assert not compared(large, of_plan(replace(PLAN, outcome=many[1:]), "t", "d"), 7)[0]


def test_what_is_remembered_survives_a_restart_and_damage_is_forgotten(tmp_path):
    tmp_path.chmod(0o700)
    remembered = Remembered(in_force="c")
    for number in range(KEPT + 5):
        remembered = remembered.with_head(Head(number, "c", "b", of_plan(PLAN, "t", "c") if number % 2 else None))
    assert len(remembered.heads) == KEPT
    file.save(tmp_path, remembered)
    assert file.load(tmp_path) == remembered
    for damage in (b"", b"{", b"[]", b'{"format": 1, "heads": 3}', b'{"format": 2}', b"[" * 100_000):
        (tmp_path / file.FILE).write_bytes(damage)
        assert file.load(tmp_path) == Remembered()
