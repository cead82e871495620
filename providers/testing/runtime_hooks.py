"""What the levels of the runtime suite stand on: the hooks that an author writes, fixtures, and small words for the actions.

`runtime_suite.py` has the levels; authors subclass `RuntimeConformance` there and find the hooks to write here.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from manifests.values.desired import SECOND, Template
from providers.actions import CreateContainer, RemoveContainer, StartContainer, StopContainer
from providers.errors import ProviderError
from providers.facts import ContainerFact, ContainerState, Mark, container_name
from providers.spi import Context, RuntimeProvider
from providers.testing.checks import same, wait_until

GRACE = 2 * SECOND
INSTANCE = "suite"
OTHER = "other"
"""Another instance, whose containers are not ours."""

STRANGER = "suite-stranger"
"""Name of a container that carries no mark at all."""


class RuntimeHooks:
    """Everything but the levels."""

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

    def stranger(self, runtime: RuntimeProvider, name: str, labels: Mapping[str, str]) -> bool:
        """Have somebody else run a container of that name with these labels; False where a runtime has only its own."""
        del runtime, name, labels
        return False

    def forget_stranger(self, runtime: RuntimeProvider, name: str) -> None:
        """Have that container removed again."""

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
            for fact in self.seen(runtime):
                runtime.perform(StopContainer(fact.node, fact.name, fact.generation, GRACE))
            for fact in self.seen(runtime):
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

    def seen(self, runtime: RuntimeProvider) -> tuple[ContainerFact, ...]:
        """What a look at the node shows of the suite's own replicas: others may live there, and come and go."""
        facts = runtime.observe()
        return tuple(fact for fact in facts if fact.mark is not None and fact.mark.instance in (INSTANCE, OTHER))

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
