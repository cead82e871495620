"""Effects: the change that each step declares, folded into the facts without doing anything. Called by `forecast`.

A forecast assumes success: containers start, probes pass, writes take effect at once. Addresses that a runtime chooses at create time
are written as the container's name in angle brackets.
"""

from collections.abc import Callable
from dataclasses import replace

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
from providers.facts import (
    ContainerFact,
    ContainerStart,
    ContainerState,
    ExitCause,
    Generation,
    Known,
    MemberFact,
    PoolFact,
    PortFact,
    ProbeFact,
    Probes,
    ProbeValue,
    ZoneFact,
)
from reconciler.core.model.instant import FOREVER, Now
from reconciler.core.model.observed import Observed
from reconciler.core.model.step import Step


def _containers(
    observed: Observed, node: str, change: Callable[[tuple[ContainerFact, ...]], tuple[ContainerFact, ...]]
) -> Observed:
    known = observed.runtimes.get(node)
    if not isinstance(known, Known):
        return observed
    runtimes = {**observed.runtimes, node: replace(known, value=change(known.value))}
    return replace(observed, runtimes=runtimes)


def _named(name: str, change: Callable[[ContainerFact], ContainerFact]) -> Callable[..., tuple[ContainerFact, ...]]:
    return lambda facts: tuple(change(fact) if fact.name == name else fact for fact in facts)


def _created(action: CreateContainer) -> ContainerFact:
    address = f"<{action.name}>"
    ports = tuple(PortFact(port.number, address, port.number) for port in action.template.container.ports)
    return ContainerFact(
        action.node,
        action.name,
        f"planned:{action.name}",
        ContainerState.CREATED,
        address=address,
        ports=ports,
        mark=action.mark,
        files=tuple((volume.name, volume.digest) for volume in action.template.volumes),
    )


def _started(fact: ContainerFact, now: Now) -> tuple[ContainerStart, ...]:
    """The containers of a replica that are down are started; if the main container is down, all are started."""
    main_down = any(not start.container and not start.running_since for start in fact.starts)
    return tuple(
        start if start.running_since and not main_down else ContainerStart(start.container, now.wall, now.steady)
        for start in fact.starts
    )


def _updated(fact: ContainerFact, action: UpdateContainer) -> ContainerFact:
    files = {**dict(fact.files), **{volume: digest for volume, digest, _ in action.files}}
    unjoined = tuple(name for name in fact.unjoined if name not in action.join)
    return replace(fact, live=action.live or fact.live, unjoined=unjoined, files=tuple(files.items()))


def _stopped(fact: ContainerFact, only: str) -> tuple[ContainerStart, ...]:
    """One container of a replica is stopped, or all of them."""
    return tuple(start._replace(running_since=0) if only in ("", start.container) else start for start in fact.starts)


def _start(observed: Observed, action: StartContainer, now: Now) -> Observed:
    started: list[Generation] = []

    def up(fact: ContainerFact) -> ContainerFact:
        started.append(Generation(fact.id, now.wall))
        return replace(
            fact,
            state=ContainerState.RUNNING,
            started_at=now.wall,
            running_since=now.steady,
            exit_cause=None,
            exit_code=None,
            starts=_started(fact, now),
        )

    observed = _containers(observed, action.node, _named(action.name, up))
    passing = ProbeFact(ProbeValue.PASS, ProbeValue.PASS, 1, 1, now.steady, now.steady, FOREVER, "forecast")
    probes = {**observed.probes, **{generation: Probes(passing, passing, passing) for generation in started}}
    return replace(observed, probes=probes)


def _pool(observed: Observed, key: tuple[str, str], change: Callable[[PoolFact], PoolFact]) -> Observed:
    known = observed.pools.get(key)
    if not isinstance(known, Known):
        return observed
    return replace(observed, pools={**observed.pools, key: replace(known, value=change(known.value))})


def _weighed(action: SetWeight, pool: PoolFact) -> PoolFact:
    others = [member for member in pool.members if member.endpoint != action.endpoint]
    changed = MemberFact(action.endpoint, action.weight, True, action.name)
    return replace(pool, members=tuple(sorted([*others, changed], key=lambda member: member.endpoint)))


def _recorded(action: ChangeRecords, zone: ZoneFact) -> ZoneFact:
    records, owners = dict(zone.records), dict(zone.owners)
    for change in action.changes:
        if change.after is None:
            records.pop(change.key, None)
            owners.pop(change.key, None)
        else:
            records[change.key] = change.after
            owners[change.key] = change.owner
    return replace(zone, records=records, owners=owners, serial=zone.serial + 1)


def fold(observed: Observed, step: Step, now: Now) -> Observed:
    """The facts after this step, as it declares."""
    match step.action:
        case CreateContainer() as action:
            created = _created(action)
            return _containers(observed, action.node, lambda facts: (*facts, created))
        case StartContainer() as action:
            return _start(observed, action, now)
        case StopContainer() as action:
            only = action.only
            return _containers(
                observed,
                action.node,
                _named(
                    action.name,
                    lambda fact: replace(
                        fact,
                        state=ContainerState.EXITED,
                        exit_cause=ExitCause.STOPPED_BY_US,
                        exited_at=now.steady,
                        starts=_stopped(fact, only),
                    ),
                ),
            )
        case UpdateContainer() as action:
            update = action
            return _containers(observed, action.node, _named(action.name, lambda fact: _updated(fact, update)))
        case RemoveContainer() as action:
            name = action.name
            return _containers(observed, action.node, lambda facts: tuple(fact for fact in facts if fact.name != name))
        case SetWeight() as action:
            weighed = action
            return _pool(observed, (action.provider, action.pool), lambda pool: _weighed(weighed, pool))
        case CutSessions() as action:
            cut = action.endpoint
            return _pool(
                observed,
                (action.provider, action.pool),
                lambda pool: replace(
                    pool,
                    members=tuple(
                        member._replace(in_flight=0) if member.endpoint == cut else member for member in pool.members
                    ),
                ),
            )
        case RemoveEndpoint() as action:
            gone = action.endpoint
            return _pool(
                observed,
                (action.provider, action.pool),
                lambda pool: replace(pool, members=tuple(member for member in pool.members if member.endpoint != gone)),
            )
        case ChangeRecords() as action:
            key = (action.provider, action.zone)
            known = observed.zones.get(key)
            if not isinstance(known, Known):
                return observed
            return replace(
                observed, zones={**observed.zones, key: replace(known, value=_recorded(action, known.value))}
            )
