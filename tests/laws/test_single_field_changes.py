"""A change of one field takes nothing from a container that serves before its successor serves, whichever field it is."""

from dataclasses import dataclass, replace
from itertools import chain

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from manifests.values.desired import SECOND, Desired, Template
from providers.actions import CreateContainer
from tests.laws.examples import examples, stride
from tests.laws.fields import FLAVOURS, Change, Field, changes, covered, exempt, fields, written
from tests.laws.serving import Serving
from tests.sim.documents import Documents, shop
from tests.sim.programs import Program, ProgramOf, probes_of, request
from tests.sim.world import World


@dataclass(frozen=True)
class Version:
    """What a new version of the program does: whether it works, listens where its manifest says, and answers what that asks for."""

    good: bool = True
    follows: bool = True
    answers: bool = True


VERSIONS = (Version(), Version(good=False), Version(follows=False), Version(answers=False))


def programs(change: Change, version: Version) -> ProgramOf:
    """The programs of all containers: what a version answers is fixed when its container is made."""
    old, new = (_template(documents.desired()) for documents in (change.before, change.after))

    def program_of(action: CreateContainer) -> Program:
        template = action.template
        changed = template.revision != old.revision
        listening = template if version.follows or not changed else old
        asked = [*probes_of(old), *(probes_of(new) if version.answers else ())]
        if changed and template.container.engine.image != old.container.engine.image:
            asked = [*probes_of(new)]
        ports = frozenset(port.number for port in listening.container.ports)
        return Program(ports, frozenset(map(request, asked)), version.good or not changed)

    return program_of


def _template(desired: Desired) -> Template:
    return desired.workloads[0].template


def violations(change: Change, version: Version) -> Serving:
    """A world that serves, and what happens in the ten minutes after the change."""
    world = World(change.before)
    try:
        watch = Serving(world, programs(change, version))
        world.runtime.in_place = True
        world.run(90 * SECOND)
        watch.look("the change")
        assert watch.before
        assert all(container.serves for container in watch.before.values()), f"{change.field}: not all serve before"
        watch.broken.clear()
        watch.timeline.clear()
        world.push(change.after)
        watch.follow(change.after.desired())
        world.run(600 * SECOND)
        watch.look("the end")
        return watch
    finally:
        world.close()


def report(change: Change, version: Version, watch: Serving) -> str:
    """The counterexample: the field, both manifests, and everything that happened."""
    changed = [item for item in change.after.all if item not in change.before.all]
    lines = [f"{change.field} = {change.value}, with {version}", *watch.broken, "before:", change.before.text()]
    return "\n".join([*lines, "after:", Documents(tuple(changed)).text(), "what happened:", *watch.timeline])


def test_every_field_has_a_change_or_a_reason_for_none() -> None:
    without = [str(field) for field in fields() if not exempt(field) and not covered(field)]
    assert not without, f"add values to tests/laws/fields.py, or a reason to its EXEMPT: {without}"


SHARDS = 4
"""The sweep is split, so that several workers share it."""


def swept(shard: int) -> list[tuple[Change, Version]]:
    """One shard of all changes of all fields: with one version each, or with every version in CI and in a long search."""
    every = list(chain.from_iterable(covered(field) for field in fields() if not exempt(field)))
    turns = [
        (change, version)
        for number, change in enumerate(every)
        for place, version in enumerate(VERSIONS)
        if place % stride(search=1, ci=1) == number % stride(search=1, ci=1)
    ]
    return turns[shard::SHARDS]


@pytest.mark.parametrize("shard", range(SHARDS))
def test_no_field_takes_anything_from_what_serves(shard: int) -> None:
    for change, version in swept(shard):
        watch = violations(change, version)
        assert not watch.broken, report(change, version, watch)


RELEASED = {**FLAVOURS, "checked slowly": shop(check=True, slowly=True), "checked alone": shop(check=True, far=False)}


@pytest.mark.parametrize("version", VERSIONS, ids=["good", "never ready", "at the old port", "at the old path"])
@pytest.mark.parametrize("flavour", RELEASED)
def test_a_release_takes_nothing_from_what_serves(flavour: str, version: Version) -> None:
    before = RELEASED[flavour]
    after = before.copy()
    main = after.of("Workload")["spec"]["template"]["spec"]["containers"][0]
    main["image"] = "shop/web:2"
    change = Change(f"{flavour}: the image", "shop/web:2", before, after)
    watch = violations(change, version)
    assert not watch.broken, report(change, version, watch)


SECONDS = st.sampled_from((1, 5, 10))
COUNT = st.integers(1, 3)


@st.composite
def manifests(draw: st.DrawFn) -> Documents:
    """Manifests of a shop that serves, of any strategy and with any probes, budgets, drains and times to live."""
    probes = draw(st.sampled_from((("readiness",), ("liveness", "readiness"), ("startup", "liveness", "readiness"))))
    made = shop(
        draw(st.sampled_from(("rolling", "activate", "canary"))),
        draw(st.sampled_from(("httpGet", "tcpSocket", "exec", "grpc"))),
        probes,
        replicas=draw(st.integers(1, 4)),
        publish=draw(st.sampled_from(("endpoints", "endpoints", "balancer", ""))),
        pools=draw(st.integers(1, 2)),
        rich=draw(st.booleans()),
        ramp=draw(st.booleans()),
        check=(checked := draw(st.booleans())),
        places=checked and draw(st.booleans()),
    )
    spec = made.of("Workload")["spec"]
    for name in probes:
        timed = spec["template"]["spec"]["containers"][0][f"{name}Probe"]
        timed |= {"periodSeconds": draw(SECONDS), "failureThreshold": draw(COUNT), "initialDelaySeconds": draw(SECONDS)}
        if name == "readiness":
            timed["successThreshold"] = draw(COUNT)
    spec["minReadySeconds"] = draw(st.sampled_from((0, 5)))
    spec["availability"] = {"maxUnavailable": draw(st.integers(0, 2))}
    spec["restarts"] = {"limit": draw(st.integers(0, 5)), "backoff": {"initial": f"{draw(SECONDS)}s"}}
    shortest = draw(SECONDS)
    spec["drain"] = {"min": f"{shortest}s", "max": f"{shortest + draw(SECONDS)}s"}
    for policy in (item for item in made.all if item["kind"] == "DNSPolicy"):
        policy["spec"]["ttl"] = f"{draw(SECONDS)}s"
    return made


@given(manifests(), st.sampled_from([field for field in fields() if not exempt(field)]), st.data())
@examples(150)
def test_no_field_of_any_manifests_takes_anything_from_what_serves(
    before: Documents, field: Field, data: st.DataObject
) -> None:
    possible = changes(field, before)
    assume(possible)
    change = data.draw(st.sampled_from(possible))
    if data.draw(st.booleans(), "with a new image"):
        after = change.after.copy()
        after.of("Workload")["spec"]["template"]["spec"]["containers"][0]["image"] = "shop/web:2"
        change = replace(change, field=f"{change.field} and the image", after=after)
    version = data.draw(st.sampled_from(VERSIONS))
    watch = violations(change, version)
    assert not watch.broken, report(change, version, watch)


LESS = {
    "fewer replicas": ("Workload", "spec.replicas", 1),
    "stop first": ("Workload", "spec.rollout", {"strategy": "recreate"}),
    "less weight": ("Service", "spec.weight", 10),
}


@pytest.mark.parametrize("case", LESS)
def test_a_change_that_asks_for_less_is_seen_to_take_it(case: str) -> None:
    kind, path, value = LESS[case]
    before = shop(replicas=2)
    after = written(before, kind, path, value)
    after.of("Workload")["spec"]["template"]["spec"]["containers"][0]["image"] = "shop/web:2"
    assert violations(Change(path, repr(value), before, after), Version()).broken
