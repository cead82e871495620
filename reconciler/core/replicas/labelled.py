"""Enhanced liveness: foreign containers with a label by which their owner asks for a restart when they fail.

They are restarted and nothing else: never created, removed, changed, weighed or published. The labelled containers of one compose
service on one node form a group as if a manifest declared it, so that budgets, limits and suspensions count them like all others; a
container without a compose service is a group of its own. Works only where the Instance has `enhancedLiveness: true`. Called by
`foreign`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from manifests.values.desired import Container, Desired, Probe, Template, Workload
from providers.facts import LABEL_LIVENESS, ContainerFact, ContainerState, Mark, wants_liveness
from reconciler.core.model.probe_context import Context
from reconciler.core.model.reasons import Hold, Rule

LABEL_CONTEXT = "reconciler.container-probe-context"
"""JSON: a list of {name, livenessProbe}, the latter with Kubernetes' fields."""

COMPOSE_PROJECT, COMPOSE_SERVICE = "com.docker.compose.project", "com.docker.compose.service"
COMPOSE_NUMBER = "com.docker.compose.container-number"

_ENDED = {ContainerState.CREATED, ContainerState.EXITED}


@dataclass(slots=True)
class Marked:
    """The groups of labelled containers. Filled while this stage runs, read-only after it.

    `facts` are the containers with their mark, by (node, id); `containers` are their probes, by id.
    """

    workloads: list[Workload] = field(default_factory=list)
    facts: dict[tuple[str, str], ContainerFact] = field(default_factory=dict)
    containers: dict[str, Container] = field(default_factory=dict)
    holds: list[Hold] = field(default_factory=list)


def labelled(fact: ContainerFact) -> str:
    """The text of a container's probe context, empty when it has none. The shell parses it."""
    return dict(fact.labels).get(LABEL_CONTEXT, "") if wants_liveness(fact) else ""


def group_key(fact: ContainerFact) -> str:
    """`container/NODE/PROJECT-SERVICE` of compose's containers, `container/NODE/NAME` of others."""
    labels = dict(fact.labels)
    project, service = labels.get(COMPOSE_PROJECT), labels.get(COMPOSE_SERVICE)
    return f"container/{fact.node}/{f'{project}-{service}' if project and service else fact.name}"


def groups(
    desired: Desired,
    runtimes: Mapping[str, Sequence[ContainerFact]],
    contexts: Mapping[str, Context],
    adopted: Mapping[tuple[str, str], object],
    restarting: Iterable[str],
) -> Marked:
    """All groups of labelled containers.

    Args:
        runtimes: the containers of all nodes that can be read.
        contexts: the contexts that the shell has parsed, by the label's text.
        adopted: the (node, id) of containers that a workload has adopted: its probes count, not the label.
        restarting: ids of containers that are being restarted. Others that have ended are ignored.
    """
    out = Marked()
    if not desired.instance.enhanced_liveness or desired.destroy:
        return out
    in_restart = set(restarting)
    members: dict[str, list[ContainerFact]] = {}
    for facts in runtimes.values():
        for fact in facts:
            if (fact.node, fact.id) in adopted or not wants_liveness(fact):
                continue
            if fact.state not in _ENDED or fact.id in in_restart:
                members.setdefault(group_key(fact), []).append(fact)
    for key, group in sorted(members.items()):
        _group(desired, key, group, contexts, out)
    return out


def _group(
    desired: Desired, key: str, facts: Sequence[ContainerFact], contexts: Mapping[str, Context], out: Marked
) -> None:
    numbers: set[int] = set()
    probed: list[Container] = []
    for fact in sorted(facts, key=lambda unsorted: (_number(unsorted), unsorted.name, unsorted.id)):
        number = _number(fact)
        while number in numbers:  # compose uses a number twice while it replaces a container
            number += 1
        numbers.add(number)
        probe = _probe(fact, key, number, contexts, out)
        container = Container(fact.name, (), liveness=probe)
        if probe is not None:
            probed.append(container)
        out.containers[fact.id] = container
        mark = Mark(desired.instance.id, key, number, "")
        out.facts[fact.node, fact.id] = replace(fact, mark=mark, adopted=True)
    first = probed[0] if probed else Container(facts[0].name, ())
    workload = Workload(key, key, (facts[0].node,), len(facts), Template((), first), restart_only=True)
    out.workloads.append(workload)


def _number(fact: ContainerFact) -> int:
    """Compose's number of a container, 0 without one."""
    text = dict(fact.labels).get(COMPOSE_NUMBER, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 0


def _probe(fact: ContainerFact, key: str, number: int, contexts: Mapping[str, Context], out: Marked) -> Probe | None:
    """The liveness probe of one container; None, with a hold, where its context is wrong: nothing is restarted for that."""
    labels = dict(fact.labels)
    text = labels.get(LABEL_CONTEXT, "")
    names = [name for name in (fact.name, labels.get(COMPOSE_SERVICE, "")) if name]
    if not text.strip():
        problem = f"it has the label {LABEL_LIVENESS} but no label {LABEL_CONTEXT}"
    elif text not in contexts:
        return None
    else:
        context = contexts[text]
        liveness = next((probe for name, probe in context.probes if name in names), None)
        if liveness is not None:
            return liveness
        known = ", ".join(sorted(name for name, _ in context.probes))
        entry = " or ".join(names)
        problem = context.problem or f"{LABEL_CONTEXT} has no entry named {entry}; its entries are: {known or 'none'}"
    message = f"{fact.name} on {fact.node} is not probed: {problem}"
    next_step = f"correct the label {LABEL_CONTEXT} of the container and recreate the container"
    out.holds.append(Hold(f"{key}/{number}", f"probe {fact.name}", Rule.PROBE_CONTEXT, message, next_step=next_step))
    return None
