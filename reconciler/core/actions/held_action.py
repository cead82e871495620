"""What a provider call is about, as a hold names it. `outbox` puts it on the holds of busy targets and of failed tries."""

from providers.actions import (
    Action,
    ChangeRecords,
    CreateContainer,
    CutSessions,
    RemoveContainer,
    RemoveEndpoint,
    SetWeight,
    StartContainer,
    StopContainer,
)
from reconciler.core.model.reasons import Act, HeldAction


def of(action: Action) -> HeldAction:
    """An action as what a hold holds."""
    match action:
        case SetWeight() | RemoveEndpoint() | CutSessions():
            return HeldAction(Act.WEIGHT, (), f"{action.provider}/{action.pool}", (action.endpoint,))
        case ChangeRecords():
            addresses = {
                value
                for change in action.changes
                for record in (change.before, change.after)
                if record is not None
                for value in record.values
            }
            hosts = {change.key.name for change in action.changes}
            host = hosts.pop() if len(hosts) == 1 else ""
            return HeldAction(Act.RECORDS, host=host, addresses=tuple(sorted(addresses)))
        case CreateContainer():
            return HeldAction(Act.CREATE)
        case StartContainer():
            return HeldAction(Act.START, (action.expect.container_id,))
        case StopContainer():
            return HeldAction(Act.STOP, (action.expect.container_id,))
        case RemoveContainer():
            return HeldAction(Act.REMOVE, (action.expect.container_id,))
        case _:
            return HeldAction(Act.UPDATE, (action.expect.container_id,))
