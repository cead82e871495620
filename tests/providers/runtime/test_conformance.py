"""The runtime suite on the in-memory runtime, bare and through each decorator."""

from collections.abc import Mapping
from dataclasses import replace

from manifests.values.desired import Container, Port, Template
from manifests.values.pod import Live
from providers.facts import ContainerFact
from providers.spi import Context, RuntimeProvider
from providers.testing.faults import faulty, sequence
from providers.testing.memory import MemorySettings, MemoryWorld
from providers.testing.memory_runtime import MemoryRuntime
from providers.testing.runtime_suite import RuntimeConformance
from providers.wrappers.limited import Limits, limited
from providers.wrappers.owned import owned


def bare(runtime: RuntimeProvider) -> MemoryRuntime:
    """The runtime inside its decorators."""
    while not isinstance(runtime, MemoryRuntime):
        runtime = runtime.inner  # type: ignore[attr-defined]
    return runtime


class TestMemoryRuntime(RuntimeConformance):
    def make(self, context: Context) -> RuntimeProvider:
        return MemoryRuntime("host-a", MemorySettings(), context)

    def template(self) -> Template:
        container = Container("web", ("serve",), ports=(Port("http", 8080), Port("metrics", 9090)))
        return Template((("app", "web"),), container, revision="0123456789abcdef")

    def break_reads(self, context: Context) -> None:
        MemoryWorld.of(context).break_reads("host-a")

    def stranger(self, runtime: RuntimeProvider, name: str, labels: Mapping[str, str]) -> bool:
        bare(runtime).plant(name, labels)
        return True

    def forget_stranger(self, runtime: RuntimeProvider, name: str) -> None:
        bare(runtime).vanish(name)

    def revive(self, runtime: RuntimeProvider, root: str) -> ContainerFact:
        memory = bare(runtime)
        memory.in_place = True
        template = replace(self.template(), live=(Live("", restart="unless-stopped"),))
        action = replace(self.creation(runtime, root), template=template)
        runtime.perform(action)
        fact = self.start(runtime, self.fact_of(runtime, action.name))
        memory.kill(fact.name)
        return fact

    def lose_child(self, runtime: RuntimeProvider, name: str) -> bool:
        bare(runtime).lose_child(name)
        return True

    def rename(self, runtime: RuntimeProvider, name: str, other: str) -> bool:
        bare(runtime).rename(name, other)
        return True

    def crash(self, runtime: RuntimeProvider, name: str) -> None:
        bare(runtime).kill(name)


class TestOwnedRuntime(TestMemoryRuntime):
    def wrap(self, runtime: RuntimeProvider, context: Context) -> RuntimeProvider:
        return owned(runtime, context.instance)


class TestLimitedRuntime(TestMemoryRuntime):
    def wrap(self, runtime: RuntimeProvider, context: Context) -> RuntimeProvider:
        return limited(runtime, Limits(workers=1))


class TestRuntimeThroughEveryDecorator(TestMemoryRuntime):
    def wrap(self, runtime: RuntimeProvider, context: Context) -> RuntimeProvider:
        return limited(owned(faulty(runtime, sequence()), context.instance))
