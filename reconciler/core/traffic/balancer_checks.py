"""A balancer's own checks of our members: a second opinion, which keeps members in service and never removes one.

Called by `in_rotation`, `drains`, `rollouts/read_back` and `status/endpoints`.
"""

from collections.abc import Collection, Iterable

from providers.facts import Endpoint, MemberFact

UNRELIABLE = frozenset({"down", "checking"})
"""Operational states in which a balancer may give a member no traffic, so that no other member may be removed for it."""


def failing(members: Iterable[MemberFact], mine: Collection[Endpoint]) -> bool:
    """Whether a balancer's own checks keep traffic from one of these endpoints, or may do so soon, while it has other members.

    A balancer that saw a replica down needs several checks to see that it is back; until then weight alone brings no traffic.
    A member that no check has confirmed goes down with the first failed check. Where every member is down, the checks themselves
    are wrong, and waiting for them does not help.
    """
    down = others = False
    for member in members:
        if member.endpoint in mine:
            down = down or member.operational in UNRELIABLE
        else:
            others = others or serves(member)
    return down and others


def serves(member: MemberFact) -> bool:
    """Whether the member is ours and gets requests now, according to its balancer."""
    return member.ours and carries(member)


def carries(member: MemberFact) -> bool:
    """Whether the member, of any owner, gets requests now, according to its balancer."""
    return bool(member.weight) and member.operational != "down"
