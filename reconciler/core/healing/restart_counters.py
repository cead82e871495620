"""Restart counters of one decision: the grants so far, while its candidates pass the gates one after the other.

`gates` and `healing/restart_gates` share and fill them; `decide` puts their ledger into the next one at the end.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from providers.facts import ContainerFact, ContainerState, ProbeFact, ProbeValue
from reconciler.core.exits.grants import RESTARTS, URGENT
from reconciler.core.healing.mass_failure import Outbreaks
from reconciler.core.model.instant import FOREVER, Now, instant
from reconciler.core.model.ledger import Escalation, Failures, Grant, Ledger
from reconciler.core.model.reasons import Reason
from reconciler.core.model.want import Kind, Want
from reconciler.core.replicas import exit_times
from reconciler.core.replicas.availability import Availability
from reconciler.core.replicas.roster import Group
from reconciler.core.replicas.snapshot import Snapshot


def in_a_row(failures: int) -> str:
    """The length of a streak of failures, for messages."""
    return "once" if failures == 1 else f"{failures} times in a row"


def _erring(fact: ProbeFact | None, now: Now) -> bool:
    """Whether the latest run gave no result through a fault of the prober, or results stopped coming."""
    if fact is None:
        return False
    return fact.last is ProbeValue.UNKNOWN or fact.last_at + fact.valid_for <= now.steady


@dataclass
class RestartCounters:
    """Counters that start from the ledger."""

    snap: Snapshot
    counts: Mapping[str, Availability]
    ledger: Ledger
    outbreaks: Outbreaks
    granted: bool = False
    grants: dict[str, Grant] | None = None
    """The grants of `ledger`, once this decision has added some."""

    @cached_property
    def probing(self) -> dict[str, tuple[int, int]]:
        """Node -> for how many of its running containers with probes the prober fails, and the number of such containers."""
        counts: dict[str, tuple[int, int]] = {}
        for group in self.snap.roster.groups.values():
            if all(container.liveness is None and container.startup is None for container in group.probed):
                continue
            for belief in group.current.values():
                node = belief.fact.node
                if belief.fact.state is not ContainerState.RUNNING:
                    continue
                ours = self._erring(group, belief.fact)
                erring, probed = counts.get(node, (0, 0))
                counts[node] = (erring + ours, probed + 1)
        return counts

    def _erring(self, group: Group, fact: ContainerFact) -> bool:
        """Whether the prober fails for a container, by the probe that decides: liveness is not asked before the startup probe has passed."""
        verdicts, now = self.snap.observed.probes.get(fact.generation), self.snap.now
        if verdicts is None:
            return False
        startup = verdicts.startup
        if startup is None:
            waits = self.snap.roster.container_of(group.workload, fact).startup is not None
            return not waits and _erring(verdicts.liveness, now)
        return _erring(startup, now) or (startup.value is ProbeValue.PASS and _erring(verdicts.liveness, now))

    def grant(self, want: Want) -> None:
        """Let one disruption begin: from now on it counts, whatever its result."""
        fact, ledger, at = want.fact, self.ledger, instant(self.snap.now)
        if fact is None:
            return
        grant = Grant(want.object, fact.generation, want.cause, at, recreate=want.kind is Kind.RECREATE, only=want.only)
        grant = grant._replace(node=fact.node)
        if self.grants is None:
            self.grants = dict(ledger.grants)
            self.ledger = ledger = replace(ledger, grants=self.grants)
        self.grants[fact.id] = grant
        self.granted = True
        if (want.cause not in URGENT and want.cause is not Reason.DRAIN_DEADLINE) or want.workload is None:
            return
        obj, place = want.object, f"{want.node}|{want.workload.key}"
        self.ledger = ledger = replace(
            ledger,
            attempts={**ledger.attempts, obj: (*ledger.attempts.get(obj, ()), at)},
            restarted={**ledger.restarted, place: (*ledger.restarted.get(place, ()), at)},
        )
        if want.cause not in URGENT:
            return  # it counts against the limits, and is no failure
        failures, escalation = ledger.failures.get(obj), ledger.escalations.get(obj)
        row = Failures(failures.streak + 1 if failures is not None else 1, at, fact.generation)
        revision = want.workload.template.revision
        tries = Escalation(1, revision, at) if escalation is None else escalation._replace(tries=escalation.tries + 1)
        rows = {key: ledger.outbreaks[key]._replace(canary=obj) for key in self.outbreaks.of.get(fact.id, ())}
        self.ledger = replace(
            ledger,
            failures={**ledger.failures, obj: row},
            escalations={**ledger.escalations, obj: tries},
            outbreaks={**ledger.outbreaks, **rows} if rows else ledger.outbreaks,
        )

    def open_grants(self, prefix: str = "") -> list[Grant]:
        """The open grants that count, of the objects with this prefix.

        Those on nodes that cannot be read count for as long as they may take.
        """
        mine = [grant for grant in self.ledger.grants.values() if grant.object.startswith(prefix)]
        return [grant for grant in mine if self._counts(grant)] if mine and self.snap.roster.unseen.nodes else mine

    def _counts(self, grant: Grant) -> bool:
        return exit_times.counts_until(grant, self.snap.roster, self.snap.now) > self.snap.now.steady

    def unseen_until(self, prefix: str) -> int | None:
        """The first steady instant at which an open grant on a node that cannot be read stops counting; None without one."""
        roster, now = self.snap.roster, self.snap.now
        if not roster.unseen.nodes:
            return None
        mine = (grant for grant in self.ledger.grants.values() if grant.object.startswith(prefix))
        ends = [exit_times.counts_until(grant, roster, now) for grant in mine]
        return min((end for end in ends if now.steady < end < FOREVER), default=None)

    def restarts_of(self, key: str) -> list[Grant]:
        """Open restarts of one workload, oldest first; a requested restart counts once its container is out of service.

        Before that it may wait for a TTL or a provider for a long time, and a failed container must not wait for it.
        """
        prefix = f"{key}/"
        return sorted(
            grant
            for grant in self.open_grants(prefix)
            if (grant.cause in URGENT or (grant.cause in RESTARTS and grant.weight_out is not None))
        )

    def urgent_on(self, node: str) -> list[Grant]:
        """Open grants for failed health whose container is on this node, or will be recreated there."""
        if not self.ledger.grants:
            return []
        return [
            grant
            for name, grant in sorted(self.ledger.grants.items())
            if grant.cause in URGENT and self._node(name, grant) == node and self._counts(grant)
        ]

    def _node(self, container: str, grant: Grant) -> str:
        key = grant.object.rpartition("/")[0]
        group = self.snap.roster.groups.get(key)
        if group is None:
            return ""
        node = next((member.fact.node for member in group.members() if member.fact.id == container), "")
        if not node and self.snap.roster.unseen.hides(grant):
            node = grant.node
        return node or self.snap.roster.placed.get(grant.object, "")
