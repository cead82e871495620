"""Endpoints at ports of the host, or in a network of their own: the observed mapping counts, and reuse is as safe as with containers."""

from dataclasses import replace

import pytest

from manifests.values.desired import AddressFrom, Desired, Strategy
from manifests.values.dns import Publish
from providers.actions import ChangeRecords, CreateContainer, RemoveContainer, SetWeight, StartContainer, StopContainer
from providers.facts import ContainerFact, Endpoint, MemberFact, PortFact, Probes, RecordKey, RecordSet
from reconciler.core.decide import decide
from reconciler.core.forecast import forecast
from reconciler.core.model.reasons import Waiting
from tests.builders import NOW, PASS, Scene, container, down
from tests.sim.manifest import Spec, service, shop, workload

HOST = "192.0.2.10"
WEB = Spec(replicas=1, publish=Publish.ENDPOINTS)
AT = Endpoint(HOST, 8000)


def wanted(spec: Spec = WEB, **changes: object) -> Desired:
    desired = shop(replicas=spec.replicas, image=spec.image).desired()
    changed = {"address_from": AddressFrom.HOST, **changes}
    return replace(
        desired,
        workloads=(replace(workload(spec), strategy=Strategy.RECREATE),),
        services=(replace(service(spec), **changed),),
    )


def published(fact: ContainerFact, port: int = 8000) -> ContainerFact:
    return replace(fact, published=(PortFact(8080, HOST, port),))


class Hosted(Scene):
    """One container of a spec, published on the host and serving there."""

    def __init__(self, spec: Spec = WEB) -> None:
        super().__init__(spec)
        self.remember(wanted(spec))
        self.facts = [published(fact) for fact in self.facts]
        self.pools["web"] = [MemberFact(AT, 100, True, self.facts[0].name)]
        self.records[RecordKey("web.example.test.", "A")] = RecordSet(30, (HOST,))


def test_a_pool_and_a_name_get_the_hosts_address_and_the_published_port():
    world = Hosted()
    world.pools["web"], world.records, world.owners = [], {}, {}
    done = [step.step.action for step in forecast(wanted(), world.observed(), NOW).steps]
    assert [(action.endpoint, action.weight) for action in done if isinstance(action, SetWeight)] == [(AT, 100)]
    (records,) = [action for action in done if isinstance(action, ChangeRecords)]
    assert records.changes[0].after.values == (HOST,)


def test_a_correct_endpoint_causes_no_change():
    assert not decide(wanted(), Hosted().observed(), NOW).steps


def test_the_mapping_that_is_observed_counts_when_it_differs():
    world = Hosted()
    world.facts = [published(world.facts[0], 8001)]
    done = [step.action for step in decide(wanted(), world.observed(), NOW).steps]
    assert SetWeight("edge", "web", Endpoint(HOST, 8001), world.facts[0].name, 100, None) in done


def test_without_a_published_port_no_endpoint_is_guessed():
    world = Hosted()
    world.facts = [replace(world.facts[0], published=())]
    world.pools["web"], world.records, world.owners = [], {}, {}
    assert not [step for step in decide(wanted(), world.observed(), NOW).steps if isinstance(step.action, SetWeight)]


def test_a_host_port_is_reused_only_after_the_dead_member_has_weight_0():
    world = Hosted()
    world.facts = [down(replace(world.facts[0], published=(), address="", ports=()))]
    decision = decide(wanted(), world.observed(), NOW)
    assert [type(step.action) for step in decision.steps] == [SetWeight]
    assert decision.steps[0].action.weight == 0
    assert Waiting.DEAD_ENDPOINT in {wait.waiting for wait in decision.waits}
    world.pools["web"] = [MemberFact(AT, 0, True, world.facts[0].name)]
    assert StartContainer in {type(step.action) for step in decide(wanted(), world.observed(), NOW).steps}


def test_a_new_revision_takes_the_port_only_after_the_old_one_is_removed():
    world = Hosted()
    done = [step.step.action for step in forecast(wanted(replace(WEB, image="v2")), world.observed(), NOW).steps]
    order = [type(action) for action in done if not isinstance(action, ChangeRecords)]
    steps = [CreateContainer, SetWeight, StopContainer, RemoveContainer, StartContainer]
    assert [order.index(step) for step in steps] == sorted(order.index(step) for step in steps)


# --- networks -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("network", "expected"), [("back", ["10.9.0.1"]), ("other", [])])
def test_a_network_gives_the_address_that_a_container_has_there(network, expected):
    fact = replace(container(WEB, 0), addresses=(("back", "10.9.0.1"), ("edge", "10.0.0.1")))
    world = Scene(WEB)
    world.facts = [fact]
    world.probes = {fact.generation: Probes(None, PASS, PASS)}
    world.pools["web"], world.records, world.owners = [], {}, {}
    desired = wanted(address_from=AddressFrom.CONTAINER, network=network)
    world.remember(desired)
    done = [step.action for step in decide(desired, world.observed(), NOW).steps]
    assert [action.endpoint.address for action in done if isinstance(action, SetWeight)] == expected
