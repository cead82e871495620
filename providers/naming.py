"""Which object an action is about, in one word: for messages, for one call in flight per object, and for scripts of faults.

Kept apart from `actions.py` because only the decorators and test providers need it; the core names objects by their keys.
"""

from providers.actions import Action, ChangeRecords, CutSessions, RemoveEndpoint, SetWeight
from providers.facts import Endpoint


def endpoint_text(endpoint: Endpoint) -> str:
    """`address:port`, with brackets around an IPv6 address."""
    if ":" in endpoint.address:
        return f"[{endpoint.address}]:{endpoint.port}"
    return f"{endpoint.address}:{endpoint.port}"


def object_of(action: Action) -> str:
    """The object an action changes: a container's name, `<pool>/<address>:<port>`, or a zone."""
    # Weights first, and no union: they come in thousands.
    if isinstance(action, (SetWeight, RemoveEndpoint, CutSessions)):
        address, port = action.endpoint
        return f"{action.pool}/{address}:{port}" if ":" not in address else f"{action.pool}/[{address}]:{port}"
    if isinstance(action, ChangeRecords):
        return action.zone
    return action.name
