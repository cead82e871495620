"""The gauges of one tick, as values: what `reconcile status` shows, counted. Pure; `meter.py` calls it when a scrape asks.

Every value is read from the stages of the decision that `core/status` reads, by the same functions where there are some, so that
metrics and status cannot say different things. An object that is gone has no sample.
"""

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from manifests.values.desired import Role
from providers.facts import ContainerState, ProbeFact, Probes, ProbeValue
from reconciler.core.health.belief import Belief
from reconciler.core.model.reasons import Rule
from reconciler.core.replicas.roster import Group
from reconciler.core.status.names import published_at
from reconciler.core.traffic import pools
from reconciler.metrics import catalogue
from reconciler.metrics.ages import Ages
from reconciler.metrics.catalogue import Metric
from reconciler.shell.monitor import Tick
from reconciler.shell.report.summary import HARMLESS, MANUAL

PROBES = ("startup", "liveness", "readiness")

BY_OPERATOR = MANUAL | {Rule.FAILED, Rule.OBSERVE_ONLY, Rule.CANNOT_PUBLISH, Rule.SECRET_CHANGED}
"""Rules whose holds an operator ends: those of exit code 7, and those that last until a command or a changed manifest."""

Samples = dict[tuple[str, ...], float]
"""Values of one metric by the values of its labels."""

Gauges = dict[Metric, Samples]


class Source(NamedTuple):
    """The last read of the manifests: whether it was complete and valid, and whether what it found is in force."""

    success: bool = True
    applied: bool = True


def ends(rule: Rule) -> str:
    """What ends a hold of this rule: `operator`, `automatic`, or `converged` where it counts as converged."""
    if rule in BY_OPERATOR:
        return "operator"
    return "converged" if rule in HARMLESS else "automatic"


def gauges(tick: Tick, ages: Ages, source: Source) -> Gauges:
    """All gauges that follow from a tick."""
    found: Gauges = {}
    _workloads(tick, found)
    _services(tick, found)
    _names(tick, found)
    _holds(tick, ages, found)
    _providers(tick, found)
    wall = tick.now.wall - tick.now.steady
    found[catalogue.SOURCE_SUCCESS] = {(): float(source.success)}
    found[catalogue.SOURCE_APPLIED] = {(): float(source.applied)}
    found[catalogue.SOURCE_LAST] = {(): (wall + tick.source_at) / 1e9} if tick.source_at > 0 else {}
    found[catalogue.LAST_TICK] = {(): (wall + tick.ended) / 1e9}
    return found


def replicas(tick: Tick) -> Iterator[tuple[str, Group, list[Belief]]]:
    """The declared workloads: name, group and containers. Containers of other owners that are only restarted are left out."""
    for group in tick.decision.status.roster.groups.values():
        if not group.workload.restart_only:
            yield group.workload.name, group, group.members()


def verdict_of(fact: ProbeFact | None, steady: int) -> ProbeValue:
    """The verdict of a probe now: unknown without one, and when the last result is too old."""
    if fact is None or fact.last_at + fact.valid_for <= steady:
        return ProbeValue.UNKNOWN
    return fact.value


def _workloads(tick: Tick, found: Gauges) -> None:
    status, steady = tick.decision.status, tick.now.steady
    wall = tick.now.wall - steady
    rows = {row.key: row for row in status.workloads}
    failed = Counter(replica.rpartition("/")[0] for replica in _failed(tick))
    desired: Samples = {}
    ready: Samples = {}
    available: Samples = {}
    unknown: Samples = {}
    given_up: Samples = {}
    updated: Samples = {}
    success: Samples = {}
    newest: Samples = {}
    silent: Samples = {}
    verdicts: Samples = {(probe, value.value): 0 for probe in PROBES for value in ProbeValue}
    probes, no_probes = status.observed.probes, Probes()
    for name, group, members in replicas(tick):
        workload, row, labels = group.workload, rows[group.workload.key], (name,)
        container, revision = workload.template.container, workload.template.revision
        running = [belief for belief in members if belief.fact.state is ContainerState.RUNNING]
        desired[labels], available[labels], unknown[labels] = row.wanted, row.available, row.unknown
        given_up[labels] = failed[workload.key]
        if not group.partly_unseen:  # else some of its containers are not known
            ready[labels] = len([belief for belief in running if belief.ready is ProbeValue.PASS])
            updated[labels] = len([1 for b in members if b.fact.mark is not None and b.fact.mark.revision == revision])
        answers = [probes.get(belief.fact.generation, no_probes) for belief in running]
        for probe, declared in zip(PROBES, (container.startup, container.liveness, container.readiness), strict=True):
            if declared is None:
                continue
            failing = passing = False
            for answer in answers:
                value = verdict_of(getattr(answer, probe), steady)
                verdicts[probe, value.value] += 1
                failing, passing = failing or value is ProbeValue.FAIL, passing or value is ProbeValue.PASS
            if failing or passing:
                success[name, probe] = float(not failing)
        if workload.push is not None:
            pushes = [status.observed.pushes.get(belief.fact.generation) for belief in running]
            silent[labels] = sum(push is None or push.at + workload.push.stale < steady for push in pushes)
            if heard := [push.at for push in pushes if push is not None]:
                newest[labels] = (wall + max(heard)) / 1e9
    found[catalogue.REPLICAS_DESIRED] = desired
    found[catalogue.REPLICAS_READY] = ready
    found[catalogue.REPLICAS_AVAILABLE] = available
    found[catalogue.REPLICAS_UNKNOWN] = unknown
    found[catalogue.REPLICAS_FAILED] = given_up
    found[catalogue.REPLICAS_UPDATED] = updated
    found[catalogue.PROBE_SUCCESS] = success
    found[catalogue.PROBE_VERDICTS] = verdicts
    found[catalogue.PUSH_NEWEST] = newest
    found[catalogue.PUSH_SILENT] = silent


def _failed(tick: Tick) -> set[str]:
    """The replicas that are not restarted again, as `status` names them."""
    return {hold.object for hold in tick.decision.holds if hold.rule is Rule.FAILED}


def _services(tick: Tick, found: Gauges) -> None:
    status = tick.decision.status
    serving: Samples = {}
    weights: Samples = {}
    for service in tick.desired.services if status.sight is not None else ():
        reached = list(pools.endpoints(service, status.roster)) if service.balancers else []
        for balancer in service.balancers:
            fact = status.sight.pools.get((balancer.provider, balancer.pool)) if status.sight is not None else None
            if fact is None:
                continue
            labels = (service.name, balancer.provider, balancer.pool)
            by_endpoint = {member.endpoint: member.weight for member in fact.members if member.ours}
            serving[labels] = sum(weight > 0 for weight in by_endpoint.values())
            for endpoint, belief in reached:
                weight, mark = by_endpoint.get(endpoint), belief.fact.mark
                if weight is not None and mark is not None:
                    key = (*labels, f"{mark.workload}/{mark.ordinal}")
                    weights[key] = weights.get(key, 0) + weight
    found[catalogue.ENDPOINTS_SERVING] = serving
    found[catalogue.ENDPOINT_WEIGHT] = weights


def _names(tick: Tick, found: Gauges) -> None:
    status = tick.decision.status
    published: Samples = {}
    healthy: Samples = {}
    omitted: Samples = {}
    for policy in tick.desired.policies if status.names is not None and status.sight is not None else ():
        outcome = status.names.policies.get(policy.key) if status.names is not None else None
        zone = status.sight.zones.get((policy.provider, policy.zone)) if status.sight is not None else None
        if outcome is None:
            continue
        labels = (policy.name,)
        addresses = {address.address for address in outcome.target_addresses}
        passing = {address.address for address in outcome.target_addresses if address.value is ProbeValue.PASS}
        healthy[labels] = len(passing)
        if zone is not None:
            at_host = published_at(policy, zone, outcome)
            published[labels], omitted[labels] = len(at_host), len(addresses - at_host)
    found[catalogue.ADDRESSES_PUBLISHED] = published
    found[catalogue.ADDRESSES_HEALTHY] = healthy
    found[catalogue.ADDRESSES_OMITTED] = omitted


def _holds(tick: Tick, ages: Ages, found: Gauges) -> None:
    counts: Samples = {(rule.value, ends(rule)): 0 for rule in Rule}
    oldest: Samples = {}
    for hold in tick.decision.holds:
        labels, since = (hold.rule.value, ends(hold.rule)), ages.since_of(hold, tick.now)
        counts[labels] += 1
        oldest[labels] = min(oldest.get(labels, since), since)
    guard, ledger = tick.desired.guard, tick.decision.ledger
    declared = int(guard.suspend) + len(guard.deny) + sum(workload.suspend for workload in tick.desired.workloads)
    found[catalogue.HOLDS], found[catalogue.HOLD_OLDEST] = counts, oldest
    found[catalogue.SUSPENSIONS] = {("operator",): len(ledger.suspensions), ("manifest",): declared}
    first = ages.oldest_suspension()
    found[catalogue.SUSPENSION_OLDEST] = {(): first} if first is not None else {}


def _providers(tick: Tick, found: Gauges) -> None:
    """Whether each provider can be read: those of the manifests, and those with objects from before."""
    readable: Samples = {(provider.name, provider.role.value): 1.0 for provider in tick.desired.providers}
    sight = tick.decision.status.sight
    if sight is not None:
        for node in (*sight.runtimes, *sight.unknown_runtimes):
            readable[node, Role.RUNTIME.value] = float(node not in sight.unknown_runtimes)
        for role, known, unknown in (
            (Role.ENDPOINTS, sight.pools, sight.unknown_pools),
            (Role.DNS, sight.zones, sight.unknown_zones),
        ):
            unread = {provider for provider, _ in unknown}
            for provider, _ in (*known, *unknown):
                readable[provider, role.value] = float(provider not in unread)
    found[catalogue.READABLE] = readable
