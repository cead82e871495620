"""The outbox: all steps of a decision pass through it on their way to the plan.

`decide` makes it; `disruptions`, `changes` and `dns/publish` fill it.
"""

from dataclasses import replace

from providers.actions import Action, CutSessions, RemoveEndpoint, SetWeight, StartContainer
from reconciler.core.actions import asked, held_action
from reconciler.core.limits import suspensions
from reconciler.core.model.ledger import Grant, Ledger
from reconciler.core.model.reasons import Hold, Wait, Waiting
from reconciler.core.model.step import Step
from reconciler.core.replicas.exclusive_volumes import Starts
from reconciler.core.replicas.snapshot import Snapshot


class Outbox:
    """Collects steps; each passes the two gates of every provider call: busy targets and failed tries."""

    def __init__(self, snap: Snapshot, ledger: Ledger) -> None:
        self.desired, self.ledger, self.now = snap.desired, ledger, snap.now
        self.busy, self.under_way, self.pushes = snap.observed.busy, snap.observed.under_way, snap.observed.pushes
        self.references = snap.observed.references
        self.pools = snap.sight.pools
        self.steps: list[Step] = []
        self.holds: list[Hold] = []
        self.waits: list[Wait] = []
        self.ids: set[str] = set()
        self.starts = Starts(snap, ledger.grants)
        self.grants: dict[str, Grant] | None = None
        """The grants of `ledger`, once one of them has changed."""

    def put(self, step: Step) -> None:
        """Add a step, unless its target is busy or its failed tries hold it."""
        if step.id in self.ids:
            # A replica that moves has the same name on both nodes for a while: one call at a time, so that each has its own outcome.
            self.waits.append(Wait(step.object, Waiting.CALL, f"another call on {step.target} runs first"))
            return
        self.ids.add(step.id)
        if step.target in self.under_way:
            self.waits.append(Wait(step.object, Waiting.CALL, f"a call on {step.target} is still running"))
            return
        if isinstance(step.action, StartContainer):
            held = self.starts.ask(step, step.action)
            if held is not None:
                (self.holds if isinstance(held, Hold) else self.waits).append(held)  # type: ignore[arg-type]
                return
        hold = suspensions.busy(self.busy, step.id, step.target, step.object, self.now)
        failure = self.ledger.step_failures.get(step.id)
        if hold is None and failure is not None and failure.last.wall >= self._changed(step.action):
            digest = asked.digest(step.action, self.desired, self.references)
            hold = suspensions.failed(failure, step.id, step.object, digest, self.now)
        if hold is None:
            self.steps.append(step)
        else:
            self.holds.append(replace(hold, held=held_action.of(step.action)))

    def _changed(self, action: Action) -> int:
        """When the cause of a pool's refusals may have changed last (wall clock, ns)."""
        if not isinstance(action, SetWeight | RemoveEndpoint | CutSessions):
            return 0
        pool = self.pools.get((action.provider, action.pool))
        return 0 if pool is None else pool.changed

    def granted(self, name: str, grant: Grant | None) -> None:
        """Replace a grant; None ends it."""
        if self.ledger.grants.get(name) == grant:
            return
        if self.grants is None:
            self.grants = dict(self.ledger.grants)
            self.ledger = replace(self.ledger, grants=self.grants)
        if grant is None:
            self.grants.pop(name, None)
        else:
            self.grants[name] = grant

    def released(self, name: str) -> None:
        """Forget an adopted container."""
        adopted = {key: row for key, row in self.ledger.adopted.items() if key != name}
        self.ledger = replace(self.ledger, adopted=adopted)
