"""Identity: which containers are this instance's, whatever their names are.

A mark is valid on the container that it names. An operator may rename a container: its id and its labels stay, so a mark is valid on
a container whose id the ledger knows, too. Another container with a mark of this instance is either a copy (the replica of that mark
exists beside it) or may be a replica that was renamed and that the ledger has lost: as long as it runs, nothing is created in its
place. `foreign` calls `identify` and `shell/looks` calls `recognise`, for decisions and probes; `memory` calls `learn`.
"""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace

from manifests.values.desired import Desired
from providers.facts import LABEL_INSTANCE, ContainerFact, ContainerState, Mark, container_name
from reconciler.core.model.ledger import Ledger
from reconciler.core.model.owned import Owned
from reconciler.core.model.reasons import Hold, Rule
from reconciler.core.replicas import ends

Facts = tuple[ContainerFact, ...]

_DOWN = {ContainerState.CREATED, ContainerState.EXITED}


@dataclass(frozen=True, slots=True)
class Identity:
    """Every container with the mark that is valid on it.

    `claimed` are the replicas in whose place nothing is created, each with the name of the container that may be it. `copies` are
    containers with the mark of another one that exists.
    """

    runtimes: Mapping[str, Facts]
    claimed: Mapping[str, str] = field(default_factory=dict)
    copies: tuple[ContainerFact, ...] = ()
    holds: tuple[Hold, ...] = ()


def recognise(facts: Facts, instance: str, owned: Container[str]) -> Facts:
    """The containers of one node, with the mark of each renamed one whose id is known. The same tuple if there is none."""
    if not any(_is_renamed(fact, instance, owned) for fact in facts):
        return facts
    return tuple(
        replace(fact, mark=fact.claim, foreign_mark=False) if _is_renamed(fact, instance, owned) else fact
        for fact in facts
    )


def _is_renamed(fact: ContainerFact, instance: str, owned: Container[str]) -> bool:
    claim = fact.claim
    return claim is not None and fact.mark is None and claim.instance == instance and fact.id in owned


def identify(desired: Desired, runtimes: Mapping[str, Facts], ledger: Ledger) -> Identity:
    """The identity of every container that is observed."""
    instance = desired.instance.id
    known = {node: recognise(facts, instance, ledger.owned) for node, facts in runtimes.items()}
    claims = [fact for facts in known.values() for fact in facts if _claims(fact, instance)]
    copies = tuple(fact for facts in known.values() for fact in facts if _copied(fact, instance))
    if not claims:
        same = all(facts is runtimes[node] for node, facts in known.items())
        return Identity(runtimes if same else known, copies=_sorted(copies))
    held = {(node, fact.mark) for node, facts in known.items() for fact in facts if fact.mark is not None}
    claimed: dict[str, str] = {}
    holds: list[Hold] = []
    for fact in _sorted(claims):
        assert fact.claim is not None  # noqa: S101  (`_claims`; for the type checker)
        if (fact.node, fact.claim) in held:
            copies = (*copies, fact)
        elif fact.state not in _DOWN:
            claimed.setdefault(_replica(fact.claim), fact.name)
            holds.append(_pending(fact, fact.claim))
    return Identity(known, claimed, _sorted(copies), tuple(holds))


def _claims(fact: ContainerFact, instance: str) -> bool:
    """Whether a container may be one of this instance under another name, as far as its labels say."""
    return fact.mark is None and fact.claim is not None and fact.claim.instance == instance


def _copied(fact: ContainerFact, instance: str) -> bool:
    """Whether a container has the labels of one of this instance, and cannot be it."""
    if fact.mark is not None or not fact.foreign_mark or _claims(fact, instance):
        return False
    return fact.claim is None and dict(fact.labels).get(LABEL_INSTANCE) == instance


def _sorted(facts: Iterable[ContainerFact]) -> Facts:
    return tuple(sorted(facts, key=lambda fact: (fact.name, fact.node)))


def _replica(mark: Mark) -> str:
    return f"workload/{mark.workload}/{mark.ordinal}"


def _pending(fact: ContainerFact, claim: Mark) -> Hold:
    name = container_name(claim)
    message = (
        f"{fact.name} on {fact.node} runs with the labels of {name}, and the ledger does not know it; no container is created "
        "in its place"
    )
    next_step = f"if it is that replica, run: docker rename {fact.name} {name}; else stop it or recreate it without these labels"
    return Hold(_replica(claim), f"adopt {fact.name}", Rule.ADOPT_PENDING, message, next_step=next_step)


def learn(
    instance: str,
    runtimes: Mapping[str, Facts],
    known: Mapping[str, Owned],
    volumes: Mapping[str, tuple[str, tuple[str, ...]]],
) -> Mapping[str, Owned]:
    """The containers of this instance by id, as `identify` has found them: what each is, and its last end.

    Args:
        volumes: the declared revision and the exclusive volumes of workloads that have some, by the workload's name.
    """
    return {
        fact.id: _with_volumes(fact.mark, ends.seen(fact, known.get(fact.id)), volumes)
        for facts in runtimes.values()
        for fact in facts
        if fact.mark is not None and fact.mark.instance == instance and not fact.adopted
    }


def _with_volumes(mark: Mark, row: Owned, volumes: Mapping[str, tuple[str, tuple[str, ...]]]) -> Owned:
    """The row with the container's exclusive volumes. One of another revision keeps the volumes it had."""
    now = row.volumes
    if volumes and mark.workload in volumes and volumes[mark.workload][0] == mark.revision:
        now = volumes[mark.workload][1]
    return row if row.volumes == now else row._replace(volumes=now)
