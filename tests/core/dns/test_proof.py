"""Addresses of a service with a check: before its first probe an address stays as it is, published or not."""

from dataclasses import replace

import pytest

from manifests.values.desired import SECOND, Desired
from manifests.values.dns import AllUnhealthy, Check
from providers.facts import ProbeFact, ProbeValue, RecordKey, RecordSet
from reconciler.core.decide import decide
from reconciler.core.forecast import forecast
from reconciler.core.model.target_probe import TargetProbe
from tests.builders import NOW, SEEN, Scene
from tests.sim.manifest import HOST, INSTANCE, ZONE, Shop, Spec

PASS, FAIL, UNKNOWN, CANNOT_RUN = ProbeValue.PASS, ProbeValue.FAIL, ProbeValue.UNKNOWN, ProbeValue.CANNOT_RUN
CHECK = Check(host=HOST)
KEY = RecordKey(f"web.{ZONE}", "A")
SPEC = Spec()


def desired() -> Desired:
    made = Shop((SPEC,)).desired()
    checked = replace(made.policies[0], check=CHECK, all_unhealthy=AllUnhealthy.PUBLISH_ALL)
    return replace(made, policies=(checked,))


def result(value: ProbeValue, last: ProbeValue) -> ProbeFact:
    return ProbeFact(value, last, 1, 5, SEEN - SECOND, SEEN - SECOND, 90 * SECOND, "as given")


def published(scene: Scene, answers: dict[str, ProbeFact]) -> tuple[str, ...]:
    """The addresses of the name after the due steps."""
    probes = {TargetProbe(address, CHECK): fact for address, fact in answers.items()}
    decision = decide(desired(), replace(scene.observed(), target_answers=probes), NOW)
    for step in decision.steps:
        for change in getattr(step.action, "changes", ()):
            if change.key == KEY:
                return change.after.values
    return scene.records[KEY].values


@pytest.fixture
def scene() -> Scene:
    """Three replicas are ready; the address of the last was withdrawn because its check failed."""
    made = Scene(SPEC)
    made.records[KEY] = RecordSet(SPEC.ttl, made.records[KEY].values[:2])
    made.owners[KEY] = f"{INSTANCE}/dnspolicy/web"
    return made


@pytest.mark.parametrize(
    ("answer", "joins"),
    [
        (None, False),
        (result(UNKNOWN, FAIL), False),
        (result(UNKNOWN, PASS), False),
        (result(FAIL, FAIL), False),
        (result(PASS, PASS), True),
        (result(CANNOT_RUN, CANNOT_RUN), True),
        (result(UNKNOWN, UNKNOWN), True),
    ],
)
def test_a_withdrawn_address_joins_after_success_or_if_no_check_can_run(
    answer: ProbeFact | None, joins: bool, scene: Scene
) -> None:
    addresses = [fact.address for fact in scene.facts]
    after = published(scene, {} if answer is None else {addresses[2]: answer})

    assert after == tuple(addresses if joins else addresses[:2])


def test_after_a_start_a_failing_replica_still_leaves_its_name_at_once(scene: Scene) -> None:
    addresses = [fact.address for fact in scene.facts]
    scene.sick(0, "readiness")

    assert published(scene, {}) == (addresses[1],)


def test_a_plan_expects_the_checks_of_started_replicas_to_pass(scene: Scene) -> None:
    addresses = [fact.address for fact in scene.facts]
    answers = {TargetProbe(address, CHECK): result(PASS, PASS) for address in addresses}
    wanted = desired()
    more = replace(wanted, workloads=(replace(wanted.workloads[0], replicas=4),))
    plan = forecast(more, replace(scene.observed(), target_answers=answers), NOW)
    last = [change.after for step in plan.steps for change in getattr(step.step.action, "changes", ())][-1]

    assert len(last.values) == 4
