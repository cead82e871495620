"""`perform` for endpoint providers whose other side takes one action at a time."""

from collections.abc import Callable, Sequence

from manifests.values.desired import SECOND
from providers.actions import EndpointAction
from providers.errors import ProviderError, Unreachable
from providers.lib.clock import boottime
from providers.naming import object_of
from providers.spi import Performed

PATIENCE = 20 * SECOND
"""After this time (ns) no further action is begun: less than the deadline that `limited` puts on the whole call."""


def one_by_one(
    actions: Sequence[EndpointAction],
    act: Callable[[EndpointAction], None],
    patience: int = PATIENCE,
    steady: Callable[[], int] = boottime,
) -> Performed:
    """Call `act` for each action, in order. It returns when the action is done and raises a `ProviderError` when it is not.

    Args:
        actions: of one call of `perform`.
        act: does one of them.
        patience: ns after which the rest is answered with `Unreachable`: the next decision does it.
        steady: steady clock in ns.
    """
    end = steady() + patience
    errors: list[ProviderError | None] = []
    for action in actions:
        if steady() > end:
            cause = f"not begun: the actions before it took {patience / SECOND:g} s; nothing was changed"
            errors.append(Unreachable(object_of(action), cause))
            continue
        try:
            act(action)
        except ProviderError as error:
            errors.append(error)
        else:
            errors.append(None)
    return Performed(tuple(errors))
