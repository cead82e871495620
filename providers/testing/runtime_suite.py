"""The conformance suite for runtimes, told like the levels of a game: each level needs the ones before it.

For authors of providers: subclass `RuntimeConformance` in a test module, name the class `Test...`, and write the hooks at
its top. Start with level 1 and work down. The suite assumes nothing about speed: it waits where a real process needs time.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from manifests.desired import SECOND, Template
from providers.actions import CreateContainer, RemoveContainer, StartContainer, StopContainer
from providers.errors import Conflict, Foreign, Gone, OutcomeUnknown, ProviderError
from providers.facts import ContainerFact, ContainerState, ExitCause, Generation, Mark, container_name
from providers.owned import owned
from providers.spi import Context, RuntimeProvider
from providers.testing.checks import expect, raises, same, wait_until
from providers.testing.faults import Fault, faulty, sequence

GRACE = 2 * SECOND
INSTANCE = "suite"


class RuntimeConformance:
    """Levels 1 to 10 for a runtime provider."""

    # --- hooks: what an author writes ---------------------------------------------------------------------------

    def make(self, context: Context) -> RuntimeProvider:
        """A new provider object on the same world for the same context, as a new process would make it. No I/O."""
        raise NotImplementedError(f"{type(self).__name__}: write the hook `make`; its docstring says what is promised")

    def template(self) -> Template:
        """A template that runs until it is stopped, ends on its own accord within a second of a polite stop, and has a revision of 16 hex digits."""
        raise NotImplementedError(
            f"{type(self).__name__}: write the hook `template`; its docstring says what is promised"
        )

    def break_reads(self, context: Context) -> None:
        """Make the world unreadable: a corrupt record, a dead socket, missing rights."""
        raise NotImplementedError(
            f"{type(self).__name__}: write the hook `break_reads`; its docstring says what is promised"
        )

    def crash(self, runtime: RuntimeProvider, name: str) -> None:
        """Kill the process of a running container behind the provider's back, as `kill -9` does."""
        raise NotImplementedError(f"{type(self).__name__}: write the hook `crash`; its docstring says what is promised")

    def wrap(self, runtime: RuntimeProvider, context: Context) -> RuntimeProvider:
        """Put decorators around the provider under test; by default none."""
        del context
        return runtime

    # --- fixtures -----------------------------------------------------------------------------------------------

    @pytest.fixture
    def context(self, tmp_path: Path) -> Context:
        """This instance, with a private state directory."""
        state = tmp_path / "state"
        state.mkdir(mode=0o700)
        return Context(INSTANCE, str(state))

    @pytest.fixture
    def root(self, tmp_path: Path) -> str:
        """The directory that working directories of containers are relative to."""
        tree = tmp_path / "tree"
        tree.mkdir()
        return str(tree)

    @pytest.fixture
    def runtime(self, context: Context) -> Iterator[RuntimeProvider]:
        """The provider under test. Afterwards everything it runs is stopped and removed."""
        runtime = self.wrap(self.make(context), context)
        try:
            yield runtime
        finally:
            runtime.close()
            self._clean(context)

    def _clean(self, context: Context) -> None:
        runtime = self.make(context)
        try:
            for fact in runtime.observe():
                runtime.perform(StopContainer(fact.node, fact.name, fact.generation, GRACE))
            for fact in runtime.observe():
                runtime.perform(RemoveContainer(fact.node, fact.name, fact.generation))
        except ProviderError:
            pass  # level 9 breaks the world on purpose, before anything runs
        finally:
            runtime.close()

    # --- small words --------------------------------------------------------------------------------------------

    def mark(self, ordinal: int = 0, instance: str = INSTANCE) -> Mark:
        """The mark of a replica of the suite's workload."""
        return Mark(instance, "web", ordinal, self.template().revision)

    def creation(
        self, runtime: RuntimeProvider, root: str, ordinal: int = 0, instance: str = INSTANCE
    ) -> CreateContainer:
        """The action that creates a replica."""
        mark = self.mark(ordinal, instance)
        return CreateContainer(runtime.name, container_name(mark), mark, self.template(), root)

    def create(self, runtime: RuntimeProvider, root: str, ordinal: int = 0) -> ContainerFact:
        """Create a replica and look at it."""
        action = self.creation(runtime, root, ordinal)
        runtime.perform(action)
        return self.one(runtime, action.name)

    def start(self, runtime: RuntimeProvider, fact: ContainerFact) -> ContainerFact:
        """Start a replica and wait until it is seen running."""
        runtime.perform(StartContainer(fact.node, fact.name, fact.generation))
        self.wait_for(runtime, fact.name, ContainerState.RUNNING)
        return self.one(runtime, fact.name)

    def stop(self, runtime: RuntimeProvider, fact: ContainerFact) -> ContainerFact:
        """Stop a replica and wait until it is seen down."""
        runtime.perform(StopContainer(fact.node, fact.name, fact.generation, GRACE))
        self.wait_for(runtime, fact.name, ContainerState.EXITED)
        return self.one(runtime, fact.name)

    def wait_for(self, runtime: RuntimeProvider, name: str, state: ContainerState) -> None:
        """Wait until a container is seen in a state."""
        wait_until(lambda: self.one(runtime, name).state is state, f"{name} is {state}")

    def one(self, runtime: RuntimeProvider, name: str) -> ContainerFact:
        """The fact about one container, which must exist."""
        facts = runtime.observe([name])
        same([fact.name for fact in facts], [name], 1, "a look at one name shows that container alone")
        return facts[0]

    def gone(self, runtime: RuntimeProvider, name: str) -> None:
        """Check that a container does not exist."""
        same(runtime.observe([name]), (), 1, f"{name} is not there")

    # --- level 1: see nothing -----------------------------------------------------------------------------------

    def test_level_01_an_empty_node_shows_nothing(self, runtime: RuntimeProvider) -> None:
        """Nothing there is an answer, not an error."""
        same(runtime.observe(), (), 1, "an empty node shows no containers")
        same(runtime.observe(["no-such-container"]), (), 1, "a name that does not exist shows nothing")
        same(runtime.logs("no-such-container", 10), (), 1, "no container, no log lines")

    # --- level 2: create and see it -----------------------------------------------------------------------------

    def test_level_02_a_created_container_is_seen_with_its_mark(self, runtime: RuntimeProvider, root: str) -> None:
        """Creating does not start."""
        fact = self.create(runtime, root)
        same(fact.state, ContainerState.CREATED, 2, "a new container is created, not started")
        same(fact.mark, self.mark(), 1, "the mark is read back")
        same(fact.node, runtime.name, 1, "the node is the provider's name")
        same((fact.started_at, fact.running_since), (0, 0), 1, "it never ran")
        expect(bool(fact.id), 1, "a container has an id", fact)

    def test_level_02_a_started_container_runs_at_an_address(self, runtime: RuntimeProvider, root: str) -> None:
        """A running container says since when, and where its ports are."""
        fact = self.start(runtime, self.create(runtime, root))
        expect(fact.started_at > 0, 1, "a running container has a start time", fact)
        expect(fact.running_since > 0, 1, "and a steady instant since which it runs", fact)
        wanted = {port.number for port in self.template().container.ports}
        seen = {port.number for port in fact.ports if port.address and port.port}
        same(seen, wanted, 1, "every declared port can be reached somewhere")

    def test_level_02_replicas_are_seen_together_each_in_its_place(self, runtime: RuntimeProvider, root: str) -> None:
        """Three replicas: three names, three ids, three places."""
        facts = [self.start(runtime, self.create(runtime, root, ordinal)) for ordinal in range(3)]
        seen = {fact.name: fact for fact in runtime.observe()}
        same(sorted(seen), sorted(fact.name for fact in facts), 1, "a look shows every container")
        same(len({fact.id for fact in facts}), 3, 1, "ids are distinct")
        places = [(port.address, port.port) for fact in facts for port in fact.ports]
        same(len(set(places)), len(places), 1, "no two ports share a place")

    # --- level 3: repeat, nothing changes -----------------------------------------------------------------------

    def test_level_03_repeating_each_action_changes_nothing(self, runtime: RuntimeProvider, root: str) -> None:
        """Every action may come twice: after a crash, nobody knows whether it was done."""
        creation = self.creation(runtime, root)
        fact = self.create(runtime, root)
        runtime.perform(creation)
        same(self.one(runtime, fact.name), fact, 2, "creating again changes nothing")

        running = self.start(runtime, fact)
        runtime.perform(StartContainer(fact.node, fact.name, fact.generation))
        same(self.one(runtime, fact.name).generation, running.generation, 2, "starting again keeps the generation")
        runtime.perform(creation)
        same(self.one(runtime, fact.name).generation, running.generation, 2, "creating what runs changes nothing")

        stopped = self.stop(runtime, running)
        runtime.perform(StopContainer(fact.node, fact.name, running.generation, GRACE))
        same(self.one(runtime, fact.name), stopped, 2, "stopping again changes nothing")

        removal = RemoveContainer(fact.node, fact.name, stopped.generation)
        runtime.perform(removal)
        runtime.perform(removal)
        self.gone(runtime, fact.name)

    def test_level_03_stopping_what_was_removed_is_done_already(self, runtime: RuntimeProvider, root: str) -> None:
        """A container that is gone does not run any more."""
        fact = self.create(runtime, root)
        runtime.perform(RemoveContainer(fact.node, fact.name, fact.generation))
        runtime.perform(StopContainer(fact.node, fact.name, fact.generation, GRACE))
        self.gone(runtime, fact.name)

    # --- level 4: change ----------------------------------------------------------------------------------------

    def test_level_04_each_start_is_a_new_generation(self, runtime: RuntimeProvider, root: str) -> None:
        """Same container, new life: the id stays, the start time does not."""
        first = self.start(runtime, self.create(runtime, root))
        second = self.start(runtime, self.stop(runtime, first))
        same(second.id, first.id, 1, "the container is the same")
        expect(second.generation != first.generation, 1, "the generation is new", second.generation)
        same((second.exit_code, second.exit_cause), (None, None), 1, "a running container has not exited")

    def test_level_04_a_stopped_container_says_who_stopped_it(self, runtime: RuntimeProvider, root: str) -> None:
        """A stop of ours is not a crash."""
        fact = self.stop(runtime, self.start(runtime, self.create(runtime, root)))
        same(fact.exit_cause, ExitCause.STOPPED_BY_US, 1, "we stopped it")
        same(fact.running_since, 0, 1, "it does not run")

    def test_level_04_a_crash_is_seen_as_one(self, runtime: RuntimeProvider, root: str) -> None:
        """A process killed by somebody else was not stopped by us, and can be started again."""
        fact = self.start(runtime, self.create(runtime, root))
        self.crash(runtime, fact.name)
        self.wait_for(runtime, fact.name, ContainerState.EXITED)
        crashed = self.one(runtime, fact.name)
        expect(
            crashed.exit_cause not in (None, ExitCause.STOPPED_BY_US), 1, "the crash has a cause", crashed.exit_cause
        )
        same(crashed.generation, fact.generation, 1, "a dead container keeps the generation that died")
        again = self.start(runtime, crashed)
        expect(again.generation != fact.generation, 2, "it can be started again", again.generation)

    def test_level_04_an_exec_probe_keeps_its_arguments(self, runtime: RuntimeProvider, root: str) -> None:
        """An argument list, never a shell line: what goes in comes out whole."""
        fact = self.start(runtime, self.create(runtime, root))
        arguments = ("/bin/echo", "one two", "$HOME", ";")
        target = runtime.exec_target(fact.name, arguments)
        same(target.argv[-3:], arguments[-3:], 1, "arguments are passed as they are")
        raises(lambda: runtime.exec_target("no-such-container", arguments), Gone, 3, "an exec in a missing container")
        expect(len(runtime.logs(fact.name, 5)) <= 5, 1, "at most the number of log lines asked for", "more")

    # --- level 5: delete ----------------------------------------------------------------------------------------

    def test_level_05_a_removed_container_is_gone_and_its_name_free(self, runtime: RuntimeProvider, root: str) -> None:
        """The next container of that name is another one."""
        fact = self.stop(runtime, self.start(runtime, self.create(runtime, root)))
        runtime.perform(RemoveContainer(fact.node, fact.name, fact.generation))
        self.gone(runtime, fact.name)
        same(runtime.observe(), (), 1, "nothing is left")
        expect(self.create(runtime, root).id != fact.id, 1, "a new container has a new id", fact.id)

    def test_level_05_starting_what_is_gone_is_an_error(self, runtime: RuntimeProvider, root: str) -> None:
        """There is nothing to start."""
        fact = self.create(runtime, root)
        runtime.perform(RemoveContainer(fact.node, fact.name, fact.generation))
        action = StartContainer(fact.node, fact.name, fact.generation)
        raises(lambda: runtime.perform(action), Gone, 3, "starting a removed container")

    # --- level 6: somebody else's stays -------------------------------------------------------------------------

    def test_level_06_another_instance_keeps_its_containers(
        self, runtime: RuntimeProvider, context: Context, root: str
    ) -> None:
        """With the ownership decorator around it, nothing without our mark is touched."""
        other = self.creation(runtime, root, instance="other")
        self.make(context).perform(other)
        theirs = self.one(runtime, other.name)
        mine = owned(self.make(context), INSTANCE)
        node, name, generation = theirs.node, theirs.name, theirs.generation
        for action in (
            StartContainer(node, name, generation),
            StopContainer(node, name, generation, GRACE),
            RemoveContainer(node, name, generation),
            other,
        ):
            raises(partial(mine.perform, action), Foreign, 5, f"{type(action).__name__} on another's")
        same(self.one(runtime, name), theirs, 5, "it is untouched")

    def test_level_06_a_name_taken_with_another_mark_is_a_conflict(self, runtime: RuntimeProvider, root: str) -> None:
        """Names hold eight digits of the revision; the mark holds all of them."""
        fact = self.create(runtime, root)
        mark = self.mark()._replace(revision=self.mark().revision[:8] + "-another")
        action = CreateContainer(fact.node, fact.name, mark, self.template(), root)
        raises(lambda: runtime.perform(action), Conflict, 2, "creating under a taken name")
        same(self.one(runtime, fact.name), fact, 2, "what was there stays as it was")

    # --- level 7: the reply is lost after success ---------------------------------------------------------------

    def test_level_07_a_lost_reply_then_look_and_repeat(self, runtime: RuntimeProvider, root: str) -> None:
        """Every action was done although its answer was lost: looking tells, and repeating is harmless."""
        creation = self.creation(runtime, root)
        self._lose(runtime, creation)
        created = self.one(runtime, creation.name)
        runtime.perform(creation)
        same(self.one(runtime, creation.name), created, 2, "one container, not two")

        start = StartContainer(created.node, created.name, created.generation)
        self._lose(runtime, start)
        self.wait_for(runtime, created.name, ContainerState.RUNNING)
        running = self.one(runtime, created.name)
        runtime.perform(start)
        same(self.one(runtime, created.name).generation, running.generation, 2, "one start, not two")

        stop = StopContainer(created.node, created.name, running.generation, GRACE)
        self._lose(runtime, stop)
        self.wait_for(runtime, created.name, ContainerState.EXITED)
        runtime.perform(stop)

        removal = RemoveContainer(created.node, created.name, running.generation)
        self._lose(runtime, removal)
        runtime.perform(removal)
        self.gone(runtime, created.name)

    def _lose(
        self, runtime: RuntimeProvider, action: CreateContainer | StartContainer | StopContainer | RemoveContainer
    ) -> None:
        lossy = faulty(runtime, sequence(Fault.LOST_REPLY))
        raises(lambda: lossy.perform(action), OutcomeUnknown, 3, "a lost reply")

    # --- level 8: the expectation is stale ----------------------------------------------------------------------

    def test_level_08_a_newer_generation_is_not_stopped(self, runtime: RuntimeProvider, root: str) -> None:
        """The plan saw an older life; the present one is none of its business."""
        first = self.start(runtime, self.create(runtime, root))
        second = self.start(runtime, self.stop(runtime, first))
        action = StopContainer(first.node, first.name, first.generation, GRACE)
        raises(lambda: runtime.perform(action), Conflict, 2, "stopping an older generation")
        now = self.one(runtime, first.name)
        same((now.state, now.generation), (ContainerState.RUNNING, second.generation), 2, "it runs on")

    def test_level_08_what_runs_is_not_removed(self, runtime: RuntimeProvider, root: str) -> None:
        """Removing needs a container that is down."""
        fact = self.start(runtime, self.create(runtime, root))
        action = RemoveContainer(fact.node, fact.name, fact.generation)
        raises(lambda: runtime.perform(action), Conflict, 2, "removing a running container")
        same(self.one(runtime, fact.name).state, ContainerState.RUNNING, 2, "it runs on")

    def test_level_08_another_container_of_the_name_is_not_removed(self, runtime: RuntimeProvider, root: str) -> None:
        """Same name, other id: somebody made a new one meanwhile."""
        fact = self.create(runtime, root)
        stale = Generation("another-id", fact.started_at)
        raises(
            lambda: runtime.perform(RemoveContainer(fact.node, fact.name, stale)), Conflict, 2, "removing another id"
        )
        same(self.one(runtime, fact.name), fact, 2, "it stays")

    # --- level 9: unreadable is an error ------------------------------------------------------------------------

    def test_level_09_a_world_that_cannot_be_read_raises(
        self, runtime: RuntimeProvider, context: Context, root: str
    ) -> None:
        """An empty answer would look like: everything is gone."""
        self.create(runtime, root)
        self.break_reads(context)
        raises(runtime.observe, ProviderError, 1, "a look at an unreadable world")

    # --- level 10: the strongest law ----------------------------------------------------------------------------

    def test_level_10_a_new_provider_object_sees_the_same_world(
        self, runtime: RuntimeProvider, context: Context, root: str
    ) -> None:
        """Identity lives on the object: a kill -9 of the program loses nothing."""
        running = self.start(runtime, self.create(runtime, root, 0))
        self.create(runtime, root, 1)
        before = runtime.observe()
        second = self.make(context)
        try:
            same(second.observe(), before, 1, "a new provider object sees the same facts")
            stopped = self.stop(second, running)
            same(self.one(runtime, running.name), stopped, 1, "and both see what either did")
        finally:
            second.close()
