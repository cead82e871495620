"""The provider contract: two verbs, observe and perform. An author reads this file, facts.py, actions.py and errors.py.

Rules for all providers (each is a level of the conformance suites in `providers/testing/`):

1. `observe` is one complete, read-only look. What is missing is not an error; what cannot be read raises, and is never
   answered with an empty result.
2. `perform` does one action; of endpoints, many in one call, each with its own error. Repeating it is harmless. It compares
   with what is there right before acting and answers `Conflict` (or `Gone`, `Foreign`) instead of acting on something the plan
   did not see.
3. Errors are those of `errors.py` and nothing else. When an answer is lost after the request was sent: `OutcomeUnknown`.
4. Blocking code is fine: every provider is called from a small pool of threads of its own. Each call bounds its own waits.
5. No retries, diffing, ownership rules, logging or dry-run switches inside: decorators and the core do those.

Constructors take (name, settings, context) and do no I/O.

An endpoint provider whose `perform` itself refuses members that are not ours, in the look it makes before writing, may say
so by the class attribute `checks_ownership = True`: the `owned` decorator then adds no look of its own. Level 6 of the
conformance suite proves it.

Three methods are optional. `check(asked) -> tuple[str, ...]`: what is missing for the pools or zones named, or for the templates
given, read-only; for `reconcile doctor`. `watch(changed: Callable[[], None]) -> None` of a runtime: call `changed`, from any
thread, when something may have changed, until `close`; it only makes the next look come sooner.
`progress() -> tuple[str, ...]`: what is under way and how far it is, in words without secrets, such as `pulling IMAGE: 1 of 3
layers are here`; it answers at once from memory, on any thread, because people's progress lines ask it while calls go on.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

from pydantic import BaseModel

from manifests.values.desired import Role
from providers.actions import ChangeRecords, EndpointAction, RuntimeAction
from providers.capabilities import PLAIN, DNSCapabilities
from providers.errors import ProviderError
from providers.facts import ContainerFact, PoolFact, ZoneFact


@dataclass(frozen=True, slots=True)
class Context:
    """What a provider may know about its surroundings: this instance's id and its private state directory (absolute)."""

    instance: str
    state_dir: str


@dataclass(frozen=True, slots=True)
class ExecTarget:
    """How to run an exec probe of one container: an argument list, its environment and directory. Never a shell line."""

    argv: tuple[str, ...]
    env: tuple[tuple[str, str], ...]
    cwd: str


@dataclass(frozen=True, slots=True)
class Performed:
    """What came of the actions of one call.

    Attributes:
        errors: the error of each action, in the order of the actions; None for one that is done.
        pools: pools as `observe` would answer them, read after the last write. The caller looks at those that are left out,
            so a provider that reads nothing back leaves this empty.
    """

    errors: tuple[ProviderError | None, ...]
    pools: tuple[PoolFact, ...] = ()


class RuntimeProvider(Protocol):
    """Runs containers on one node."""

    role: ClassVar[Role] = Role.RUNTIME
    Settings: ClassVar[type[BaseModel]]
    name: str

    def observe(self, names: Collection[str] | None = None) -> tuple[ContainerFact, ...]:
        """All containers of this node, ours or not, with their labels where they are not; only those of `names` when given."""

    def perform(self, action: RuntimeAction) -> None:
        """Do one action; see the action for what repeating it means."""

    def exec_target(self, container: str, argv: tuple[str, ...]) -> ExecTarget:
        """How to run `argv` in the context of a container: by its name, or by its id where it was adopted. Raises `Gone`."""

    def logs(self, container: str, lines: int) -> tuple[str, ...]:
        """The last output lines of a container, oldest first; empty when there are none."""

    def close(self) -> None:
        """Let go of sockets and threads. Containers keep running."""


class EndpointProvider(Protocol):
    """Holds pools of endpoints with weights."""

    role: ClassVar[Role] = Role.ENDPOINTS
    Settings: ClassVar[type[BaseModel]]
    name: str

    def observe(self, pools: Collection[str]) -> tuple[PoolFact, ...]:
        """The named pools, plus every pool that holds a member of ours."""

    def perform(self, actions: Sequence[EndpointAction]) -> Performed:
        """Do the actions, in their order where it can be seen; one that fails does not stop the others.

        Raises:
            ProviderError: nothing was begun; it is the answer to every action.
        """

    def close(self) -> None:
        """Let go of sockets and threads."""


class DNSProvider(Protocol):
    """Holds record sets in zones. `capabilities` of the class is what its type can do, of the object what this one does."""

    role: ClassVar[Role] = Role.DNS
    Settings: ClassVar[type[BaseModel]]
    name: str
    capabilities: DNSCapabilities

    def observe(self, zones: Collection[str]) -> tuple[ZoneFact, ...]:
        """The named zones, completely, with the capabilities of each.

        `owners` is empty: ownership is read by the `owned` decorator.
        """

    def perform(self, action: ChangeRecords) -> None:
        """Change record sets after checking that each is as `before` says."""

    def close(self) -> None:
        """Let go of sockets and threads."""


@runtime_checkable
class ByName(DNSProvider, Protocol):
    """Names of which some can be looked at without reading the whole zone. Optional: an author declares it by having the method.

    What is about to be written is then looked at alone, which matters in large zones.
    """

    def observe_names(self, zone: str, names: Collection[str]) -> ZoneFact:
        """All record sets at these names (canonical), and any others that came along; raises as `observe`."""


Provider = RuntimeProvider | EndpointProvider | DNSProvider


def capabilities_of(provider: DNSProvider | type[DNSProvider]) -> DNSCapabilities:
    """What a DNS provider or its type declares; plain record sets for one that declares nothing."""
    found: DNSCapabilities = getattr(provider, "capabilities", PLAIN)
    return found
