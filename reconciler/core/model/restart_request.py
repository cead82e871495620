"""Restart requests: what an operator or CI asked for, and the fate of each member.

Values of the ledger: `healing/restart_requests` has the rules, `reconcile get requests` shows them.
"""

from enum import StrEnum
from typing import Any, NamedTuple

from manifests.values.desired import SECOND
from providers.facts import Generation
from reconciler.core.model.instant import Instant

DEADLINE = 600 * SECOND
"""The deadline of a request that names none (ns), until its replicas are known; then their manifest may make it longer."""


class Fate(StrEnum):
    """The state of one member. Every member reaches a final one."""

    WAITING = "waiting"
    RESTARTING = "restarting"
    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"
    EXPIRED = "expired"


FINAL = frozenset({Fate.DONE, Fate.FAILED, Fate.SKIPPED, Fate.EXPIRED})
"""Fates that do not change any more."""


class FailurePolicy(StrEnum):
    """The effect of a failed member on members that were not restarted yet."""

    FAIL = "fail"
    IGNORE = "ignore"


class Member(NamedTuple):
    """One replica of a request. `generation` is the one that the restart ends: a later one counts as restarted.

    `container` is the container's name in the runtime. `only` names one container of the replica, as in `StopContainer`; empty =
    all of them. The generation is then that container's; else the main one's, which all others follow.
    """

    object: str
    container: str
    generation: Generation
    fate: Fate = Fate.WAITING
    message: str = ""
    only: str = ""


class Request(NamedTuple):
    """One request: restart `object` (a workload or a replica), a level: "started after `at`".

    `only` names one container of each replica by its manifest name; empty = all of them. `min_started` is how long a new
    generation must have run before it counts (ns). `grace` and `drain` (ns) are None where the manifest's count. `deadline` (ns)
    counts from `at`; None = the request named none, and its replicas are not known yet. `members` is None until the replicas are observed. `finished` is when the last member was decided; `message`
    says why there were none.
    """

    object: str
    at: Instant
    who: str = ""
    reason: str = ""
    ordered: bool = False
    failure_policy: FailurePolicy = FailurePolicy.FAIL
    min_started: int = 0
    grace: int | None = None
    drain: int | None = None
    deadline: int | None = None
    members: tuple[Member, ...] | None = None
    finished: Instant | None = None
    message: str = ""
    only: str = ""

    @property
    def limit(self) -> int:
        """How long after `at` it ends at the latest (ns), as far as is known now."""
        return DEADLINE if self.deadline is None else self.deadline

    @property
    def succeeded(self) -> bool:
        """Whether it is finished and every member was restarted or skipped."""
        good = {Fate.DONE, Fate.SKIPPED}
        return (
            self.finished is not None
            and bool(self.members)
            and all(member.fate in good for member in self.members or ())
        )


def read_request(raw: list[Any]) -> Request:
    """A request from its row. Raises ValueError, TypeError."""
    request = Request(*raw)
    members = None
    if request.members is not None:
        members = tuple(
            Member(obj, container, Generation(*generation), Fate(fate), *rest)  # older rows are shorter
            for obj, container, generation, fate, *rest in request.members
        )
    return request._replace(
        at=Instant(*request.at),
        failure_policy=FailurePolicy(request.failure_policy),
        members=members,
        finished=None if request.finished is None else Instant(*request.finished),
    )
