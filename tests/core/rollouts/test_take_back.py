"""An image that a policy chose fails in its rollout and is taken back: what the verdict is, and what going back does. In virtual time."""

from dataclasses import replace

from manifests.values.desired import SECOND
from manifests.values.image_choice import ImageChoice
from manifests.values.rollouts import Rollout
from providers.actions import CreateContainer
from reconciler.core.image_choices import Verdict, judged
from reconciler.core.model.reasons import Rule
from reconciler.core.model.revision import Standing
from tests.core.rollouts.world import names_of, of, staged, standing, up
from tests.sim.manifest import Shop, shop
from tests.sim.world import World


def verdict(here: World, declared: Shop) -> Verdict | None:
    """What is known of the image of the declared workload, as if a policy had chosen it."""
    (workload,) = declared.desired().workloads
    choice = ImageChoice(workload.key, workload.template.container.name, "v1", "v2")
    found = judged([replace(workload, image_choices=(choice,))], here.memory.ledger().rollouts, here.now())
    return found[0].verdict if found else None


def test_a_failed_bake_goes_back_to_the_kept_containers_and_stays_there(world):
    here = world(staged())
    old = {name: here.containers()[name].id for name in names_of("v1")}
    here.push(staged("v2"))
    here.run(220 * SECOND)
    assert standing(here, "v2") is Standing.ACTIVE
    assert verdict(here, staged("v2")) is None, "its bake is not over"
    writes = len(here.traffic.writes)
    here.apps.mute |= set(names_of("v2"))
    seen = set()
    for _ in range(60):
        here.run(2 * SECOND)
        seen.add(verdict(here, staged("v2")))
        if Verdict.FAILED in seen:
            break
    assert seen <= {None, Verdict.FAILING, Verdict.FAILED}
    assert Verdict.FAILED in seen
    assert any(of(here, "v1").values()), "it has no traffic when it is taken back"
    here.push(staged("v1"))
    here.run(900 * SECOND)
    assert standing(here, "v1") is Standing.ACTIVE
    assert all(of(here, "v1").values())
    assert {name: here.containers()[name].id for name in names_of("v1")} == old
    assert not any(isinstance(write.action, CreateContainer) for write in here.traffic.writes[writes:])
    assert not any(hold.rule is Rule.REVISION_NOT_ELIGIBLE for hold in here.tape.last.holds), "nothing is left to do"


def test_an_image_is_proved_when_its_bake_is_over(world):
    here = world(staged(bake=120 * SECOND))
    here.push(staged("v2", bake=120 * SECOND))
    here.run(220 * SECOND)
    here.run(120 * SECOND)
    assert verdict(here, staged("v2", bake=120 * SECOND)) is Verdict.PROVED


def rolling(image: str) -> Shop:
    return shop(image=image, rollout=Rollout(progress_deadline=300 * SECOND))


def test_a_stuck_rolling_rollout_is_taken_back_to_the_image_before(world):
    here = world(rolling("v1"))
    here.apps.mute |= set(names_of("v2"))
    here.push(rolling("v2"))
    here.run(200 * SECOND)
    assert verdict(here, rolling("v2")) is None
    here.run(200 * SECOND)
    assert verdict(here, rolling("v2")) is Verdict.FAILED
    here.push(rolling("v1"))
    here.run(300 * SECOND)
    assert up(here, "v1") == 3
    assert up(here, "v2") == 0
    assert all(of(here, "v1").values())
    assert not here.tape.last.holds
