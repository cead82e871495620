"""Containers whose secrets cannot be used: none is created, and none is removed to be created again. Called by `gates` and `differences`.

A secret may be missing, ciphertext or unreadable. What runs has its own copy and goes on: it is probed, weighed, started and restarted. So a
missing secret never costs a container that serves, and the workload goes on by itself once the secret is there.
"""

from collections.abc import Mapping

from manifests.values.desired import Desired, Workload
from manifests.values.secret_sources import SecretSource
from reconciler.core.model.instant import Now
from reconciler.core.model.reasons import Hold, Rule
from reconciler.core.model.secret_problem import SecretProblem
from reconciler.core.model.want import Kind, Want

_CREATES = frozenset({Kind.CREATE, Kind.RECREATE})

_RETRIED = "it is looked at again automatically"


def problems_of(workload: Workload, secrets: Mapping[SecretSource, SecretProblem]) -> list[SecretProblem]:
    """What is wrong with the secrets of a workload's containers, in the order of the template."""
    if not secrets:
        return []
    template = workload.template
    sources = (source for main in (template.container, *template.sidecars) for _, source in main.engine.secret_env)
    return [secrets[source] for source in dict.fromkeys(sources) if source in secrets]


def blocked(desired: Desired, secrets: Mapping[SecretSource, SecretProblem]) -> frozenset[str]:
    """The keys of the workloads of which no container can be created."""
    if not secrets:
        return frozenset()
    return frozenset(workload.key for workload in desired.workloads if problems_of(workload, secrets))


def hold(want: Want, secrets: Mapping[SecretSource, SecretProblem], now: Now) -> Hold | None:
    """The hold of a candidate that would create a container; a recreation is held before its old container stops."""
    if want.workload is None or want.kind not in _CREATES:
        return None
    problems = problems_of(want.workload, secrets)
    if not problems:
        return None
    # What only the operator can mend comes first.
    worst = next((problem for problem in problems if problem.until is None), problems[0])
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    message = f"{worst.cause}{more}; running containers are kept, and none is created"
    next_step = f"{worst.next_step}; {_RETRIED}" if worst.next_step else _RETRIED
    rule = Rule.SECRET_UNUSABLE if worst.until is None else Rule.SECRET_UNKNOWN
    # Without an answer when one was due, the look at it hangs, and no instant of its end is known.
    until = worst.until if worst.until is not None and worst.until > now.steady else None
    return Hold(want.object, want.id, rule, message, until=until, next_step=next_step, held=want.held)
