"""One instance on the real engine, with the actions of a plan as one-line calls, for tests."""

import uuid
from pathlib import Path

from manifests.values.desired import Template
from manifests.values.pod import Live
from providers.actions import CreateContainer, RemoveContainer, StartContainer, StopContainer, UpdateContainer
from providers.errors import Gone, ProviderError
from providers.facts import ContainerFact, ContainerState, Mark, container_name
from providers.runtime.docker.runtime import DockerRuntime, DockerSettings
from providers.spi import Context
from providers.testing.checks import wait_until
from tests.providers.runtime.docker.claims import Claim
from tests.providers.runtime.docker.engine import Api, template

GRACE = 2_000_000_000


class Bench:
    """A runtime of an instance of its own, and the engine as others see it."""

    def __init__(self, socket: str, state: Path, **settings: object) -> None:
        self.instance = f"t{uuid.uuid4().hex[:8]}"
        self.state_dir = state
        self.claim = Claim(self.instance, socket)
        self.api = Api(socket)
        self.socket = socket
        self.runtime = self.make(**settings)
        self.networks: list[str] = []

    def make(self, **settings: object) -> DockerRuntime:
        """A new runtime object on the same state, as a new process would make it."""
        found = DockerSettings.model_validate({"socket": self.socket, **settings})
        return DockerRuntime("local", found, Context(self.instance, str(self.state_dir)))

    def close(self) -> None:
        """Remove everything that this bench has made."""
        self.runtime.close()
        self.api.clean(self.instance)
        for name in self.networks:
            wait_until(lambda it=name: self._forgotten(it), f"network {name} is not in use any more")
        self.api.close()
        self.claim.drop()

    def _forgotten(self, network: str) -> bool:
        """Whether a network is gone. An engine may still be letting go of the containers that were in it."""
        try:
            self.api.link.delete(f"/networks/{network}", network)
        except Gone:
            return True
        except ProviderError:
            return False
        return True

    def network(self) -> str:
        """The name of a network that is removed at the end."""
        name = f"{self.instance}-net{len(self.networks)}"
        self.networks.append(name)
        return name

    def mark(self, made: Template, ordinal: int = 0) -> Mark:
        return Mark(self.instance, "web", ordinal, made.revision)

    def creation(self, made: Template | None = None, ordinal: int = 0) -> CreateContainer:
        made = made or template()
        mark = self.mark(made, ordinal)
        return CreateContainer("local", container_name(mark), mark, made, "/")

    def create(self, made: Template | None = None, ordinal: int = 0) -> ContainerFact:
        action = self.creation(made, ordinal)
        self.runtime.perform(action)
        return self.fact(action.name)

    def start(self, fact: ContainerFact) -> ContainerFact:
        self.runtime.perform(StartContainer("local", fact.name, fact.generation))
        return self.fact(fact.name)

    def run(self, made: Template | None = None, ordinal: int = 0) -> ContainerFact:
        """Create and start."""
        return self.start(self.create(made, ordinal))

    def stop(self, fact: ContainerFact, grace: int = GRACE) -> ContainerFact:
        self.runtime.perform(StopContainer("local", fact.name, fact.generation, grace))
        return self.fact(fact.name)

    def remove(self, fact: ContainerFact) -> None:
        self.runtime.perform(RemoveContainer("local", fact.name, fact.generation))

    def update(self, fact: ContainerFact, *live: Live) -> ContainerFact:
        self.runtime.perform(UpdateContainer("local", fact.name, fact.generation, live))
        return self.fact(fact.name)

    def disconnect(self, fact: ContainerFact, network: str) -> None:
        """Somebody takes a replica off a network, as `docker network disconnect` does."""
        self.api.link.post(f"/networks/{network}/disconnect", network, {"Container": fact.id, "Force": True})

    def join(self, fact: ContainerFact, *networks: str) -> ContainerFact:
        self.runtime.perform(UpdateContainer("local", fact.name, fact.generation, (), join=networks))
        return self.fact(fact.name)

    def fact(self, name: str) -> ContainerFact:
        """The fact about one replica, which must exist."""
        (found,) = self.runtime.observe([name])
        return found

    def looked(self, name: str) -> ContainerFact:
        """The fact about one replica out of a look at the whole node."""
        return next(fact for fact in self.runtime.observe() if fact.name == name)

    def state(self, name: str) -> ContainerState:
        return self.fact(name).state

    def logged(self, name: str, line: str) -> None:
        """Wait until a container has written a line."""
        wait_until(lambda: line in self.runtime.logs(name, 50), f"{name} says {line!r}: {self.runtime.logs(name, 50)}")
