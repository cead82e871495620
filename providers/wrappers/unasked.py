"""Providers that are never asked: those that a tree declares, in a plan for an author who is not trusted. Made by `wire.py`.

A provider of the tree names a server, a socket or a file of its author's choice, so not even its class is made.
"""

from collections.abc import Collection, Sequence
from typing import ClassVar, NoReturn

from pydantic import BaseModel

from manifests.values.desired import Role
from providers.actions import ChangeRecords, EndpointAction, RuntimeAction
from providers.capabilities import PLAIN, DNSCapabilities
from providers.errors import Unreachable
from providers.facts import ContainerFact, PoolFact, ZoneFact
from providers.spi import ExecTarget, Performed, Provider

CAUSE = "it is not asked: the tree declares it, and --untrusted asks only providers of local documents"
NEXT_STEP = "declare it in the file or directory of --instance"


class _Unasked:
    """What the three roles share: every call raises."""

    Settings: ClassVar[type[BaseModel]] = BaseModel

    def __init__(self, name: str) -> None:
        self.name = name

    def _refuse(self) -> NoReturn:
        raise Unreachable(f"provider {self.name}", CAUSE, NEXT_STEP)

    def close(self) -> None:
        """Nothing to close."""


class UnaskedRuntime(_Unasked):
    """A runtime that is never asked."""

    role: ClassVar[Role] = Role.RUNTIME

    def observe(self, names: Collection[str] | None = None) -> tuple[ContainerFact, ...]:  # noqa: ARG002
        """Raises Unreachable."""
        self._refuse()

    def perform(self, action: RuntimeAction) -> None:  # noqa: ARG002
        """Raises Unreachable."""
        self._refuse()

    def exec_target(self, container: str, argv: tuple[str, ...]) -> ExecTarget:  # noqa: ARG002
        """Raises Unreachable."""
        self._refuse()

    def logs(self, container: str, lines: int, until: int = 0) -> tuple[str, ...]:  # noqa: ARG002
        """Raises Unreachable."""
        self._refuse()


class UnaskedEndpoints(_Unasked):
    """A balancer that is never asked."""

    role: ClassVar[Role] = Role.ENDPOINTS

    def observe(self, pools: Collection[str]) -> tuple[PoolFact, ...]:  # noqa: ARG002
        """Raises Unreachable."""
        self._refuse()

    def perform(self, actions: Sequence[EndpointAction]) -> Performed:  # noqa: ARG002
        """Raises Unreachable."""
        self._refuse()


class UnaskedDNS(_Unasked):
    """A DNS server that is never asked."""

    role: ClassVar[Role] = Role.DNS
    capabilities: DNSCapabilities = PLAIN

    def observe(self, zones: Collection[str]) -> tuple[ZoneFact, ...]:  # noqa: ARG002
        """Raises Unreachable."""
        self._refuse()

    def perform(self, action: ChangeRecords) -> None:  # noqa: ARG002
        """Raises Unreachable."""
        self._refuse()


def unasked(role: Role, name: str) -> Provider:
    """A provider of this role that is never asked."""
    if role is Role.RUNTIME:
        return UnaskedRuntime(name)
    return UnaskedEndpoints(name) if role is Role.ENDPOINTS else UnaskedDNS(name)
