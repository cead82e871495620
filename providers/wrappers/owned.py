"""Ownership as a decorator: it changes nothing without a mark of this instance. `wire.py` puts it around every provider.

It looks at the object right before each call. An endpoint provider that checks ownership in its own look declares that
(`checks_ownership`, see `spi.py`): a second look would double the time to a weight. The facts of containers and endpoints say
who owns them. The mark of a record set is a TXT record set beside it, written in the same change.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import ClassVar, NamedTuple, overload

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
from providers.dns.common.change import GLUE, glue_of, parents, show
from providers.dns.common.ownership import cut_above, mark_key, mark_places, mark_record, read_mark, split
from providers.dns.common.routing import label
from providers.errors import Conflict, Foreign, ProviderError
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
    """A runtime that changes only containers with a valid mark of this instance."""

    role: ClassVar[Role] = Role.RUNTIME
    Settings: ClassVar[type[BaseModel]] = BaseModel

    def __init__(self, inner: RuntimeProvider, instance: str) -> None:
        self.name = inner.name
        self.inner = inner
        self._instance = instance

    def observe(self, names: Collection[str] | None = None) -> tuple[ContainerFact, ...]:
        """All containers, also those of other owners: operators want to see them."""
        return self.inner.observe(names)

    def perform(self, action: RuntimeAction) -> None:
        """Do the action unless the container has another owner: `Foreign`, before the inner provider is called."""
        if isinstance(action, CreateContainer) and action.mark.instance != self._instance:
            raise Foreign(action.name, f"its mark names instance {action.mark.instance}; this is {self._instance}")
        for fact in self._affected(action):
            if isinstance(action, CreateContainer):
                self._check(fact)
            elif not action.adopted:
                self._check(fact, action.expect.container_id)
            else:
                _check_adopted(fact, action)
        self.inner.perform(action)

    def _affected(self, action: RuntimeAction) -> tuple[ContainerFact, ...]:
        """The containers that an action may change: that of its name, and that of its id, which may have another name by now."""
        facts = self.inner.observe([action.name])
        if isinstance(action, CreateContainer) or any(fact.id == action.expect.container_id for fact in facts):
            return facts
        return (*facts, *self.inner.observe([action.expect.container_id]))

    def _check(self, fact: ContainerFact, container_id: str = "") -> None:
        """Raise `Foreign` unless the container is ours; one whose mark names another container, only if the plan means its id."""
        if fact.id == container_id and fact.claim is not None and fact.claim.instance == self._instance:
            return
        if fact.mark is None:
            why = "its labels name another container" if fact.foreign_mark else "it has no owner mark"
            raise Foreign(fact.name, f"not owned by this instance: {why}", "remove or rename that container")
        if fact.mark.instance != self._instance:
            raise Foreign(fact.name, f"belongs to instance {fact.mark.instance}", "remove it with that instance")

    def exec_target(self, container: str, argv: tuple[str, ...]) -> ExecTarget:
        """As the inner provider says, for a name of ours, or for an id. Raises `Foreign`, `Gone`."""
        for fact in self.inner.observe([container]):
            if fact.id != container:
                self._check(fact)
        return self.inner.exec_target(container, argv)

    def logs(self, container: str, lines: int, *until: int) -> tuple[str, ...]:
        """As the inner provider says."""
        return self.inner.logs(container, lines, *until)

    def close(self) -> None:
        """Close the inner provider."""
        self.inner.close()


def _check_adopted(
    fact: ContainerFact, action: StartContainer | StopContainer | RemoveContainer | UpdateContainer
) -> None:
    """Raise `Foreign` unless it is the container that the plan means and the action is allowed on it."""
    if fact.mark is not None or fact.foreign_mark:
        raise Foreign(
            fact.name, "was adopted without a mark and has one now", "retried automatically after the next look"
        )
    if wants_liveness(fact):
        if isinstance(action, RemoveContainer):
            raise Foreign(fact.name, f"its label {LABEL_LIVENESS} allows restarts only", "remove it by hand")
        return
    if fact.id != action.expect.container_id:
        raise Foreign(
            fact.name,
            f"its id is {fact.id[:12]} now; {action.expect.container_id[:12]} was adopted",
            "retried automatically after the next look",
        )


class OwnedEndpoints:
    """Pools in which only members of this instance are changed."""

    role: ClassVar[Role] = Role.ENDPOINTS
    Settings: ClassVar[type[BaseModel]] = BaseModel

    def __init__(self, inner: EndpointProvider, instance: str) -> None:
        self.name = inner.name
        self.inner = inner
        self._instance = instance
        self._checked_inside: bool = getattr(inner, "checks_ownership", False)

    def observe(self, pools: Collection[str]) -> tuple[PoolFact, ...]:
        """The pools with all members, also those of other owners."""
        return self.inner.observe(pools)

    def perform(self, actions: Sequence[EndpointAction]) -> Performed:
        """Do the actions on members of ours, after one look at each pool. Actions on other members are answered with `Foreign`.

        When a pool cannot be observed, the error is the answer to its actions alone.
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
        """The members of a pool that have another owner."""
        facts = (fact for fact in self.inner.observe([pool]) if fact.pool == pool)
        return frozenset(member.endpoint for fact in facts for member in fact.members if not member.ours)

    def _foreign(self, action: EndpointAction) -> Foreign:
        cause = f"instance {self._instance} did not add this member"
        return Foreign(object_of(action), cause, "remove the member from the pool, or use another pool")


class OwnedDNS:
    """Zones in which only record sets with a mark of this instance are changed; marks are written with the data."""

    role: ClassVar[Role] = Role.DNS
    Settings: ClassVar[type[BaseModel]] = BaseModel

    def __init__(self, inner: DNSProvider, instance: str) -> None:
        self.name = inner.name
        self.inner = inner
        self.capabilities = capabilities_of(inner)
        self._instance = instance
        self._unmarked: dict[str, tuple[ZoneFact, ZoneFact]] = {}

    def observe(self, zones: Collection[str]) -> tuple[ZoneFact, ...]:
        """The zones without the marks in `records`; `owners` has the mark of each set that exists and has one."""
        return tuple(self._without_marks(fact) for fact in self.inner.observe(zones))

    def _without_marks(self, fact: ZoneFact) -> ZoneFact:
        """As `_without_marks`; the same value as before when the provider returns the same value again."""
        known = self._unmarked.get(fact.zone)
        if known is None or known[0] is not fact:
            known = self._unmarked[fact.zone] = fact, _without_marks(fact)
        return known[1]

    def perform(self, action: ChangeRecords) -> None:
        """Change data and marks in one call of the inner provider.

        A mark of ours without its set (the set was removed by hand) is used again or removed. A set without a mark is changed only
        by a change that adopts it, and only as that change expects it. When a name is delegated, the marks of our addresses of its
        name servers move out of the delegated zone in the same call.

        Raises:
            Foreign: a set exists without a mark and is not adopted, or with a mark of another instance.
            Conflict: a set that is adopted is not as expected any more.
            Rejected: a name is too long for a mark.
        """
        with collector_paused():
            self._perform(action)

    def _perform(self, action: ChangeRecords) -> None:
        zone, around = action.zone, self._around(action)
        changes: list[RecordChange] = []
        for change in action.changes:
            marks = _marks(change.key, zone, around.records)
            self._check(change, marks, around.records)
            marked = _mark_changes(change.key, change.after, change.owner, marks, zone, around.delegated)
            # In this order data never exists without its mark, also where a provider cannot write all at once.
            changes += [change, *marked] if change.after is None else [*marked, change]
        for key in around.glue:
            if not cut_above(key.name, zone, around.delegated):
                continue  # a mark may stay out of a delegation that ends
            marks = _marks(key, zone, around.records)
            owners = {read_mark(mark) for mark in marks.values()}
            if key in around.records and all(owner.startswith(self._instance + "/") for owner in owners):
                for owner in owners:
                    changes += _mark_changes(key, around.records[key], owner, marks, zone, around.delegated)
        self.inner.perform(ChangeRecords(action.provider, zone, tuple(changes)))

    def _around(self, action: ChangeRecords) -> "_Around":
        """What an action depends on: the sets that it changes or makes glue, their marks, and the delegations above them."""
        zone = action.zone
        glue = {key for change in action.changes for key in glue_of(change, zone)}
        keys = [*(change.key for change in action.changes), *sorted(glue)]
        above = {name for key in keys if key.type in GLUE for name in [key.name, *parents(key.name, zone)]}
        records = self._read(zone, {key.name for key in keys} | {mark_key(key, zone).name for key in keys} | above)
        before = {name for name in above if name != zone and RecordKey(name, "NS") in records}
        after = set(before)
        for change in action.changes:
            if change.key.type == "NS" and change.key.name != zone:
                (after.discard if change.after is None else after.add)(change.key.name)
        if isinstance(self.inner, ByName):
            elsewhere = {
                place.name
                for key in keys
                if before or after or (key in records and mark_key(key, zone) not in records)
                for place in mark_places(key, zone)
            }
            records = {**records, **self._read(zone, elsewhere)} if elsewhere else records
        return _Around(records, after, sorted(glue - {change.key for change in action.changes}))

    def _read(self, zone: str, names: set[str]) -> Mapping[RecordKey, RecordSet]:
        """The record sets at some names, and perhaps others."""
        if isinstance(self.inner, ByName):
            return self.inner.observe_names(zone, names).records
        return self.inner.observe([zone])[0].records

    def _check(
        self,
        change: RecordChange,
        marks: Mapping[RecordKey, RecordSet],
        records: Mapping[RecordKey, RecordSet],
    ) -> None:
        target = label(change.key)
        if not change.owner.startswith(self._instance + "/"):
            raise Foreign(target, f"the change is for {change.owner}; this is instance {self._instance}")
        if not marks:
            present = records.get(change.key)
            if present is None:
                return
            if change.adopts:
                if present != change.before:
                    raise Conflict(
                        target, f"was changed by another writer: found {show(present)}", "retried automatically"
                    )
                return
            cause = f"exists without an owner mark of this instance: {show(present)}"
            raise Foreign(target, cause, "write adopt: true in its manifest to take it over, or use another name")
        for mark in marks.values():
            owner = read_mark(mark)
            if not owner.startswith(self._instance + "/"):
                raise Foreign(
                    target, f"belongs to {owner}", "remove it from the manifests of that owner, or use another name"
                )

    def close(self) -> None:
        """Close the inner provider."""
        self.inner.close()


class _Around(NamedTuple):
    """What an action depends on, as it was read: record sets, the delegated names after the action, and sets that are glue then."""

    records: Mapping[RecordKey, RecordSet]
    delegated: set[str]
    glue: list[RecordKey]


def _marks(key: RecordKey, zone: str, records: Mapping[RecordKey, RecordSet]) -> dict[RecordKey, RecordSet]:
    """The existing marks of a set, usually one."""
    return {place: records[place] for place in mark_places(key, zone) if place in records}


def _mark_changes(
    key: RecordKey,
    after: RecordSet | None,
    owner: str,
    marks: Mapping[RecordKey, RecordSet],
    zone: str,
    delegated: set[str],
) -> list[RecordChange]:
    """The changes of a mark; one at another place is removed. If it is right already, the provider only compares it again."""
    cut = cut_above(key.name, zone, delegated) if key.type in GLUE else ""
    place = mark_key(key, zone, cut)
    mark = None if after is None else mark_record(owner, key, zone, cut)
    moved = [RecordChange(other, before, None, owner) for other, before in marks.items() if other != place]
    return [*moved, RecordChange(place, marks.get(place), mark, owner)]


def _without_marks(fact: ZoneFact) -> ZoneFact:
    with collector_paused():
        marked = split(fact.records)
        owners = {key: owner for key, owner in marked.owners.items() if key in marked.records}
    return ZoneFact(fact.zone, fact.serial, marked.records, owners, fact.capabilities)


@overload
def owned(provider: RuntimeProvider, instance: str) -> OwnedRuntime: ...
@overload
def owned(provider: EndpointProvider, instance: str) -> OwnedEndpoints: ...
@overload
def owned(provider: DNSProvider, instance: str) -> OwnedDNS: ...
def owned(provider: Provider, instance: str) -> Provider:
    """The provider, which now changes only what this instance owns."""
    if provider.role is Role.RUNTIME:
        return OwnedRuntime(provider, instance)  # type: ignore[arg-type]
    if provider.role is Role.ENDPOINTS:
        return OwnedEndpoints(provider, instance)  # type: ignore[arg-type]
    return OwnedDNS(provider, instance)  # type: ignore[arg-type]
