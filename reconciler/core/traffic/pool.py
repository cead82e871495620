"""One pool of one service: the weight of each member, and the floors that keep members which observed health would remove.

Facts, an operator's overrides, an endpoint's own fresh claim and planned steps remove weight at once. Observed health passes the
floors: it never removes the last positive weight that brings traffic; it removes nothing while too few endpoints are ready
(panic) or while all verdicts fail; and it removes the weight of at most a tenth of the pool in ten seconds. Members on nodes that cannot
be read keep their weight, and count as not ready. Called by `traffic/pools` only.
"""

from typing import NamedTuple

from manifests.values.desired import Balancer, Service
from manifests.values.traffic import PanicMode
from providers.facts import ContainerFact, ContainerState, Endpoint, MemberFact, PoolFact, ProbeValue
from providers.facts import Weights as Takes
from reconciler.core.exits import grants
from reconciler.core.exits.inflight_requests import Place
from reconciler.core.health import overrides, precedence
from reconciler.core.health.belief import Belief, By
from reconciler.core.health.overrides import in_force as order_on
from reconciler.core.model.instant import FOREVER, Instant, Now, instant
from reconciler.core.model.ledger import Grant, Ledger
from reconciler.core.model.reasons import Reason, Wait, Waiting
from reconciler.core.model.revision import FULL
from reconciler.core.model.weight_memory import Cut, Ready, Weighed
from reconciler.core.replicas.unseen import UnseenContainer
from reconciler.core.traffic import fixed_weights, floors, other_writers, shares
from reconciler.core.traffic.weights import DeadMember, MemberChange, Weights

_PASS, _UNKNOWN = ProbeValue.PASS, ProbeValue.UNKNOWN
_RUNNING, _READY, _ON_OFF = ContainerState.RUNNING, Reason.READY, Takes.ON_OFF


class _Failing(NamedTuple):
    """A member that is not ready according to its probes. `kept`: the weight that it keeps. `share`: that of its revision."""

    endpoint: Endpoint
    belief: Belief
    member: MemberFact | None
    kept: int | None
    share: int


_Serving = tuple[Endpoint, Belief, MemberFact | None, Ready | None, int]
"""A ready member, its remembered readiness, and the share of its revision."""


def _revision(fact: ContainerFact) -> tuple[str, str]:
    return ("", "") if fact.mark is None else (fact.mark.workload, fact.mark.revision)


class Pool:
    """One pool of one service during a decision."""

    __slots__ = (
        "balancer", "considered", "fact", "failing", "full", "keeping", "key", "ledger", "lowered", "members", "now", "out", "ready",
        "resort", "rows", "same", "service", "serving", "size", "split", "survivor", "unseen", "upright", "weighed",
    )  # fmt: skip

    def __init__(
        self, service: Service, balancer: Balancer, fact: PoolFact, ledger: Ledger, out: Weights, now: Now
    ) -> None:
        self.service, self.balancer, self.fact = service, balancer, fact
        self.ledger, self.out, self.now = ledger, out, now
        self.key = f"{balancer.provider}/{balancer.pool}"
        self.full = fixed_weights.rounded(service, fact)
        self.members: dict[Endpoint, MemberFact] = {member.endpoint: member for member in fact.members if member.ours}
        self.rows = {row.endpoint: row for row in ledger.weighed.get(self.key, ())}
        self.weighed: list[Weighed] = []
        self.size = self.considered = self.ready = self.same = 0
        self.survivor = self.upright = self.split = self.unseen = False
        self.lowered: list[tuple[Endpoint, Belief, MemberFact, Reason, bool]] = []
        self.failing: list[_Failing] = []
        self.resort: list[tuple[Endpoint, Belief, MemberFact | None]] = []
        self.serving: list[_Serving] = []
        self.keeping: list[tuple[tuple[str, str], int]] = []

    # --- one member -----------------------------------------------------------------------------------------------

    def want(
        self,
        endpoint: Endpoint,
        belief: Belief,
        member: MemberFact | None,
        after: int | None,
        why: Reason,
        *,
        fact: bool = False,
    ) -> None:
        """Give a member the weight `after`, unless another writer keeps changing it; a `fact` is applied in any case."""
        before = None if member is None else member.weight
        known = self.rows.get(endpoint)
        if known is None:
            if before is None and not after:
                return
        elif (
            before == after == known.weight and known.epoch == self.fact.epoch and not (known.asked or known.reversals)
        ):
            # The usual case, possibly for thousands of members: nothing has changed.
            self.weighed.append(known)
            self.same += 1
            return
        row = other_writers.watch(known, endpoint, before, after, self.fact.epoch, self.now)
        if before is not None or after:
            self.weighed.append(row)
        if (before or 0) == (after or 0):
            return
        if known is not None and known.weight == after and known.epoch != self.fact.epoch:
            why = Reason.REASSERTED
        balancer = self.balancer
        change = MemberChange(
            self.service.key, balancer.provider, balancer.pool, endpoint, belief.fact.name, before, after, why
        )
        writer = "" if member is None else member.writer
        until = 0 if fact or not row.reversals else other_writers.stopped_until(row, writer, self.now)
        if until:
            weights = before, after
            self.out.holds.append(floors.conflict(change.object, self.balancer, belief, weights, row, writer, until))
            self.out.of(belief.fact.id).contested = self.key
        else:
            self.out.changes.append(change)

    def _grown(
        self, endpoint: Endpoint, belief: Belief, row: Ready | None, before: int | None, weight: int
    ) -> tuple[int, Reason]:
        """The weight now of a ready endpoint whose full weight is `weight`, and why. Remembers since when it has been ready."""
        fact, now, service = belief.fact, self.now, self.service
        row = self.out.ready.get(fact.id) or row
        if row is None or row.started_at != fact.started_at:
            since = Instant(now.wall - now.steady + belief.since, belief.since, now.lineage)
            row = Ready(fact.started_at, since, not before)
        self.out.ready[fact.id] = row
        if self.fact.weights is _ON_OFF:
            return self.full, _READY
        after, step = weight, FOREVER
        ramps = service.ramp is not None and row.grows and self.key not in row.full
        # An operator who forces an endpoint up wants all of its weight.
        if service.ramp is not None and ramps and belief.reason is not Reason.FORCED_UP:
            carried = other_writers.carried(self.rows.get(endpoint), before, self.fact.epoch)
            after, step = shares.grown(weight, service.ramp, row.since, now, carried, self.fact.pace)
        if before == after == service.weight and self.key not in row.full:
            self.out.ready[fact.id] = row._replace(full=(*row.full, self.key))
        if after == weight:
            return weight, _READY
        message = f"{fact.name} has weight {after} of {weight} in pool {self.balancer.pool} and is ramping up"
        self.out.waits.append(Wait(service.key, Waiting.RAMP, message, step, fact.id))
        return after, Reason.RAMP

    def judge(
        self, endpoint: Endpoint, belief: Belief, grant: Grant | None, empty: bool, share: int | None = FULL
    ) -> None:
        """Compare one endpoint with the pool.

        Args:
            endpoint, belief: the endpoint.
            grant: its grant while it is leaving service; `empty`: it may take the last weight.
            share: the share of its revision, of 10,000; None = unknown.
        """
        fact, out = belief.fact, self.out
        member = self.members.pop(endpoint, None)
        before = None if member is None else member.weight
        row = self.ledger.ready.get(fact.id)
        reborn = row is not None and row.started_at != fact.started_at
        traffic = out.of(fact.id)
        if member is not None:
            if not reborn:
                traffic.pooled = True
            if member.weight > 0:
                traffic.carrying = True
            if grant is not None:
                traffic.requests = traffic.requests.at(Place(self.key, endpoint, member.in_flight, self.fact.epoch))
        if not before:
            traffic.lacking += (self.service.key,)
        if fact.state is not _RUNNING:
            self.want(endpoint, belief, member, 0, belief.reason, fact=True)
            if before:
                place = (self.service.key, self.balancer.provider, self.balancer.pool, endpoint)
                out.dead.setdefault(endpoint.address, []).append(DeadMember(*place, fact.id, _revision(fact)))
            return
        if share == 0:
            # Before everything else, DNS withdrawal included: an activation lowers weights as soon as the raised ones were read
            # back. The last weight of a pool stays until another member carries weight.
            if member is not None and before:
                out_by_itself = belief.claim is not None and belief.claim.out
                self.lowered.append((endpoint, belief, member, Reason.INACTIVE, not out_by_itself))
            else:
                self.want(endpoint, belief, member, before, Reason.INACTIVE)
            return
        self.size += 1
        if self.ledger.overrides:
            key = overrides.endpoint_key(self.balancer.provider, self.balancer.pool, endpoint)
            override = order_on(self.ledger.overrides, key, self.now)
            belief = belief if override is None else precedence.apply_override(belief, override, self.now)
        # A replica whose restart in a mass failure did not help is as good as those that were not restarted and keep their weight.
        spared = reborn and fact.id in out.sound and fact.id in out.suspect
        claim, passes = belief.claim, belief.ready is _PASS or spared
        if claim is not None and claim.out and not self._doubted(belief):
            self.want(endpoint, belief, member, 0, belief.reason)
            return
        if passes and grant is None and share is not None:
            self.considered += 1
            self.ready += 1
            self.split = self.split or share != FULL
            if before:
                self.survivor = True
                self.upright = self.upright or (member is not None and member.operational != "down")
            self.serving.append((endpoint, belief, member, row, share))
            return
        kept = other_writers.in_force(self.rows.get(endpoint), before, self.fact.epoch)
        if grant is not None:
            if member is not None and before and grants.may_cut(grant, self.now):
                why = Reason.RESTARTING if grants.returns(grant) else Reason.DRAINING
                self.lowered.append((endpoint, belief, member, why, not empty))
            else:
                self.want(endpoint, belief, member, kept, belief.reason)
            return
        sound = fact.id in out.sound and share == FULL
        if reborn and not passes and sound:
            self.resort.append((endpoint, belief, member))
            return
        if reborn and not passes and not (row is not None and row.resort == fact.started_at):
            # It was started again since it was ready, so its weight belongs to the generation before. A weight that this generation
            # got as the last resort stays: a prober that has just started, and knows nothing yet, must not empty the pool.
            self.want(endpoint, belief, member, 0, Reason.PENDING, fact=True)
            return
        self.considered += passes or row is not None or bool(before)
        if kept and share is not None:
            self.keeping.append((_revision(fact), share))
        if belief.ready is _UNKNOWN or share is None:
            self.want(endpoint, belief, member, kept, belief.reason)
        elif row is not None or before or kept:
            self.ready += fact.id in out.suspect  # its failure is doubted
            self.failing.append(_Failing(endpoint, belief, member, kept, share))
        elif sound:
            self.resort.append((endpoint, belief, member))
        else:
            self.want(endpoint, belief, member, kept, belief.reason)

    def keep_unseen(self, member: MemberFact, container: UnseenContainer, share: int | None) -> None:
        """Keep the member of a container on a node that cannot be read as it is. `share` is that of its revision, as in `judge`."""
        self.members.pop(member.endpoint, None)
        row = self.rows.get(member.endpoint)
        if row is not None:
            self.weighed.append(row)
            self.same += 1
        self.unseen = self.unseen or member.weight > 0
        self.considered += container.id in self.ledger.ready or member.weight > 0
        if member.weight > 0 and share is not None:
            self.keeping.append(((container.workload.removeprefix("workload/"), container.revision), share))

    def _doubted(self, belief: Belief) -> bool:
        """Whether its claim passes the floors like a probe: a push, where the manifest says so; never draining or an override."""
        claim = belief.claim
        return self.service.panic.override_pushes and claim is not None and claim.by is By.PUSH and not claim.draining

    # --- the pool as a whole --------------------------------------------------------------------------------------

    def finish(self, intended: bool, partly_unseen: bool, unlisted: bool, doubt: bool) -> None:
        """Remove weights where the floors allow it.

        Args:
            intended: the manifests want no endpoint in this pool, so it may become empty.
            partly_unseen: replicas of the service may be on nodes that cannot be read, so there may be better endpoints than known.
            unlisted: it is not known which members these are.
            doubt: all verdicts of the instance are failures.
        """
        unseen = partly_unseen or unlisted or self.unseen
        self._serve()
        fixed = fixed_weights.hold(self.service, self.balancer, self.fact, self.split)
        if fixed is not None:
            self.out.holds.append(fixed)
        for endpoint, belief, member, why, protected in self.lowered:
            if self.carried_on(member) or intended or not protected:
                self.want(endpoint, belief, member, 0, why)
            else:
                self._keep_last(endpoint, belief, member.weight, why)
                self.want(endpoint, belief, member, member.weight, why)
        rules, since = self.service.panic, self.ledger.panics.get(self.key)
        failing = sum(1 for member in self.failing if member.belief.fact.id not in self.out.suspect)
        panic = floors.panicking(self.considered, self.ready, failing, since, rules)
        if panic:
            self.out.panics[self.key] = since or instant(self.now)
        better = bool(self.survivor or self.serving or intended or rules.mode is PanicMode.CLOSED)
        for endpoint, belief, current in self.resort:
            self._resort(endpoint, belief, current, None if unseen and not better else better)
        if self.failing:
            spread = panic and rules.mode is PanicMode.SPREAD and not unseen and not doubt
            self._fail(intended, unlisted, doubt, panic, spread, None if unseen and not better else better)
        before = self.ledger.weighed.get(self.key, ())
        if self.same == len(self.weighed) == len(before) > 0:
            self.out.weighed[self.key] = before
        elif self.weighed:
            self.out.weighed[self.key] = tuple(sorted(self.weighed))

    def carried_on(self, member: MemberFact | None) -> bool:
        """Whether other members take over the traffic of a member that loses its weight.

        They must be ready, have weight, and not be down by the balancer's own checks. Where this member is down as well, nothing
        is lost with it.
        """
        return self.upright or (self.survivor and member is not None and member.operational == "down")

    def _keep_last(self, endpoint: Endpoint, belief: Belief, weight: int, why: Reason) -> None:
        failing_checks = self.survivor and not self.upright
        self.out.holds.append(
            floors.last_member(self.service, self.balancer, endpoint, belief, weight, why, failing_checks)
        )

    def _serve(self) -> None:
        """Weigh the ready members: all the same, unless revisions have shares of their own."""
        weights: dict[tuple[str, str], list[int]] = {}
        serving = self.serving
        if self.split:
            known = [*self.keeping, *((_revision(belief.fact), share) for _, belief, _, _, share in serving)]
            weights = shares.by_revision(known, self.service.weight)
            # The order only decides which endpoints of a revision get the remainders.
            serving = sorted(serving, key=lambda member: (member[0], member[1].fact.id))
        for endpoint, belief, member, row, share in serving:
            mine = weights.get(_revision(belief.fact)) if weights else None
            full = self.service.weight if mine is None else mine.pop(0)
            after, why = self._grown(endpoint, belief, row, None if member is None else member.weight, full)
            if share != FULL and why is _READY:
                why = Reason.CANARY
            self.want(endpoint, belief, member, after, why)

    def _resort(self, endpoint: Endpoint, belief: Belief, member: MemberFact | None, better: bool | None) -> None:
        """Give weight to an endpoint of which only the liveness probe fails, while no endpoint of the pool is `better` (None: unknown).

        A wrong liveness probe must not take down a service whose readiness probe passes.
        """
        before = 0 if member is None else member.weight
        after = before if better is None else 0 if better else self.full
        if before and after:
            self._keep_last(endpoint, belief, after, belief.reason)
        row = self.ledger.ready.get(belief.fact.id)
        if after and row is not None and row.started_at != belief.fact.started_at:
            self.out.ready[belief.fact.id] = row._replace(resort=belief.fact.started_at)
        self.want(endpoint, belief, member, after, Reason.LAST_RESORT if after else belief.reason)

    def _fail(
        self, intended: bool, unlisted: bool, doubt: bool, panic: bool, spread: bool, better: bool | None
    ) -> None:
        """Weigh the members that are not ready according to their probes. `better` is as in `_resort`."""
        out, rules = self.out, self.service.panic
        cuts = list(floors.recent(self.ledger.cuts.get(self.key, ()), self.now))
        lost, spent = {cut.container for cut in cuts}, 0
        closed = rules.mode is PanicMode.CLOSED
        held = floors.Held(self.service, self.balancer, self.considered, self.ready)
        for endpoint, belief, member, kept, own in sorted(
            self.failing, key=lambda row: (row.endpoint, row.belief.fact.id)
        ):
            why = belief.reason
            if spread and own == FULL:
                # Where revisions share the traffic, a failing canary must not get more than its share.
                self.want(endpoint, belief, member, self.full, Reason.SPREAD)
                continue
            if not kept:
                if belief.fact.id in out.sound and own == FULL:
                    self._resort(endpoint, belief, member, better)
                else:
                    self.want(endpoint, belief, member, kept, why)
                continue
            until = 0
            if belief.fact.id in out.suspect:
                out.holds.append(floors.suspect(self.service, self.balancer, endpoint, belief, kept))
            elif not (self.carried_on(member) or intended or closed):
                self._keep_last(endpoint, belief, kept, why)
            elif unlisted or (doubt and not intended):
                held.add(floors.Floor.UNLISTED if unlisted else floors.Floor.DOUBT, belief, endpoint)
            elif panic and not closed and not intended:
                held.add(floors.Floor.PANIC, belief, endpoint)
            else:
                spent = spent or floors.spent_until(cuts, self.size, self.now)
                until = 0 if belief.fact.id in lost else spent
                if not until:
                    if belief.fact.id not in lost:
                        lost.add(belief.fact.id)
                        cuts.append(Cut(belief.fact.id, instant(self.now)))
                    self.want(endpoint, belief, member, 0, why)
                    continue
                held.add(floors.Floor.RATE, belief, endpoint, until)
            self.want(endpoint, belief, member, kept, why)
        out.holds.extend(held.holds())
        if cuts:
            out.cuts[self.key] = tuple(sorted(cuts))
