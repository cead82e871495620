"""One instance on a real engine, with each action as a one-line call."""

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
    """A runtime with an instance of its own, and a client of the engine."""

    def __init__(self, socket: str, state: Path, **settings: object) -> None:
        self.instance = f"t{uuid.uuid4().hex[:8]}"
        self.state_dir = state
        self.claim = Claim(self.instance, socket)
        self.api = Api(socket)
        self.socket = socket
        self.runtime = self.make(**settings)
        self.networks: list[str] = []

    def make(self, *, compare_secrets: bool = True, **settings: object) -> DockerRuntime:
        """A new runtime object on the same state, as a new process would make it."""
        validated = DockerSettings.model_validate({"socket": self.socket, **settings})
        context = Context(self.instance, str(self.state_dir), compare_secrets=compare_secrets)
        return DockerRuntime("local", validated, context)

    def close(self) -> None:
        """Remove everything that this bench has created."""
        self.runtime.close()
        self.api.clean(self.instance)
        for name in self.networks:
            wait_until(lambda network=name: self._is_gone(network), f"network {name} is not in use any more")
        self.api.close()
        self.claim.drop()

    def _is_gone(self, network: str) -> bool:
        """Whether a network is removed. An engine may still be disconnecting the containers that were in it."""
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
        """Disconnect a replica from a network, as `docker network disconnect` does."""
        self.api.link.post(f"/networks/{network}/disconnect", network, {"Container": fact.id, "Force": True})

    def join(self, fact: ContainerFact, *networks: str) -> ContainerFact:
        self.runtime.perform(UpdateContainer("local", fact.name, fact.generation, (), join=networks))
        return self.fact(fact.name)

    def fact(self, name: str) -> ContainerFact:
        """The fact about one replica, which must exist."""
        (fact,) = self.runtime.observe([name])
        return fact

    def looked(self, name: str) -> ContainerFact:
        """The fact about one replica, from a look at the whole node."""
        return next(fact for fact in self.runtime.observe() if fact.name == name)

    def state(self, name: str) -> ContainerState:
        return self.fact(name).state

    def ended(self, name: str) -> ContainerFact:
        """The fact about a replica once it has exited."""
        wait_until(lambda: self.state(name) is ContainerState.EXITED, f"{name} has exited")
        return self.fact(name)

    def logged(self, name: str, line: str) -> None:
        """Wait until a container has written a line."""
        wait_until(lambda: line in self.runtime.logs(name, 50), f"{name} says {line!r}: {self.runtime.logs(name, 50)}")
