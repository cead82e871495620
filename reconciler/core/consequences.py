"""What a plan does to traffic and names, for each workload: how its replicas change, how many serve meanwhile, and downtime.

Every number is counted in the forecast, after each round of its steps, and none is computed from settings. `forecast` calls it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from manifests.values.desired import Desired
from manifests.values.dns import Publish, Routing
from manifests.values.dns_names import target_name
from providers.actions import (
    ChangeRecords,
    CreateContainer,
    CutSessions,
    RemoveContainer,
    RemoveEndpoint,
    SetWeight,
    StartContainer,
    StopContainer,
    UpdateContainer,
)
from providers.facts import Known, RecordKey
from reconciler.core.model.instant import Now
from reconciler.core.model.observed import Observed
from reconciler.core.model.step import Step
from reconciler.core.replicas import availability
from reconciler.core.replicas.roster import Roster


@dataclass(frozen=True, slots=True)
class Least:
    """The fewest of something during the plan, of as many as there are before it, or after it where that is fewer."""

    name: str
    least: int
    of: int


@dataclass(frozen=True, slots=True)
class Consequence:
    """What follows for one workload.

    `verb` is what becomes of its replicas, `count` of how many, `at_once` of how many in one round. `available` is the least number of
    replicas that run and are ready, of those that are declared; `pools` of endpoints with a weight, `names` of addresses in a name.
    `downtime`: the steps (from, to) between which no replica runs although one did before; None without.
    """

    object: str
    verb: str
    count: int
    at_once: int
    available: Least
    pools: tuple[Least, ...] = ()
    names: tuple[Least, ...] = ()
    downtime: tuple[int, int] | None = None

    @property
    def text(self) -> str:
        """The consequence in one line, without its object."""
        parts = [f"{_many(self.count, 'replica')} {'is' if self.count == 1 else 'are'} {self.verb}"]
        if self.count > 1 and self.verb in _DISRUPTED:
            parts[0] += " one at a time" if self.at_once == 1 else f", at most {self.at_once} at a time"
        if self.available.of:
            parts.append(
                f"at least {self.available.least} of {self.available.of} serve{'s' * (self.available.least == 1)}"
            )
        parts += [f"pool {pool.name} keeps at least {pool.least} of {pool.of} endpoints" for pool in self.pools]
        parts += [f"name {name.name} keeps at least {name.least} of {name.of} addresses" for name in self.names]
        if self.downtime is not None:
            parts.insert(0, f"downtime: {downtime_text(self.downtime)}")
        return "; ".join(parts)


def downtime_text(steps: tuple[int, int]) -> str:
    """When no replica runs: from a stop to a start, 0 = none in this plan."""
    first, last = steps
    return f"no replica serves from step {first} {f'to step {last}' if last else 'on'}"


_DISRUPTED = frozenset({"replaced", "restarted", "removed", "stopped"})


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


@dataclass(slots=True)
class _Span:
    """A number over the rounds of a plan."""

    first: int
    least: int
    last: int

    @classmethod
    def of(cls, number: int) -> "_Span":
        return cls(number, number, number)

    def add(self, number: int) -> None:
        self.least, self.last = min(self.least, number), number

    def shown(self, name: str) -> Least:
        return Least(name, self.least, min(self.first, self.last) if self.last else self.first)


@dataclass(slots=True)
class _Workload:
    """What happens to the replicas of one workload. `serving` are those that run and are ready, `last` is its latest stop or start."""

    serving: _Span
    created: set[str] = field(default_factory=set)
    started: set[str] = field(default_factory=set)
    stopped: set[str] = field(default_factory=set)
    removed: set[str] = field(default_factory=set)
    updated: set[str] = field(default_factory=set)
    at_once: int = 0
    last: int = 0
    down: tuple[int, int] | None = None

    def became(self) -> tuple[str, int]:
        """What becomes of the replicas, and of how many; an empty verb where only weights and records change."""
        gone = self.removed | self.stopped
        for verb, replicas in (
            ("replaced", self.created & gone),
            ("restarted", self.started & self.stopped),
            ("removed", self.removed),
            ("stopped", self.stopped),
            ("created", self.created),
            ("started", self.started),
            ("updated in place", self.updated),
        ):
            if replicas:
                return verb, len(replicas)
        return "", 0


class Consequences:
    """Counts while a forecast goes through its rounds."""

    def __init__(self, desired: Desired, observed: Observed) -> None:
        self._before = observed
        self._services = _services(desired)
        self._hosts = {host for _, hosts in self._services.values() for host in hosts}
        self._wanted = {workload.key: workload.replicas for workload in desired.workloads}
        self._begun = False
        self._first: dict[str, int] = {}
        self._workloads: dict[str, _Workload] = {}
        self._pools: dict[_Pool, _Span] = {}
        self._names: dict[_Host, _Span] = {}

    def decided(self, roster: Roster, now: Now) -> None:
        """The containers at a decision of the forecast."""
        # A number changes only after a step on a container of the workload; all are counted once, before the first step.
        for key in self._workloads if self._begun else roster.groups:
            group = roster.groups.get(key)
            count = 0 if group is None else availability.count(group, {}, now).total
            known = self._workloads.get(key)
            if known is None:
                self._first[key] = count
                continue
            known.serving.add(count)
            if count == 0 and known.serving.first and known.down is None:
                known.down = (known.last, 0)
            elif count and known.down is not None and not known.down[1]:
                known.down = (known.down[0], known.last)
        self._begun = True

    def round(self, steps: Sequence[tuple[int, Step]], observed: Observed) -> None:
        """The steps of one decision with their numbers, and the facts with their effects."""
        stopped: dict[str, int] = {}
        pools: set[_Pool] = set()
        names: set[_Host] = set()
        for number, step in steps:
            action = step.action
            if isinstance(action, (SetWeight, RemoveEndpoint)):
                pools.add((action.provider, action.pool))
            elif isinstance(action, ChangeRecords):
                touched = {(action.provider, action.zone, change.key.name) for change in action.changes}
                names |= touched & self._hosts
            elif not isinstance(action, CutSessions):
                key, _, _ = step.object.rpartition("/")
                workload = self._workloads.setdefault(key, _Workload(_Span.of(self._first.get(key, 0))))
                self._container(workload, step)
                if isinstance(action, (StopContainer, StartContainer)):
                    workload.last = number
                if isinstance(action, StopContainer):
                    stopped[key] = stopped.get(key, 0) + 1
        for key, count in stopped.items():
            self._workloads[key].at_once = max(self._workloads[key].at_once, count)
        # A number changes only in a round with a step on it.
        for pool in pools:
            span = self._pools.setdefault(pool, _Span.of(_endpoints(self._before, pool)))
            span.add(_endpoints(observed, pool))
        for name in names:
            span = self._names.setdefault(name, _Span.of(_addresses(self._before, name)))
            span.add(_addresses(observed, name))

    @staticmethod
    def _container(workload: _Workload, step: Step) -> None:
        match step.action:
            case CreateContainer():
                workload.created.add(step.object)
            case StartContainer():
                workload.started.add(step.object)
            case StopContainer():
                workload.stopped.add(step.object)
            case RemoveContainer():
                workload.removed.add(step.object)
            case UpdateContainer():
                workload.updated.add(step.object)

    def all(self) -> tuple[Consequence, ...]:
        """The consequences of the whole plan, downtimes first."""
        rows = []
        for key, workload in sorted(self._workloads.items()):
            verb, count = workload.became()
            if verb:
                pools, names = self._services.get(key, (frozenset(), frozenset()))
                of_pools = [(pool, self._pools[pool]) for pool in sorted(pools & self._pools.keys())]
                of_names = [(name, self._names[name]) for name in sorted(names & self._names.keys())]
                row = Consequence(
                    key,
                    verb,
                    count,
                    max(1, workload.at_once),
                    Least("", workload.serving.least, self._wanted.get(key, 0) if workload.serving.first else 0),
                    tuple(span.shown("/".join(pool)) for pool, span in of_pools if span.first),
                    tuple(span.shown(name[2]) for name, span in of_names if span.first),
                    workload.down if self._wanted.get(key) else None,
                )
                rows.append(row)
        return tuple(sorted(rows, key=lambda row: (row.downtime is None, row.object)))


_Pool = tuple[str, str]
"""Provider and pool."""

_Host = tuple[str, str, str]
"""Provider, zone and name."""


def _endpoints(observed: Observed, pool: _Pool) -> int:
    """How many endpoints of a pool have a weight."""
    known = observed.pools.get(pool)
    return sum(1 for member in known.value.members if member.weight > 0) if isinstance(known, Known) else 0


def _addresses(observed: Observed, name: _Host) -> int:
    """How many addresses a name has."""
    known = observed.zones.get(name[:2])
    if not isinstance(known, Known):
        return 0
    sets = (known.value.records.get(RecordKey(name[2], kind)) for kind in ("A", "AAAA"))
    return sum(len(found.values) for found in sets if found is not None)


def _services(desired: Desired) -> dict[str, tuple[frozenset[_Pool], frozenset[_Host]]]:
    """The pools of each workload, and the names that publish its replicas, through its services."""
    names: dict[str, set[_Host]] = {}
    for policy in desired.policies:
        for target in policy.targets:
            if target.publish is Publish.ENDPOINTS:
                host = policy.host if policy.routing is Routing.SIMPLE else target_name(policy.host, target.name)
                names.setdefault(target.service, set()).add((policy.provider, policy.zone, host))
    found: dict[str, tuple[frozenset[_Pool], frozenset[_Host]]] = {}
    for service in desired.services:
        pools = frozenset((balancer.provider, balancer.pool) for balancer in service.balancers)
        hosts = frozenset(names.get(service.key, ()))
        for backend in service.backends:
            old = found.get(backend.workload, (frozenset(), frozenset()))
            found[backend.workload] = old[0] | pools, old[1] | hosts
    return found
