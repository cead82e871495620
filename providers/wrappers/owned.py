"""Ownership as a decorator: nothing without a mark of this instance is ever changed. `wire.py` puts it around every provider.

The core does not decide about ownership at the moment of writing: this module does, with a look right before the call, unless
a provider of endpoints declares that it checks in the look it makes anyway (`checks_ownership`, see `spi.py`): two looks
would double the time to a weight. For containers and endpoints the provider's facts say whose they are. For names the mark is a TXT record set
beside the data, written in the same change.
"""

from collections.abc import Collection, Sequence
from typing import ClassVar, overload

from pydantic import BaseModel

from manifests.gc_pause import collector_paused
from manifests.values.desired import Role
from providers.actions import (
    ChangeRecords,
    CreateContainer,
    EndpointAction,
    RecordChange,
    RemoveContainer,
    RuntimeAction,
    StartContainer,
    StopContainer,
    UpdateContainer,
)
from providers.dns.common.change import show
from providers.dns.common.ownership import Marked, mark_key, mark_record, split
from providers.dns.common.routing import label
from providers.errors import Foreign, ProviderError
from providers.facts import (
    LABEL_LIVENESS,
    ContainerFact,
    Endpoint,
    PoolFact,
    RecordKey,
    RecordSet,
    ZoneFact,
    wants_liveness,
)
from providers.naming import object_of
from providers.spi import (
    ByName,
    DNSProvider,
    EndpointProvider,
    ExecTarget,
    Performed,
    Provider,
    RuntimeProvider,
    capabilities_of,
)


class OwnedRuntime:
    """A runtime that touches only containers with a valid mark of this instance."""

    role: ClassVar[Role] = Role.RUNTIME
    Settings: ClassVar[type[BaseModel]] = BaseModel

    def __init__(self, inner: RuntimeProvider, instance: str) -> None:
        self.name = inner.name
        self.inner = inner
        self._instance = instance

    def observe(self, names: Collection[str] | None = None) -> tuple[ContainerFact, ...]:
        """Everything, also what is foreign: people want to see it."""
        return self.inner.observe(names)

    def perform(self, action: RuntimeAction) -> None:
        """Do the action unless the container is somebody else's. Raises `Foreign` before the inner provider is asked."""
        if isinstance(action, CreateContainer) and action.mark.instance != self._instance:
            raise Foreign(action.name, f"its mark is of instance {action.mark.instance}, this is {self._instance}")
        for fact in self.inner.observe([action.name]):
            if isinstance(action, CreateContainer) or not action.adopted:
                self._check(fact)
            else:
                _check_adopted(fact, action)
        self.inner.perform(action)

    def _check(self, fact: ContainerFact) -> None:
        if fact.mark is None:
            why = "its labels name another container" if fact.foreign_mark else "it carries no owner mark"
            raise Foreign(fact.name, f"is not ours: {why}", "remove or rename that container")
        if fact.mark.instance != self._instance:
            raise Foreign(fact.name, f"belongs to instance {fact.mark.instance}", "remove it there")

    def exec_target(self, container: str, argv: tuple[str, ...]) -> ExecTarget:
        """As the inner provider says, for a name that is ours, or an id (the plan means that very one). Raises `Foreign`, `Gone`."""
        for fact in self.inner.observe([container]):
            self._check(fact)
        return self.inner.exec_target(container, argv)

    def logs(self, container: str, lines: int) -> tuple[str, ...]:
        """As the inner provider says."""
        return self.inner.logs(container, lines)

    def close(self) -> None:
        """Close the inner provider."""
        self.inner.close()


def _check_adopted(
    fact: ContainerFact, action: StartContainer | StopContainer | RemoveContainer | UpdateContainer
) -> None:
    """Raise `Foreign` unless it is the very container that the plan means, and what is asked may be done to it."""
    if fact.mark is not None or fact.foreign_mark:
        raise Foreign(fact.name, "was adopted without a mark, and has one now", "look again")
    if wants_liveness(fact):
        if isinstance(action, RemoveContainer):
            raise Foreign(fact.name, f"its label {LABEL_LIVENESS} allows restarts only", "remove it by hand")
        return
    if fact.id != action.expect.container_id:
        raise Foreign(
            fact.name, f"is {fact.id[:12]} now, and {action.expect.container_id[:12]} was adopted", "look again"
        )


class OwnedEndpoints:
    """Pools in which only members of this instance are touched."""

    role: ClassVar[Role] = Role.ENDPOINTS
    Settings: ClassVar[type[BaseModel]] = BaseModel

    def __init__(self, inner: EndpointProvider, instance: str) -> None:
        self.name = inner.name
        self.inner = inner
        self._instance = instance
        self._checked_inside: bool = getattr(inner, "checks_ownership", False)

    def observe(self, pools: Collection[str]) -> tuple[PoolFact, ...]:
        """Everything, also members of others."""
        return self.inner.observe(pools)

    def perform(self, actions: Sequence[EndpointAction]) -> Performed:
        """Do the actions on members of ours, after one look at each pool; the answer to others is `Foreign`.

        A pool that cannot be looked at is the answer to its actions alone.
        """
        if self._checked_inside:
            return self.inner.perform(actions)
        strangers: dict[str, frozenset[Endpoint] | ProviderError] = {}
        for pool in dict.fromkeys(action.pool for action in actions):
            try:
                strangers[pool] = self._strangers(pool)
            except ProviderError as error:
                strangers[pool] = error
        errors: dict[int, ProviderError | None] = {}
        for index, action in enumerate(actions):
            others = strangers[action.pool]
            if isinstance(others, ProviderError):
                errors[index] = others
            elif action.endpoint in others:
                errors[index] = self._foreign(action)
        ours = [index for index in range(len(actions)) if index not in errors]
        if not ours:
            return Performed(tuple(errors[index] for index in range(len(actions))))
        performed = self.inner.perform([actions[index] for index in ours])
        errors.update(zip(ours, performed.errors, strict=True))
        return Performed(tuple(errors[index] for index in range(len(actions))), performed.pools)

    def close(self) -> None:
        """Close the inner provider."""
        self.inner.close()

    def _strangers(self, pool: str) -> frozenset[Endpoint]:
        """The members of a pool that are not ours."""
        facts = (fact for fact in self.inner.observe([pool]) if fact.pool == pool)
        return frozenset(member.endpoint for fact in facts for member in fact.members if not member.ours)

    def _foreign(self, action: EndpointAction) -> Foreign:
        cause = f"is a member that instance {self._instance} did not add"
        return Foreign(object_of(action), cause, "remove it from the pool, or use another pool")


class OwnedDNS:
    """Zones in which only record sets with a mark of this instance are touched; the marks travel with the data."""

    role: ClassVar[Role] = Role.DNS
    Settings: ClassVar[type[BaseModel]] = BaseModel

    def __init__(self, inner: DNSProvider, instance: str) -> None:
        self.name = inner.name
        self.inner = inner
        self.capabilities = capabilities_of(inner)
        self._instance = instance
        self._told: dict[str, tuple[ZoneFact, ZoneFact]] = {}

    def observe(self, zones: Collection[str]) -> tuple[ZoneFact, ...]:
        """The zones without the marks in `records`; `owners` has the mark of each set that exists and has one."""
        return tuple(self._without_marks(fact) for fact in self.inner.observe(zones))

    def _without_marks(self, fact: ZoneFact) -> ZoneFact:
        """As `_without_marks`; the answer of before when the provider tells the very same value again."""
        known = self._told.get(fact.zone)
        if known is None or known[0] is not fact:
            known = self._told[fact.zone] = fact, _without_marks(fact)
        return known[1]

    def perform(self, action: ChangeRecords) -> None:
        """Change data and marks in one call of the inner provider.

        A mark of ours without its set (somebody removed the set by hand) is fine and is used again or removed. A set is
        never adopted silently, not even when it is exactly what is wanted.

        Raises:
            Foreign: a set exists without a mark, or with a mark of another instance, which is named.
            Rejected: a name leaves no room for a mark.
        """
        with collector_paused():
            self._perform(action)

    def _perform(self, action: ChangeRecords) -> None:
        found = split(self._around(action))
        changes: list[RecordChange] = []
        for change in action.changes:
            self._check(change, found, action.zone)
            mark = self._mark_change(change, found, action.zone)
            # Where a provider cannot write all at once: data never exists without its mark.
            changes += [change, mark] if change.after is None else [mark, change]
        self.inner.perform(ChangeRecords(action.provider, action.zone, tuple(changes)))

    def _around(self, action: ChangeRecords) -> dict[RecordKey, RecordSet]:
        """The sets that an action is about, and their marks, as far as they exist."""
        keys = [change.key for change in action.changes]
        keys += [mark_key(key, action.zone) for key in keys]
        if isinstance(self.inner, ByName):
            records = self.inner.observe_names(action.zone, {key.name for key in keys}).records
        else:
            records = self.inner.observe([action.zone])[0].records
        return {key: records[key] for key in keys if key in records}

    def _check(self, change: RecordChange, found: Marked, zone: str) -> None:
        target = label(change.key)
        if not change.owner.startswith(self._instance + "/"):
            raise Foreign(target, f"the change is for {change.owner}, this is instance {self._instance}")
        owner = found.owners.get(change.key)
        if owner is None:
            present = found.records.get(change.key)
            if present is None:
                return
            cause = f"exists without our owner mark: {show(present)}"
            raise Foreign(target, cause, "remove it by hand if it should be managed here, or use another name")
        if not owner.startswith(self._instance + "/"):
            where = mark_key(change.key, zone).name
            raise Foreign(
                target, f"belongs to {owner}", f"remove it there; if nobody has it any more, remove {where} TXT"
            )

    def _mark_change(self, change: RecordChange, found: Marked, zone: str) -> RecordChange:
        """The mark's part of a change. When it is right already this only makes the provider compare it again."""
        before = found.marks.get(change.key)
        after = None if change.after is None else mark_record(change.owner, change.key, zone)
        return RecordChange(mark_key(change.key, zone), before, after, change.owner)

    def close(self) -> None:
        """Close the inner provider."""
        self.inner.close()


def _without_marks(fact: ZoneFact) -> ZoneFact:
    with collector_paused():
        found = split(fact.records)
        owners = {key: owner for key, owner in found.owners.items() if key in found.records}
    return ZoneFact(fact.zone, fact.serial, found.records, owners, fact.capabilities)


@overload
def owned(provider: RuntimeProvider, instance: str) -> OwnedRuntime: ...
@overload
def owned(provider: EndpointProvider, instance: str) -> OwnedEndpoints: ...
@overload
def owned(provider: DNSProvider, instance: str) -> OwnedDNS: ...
def owned(provider: Provider, instance: str) -> Provider:
    """The same provider, unable to touch anything that is not of this instance."""
    if provider.role is Role.RUNTIME:
        return OwnedRuntime(provider, instance)  # type: ignore[arg-type]
    if provider.role is Role.ENDPOINTS:
        return OwnedEndpoints(provider, instance)  # type: ignore[arg-type]
    return OwnedDNS(provider, instance)  # type: ignore[arg-type]
