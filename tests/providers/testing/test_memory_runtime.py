"""The events of a host, on the in-memory runtime."""

import pytest

from manifests.values.desired import Container, Port, Template
from manifests.values.pod import Live
from providers.actions import CreateContainer, RemoveContainer, StartContainer, UpdateContainer
from providers.errors import Conflict, Rejected, Unreachable
from providers.facts import ContainerState, ExitCause, Mark, container_name, mark_labels
from providers.spi import Context
from providers.testing.memory import ADDRESSES, MemorySettings, MemoryWorld
from providers.testing.memory_runtime import MemoryRuntime

TEMPLATE = Template(
    labels=(("app", "web"),),
    container=Container("web", ("serve",), env=(("A", "1"),), ports=(Port("http", 8080),), working_dir="app"),
    revision="0123456789abcdef",
    live=(Live("", restart="unless-stopped"),),
)
MARK = Mark("demo", "web", 0, TEMPLATE.revision)
NAME = container_name(MARK)


class Clock:
    """Virtual time: both clocks stand still until moved."""

    def __init__(self) -> None:
        self.steady, self.wall = 1_000, 5_000


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def world(clock: Clock) -> MemoryWorld:
    return MemoryWorld(lambda: clock.steady, lambda: clock.wall)


@pytest.fixture
def runtime(world: MemoryWorld) -> MemoryRuntime:
    return MemoryRuntime("host-a", MemorySettings(), Context("demo", "/nowhere"), world)


def run(runtime: MemoryRuntime, mark: Mark = MARK) -> None:
    name = container_name(mark)
    runtime.perform(CreateContainer("host-a", name, mark, TEMPLATE, "/tree"))
    (fact,) = runtime.observe([name])
    runtime.perform(StartContainer("host-a", name, fact.generation))


def test_instants_come_from_the_injected_clocks(runtime: MemoryRuntime, clock: Clock) -> None:
    run(runtime)
    clock.steady = 2_000
    runtime.exit(NAME, 3)
    (fact,) = runtime.observe()
    assert (fact.started_at, fact.exited_at, fact.exit_code) == (5_000, 2_000, 3)
    assert fact.exit_cause is ExitCause.EXITED


def test_a_restart_is_a_new_generation_with_a_stopped_wall_clock(runtime: MemoryRuntime) -> None:
    run(runtime)
    before = runtime.observe()[0].generation
    runtime.kill(NAME)
    runtime.perform(StartContainer("host-a", NAME, before))
    assert runtime.observe()[0].generation != before


def test_the_address_of_a_removed_container_is_reused_at_once(runtime: MemoryRuntime) -> None:
    run(runtime)
    address = runtime.observe()[0].address
    runtime.vanish(NAME)
    run(runtime, MARK._replace(ordinal=1))
    assert runtime.observe()[0].address == address


def test_addresses_run_out_with_an_error(runtime: MemoryRuntime) -> None:
    for ordinal in range(len(ADDRESSES)):
        run(runtime, MARK._replace(ordinal=ordinal))
    with pytest.raises(Unreachable, match="in use"):
        run(runtime, MARK._replace(ordinal=len(ADDRESSES)))


def test_a_paused_container_keeps_its_generation_and_cannot_be_removed(runtime: MemoryRuntime) -> None:
    run(runtime)
    generation = runtime.observe()[0].generation
    runtime.pause(NAME)
    assert runtime.observe()[0].state is ContainerState.PAUSED
    with pytest.raises(Conflict):
        runtime.perform(RemoveContainer("host-a", NAME, generation))
    runtime.unpause(NAME)
    assert runtime.observe()[0].generation == generation


def test_a_reboot_leaves_everything_down_without_a_known_end(runtime: MemoryRuntime) -> None:
    run(runtime)
    runtime.reboot()
    (fact,) = runtime.observe()
    assert (fact.exit_cause, fact.exited_at, fact.running_since) == (ExitCause.HOST_RESTARTED, 0, 0)


def test_labels_inherited_from_another_container_are_a_foreign_mark(runtime: MemoryRuntime) -> None:
    runtime.plant("copy", mark_labels(MARK, 1))
    (fact,) = runtime.observe()
    assert fact.mark is None
    assert fact.foreign_mark


def test_an_unmarked_container_is_seen_with_its_labels(runtime: MemoryRuntime) -> None:
    runtime.plant("database", {"tier": "data", "app": "db"})
    (fact,) = runtime.observe()
    assert (fact.name, fact.mark, fact.labels) == ("database", None, (("app", "db"), ("tier", "data")))
    assert runtime.observe(["database"]) == (fact,)


def test_a_policy_of_its_own_revives_a_container_until_it_is_taken_away(world: MemoryWorld) -> None:
    runtime = MemoryRuntime("host-a", MemorySettings(), Context("demo", "/nowhere"), world)
    runtime.in_place = True
    run(runtime)
    first = runtime.observe()[0]
    runtime.run_out_of_memory(NAME)
    second = runtime.observe()[0]
    assert (second.state, second.restarts) == (ContainerState.RUNNING, 1)
    assert second.generation != first.generation
    runtime.perform(UpdateContainer("host-a", NAME, second.generation, (second.live[0]._replace(restart="no"),)))
    runtime.run_out_of_memory(NAME)
    third = runtime.observe()[0]
    assert (third.state, third.exit_cause, third.restarts) == (ContainerState.EXITED, ExitCause.OOM_KILLED, 1)


def test_a_refused_start_is_rejected_and_changes_nothing(runtime: MemoryRuntime) -> None:
    runtime.refuse_starts("image not found")
    with pytest.raises(Rejected, match="image not found"):
        run(runtime)
    assert runtime.observe()[0].state is ContainerState.CREATED


def test_a_new_handle_on_the_same_world_sees_the_same_containers(runtime: MemoryRuntime, world: MemoryWorld) -> None:
    run(runtime)
    runtime.say(NAME, "one", "two")
    again = MemoryRuntime("host-a", MemorySettings(), Context("demo", "/nowhere"), world)
    assert again.observe() == runtime.observe()
    assert again.logs(NAME, 1) == ("two",)
    assert again.exec_target(NAME, ("true",)).cwd == "/tree/app"


def test_an_action_for_another_node_is_rejected(runtime: MemoryRuntime) -> None:
    with pytest.raises(Rejected, match="host-b"):
        runtime.perform(CreateContainer("host-b", NAME, MARK, TEMPLATE, "/tree"))
