"""Renamed containers: still found, with their members, by their ids and labels; a copy from a committed image is none of ours."""

import pytest

from manifests.values.desired import Template
from providers.actions import StopContainer
from providers.errors import Foreign
from providers.facts import ContainerState, mark_labels
from providers.testing.checks import wait_until
from providers.wrappers.owned import owned
from tests.providers.runtime.docker.bench import GRACE, Bench
from tests.providers.runtime.docker.engine import container, template


def rename(bench: Bench, name: str, other: str) -> str:
    """`docker rename`; the new name, which no other test has."""
    new = f"{bench.instance}-{other}"
    bench.api.link.post(f"/containers/{name}/rename", name, name=new)
    return new


def pod() -> Template:
    return template(container(), container("side"))


def test_a_rename_is_seen_at_the_next_look_with_everything_else_as_it_was(engine: Bench) -> None:
    fact = engine.run(template(restart="unless-stopped"))
    engine.looked(fact.name)
    new = rename(engine, fact.name, "mine")
    seen = engine.looked(new)
    assert (seen.mark, seen.claim, seen.foreign_mark) == (None, fact.mark, True)
    assert (seen.generation, seen.live, seen.unjoined, seen.address) == (
        fact.generation,
        fact.live,
        (),
        fact.address,
    )
    assert seen.digests == fact.digests
    assert fact.name not in {other.name for other in engine.runtime.observe()}


def test_members_follow_a_renamed_main_container(engine: Bench) -> None:
    fact = engine.run(pod())
    new = rename(engine, fact.name, "mine")
    seen = engine.looked(new)
    assert (seen.state, seen.generation) == (ContainerState.RUNNING, fact.generation)
    assert [start.container for start in seen.starts] == ["", "side"]
    assert engine.fact(new) == seen
    down = engine.stop(seen)
    assert down.state is ContainerState.EXITED
    assert engine.api.inspect(f"{fact.name}-side")["State"]["Running"] is False
    engine.remove(down)
    assert engine.api.names(f"reconciler.instance={engine.instance}") == []


def test_a_renamed_member_is_neither_missing_nor_created_again(engine: Bench) -> None:
    fact = engine.run(pod())
    new = rename(engine, f"{fact.name}-side", "side")
    assert engine.looked(fact.name).state is ContainerState.RUNNING
    assert engine.fact(fact.name).state is ContainerState.RUNNING
    down = engine.stop(engine.fact(fact.name))
    again = engine.start(down)
    assert again.state is ContainerState.RUNNING
    assert engine.api.inspect(new)["State"]["Running"] is True
    engine.remove(engine.stop(again))
    assert engine.api.names(f"reconciler.instance={engine.instance}") == []


def test_two_candidates_for_a_member_are_no_member(engine: Bench) -> None:
    """Labels can be copied: where it is not clear which container was renamed, none is stopped or removed for the other."""
    fact = engine.run(pod())
    rename(engine, f"{fact.name}-side", "side")
    assert fact.mark is not None
    labels = {**mark_labels(fact.mark, 1), "reconciler.container": "side"}
    copy = f"{engine.instance}-copy"
    engine.api.create(copy, Labels=labels, HostConfig={"NetworkMode": f"container:{fact.id}"})
    engine.api.start(copy)
    assert engine.looked(fact.name).state is ContainerState.EXITED
    engine.stop(engine.fact(fact.name))
    assert engine.api.inspect(copy)["State"]["Running"] is True


@pytest.mark.server("dockerd")
def test_a_container_of_a_committed_image_is_a_copy_and_no_claim(bench: Bench) -> None:
    fact = bench.run()
    image = f"{bench.instance}-copy:1"
    bench.api.link.post("/commit", image, {}, container=fact.name, repo=image.partition(":")[0], tag="1")
    name = f"{bench.instance}-copy"
    try:
        bench.api.create(name, image=image)
        bench.api.start(name)
        copy = bench.looked(name)
        assert bench.api.inspect(name)["Config"]["Labels"]["reconciler.instance"] == bench.instance
        assert (copy.mark, copy.claim, copy.foreign_mark) == (None, None, True)
        assert bench.fact(name) == copy
        with pytest.raises(Foreign, match="name another container"):
            owned(bench.runtime, bench.instance).perform(StopContainer("local", name, copy.generation, GRACE))
        # A replica that is made from that image has its own mark.
        mine = bench.run(template(container("web", image=image)), ordinal=3)
        assert mine.mark is not None
        renamed = rename(bench, mine.name, "mine")
        assert bench.fact(renamed).claim == mine.mark
    finally:
        for made in bench.api.names(f"reconciler.instance={bench.instance}"):
            bench.api.remove(made)
        bench.api.link.delete(f"/images/{image}", image, force="1")


@pytest.mark.server("dockerd")
def test_a_name_that_is_taken_by_a_renamed_container_is_not_created(bench: Bench) -> None:
    fact = bench.run(ordinal=1)
    creation = bench.creation(ordinal=2)
    bench.api.link.post(f"/containers/{fact.name}/rename", fact.name, name=creation.name)
    with pytest.raises(Foreign, match="the name is taken"):
        bench.runtime.perform(creation)
    assert bench.fact(creation.name).claim == fact.mark


@pytest.mark.server("dockerd")
def test_a_rename_between_look_and_stop_stops_the_container(bench: Bench) -> None:
    fact = bench.run(template(restart="unless-stopped"))
    new = rename(bench, fact.name, "mine")
    bench.runtime.perform(StopContainer("local", fact.name, fact.generation, GRACE))
    wait_until(lambda: bench.state(new) is ContainerState.EXITED, "it is stopped under its new name")
    assert bench.fact(new).live[0].restart == "no"
    assert bench.runtime.logs(fact.id, 5) == bench.runtime.logs(new, 5)
