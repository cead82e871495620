"""What follows for traffic and names is counted in the forecast."""

from dataclasses import replace

from manifests.values.rollouts import Strategy
from reconciler.core.consequences import Least
from reconciler.core.forecast import forecast
from tests.builders import NOW, Scene, down
from tests.sim.manifest import Shop, Spec, shop

POOL, NAME = "edge/web", "web.example.test."


def consequence(desired, scene):
    (row,) = forecast(desired, scene.observed(), NOW).consequences
    return row


def test_a_rolling_replacement_keeps_every_replica():
    row = consequence(shop(image="v2").desired(), Scene(Spec()))
    assert (row.verb, row.count, row.at_once, row.downtime) == ("replaced", 3, 1, None)
    assert (row.available, row.pools, row.names) == (Least("", 3, 3), (Least(POOL, 3, 3),), (Least(NAME, 3, 3),))


def test_recreating_several_replicas_keeps_all_but_one():
    row = consequence(shop(image="v2", strategy=Strategy.RECREATE).desired(), Scene(Spec()))
    assert row.text == (
        "3 replicas are replaced one at a time; at least 2 of 3 serve; pool edge/web keeps at least 2 of 3 endpoints;"
        " name web.example.test. keeps at least 2 of 3 addresses"
    )


def test_recreating_the_only_replica_is_a_downtime():
    spec = Spec(replicas=1, strategy=Strategy.RECREATE)
    plan = forecast(Shop((replace(spec, image="v2"),)).desired(), Scene(spec).observed(), NOW)
    (row,) = plan.consequences
    assert row.downtime is not None
    kinds = {step.number: type(step.step.action).__name__ for step in plan.steps}
    assert [kinds[number] for number in row.downtime] == ["StopContainer", "StartContainer"]
    assert row.text.startswith("downtime: no replica serves from step ")
    assert row.pools == (Least(POOL, 0, 1),)


def test_the_wanted_end_of_a_workload_is_no_downtime():
    row = consequence(Shop((Spec(replicas=1),), destroy=True).desired(), Scene(Spec(replicas=1)))
    assert (row.verb, row.downtime, row.available.of) == ("removed", None, 0)


def test_what_is_down_already_has_no_new_downtime():
    scene = Scene(Spec(replicas=1))
    scene.change(0, down(scene.facts[0]))
    row = consequence(shop(replicas=1).desired(), scene)
    assert (row.verb, row.downtime) == ("started", None)


def test_a_plan_without_steps_has_no_consequences():
    assert forecast(shop().desired(), Scene(Spec()).observed(), NOW).consequences == ()
