"""Reads the zones of one DNS provider so that a zone that cannot be read hides no other one. Called by `facts.py`.

Zones that could be read before are read in one call. When that fails, and for zones that could not be read, each is read alone:
the error then belongs to that zone. The whole has a time limit, because a silent server would cost a time-out for each zone.
"""

from collections.abc import Awaitable, Callable, Collection, Sequence

from manifests.values.desired import SECOND
from providers.errors import ProviderError
from providers.facts import ZoneFact
from reconciler.shell.clock import Clock

ALONE = 10 * SECOND
"""Time (ns) for reading zones one by one; the others follow in the next look, before those."""

Observe = Callable[[Collection[str]], Awaitable[Collection[ZoneFact]]]
"""One call of the provider. Raises `ProviderError`."""


async def read_zones(
    observe: Observe, readable: Sequence[str], doubtful: Sequence[str], clock: Clock
) -> tuple[list[ZoneFact], dict[str, str]]:
    """Read all zones.

    Args:
        observe: reads some zones of the provider.
        readable: zones whose last look succeeded, and new ones.
        doubtful: zones whose last look failed, in the order in which they are read.
        clock: for the time limit.

    Returns:
        The facts, and for each zone that could not be read the reason.
    """
    facts: list[ZoneFact] = []
    reasons: dict[str, str] = {}
    alone = list(doubtful)
    together = readable or (doubtful if len(doubtful) > 1 else ())
    if together:
        try:
            facts += await observe(together)
            alone = [zone for zone in alone if zone not in together]
        except ProviderError as error:
            if len(together) == 1:
                reasons[together[0]] = str(error)
            else:
                alone = [*(zone for zone in together if zone not in alone), *alone]
    end = clock.now().steady + ALONE
    for zone in alone:
        if clock.now().steady >= end:
            first = next(iter(reasons.values()), "its provider answers too slowly")
            reasons[zone] = f"zone {zone} was not read yet: reading other zones of this provider failed: {first}"
            continue
        try:
            facts += await observe([zone])
        except ProviderError as error:
            reasons[zone] = str(error)
    return facts, reasons
