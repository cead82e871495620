"""Images that policies chose without a commit: what comes next, what failed, and what is not chosen again."""

from dataclasses import replace

import pytest

from manifests.kinds.image_policy import ImagePolicy as Kind
from manifests.resolve.image_policies import policy_value
from manifests.values.desired import SECOND, Container, Desired, Guard, Instance, Template, Workload
from manifests.values.image_choice import IMAGE_POLICY, ImageChoice
from manifests.values.image_policy import ImagePolicy
from manifests.values.rollouts import DEFAULT_ROLLOUT, Strategy
from reconciler.core.image_choices import (
    Verdict,
    blamed,
    chosen,
    current,
    follow,
    judged,
    seen,
    without_choice,
)
from reconciler.core.model.instant import Instant, Now
from reconciler.core.model.revision import Revision, Rollout, Standing
from reconciler.core.plan_review import change_text
from reconciler.core.replicas import setting_changes
from reconciler.core.replicas.field_changes import Effect, FieldChange
from reconciler.shell.report.origins import Origin

NOW = Now(10**18, 1_000 * SECOND, "here")
OLD, NEW, NEWER = (f"registry.test/shop:{tag}" for tag in ("1.4.0", "1.5.0", "1.6.0"))


def policy(image: str = OLD, declared: str = "", **rule: object) -> ImagePolicy:
    given = {"container": "main", **(rule or {"semver": "1.x"})}
    return policy_value(Kind.model_validate(given), image, declared or image)


def choice(image: str = NEW, **fields: object) -> ImageChoice:
    return replace(ImageChoice("workload/shop", "main", OLD, image, seen=OLD), **fields)


def workload(known: ImageChoice, revision: str = "new", strategy: Strategy = Strategy.CANARY) -> Workload:
    template = Template((), Container("main", ()), revision=revision)
    rollout = replace(DEFAULT_ROLLOUT, bake=60 * SECOND)
    return Workload(
        "workload/shop", "shop", ("engine",), 1, template, strategy=strategy, rollout=rollout, image_choices=(known,)
    )


def rollout(standing: Standing, *, active: str = "old", back: str = "", activated: int | None = None) -> Rollout:
    at = None if activated is None else Instant(NOW.wall, NOW.steady - activated * SECOND, "here")
    row = Revision("new", 2, standing, Instant(*NOW), NEW, activated=at, why="it fails")
    old = Revision("old", 1, Standing.ACTIVE, Instant(*NOW), OLD, activated=Instant(*NOW))
    return Rollout(active=active, back=back, rows=(old, row))


def verdict(known: ImageChoice, state: Rollout, strategy: Strategy = Strategy.CANARY) -> Verdict | None:
    found = judged([workload(known, strategy=strategy)], {"workload/shop": state}, NOW)
    return found[0].verdict if found else None


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (rollout(Standing.SCHEDULED), None),
        (rollout(Standing.ACTIVE, active="new", activated=10), None),
        (rollout(Standing.ACTIVE, active="new", activated=60), Verdict.PROVED),
        (rollout(Standing.FAILED, active="new", back="old", activated=30), Verdict.FAILING),
        (rollout(Standing.FAILED, back="old", activated=30), Verdict.FAILING),
        (rollout(Standing.FAILED), Verdict.FAILED),
        (rollout(Standing.EXPIRED), Verdict.FAILED),
        (rollout(Standing.SUPERSEDED), None),
    ],
)
def test_an_image_is_proved_by_its_bake_and_goes_back_without_traffic(state, expected):
    assert verdict(choice(), state) is expected


def test_a_rolling_rollout_proves_an_image_when_it_is_complete():
    state = rollout(Standing.ACTIVE, active="new", activated=0)
    assert verdict(choice(), state, Strategy.ROLLING) is Verdict.PROVED


def test_a_commit_that_fails_with_a_proved_image_is_blamed_itself():
    state = rollout(Standing.FAILED)
    wanted = Desired("source", "revision", "/", True, Instance("shop"), Guard(), (), (), (), ())
    for proved, fault in (("", {"workload/shop": NEW}), ("new", {"workload/shop": NEW}), ("earlier", {})):
        known = choice(proved=proved)
        assert (verdict(known, state) is Verdict.FAILED) is bool(fault)
        assert blamed(replace(wanted, workloads=(workload(known),)), {"workload/shop": state}) == fault
    assert blamed(replace(wanted, workloads=(workload(choice("")),)), {"workload/shop": state}) == {}


def judgement(known: ImageChoice, state: Rollout):
    (found,) = judged([workload(known)], {"workload/shop": state}, NOW)
    return found


def test_a_failed_image_goes_back_to_the_last_one_that_was_proved():
    first = follow(choice(), judgement(choice(), rollout(Standing.ACTIVE, active="new", activated=60)), 1)
    assert first.proved == "new"
    second = chosen(first, policy(NEW, OLD), NEWER, "newer", 2)
    assert (second.image, second.previous, second.proved) == (NEWER, NEW, "")
    back = follow(second, judgement(second, rollout(Standing.FAILED)), 3)
    assert (back.image, back.proved, back.refused) == (NEW, "new", {NEWER})
    assert [taken.why for taken in back.taken_back] == ["it fails"]
    assert follow(back, judgement(second, rollout(Standing.FAILED)), 4) == back, "a verdict about another image"


def test_a_newer_image_in_place_of_a_stuck_one_never_goes_back_to_that():
    stuck = choice()
    after = chosen(stuck, policy(OLD), NEWER, "newer", 2)
    assert after.previous == ""
    assert follow(after, judgement(after, rollout(Standing.FAILED)), 3).image == ""


def test_an_image_with_traffic_is_refused_at_once_and_goes_back_later():
    failing = follow(choice(), judgement(choice(), rollout(Standing.FAILED, back="old")), 1)
    assert (failing.image, failing.refused) == (NEW, {NEW})


def test_an_image_that_an_operator_rolls_back_later_is_refused():
    known = choice(proved="new")
    assert follow(known, judgement(known, rollout(Standing.FAILED)), 1).refused == {NEW}


def test_a_verdict_on_a_revision_after_the_proof_takes_nothing_back():
    late = judgement(choice(), rollout(Standing.FAILED))
    assert follow(choice(proved="earlier"), late, 1) == choice(proved="earlier")


def test_a_commit_of_the_image_ends_the_choice_and_refuses_the_old_one():
    in_force = seen(choice(), policy(NEW, OLD), 1)
    assert (in_force.image, in_force.seen) == (NEW, NEW)
    moved = seen(in_force, policy("registry.test/shop:1.4.1"), 2)
    assert (moved.image, moved.declared, moved.refused) == ("", "registry.test/shop:1.4.1", {NEW})
    # The revert of a commit does not bring back what the commit brought.
    written = seen(in_force, policy(NEW), 2)
    assert (written.image, written.refused) == ("", frozenset())
    assert seen(written, policy(OLD), 3).refused == {NEW}


def test_a_policy_that_excludes_the_image_ends_the_choice_only():
    narrow = seen(choice(seen=NEW), policy(OLD, semver="<1.5"), 1)
    assert (narrow.image, narrow.refused) == ("", frozenset())
    assert seen(choice(), policy(NEW, OLD, semver=">=1.5 <3"), 1).image == NEW, "a wider one keeps it"


def test_nothing_is_written_twice_for_the_same_manifests():
    once = seen(ImageChoice("workload/shop", "main"), policy(), 1)
    assert seen(once, policy(), 2) is not None
    assert seen(once, policy(), 2) == once


def test_what_was_taken_back_outlives_the_policy():
    failed = follow(choice(), judgement(choice(), rollout(Standing.FAILED)), 1)
    assert without_choice(failed).refused == {NEW}
    assert seen(without_choice(failed), policy(), 9).refused == {NEW}


@pytest.mark.parametrize(
    ("rule", "yes", "no"),
    [
        ({"semver": ">=1.4 <2"}, "shop:1.5.0 shop:v1.9.9", "shop:2.0.0 shop:latest other:1.5.0 shop"),
        ({"newest": {"pattern": "main-{value}"}}, "shop:main-7", "shop:dev-7 shop:main-x"),
        ({"digest": {"tag": "stable"}}, f"shop:stable@sha256:{'a' * 64}", f"shop:stable shop:x@sha256:{'a' * 64}"),
    ],
)
def test_a_policy_admits_what_it_could_choose(rule, yes, no):
    given = policy(**rule)
    assert all(given.admits(f"registry.test/{name}") for name in yes.split())
    assert not any(given.admits(f"registry.test/{name}") for name in no.split())
    assert not given.admits("registry.test/shop@")


def test_a_newer_image_must_be_newer_than_one_that_is_not_in_force_yet():
    assert current(choice(), policy(OLD)) == NEW
    assert current(choice(), policy("registry.test/shop:1.4.1")) == "registry.test/shop:1.4.1"
    assert current(choice(""), policy(OLD)) == OLD


def test_plans_and_events_say_image_policy_in_the_place_of_a_line():
    known = choice(NEW)
    field = FieldChange(known.field, OLD, NEW, Effect.NEW_CONTAINER, where=IMAGE_POLICY)
    assert change_text(field).endswith("by image policy")
    assert change_text(field._replace(where="shop.yaml:9:7")).endswith("at shop.yaml:9:7")
    chosen_here = ((known.field, IMAGE_POLICY),)
    assert Origin("", "shop.yaml:1:1", chosen_here).text == f"for {known.field} by image policy"
    both = (*chosen_here, ("replicas", "shop.yaml:5:3"))
    assert (
        Origin("a" * 40, "", both).text
        == f"for {known.field} by image policy, replicas at shop.yaml:5:3, commit {'a' * 12}"
    )


def test_a_chosen_image_is_no_change_of_the_policy():
    before = replace(workload(choice("")), image_policies=(policy(OLD),))
    after = replace(workload(choice(NEW)), image_policies=(policy(NEW, OLD),))
    assert setting_changes.changes(before, after) == ()
    wider = replace(after, image_policies=(policy(NEW, OLD, semver=">=1 <3"),))
    (*_, shown) = setting_changes.changes(after, wider)
    assert shown.field.startswith("imagePolicies[main].")
