"""Progress texts of providers, through their decorators."""

from providers.spi import Context
from providers.testing.memory import MemoryEndpoints, MemorySettings, MemoryWorld
from providers.testing.memory_runtime import MemoryRuntime
from providers.wrappers.limited import limited
from providers.wrappers.owned import owned
from providers.wrappers.readonly import read_only
from reconciler.shell.providers import Providers

CONTEXT = Context("demo", "/nowhere")


class Pulling(MemoryRuntime):
    def progress(self) -> tuple[str, ...]:
        return ("pulling app:1", "pulling app:2")


class Broken(MemoryRuntime):
    def progress(self) -> tuple[str, ...]:
        raise RuntimeError("unexpected")


def test_each_progress_text_has_its_providers_name_through_decorators() -> None:
    runtime = limited(read_only(owned(Pulling("one", MemorySettings(), CONTEXT, MemoryWorld()), "demo")))
    providers = Providers({"one": runtime})
    assert providers.progress() == ("one: pulling app:1", "one: pulling app:2")
    providers.close()


def test_a_provider_without_progress_or_with_an_error_has_no_text() -> None:
    world = MemoryWorld()
    broken, silent = (kind("one", MemorySettings(), CONTEXT, world) for kind in (Broken, MemoryEndpoints))
    assert Providers({"one": broken}, {"two": silent}).progress() == ()
