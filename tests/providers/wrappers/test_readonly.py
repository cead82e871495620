"""A read-only provider refuses every kind of action."""

from typing import get_args

import pytest

from manifests.values.desired import Container, Role, Template
from providers.actions import (
    Action,
    ChangeRecords,
    CreateContainer,
    CutSessions,
    RecordChange,
    RemoveContainer,
    RemoveEndpoint,
    SetWeight,
    StartContainer,
    StopContainer,
    UpdateContainer,
)
from providers.errors import Rejected
from providers.facts import Endpoint, Generation, Mark, RecordKey, RecordSet
from providers.spi import Context
from providers.testing.checks import perform_one
from providers.testing.memory import MemoryDNS, MemoryEndpoints, MemorySettings, MemoryWorld
from providers.testing.memory_runtime import MemoryRuntime
from providers.wrappers.readonly import read_only

CONTEXT = Context("demo", "/nowhere")
NAME = "demo-web-01234567-0"
ACTIONS: list[Action] = [
    CreateContainer("one", NAME, Mark("demo", "web", 0, "0123456789"), Template((), Container("web", ())), "/"),
    StartContainer("one", NAME, Generation("memory-1", 0)),
    StopContainer("one", NAME, Generation("memory-1", 0), 0),
    RemoveContainer("one", NAME, Generation("memory-1", 0)),
    UpdateContainer("one", NAME, Generation("memory-1", 0), ()),
    SetWeight("one", "web", Endpoint("192.0.2.1", 80), "", 1, None),
    RemoveEndpoint("one", "web", Endpoint("192.0.2.1", 80), ""),
    CutSessions("one", "web", Endpoint("192.0.2.1", 80), ""),
    ChangeRecords(
        "one",
        "example.test.",
        (RecordChange(RecordKey("a.example.test.", "A"), None, RecordSet(1, ("192.0.2.1",)), "demo/a"),),
    ),
]


def role_of(action: Action) -> Role:
    if isinstance(action, ChangeRecords):
        return Role.DNS
    return Role.ENDPOINTS if isinstance(action, SetWeight | RemoveEndpoint | CutSessions) else Role.RUNTIME


def test_the_list_of_actions_is_complete() -> None:
    assert {type(action) for action in ACTIONS} == set(get_args(Action))


@pytest.mark.parametrize("action", ACTIONS, ids=lambda action: type(action).__name__)
def test_every_action_is_refused_and_nothing_changes(action: Action) -> None:
    world = MemoryWorld()
    bare = (
        MemoryRuntime("one", MemorySettings(), CONTEXT, world),
        MemoryEndpoints("one", MemorySettings(), CONTEXT, world),
        MemoryDNS("one", MemorySettings(), CONTEXT, world),
    )
    provider = next(read_only(one) for one in bare if one.role is role_of(action))  # type: ignore[call-overload]
    with pytest.raises(Rejected, match=f"{type(action).__name__} refused: provider one is open read-only"):
        perform_one(provider, action)
    assert not any(world.nodes.values())
    assert not world.pools
    assert not world.zones


def test_many_actions_in_one_call_are_each_refused() -> None:
    world = MemoryWorld()
    handle = read_only(MemoryEndpoints("one", MemorySettings(), CONTEXT, world))
    performed = handle.perform([ACTIONS[5], ACTIONS[6]])  # type: ignore[list-item]
    assert [type(error) for error in performed.errors] == [Rejected, Rejected]
    assert not world.pools


def test_looks_go_through_and_exec_does_not() -> None:
    world = MemoryWorld()
    runtime = MemoryRuntime("one", MemorySettings(), CONTEXT, world)
    runtime.plant("web", {})
    runtime.say("web", "hello")
    handle = read_only(runtime)
    assert [fact.name for fact in handle.observe(["web"])] == ["web"]
    assert handle.logs("web", 1) == ("hello",)
    with pytest.raises(Rejected, match="exec refused"):
        handle.exec_target("web", ("true",))
    endpoints = read_only(MemoryEndpoints("one", MemorySettings(), CONTEXT, world))
    names = read_only(MemoryDNS("one", MemorySettings(), CONTEXT, world))
    assert endpoints.observe(["web"])[0].pool == "web"
    assert names.observe(["example.test."])[0].zone == "example.test."
    for provider in (handle, endpoints, names):
        provider.close()
