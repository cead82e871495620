"""The name of the object that an action changes: for messages, for one call at a time per object, and for scripts of faults.

Apart from `actions.py` because only providers and decorators need it; the core names objects by their keys.
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
    # Weights come in thousands: they are tested first, and without a union.
    if isinstance(action, (SetWeight, RemoveEndpoint, CutSessions)):
        address, port = action.endpoint
        return f"{action.pool}/{address}:{port}" if ":" not in address else f"{action.pool}/[{address}]:{port}"
    if isinstance(action, ChangeRecords):
        return action.zone
    return action.name
