"""The base of the runtime suite: the hooks that an author writes, fixtures, and helpers.

`runtime_suite.py` has the levels. Authors subclass its `RuntimeConformance` and find the hooks to write here.
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
"""Another instance, the owner of other containers."""

STRANGER = "suite-stranger"
"""Name of a container without a mark."""


class RuntimeHooks:
    """Everything but the levels."""

    # --- hooks: what an author writes ---------------------------------------------------------------------------

    def make(self, context: Context) -> RuntimeProvider:
        """A new provider object on the same world for the same context, as a new process would make it. No I/O."""
        raise NotImplementedError(f"{type(self).__name__}: write the hook `make`; its docstring says what it must do")

    def template(self) -> Template:
        """A template that runs until it is stopped, ends within a second of a stop signal, and has a revision of 16 hex digits."""
        raise NotImplementedError(
            f"{type(self).__name__}: write the hook `template`; its docstring says what it must do"
        )

    def break_reads(self, context: Context) -> None:
        """Make the world unreadable: a corrupt record, a dead socket, missing permissions."""
        raise NotImplementedError(
            f"{type(self).__name__}: write the hook `break_reads`; its docstring says what it must do"
        )

    def crash(self, runtime: RuntimeProvider, name: str) -> None:
        """Kill the process of a running container behind the provider's back, as `kill -9` does."""
        raise NotImplementedError(f"{type(self).__name__}: write the hook `crash`; its docstring says what it must do")

    def stranger(self, runtime: RuntimeProvider, name: str, labels: Mapping[str, str]) -> bool:
        """Run a container of that name with these labels without the provider; False if the runtime has only its own."""
        del runtime, name, labels
        return False

    def revive(self, runtime: RuntimeProvider, root: str) -> ContainerFact | None:
        """Run a replica whose process ends with a signal and that the runtime itself starts again; None if it starts none.

        Returns the fact before the end.
        """
        del runtime, root
        return None

    def lose_child(self, runtime: RuntimeProvider, name: str) -> bool:
        """Let the kernel kill a process of a container for memory while its main process runs on; False if the runtime does not report that."""
        del runtime, name
        return False

    def rename(self, runtime: RuntimeProvider, name: str, other: str) -> bool:
        """Give a container another name behind the provider's back; False if names cannot change in this runtime."""
        del runtime, name, other
        return False

    def forget_stranger(self, runtime: RuntimeProvider, name: str) -> None:
        """Remove that container."""

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
            for fact in self.replicas(runtime):
                runtime.perform(StopContainer(fact.node, fact.name, fact.generation, GRACE))
            for fact in self.replicas(runtime):
                runtime.perform(RemoveContainer(fact.node, fact.name, fact.generation))
        except ProviderError:
            pass  # level 9 breaks the world on purpose, before anything runs
        finally:
            runtime.close()

    # --- helpers --------------------------------------------------------------------------------------------

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
        return self.fact_of(runtime, action.name)

    def start(self, runtime: RuntimeProvider, fact: ContainerFact) -> ContainerFact:
        """Start a replica and wait until a look shows it running."""
        runtime.perform(StartContainer(fact.node, fact.name, fact.generation))
        self.wait_for(runtime, fact.name, ContainerState.RUNNING)
        return self.fact_of(runtime, fact.name)

    def stop(self, runtime: RuntimeProvider, fact: ContainerFact) -> ContainerFact:
        """Stop a replica and wait until a look shows it down."""
        runtime.perform(StopContainer(fact.node, fact.name, fact.generation, GRACE))
        self.wait_for(runtime, fact.name, ContainerState.EXITED)
        return self.fact_of(runtime, fact.name)

    def replicas(self, runtime: RuntimeProvider) -> tuple[ContainerFact, ...]:
        """The suite's own replicas in a look at the node; other containers may come and go."""
        facts = runtime.observe()
        ours = (INSTANCE, OTHER)
        return tuple(fact for fact in facts if (mark := fact.mark or fact.claim) is not None and mark.instance in ours)

    def wait_for(self, runtime: RuntimeProvider, name: str, state: ContainerState) -> None:
        """Wait until a look shows a container in a state."""
        wait_until(lambda: self.fact_of(runtime, name).state is state, f"{name} is {state}")

    def fact_of(self, runtime: RuntimeProvider, name: str) -> ContainerFact:
        """The fact about one container, which must exist."""
        facts = runtime.observe([name])
        same([fact.name for fact in facts], [name], 1, "a look at one name shows that container alone")
        return facts[0]

    def expect_gone(self, runtime: RuntimeProvider, name: str) -> None:
        """Check that a container does not exist."""
        same(runtime.observe([name]), (), 1, f"{name} does not exist")
