"""The provider contract: two verbs, observe and perform. An author reads this file, facts.py, actions.py and errors.py.

Rules for all providers (each is a level of the conformance suites in `providers/testing/`):

1. `observe` is one complete, read-only look. A missing object is not an error. A failed read raises; it never returns an empty
   or partial result.
2. `perform` does one action; for endpoints, many in one call, each with its own error. Repeating an action is harmless. Right
   before it acts, the provider compares the action with the present state; if the plan saw something else, it answers
   `Conflict` (or `Gone`, `Foreign`) and changes nothing.
3. Errors are those of `errors.py` and nothing else. When an answer is lost after the request was sent: `OutcomeUnknown`.
4. Blocking code is fine: a small pool of threads calls each provider. Each call bounds its own waits.
5. No retries, diffing, ownership rules, logging or dry-run switches: decorators and the core do those.

Constructors take (name, settings, context) and do no I/O.

An endpoint provider may refuse members of other owners itself, in the look it makes before it writes. It declares that by the
class attribute `checks_ownership = True`, and the `owned` decorator adds no look of its own. Level 6 of the conformance suite
checks it.

Four methods are optional:

- `check(asked) -> tuple[str, ...]`: what the other side lacks for these pools, zones or templates, read-only. `reconcile doctor`
  calls it.
- `warnings(asked) -> tuple[str, ...]`: what works, but costs more than it seems, or was not checked, read-only. `reconcile doctor` calls it.
- `watch(changed: Callable[[], None]) -> None` of a runtime: call `changed`, from any thread and until `close`, when something may
  have changed. The next look then comes sooner.
- `progress() -> tuple[str, ...]`: a text without secrets for each piece of work under way, such as `pulling IMAGE: 1 of 3
  layers`. It answers at once from memory, on any thread, while other calls go on.
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
    """What a provider may know about the instance: its id and its private state directory (absolute).

    Attributes:
        local: a local document declares the provider. Else its settings are those of a tree: `check` must not run a program with a file
            that they name, and says so in `warnings`.
        compare_secrets: a look may resolve the secrets that containers were created with.
        setups: a look also says how the instance's own containers were created (`ContainerFact.setup`), for a plan whose ledger is lost.
    """

    instance: str
    state_dir: str
    local: bool = False
    compare_secrets: bool = True
    setups: bool = False


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
        pools: pools as `observe` would return them, read after the last write. The caller observes those that are left out, so
            a provider that reads nothing back leaves this empty.
    """

    errors: tuple[ProviderError | None, ...]
    pools: tuple[PoolFact, ...] = ()


class RuntimeProvider(Protocol):
    """Runs containers on one node."""

    role: ClassVar[Role] = Role.RUNTIME
    Settings: ClassVar[type[BaseModel]]
    name: str

    def observe(self, names: Collection[str] | None = None) -> tuple[ContainerFact, ...]:
        """All containers of this node, or only those of `names`; also those of other owners, with their labels.

        Where an operator can rename a container, `names` may be ids of renamed ones as well, and an action is for the container with the id in its
        `expect`, under whatever name.
        """

    def perform(self, action: RuntimeAction) -> None:
        """Do one action; see the action for what repeating it means."""

    def exec_target(self, container: str, argv: tuple[str, ...]) -> ExecTarget:
        """How to run `argv` in the context of a container: by its name, or by its id where it was adopted. Raises `Gone`."""

    def logs(self, container: str, lines: int, until: int = 0, /) -> tuple[str, ...]:
        """The last output lines of a container, oldest first; empty when there are none.

        `until`: leave out lines that were written after this wall-clock instant (ns), 0 = none. It is given only for a container that
        was started again by the runtime or another program; a runtime whose lines have no dates may ignore it.
        """

    def close(self) -> None:
        """Release sockets and threads. Containers keep running."""


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
        """Release sockets and threads."""


class DNSProvider(Protocol):
    """Holds record sets in zones. `capabilities` of the class are those of the type, of the object those of this provider."""

    role: ClassVar[Role] = Role.DNS
    Settings: ClassVar[type[BaseModel]]
    name: str
    capabilities: DNSCapabilities

    def observe(self, zones: Collection[str]) -> tuple[ZoneFact, ...]:
        """The named zones, completely, with the capabilities of each.

        `owners` is empty: ownership is read by the `owned` decorator.
        """

    def perform(self, action: ChangeRecords) -> None:
        """Change record sets after checking that each is as in `before`."""

    def close(self) -> None:
        """Release sockets and threads."""


@runtime_checkable
class ByName(DNSProvider, Protocol):
    """A DNS provider that can read some names without the whole zone. Optional: having the method declares it.

    Before a write, only the names that are about to change are read, which matters in large zones.
    """

    def observe_names(self, zone: str, names: Collection[str]) -> ZoneFact:
        """All record sets at these names (canonical), and perhaps others. Raises as `observe`."""


Provider = RuntimeProvider | EndpointProvider | DNSProvider


def capabilities_of(provider: DNSProvider | type[DNSProvider]) -> DNSCapabilities:
    """The capabilities that a DNS provider or its type declares; `PLAIN` for one that declares none."""
    declared: DNSCapabilities = getattr(provider, "capabilities", PLAIN)
    return declared
