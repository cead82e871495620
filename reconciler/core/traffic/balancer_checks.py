"""What a balancer's own checks say of members of ours: a second opinion, which protects and never takes away."""

from collections.abc import Collection, Iterable

from providers.facts import Endpoint, MemberFact

UNRELIABLE = frozenset({"down", "checking"})
"""Words of a balancer on a member that nothing may be taken away for."""


def failing(members: Iterable[MemberFact], mine: Collection[Endpoint]) -> bool:
    """Whether a balancer's own checks keep traffic from one of these endpoints, or may do so any moment, while it has others.

    A balancer that saw a replica down needs a few checks of its own to see that it is back; until then weight alone brings it
    nothing. One that no check has confirmed goes down with the first that fails. Where everything is called down, the checks are
    what is wrong, and to wait for them would help nobody.
    """
    down = others = False
    for member in members:
        if member.endpoint in mine:
            down = down or member.operational in UNRELIABLE
        else:
            others = others or serves(member)
    return down and others


def serves(member: MemberFact) -> bool:
    """Whether it gets requests now, as far as its balancer says."""
    return member.ours and bool(member.weight) and member.operational != "down"
