"""Differences, the stage before the gates: everything that has not converged, as candidates.

Containers that are missing, down, sick, outdated or too many become `Want`s; `traffic/pools` and `dns/publication` have listed
the differences of pools and zones already. `gates` then asks which candidates may go ahead now. Called by `decide` only.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from manifests.values.desired import SECOND, OnSecretChange, Workload
from manifests.values.pod import Live
from manifests.values.rollouts import STAGED, Strategy
from providers.facts import ContainerFact, ContainerState, ExitCause, Mark, ProbeValue
from reconciler.core.drift.fields import Watch
from reconciler.core.exits.grants import RESTARTS
from reconciler.core.healing import restart_history
from reconciler.core.health import overrides, precedence
from reconciler.core.health.belief import Belief
from reconciler.core.limits import backoff, secret_gate
from reconciler.core.limits.backoff import Try
from reconciler.core.model.drift import Why
from reconciler.core.model.instant import FOREVER, Now
from reconciler.core.model.ledger import Grant, Ledger
from reconciler.core.model.reasons import Hold, Reason, Rule, Wait, Waiting
from reconciler.core.model.revision import why_failed
from reconciler.core.model.want import Kind, Want
from reconciler.core.replicas import availability, ends, exclusive_volumes, file_changes, image_pins, memory, roster
from reconciler.core.replicas.image_pins import Pins
from reconciler.core.replicas.roster import Group
from reconciler.core.replicas.snapshot import Snapshot
from reconciler.core.rollouts import replacement

_PASS, _UNKNOWN, _FAIL = ProbeValue.PASS, ProbeValue.UNKNOWN, ProbeValue.FAIL
_RUNNING = ContainerState.RUNNING
_UPDATED = {ContainerState.RUNNING, ContainerState.RESTARTING}
_DOWN = {ContainerState.CREATED, ContainerState.EXITED}


@dataclass(slots=True)
class Differences:
    """All candidates of containers, and the holds and waits that do not depend on the gates.

    `watch` has the drift of their fields. `blocked`: workloads of which no container can be created now, so that a failed one is
    restarted and not recreated.
    """

    watch: Watch
    wants: list[Want] = field(default_factory=list)
    holds: list[Hold] = field(default_factory=list)
    waits: list[Wait] = field(default_factory=list)
    blocked: frozenset[str] = frozenset()

    def disrupted(self) -> set[str]:
        """The keys of workloads with a candidate that would disrupt a container."""
        return {want.workload.key for want in self.wants if want.workload is not None and want.disrupts}


def _want(group: Group, ordinal: int, kind: Kind, cause: Reason, message: str, belief: Belief) -> Want:
    fact, workload = belief.fact, group.workload
    name, obj = fact.name, memory.replica_of(workload.key, ordinal)
    return Want(
        f"{kind.value} {name}", obj, kind, cause, message, name, fact.node, ordinal, workload, fact, belief.ready
    )


def _why_down(fact: ContainerFact) -> tuple[Reason, str]:
    """Why a container is not running: never started, ended by itself, stopped by reconcile, or ended with the host."""
    if fact.state is ContainerState.CREATED:
        return Reason.NOT_STARTED, "created but not started"
    if fact.exit_cause is ExitCause.HOST_RESTARTED:
        return Reason.HOST_RESTARTED, "the host restarted"
    if fact.exit_cause is ExitCause.STOPPED_BY_US:
        return Reason.STOPPED, "stopped by reconcile, but needed again"
    how = (fact.exit_code, fact.exit_cause)
    return ends.reason_of(*how), ends.exit_text(*how)


def _stale_secrets(group: Group, ordinal: int, belief: Belief, out: Differences) -> None:
    """A secret has a new value: the environment of a container never changes, so only a new container gets it."""
    fact, workload = belief.fact, group.workload
    names = ", ".join(fact.stale_secrets)
    if workload.on_secret_change is OnSecretChange.RESTART and replacement.active_is_declared(group):
        message = f"it still has the old values of {names}"
        out.wants.append(_want(group, ordinal, Kind.RECREATE, Reason.SECRET_CHANGED, message, belief))
        return
    obj = memory.replica_of(workload.key, ordinal)
    message = f"{fact.name} still has the old values of {names}"
    next_step = f"set onSecretChange: restart in the spec of {workload.key}, or change its template"
    out.holds.append(Hold(obj, f"recreate {fact.name}", Rule.SECRET_CHANGED, message, next_step=next_step))


def _unhealthy(group: Group, ordinal: int, belief: Belief, ledger: Ledger, out: Differences) -> None:
    """A failed startup or liveness probe makes a restart a candidate, or a recreation after restarts that did not help."""
    assert belief.failed is not None  # noqa: S101  (its `live` is fail; for the type checker)
    probe = "startup" if belief.failed is Reason.STARTUP_FAILED else "liveness"
    message = f"the {probe} probe failed"
    row = ledger.escalations.get(memory.replica_of(group.workload.key, ordinal))
    kind, cause = Kind.RESTART, belief.failed
    if (
        row is not None
        and replacement.active_is_declared(group)
        and not group.workload.forbidden  # nothing could take its place
        and group.workload.key not in out.blocked
        and backoff.next_try(row.tries, group.workload, belief.fact) is Try.RECREATE
    ):
        kind, cause, message = Kind.RECREATE, Reason.RECREATE, f"{message} again after {row.tries} restarts in a row"
    out.wants.append(_want(group, ordinal, kind, cause, message, belief))


def _overdue(group: Group, belief: Belief, grants: Mapping[str, Grant], now: Now, out: Differences) -> bool:
    """A replica that pushed draining: it may take until its deadline to exit, and is replaced when it still runs then.

    Returns whether that is its difference, so that no other one of it counts.
    """
    fact, mark = belief.fact, belief.fact.mark
    at = precedence.overdue_at(belief, group.workload.push)
    if at == FOREVER or mark is None or group.workload.push is None:
        return False
    obj, current = memory.replica_of(group.workload.key, mark.ordinal), group.current.get(mark.ordinal) is belief
    if at > now.steady:
        message = f"{fact.name} pushed draining; it is replaced if it does not exit before push.drainDeadline"
        # An exit that is under way says itself what asked for it.
        out.waits.append(Wait(obj, Waiting.DRAIN, message, at, container=fact.id, unasked=fact.id not in grants))
        return False
    seconds = group.workload.push.drain_deadline // SECOND
    message = f"it pushed draining and still runs after push.drainDeadline ({seconds}s)"
    next_step = f"find out why {fact.name} does not exit after it pushed draining; reconcile replaces it automatically"
    since = precedence.drained_since(belief)
    out.holds.append(Hold(obj, f"exit of {fact.name}", Rule.DRAIN_DEADLINE, message, next_step=next_step, since=since))
    if belief.live is _FAIL:
        return False
    if fact.id not in grants:
        possible = not group.workload.forbidden and group.workload.key not in out.blocked
        fresh = current and replacement.active_is_declared(group) and not fact.adopted and possible
        kind = Kind.RECREATE if fresh else Kind.RESTART
        out.wants.append(_want(group, mark.ordinal, kind, Reason.DRAIN_DEADLINE, message, belief))
    return True


def _settings(group: Group, ordinal: int, belief: Belief, ledger: Ledger, out: Differences) -> None:
    """A container that runs, and whose settings or networks differ from the manifest.

    A lost restart policy does not wait for other settings, nor for the health of the container: without it the runtime does not start
    the container again when it or the host fails.
    """
    fact, workload = belief.fact, group.workload
    name = memory.replica_of(workload.key, ordinal)
    if fact.state is _RUNNING and workload.template.volumes and not fact.adopted:
        _files(group, ordinal, belief, out)
    wanted = restart_history.settings(workload, name, fact, ledger)
    if fact.state not in _UPDATED or not ((fact.live and fact.live != wanted) or fact.unjoined):
        return
    compared = out.watch.compare(workload, name, fact, wanted)
    differs = compared.live != fact.live
    if not (differs or compared.joins):
        return
    cause, message = Reason.SETTINGS_CHANGED, "its resource limits or its restart policy differ from the manifest"
    if differs and name in ledger.taken_over:
        restarts = len(ledger.attempts.get(name, ()))
        cause, message = (
            Reason.TAKEN_OVER,
            f"{restarts} recent restarts; reconcile takes over from the runtime's restart policy",
        )
    elif compared.joins:
        cause, message = Reason.NETWORK_LOST, f"no longer connected to {', '.join(fact.unjoined)}"
    elif restart_history.with_policy(compared.live, fact) != fact.live:
        cause, message = Reason.POLICY_LOST, "its restart policy is switched off, and the manifest declares one"
    want = _want(group, ordinal, Kind.UPDATE, cause, message, belief)
    joins = cause is Reason.NETWORK_LOST  # only the network: other settings have a step of their own
    moved = tuple(field for field in compared.moved if not joins or field.field == "networks")
    why = Why.DRIFT if joins or cause is Reason.TAKEN_OVER else compared.why
    out.wants.append(want._replace(why=why, moved=moved, live=compared.live))


def _other_image(group: Group, ordinal: int, belief: Belief, out: Differences) -> None:
    """A container that another program replaced by one of another image."""
    workload, obj = group.workload, memory.replica_of(group.workload.key, ordinal)
    if not replacement.active_is_declared(group):
        return
    moved = out.watch.image(workload, obj, belief.fact)
    if moved is not None and not workload.forbidden:
        message = f"it runs image {moved.observed}, and its revision has {moved.declared}"
        want = _want(group, ordinal, Kind.RECREATE, Reason.IMAGE_REPLACED, message, belief)
        out.wants.append(want._replace(moved=(moved,)))


def _files(group: Group, ordinal: int, belief: Belief, out: Differences) -> None:
    """A container whose files of the repository have changed, where the manifest declares that it is not replaced for that."""
    fact, template = belief.fact, group.workload.template
    due = file_changes.due(template, fact)
    if due:
        volumes = ", ".join(volume for volume, _, _ in due)
        want = _want(
            group, ordinal, Kind.UPDATE, Reason.FILES_CHANGED, f"the files of volume {volumes} changed", belief
        )
        out.wants.append(want._replace(id=f"signal {fact.name}"))
    kept = file_changes.kept(template, fact)
    if kept:
        obj = memory.replica_of(group.workload.key, ordinal)
        message = f"{fact.name} keeps earlier files of volume {', '.join(kept)}; containers created from now on get the present ones"
        next_step = f"nothing, or set onChange: rollout in the template of {group.workload.key}"
        out.holds.append(Hold(obj, f"recreate {fact.name}", Rule.FILES_KEPT, message, next_step=next_step))


def _policy(group: Group, belief: Belief, ledger: Ledger, out: Differences) -> None:
    """A container that is replaced later, or that a restart in progress has started again: it needs its restart policy too."""
    fact, mark = belief.fact, belief.fact.mark
    if mark is None or not fact.live or fact.state not in _UPDATED:
        return
    grant = ledger.grants.get(fact.id)
    if grant is not None and (grant.cause not in RESTARTS or fact.generation == grant.generation):
        return  # it is being stopped
    wanted = restart_history.settings(group.workload, memory.replica_of(group.workload.key, mark.ordinal), fact, ledger)
    if restart_history.with_policy(wanted, fact) != fact.live:
        message = "its restart policy is switched off, and the manifest declares one"
        out.wants.append(_want(group, mark.ordinal, Kind.UPDATE, Reason.POLICY_LOST, message, belief))


def _current(
    group: Group, ordinal: int, belief: Belief, pins: Pins, ledger: Ledger, now: Now, out: Differences
) -> None:
    """A replica of the desired revision that has not converged."""
    fact, workload = belief.fact, group.workload
    name = memory.replica_of(workload.key, ordinal)
    if fact.stale_secrets:
        _stale_secrets(group, ordinal, belief, out)
    elif fact.digests != pins:
        _other_image(group, ordinal, belief, out)
    if fact.state in _DOWN:
        cause, message = _why_down(fact)
        out.wants.append(_want(group, ordinal, Kind.START, cause, message, belief))
        return
    _settings(group, ordinal, belief, ledger, out)
    if belief.live is _FAIL:
        drains_until = belief.claim.said_at + workload.drain_max if belief.claim and belief.claim.draining else 0
        if drains_until > now.steady:
            message = (
                f"{fact.name} reports that it is draining; it is not restarted for its health before the drain ends"
            )
            out.waits.append(Wait(name, Waiting.DRAIN, message, drains_until, container=fact.id, unasked=True))
        else:
            _unhealthy(group, ordinal, belief, ledger, out)
        return
    if fact.state is ContainerState.RESTARTING:
        message = f"the runtime is restarting {fact.name}"
        out.waits.append(Wait(name, Waiting.READY, message, container=fact.id))
    elif belief.ready is _UNKNOWN or (belief.live is _UNKNOWN and fact.state is _RUNNING):
        message = f"the probes of {fact.name} have no result yet"
        out.waits.append(
            Wait(name, Waiting.VERDICT, message, None if belief.until == FOREVER else belief.until, container=fact.id)
        )
    elif belief.ready is _FAIL and (hold := overrides.kept_out(ledger.overrides, name, fact.name, now)) is not None:
        out.holds.append(hold)
    elif belief.ready is _FAIL and not precedence.drained_since(belief):
        message = f"{fact.name} is {'paused' if belief.reason is Reason.PAUSED else 'not ready yet'}"
        out.waits.append(Wait(name, Waiting.READY, message, container=fact.id))
    elif belief.ready is not _FAIL:
        available_at = availability.available_at(belief, workload.min_ready)
        if available_at > now.steady:
            message = f"{fact.name} is ready, but has not been for minReadySeconds yet"
            out.waits.append(Wait(name, Waiting.MIN_READY, message, available_at, container=fact.id))


def _missing(
    snap: Snapshot, group: Group, instance: str, out: Differences, older: replacement.Older | None = None
) -> None:
    """Replicas of the desired revision, or of an older one, that do not exist."""
    workload = group.workload if older is None else older.workload
    pending = snap.roster.pending.get(workload.key)
    if pending:
        message = f"spec.adopt names a container that is not adopted: {'; '.join(pending)}"
        next_step = f"remove the cause, or narrow spec.adopt of {workload.key}"
        out.holds.append(Hold(workload.key, "create replicas", Rule.ADOPT_PENDING, message, next_step=next_step))
        return
    exist = (
        older.existing
        if older is not None
        else group.current.keys()
        if replacement.active_is_declared(group)
        else replacement.existing(group)
    )
    unknown = group.unknown_of(workload.template.revision)
    for ordinal in range(workload.replicas):
        if ordinal in exist:
            continue
        obj = memory.replica_of(workload.key, ordinal)
        if ordinal in unknown:
            # It may exist on a node that cannot be read. A hold names that node; with an exclusive volume it says what ends that.
            hold = exclusive_volumes.unseen(snap, workload, obj)
            out.holds += [] if hold is None else [hold]
            continue
        name, node = roster.replica_name(workload, instance, ordinal), snap.roster.placed.get(obj)
        if node is None:
            continue  # a hold says why it has no node
        if obj in snap.roster.claimed:
            continue  # the container there may be this replica; a hold names it
        if (node, name) in snap.roster.renamed:
            message = f"container {name} on {node} is {snap.roster.renamed[node, name]}, which was renamed"
            next_step = f"give it another name: docker rename {name} OTHER-NAME"
            out.holds.append(Hold(obj, f"create {name}", Rule.NAME_TAKEN, message, next_step=next_step))
            continue
        if (node, name) in snap.roster.foreign:
            message = f"container {name} on {node} does not belong to instance {instance}"
            next_step = f"remove it, or rename it: docker rename {name} OTHER-NAME"
            out.holds.append(Hold(obj, f"create {name}", Rule.NAME_TAKEN, message, next_step=next_step))
            continue
        hold = exclusive_volumes.unseen(snap, workload, obj)
        if hold is not None:
            out.holds.append(hold)
            continue
        message = f"no container of revision {workload.template.revision[:8]}"
        want = Want(f"create {name}", obj, Kind.CREATE, Reason.MISSING, message, name, node, ordinal, workload)
        out.wants.append(want)


def why_first(workload: Workload) -> str:
    """Why the old container goes before the new one is created."""
    containers = (workload.template.container, *workload.template.sidecars)
    host_ports = [port.host_port for container in containers for port in container.ports if port.host_port]
    if host_ports:
        return f"removed first: both containers need host port {host_ports[0]}"
    exclusive = [mount.source for container in containers for mount in container.engine.mounts if mount.exclusive]
    if exclusive:
        return f"removed first: only one container may mount volume {exclusive[0]}"
    return "removed first (strategy: recreate)"


def _without_traffic(snap: Snapshot, group: Group, ledger: Ledger, out: Differences) -> None:
    """Replicas of revisions that neither have the traffic nor wait for it: they are stopped and kept for rollback, or removed."""
    for belief in group.outgoing:
        mark = belief.fact.mark
        if mark is None or belief.fact.id in ledger.grants:
            continue
        if belief.fact.id in snap.roster.leaving:
            _released(group, belief, ledger.grants, out)
            continue
        cause, message = Reason.TEMPLATE_CHANGED, f"revision {mark.revision[:8]} no longer has traffic"
        if replacement.kept_revision(group, belief.fact, ledger, snap.now) is not None:
            cause, message = Reason.SUPERSEDED, f"{message}; it is stopped and kept for rollback"
        elif (failed := why_failed(ledger.rollouts.get(group.workload.key), mark.revision)) is not None:
            cause, message = Reason.REVISION_FAILED, failed
        out.wants.append(_want(group, mark.ordinal, Kind.RETIRE, cause, message, belief))


def _beside(snap: Snapshot, group: Group, instance: str, ledger: Ledger, out: Differences) -> None:
    """The declared revision beside the active one: all of its replicas are created and started at once."""
    for older in replacement.older(group, ledger):
        _missing(snap, group, instance, out, older)
    for ordinal in replacement.lost(group, ledger):
        obj = memory.replica_of(group.workload.key, ordinal)
        message = f"the replica is gone, and the template of revision {group.serving[:8]} is neither declared nor in the ledger"
        next_step = f"set spec.rollout.activateAt of {group.workload.key} to a time in the past, so that the declared revision takes over"
        out.holds.append(Hold(obj, "create it again", Rule.TEMPLATE_GONE, message, next_step=next_step))
    for belief in group.waiting:
        _overdue(group, belief, ledger.grants, snap.now, out)
    for belief in replacement.down_while_waiting(group, ledger.grants):
        mark = belief.fact.mark
        if mark is not None:
            cause, why = _why_down(belief.fact)
            out.wants.append(_want(group, mark.ordinal, Kind.START, cause, why, belief))
    if group.coming:
        _missing(snap, group, instance, out)


def _outdated(snap: Snapshot, group: Group, ledger: Ledger, out: Differences) -> None:
    """Replicas of other revisions, and surplus replicas."""
    grants = ledger.grants
    revision = group.workload.template.revision
    if group.workload.strategy in STAGED:
        _without_traffic(snap, group, ledger, out)
    stuck = why_failed(ledger.rollouts.get(group.workload.key), revision) is not None
    for belief in group.outgoing if group.workload.strategy not in STAGED else ():
        mark = belief.fact.mark
        if mark is not None and belief.fact.id in snap.roster.leaving:
            _released(group, belief, grants, out)
        elif stuck and _overdue(group, belief, grants, snap.now, out):
            continue  # after a failed rollout the old revision keeps serving
        elif mark is not None and belief.fact.id not in grants:
            if belief.fact.state is ContainerState.EXITED:
                # Until its replacement is available, the old revision keeps serving: it is started again.
                cause, why = _why_down(belief.fact)
                out.wants.append(_want(group, mark.ordinal, Kind.START, cause, why, belief))
            old = "the adopted container" if belief.fact.adopted else f"revision {mark.revision[:8]}"
            message, kind = f"{old} is replaced by revision {revision[:8]}", Kind.RETIRE
            recreates = group.workload.strategy is Strategy.RECREATE and mark.ordinal < group.workload.replicas
            if recreates and not _never_took_over(group, belief):
                message, kind = f"{message}; {why_first(group.workload)}", Kind.RECREATE
            cause, double = Reason.TEMPLATE_CHANGED, exclusive_volumes.doubled(group, belief)
            if double is not None:
                kind, cause, message = Kind.RETIRE, Reason.VOLUME_IN_USE, _why_double(double)
            out.wants.append(_want(group, mark.ordinal, kind, cause, message, belief))
    for belief in group.surplus:
        mark = belief.fact.mark
        if mark is not None and belief.fact.id in snap.roster.leaving:
            _released(group, belief, grants, out)
        elif mark is not None and group.unknown and mark.ordinal in group.unknown_of(mark.revision):
            continue  # its place is on a node that cannot be read: until its successor is observed there, it is the replica
        elif mark is not None and belief.fact.adopted and belief.fact.state in _DOWN:
            continue  # stopped because it is surplus, and reconcile does not remove adopted containers
        elif mark is not None and belief.fact.id not in grants:
            failed = why_failed(ledger.rollouts.get(group.workload.key), mark.revision)
            kind, cause, message = _why_surplus(snap, group, belief.fact, mark)
            if failed is not None:
                kind, cause, message = Kind.RETIRE, Reason.REVISION_FAILED, failed
            double = exclusive_volumes.doubled(group, belief)
            if double is not None:
                kind, cause, message = Kind.RETIRE, Reason.VOLUME_IN_USE, _why_double(double)
            out.wants.append(_want(group, mark.ordinal, kind, cause, message, belief))


def _never_took_over(group: Group, belief: Belief) -> bool:
    """Whether this container was created for a replica whose earlier one still exists: it leaves, and the replica stays as it is."""
    fact, mark = belief.fact, belief.fact.mark
    return fact.state is ContainerState.CREATED and any(
        other.fact.mark is not None and mark is not None and other.fact.mark.ordinal == mark.ordinal
        for other in group.outgoing
        if other.fact.state is not ContainerState.CREATED
    )


def _why_surplus(snap: Snapshot, group: Group, fact: ContainerFact, mark: Mark) -> tuple[Kind, Reason, str]:
    """Why a container is surplus: there are fewer replicas now, or its replica belongs to another node.

    Where the old container goes first, the move is a recreation: the new one is created on the other node before, and starts after.
    """
    workload = group.workload
    node = snap.roster.placed.get(memory.replica_of(workload.key, mark.ordinal))
    if mark.ordinal >= workload.replicas or node is None or node == fact.node:
        plural = "" if workload.replicas == 1 else "s"
        return Kind.RETIRE, Reason.SURPLUS, f"the manifest wants {workload.replicas} replica{plural}"
    message = f"the replica belongs to {node}"
    if fact.node not in workload.nodes:
        message = f"spec.nodes does not name {fact.node}, so the replica moves to {node}"
    if workload.strategy is Strategy.RECREATE and not fact.adopted:
        return Kind.RECREATE, Reason.NODE_CHANGED, f"{message}; {why_first(workload)}"
    return Kind.RETIRE, Reason.NODE_CHANGED, message


def _why_double(other: ContainerFact) -> str:
    return f"{other.name} on {other.node} runs at its place, and only one container may have their volume"


def _released(group: Group, belief: Belief, grants: Mapping[str, Grant], out: Differences) -> None:
    """An adopted container that its workload no longer names: it leaves service and keeps running."""
    if belief.fact.mark is not None and belief.fact.id not in grants:
        message = f"spec.adopt of {group.workload.key} no longer names it; it is released and keeps running"
        out.wants.append(_want(group, belief.fact.mark.ordinal, Kind.RETIRE, Reason.RELEASED, message, belief))


_LISTED = 5
"""How many replicas a message lists by their number."""


def _unseen(snap: Snapshot, key: str, group: Group, out: Differences) -> None:
    """The replicas of a workload that may be on nodes that cannot be read: nothing is done about them until their nodes answer."""
    nodes = group.unreadable_nodes
    ordinals = sorted(group.unknown.keys() | {container.ordinal for container in group.unseen})
    listed = ", ".join(map(str, ordinals[:_LISTED]))
    more = f" and {len(ordinals) - _LISTED} more" if len(ordinals) > _LISTED else ""
    one = len(ordinals) == 1
    replicas = f"replica{'' if one else 's'} {listed}{more}"
    unknown = snap.sight.unknown_runtimes
    where = f"node{'' if len(nodes) == 1 else 's'} {', '.join(nodes[:_LISTED])}"
    where += f" and {len(nodes) - _LISTED} more" if len(nodes) > _LISTED else ""
    message = (
        f"{where} cannot be read ({unknown[nodes[0]].reason}), so {replicas} {'is' if one else 'are'} unknown: not counted as "
        f"available, and not created, restarted or removed{'; the other replicas go on' if group.members() else ''}"
    )
    providers = sorted({unknown[node].source for node in nodes})
    next_step = f"make provider {', '.join(providers[:_LISTED])} reachable; it is retried automatically"
    since = min(unknown[node].since for node in nodes)
    action = f"change {replicas}"
    out.holds.append(Hold(key, action, Rule.UNKNOWN_RUNTIME, message, next_step=next_step, since=since))


def _live(workload: Workload, key: str, ordinal: int, fact: ContainerFact, ledger: Ledger) -> tuple[Live, ...]:
    """The settings that a container should have; the replica's name is built only when a restart policy was taken over."""
    return restart_history.settings(
        workload, memory.replica_of(key, ordinal) if ledger.taken_over else "", fact, ledger
    )


def find(snap: Snapshot, ledger: Ledger) -> Differences:
    """All candidates of all workloads, then the orphans."""
    out, grants = (
        Differences(Watch(ledger, snap.now), blocked=secret_gate.blocked(snap.desired, snap.observed.secrets)),
        ledger.grants,
    )
    steady, instance = snap.now.steady, snap.desired.instance.id
    for key, group in snap.roster.groups.items():
        workload = group.workload
        min_ready = workload.min_ready
        if group.unknown or group.unseen:
            _unseen(snap, key, group, out)
        pins = image_pins.pins_of(ledger, key, workload.template.revision)
        for ordinal, belief in group.current.items():
            if belief.live is _PASS and belief.ready is _PASS and belief.since + min_ready <= steady:
                fact = belief.fact
                unchanged = not fact.stale_secrets and not fact.unjoined and fact.digests == pins
                unchanged = unchanged and not workload.template.volumes
                if unchanged and (not fact.live or fact.live == _live(workload, key, ordinal, fact, ledger)):
                    continue
            overdue = _overdue(group, belief, grants, snap.now, out)
            if belief.fact.id not in grants and not overdue:
                _current(group, ordinal, belief, pins, ledger, snap.now, out)
            else:
                _policy(group, belief, ledger, out)
        for beliefs in (group.waiting, group.outgoing, group.surplus):
            for belief in beliefs:
                if belief.fact.id not in snap.roster.leaving:
                    _policy(group, belief, ledger, out)
        if workload.strategy in STAGED and (group.waiting or not replacement.active_is_declared(group)):
            _beside(snap, group, instance, ledger, out)
        elif len(group.current) < workload.replicas and group.coming:
            _missing(snap, group, instance, out)
        if group.outgoing or group.surplus:
            _outdated(snap, group, ledger, out)
    for fact in snap.roster.orphans:
        mark = fact.mark
        if mark is not None and fact.id not in grants:
            cause = Reason.DESTROYED if snap.desired.destroy else Reason.PRUNED
            obj = memory.replica_of(f"workload/{mark.workload}", mark.ordinal)
            message = "destroy was requested" if snap.desired.destroy else f"no manifest names workload/{mark.workload}"
            want = Want(
                f"retire {fact.name}", obj, Kind.RETIRE, cause, message, fact.name, fact.node, mark.ordinal, None, fact
            )
            out.wants.append(want)
    out.holds += out.watch.holds
    return out
