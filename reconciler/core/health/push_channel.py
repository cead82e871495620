"""The push channel: whether silence of senders says something about them, or about the way that their pushes take.

Called by `replicas/roster` where containers push.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from manifests.values.desired import SECOND, Push
from providers.facts import ContainerFact, ContainerState, Generation
from reconciler.core.model.instant import FOREVER
from reconciler.core.model.push_fact import PushFact

SUSPECT_LIMIT = 600 * SECOND
"""How long the channel is suspect at most; then silence counts again, and the probes decide."""


class Channel(NamedTuple):
    """Whether the channel is suspect: then silence decides nothing. `silent` of `total` senders fell silent together.

    `until` is the steady instant at which the answer changes if no push arrives.
    """

    suspect: bool
    silent: int
    total: int
    until: int


NO_CHANNEL = Channel(False, 0, 0, FOREVER)
"""The channel where no container pushes: never suspect."""


def judge(senders: Iterable[tuple[Push, PushFact]], now: int) -> Channel:
    """Whether more than half of all senders that repeat their state fell silent together.

    A sender is silent when it was heard and then not for `fresh`; together means within one such window. One sender alone proves
    nothing about the channel, so at least two are needed. The same rule as Eureka's self-preservation mode, with the share of
    senders in place of the rate of renewals (https://github.com/Netflix/eureka/wiki/Understanding-Eureka-Peer-to-Peer-Communication).

    Args:
        senders: settings and latest push of every running generation that was ever heard.
        now: steady instant.
    """
    lapses = sorted((fact.at + rules.fresh, rules.fresh) for rules, fact in senders if rules.heartbeats)
    lapsed = [(at, window) for at, window in lapses if at <= now]
    soonest = min((at for at, _ in lapses if at > now), default=FOREVER)
    best, last, low = 0, 0, 0
    for high, (at, window) in enumerate(lapsed):
        while at - lapsed[low][0] > window:
            low += 1
        if high - low + 1 >= best:
            best, last = high - low + 1, at
    total = len(lapses)
    if best < 2 or 2 * best <= total:
        return Channel(False, best, total, soonest)
    if now >= last + SUSPECT_LIMIT:
        return Channel(False, best, total, soonest)
    return Channel(True, best, total, min(soonest, last + SUSPECT_LIMIT))


def of_containers(
    containers: Iterable[tuple[Push, ContainerFact]],
    pushes: Mapping[Generation, PushFact],
    steady: int,
    unseen: Iterable[tuple[Push, PushFact]] = (),
) -> Channel:
    """The channel, from all containers that may push.

    Args:
        containers: those that are observed.
        pushes: the latest push of every generation.
        steady: the steady instant.
        unseen: senders on nodes that cannot be read. They show the way of their pushes as all others do.
    """
    observed = [
        (rules, pushes[fact.generation])
        for rules, fact in containers
        if fact.state is ContainerState.RUNNING and fact.generation in pushes
    ]
    return judge((*observed, *unseen), steady)
