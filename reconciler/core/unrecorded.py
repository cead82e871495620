"""What goes on while the ledger cannot be written: weights that follow health and facts, and nothing else.

Every other step must be remembered, or it would be repeated or forgotten after a restart of the program. Weights are read back and
repeated without harm, and a replica that fails must not keep its requests because a disk is full. Called by `decide`.
"""

from collections.abc import Iterable
from dataclasses import replace

from providers.actions import SetWeight
from reconciler.core.actions import held_action
from reconciler.core.model.ledger import Ledger
from reconciler.core.model.observed import Observed
from reconciler.core.model.reasons import Hold, Reason, Rule
from reconciler.core.model.step import Step
from reconciler.core.model.want import Want

_PLANNED = frozenset({Reason.DRAINING, Reason.RESTARTING, Reason.INACTIVE, Reason.CANARY, Reason.PRUNED})
"""Causes of weights that follow a plan, which the ledger remembers, and not health or facts."""


def fault_of(observed: Observed) -> Hold | None:
    """Why the ledger cannot be written now; None when it can."""
    return next((fault for fault in observed.faults if fault.rule is Rule.LEDGER_UNWRITABLE), None)


def undisturbed(ledger: Ledger) -> Ledger:
    """The ledger for weights: disruptions that have not taken the weight yet wait, so they do not count."""
    grants = {name: grant for name, grant in ledger.grants.items() if grant.weight_out is not None}
    return ledger if len(grants) == len(ledger.grants) else replace(ledger, grants=grants)


def hold_wants(fault: Hold, wants: Iterable[Want]) -> list[Hold]:
    """The holds of all candidates: no disruption begins, and nothing is created or started."""
    return [replace(fault, object=want.object, action=want.id, held=want.held) for want in wants]


def hold_steps(fault: Hold, steps: list[Step]) -> tuple[list[Step], list[Hold]]:
    """The steps that may be done although they cannot be remembered, and the holds of the others."""
    kept: list[Step] = []
    holds: list[Hold] = []
    for step in steps:
        if isinstance(step.action, SetWeight) and step.cause not in _PLANNED:
            kept.append(step)
        else:
            holds.append(replace(fault, object=step.object, action=step.id, held=held_action.of(step.action)))
    return kept, holds
