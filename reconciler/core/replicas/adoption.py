"""Adoption: which running foreign containers become replicas of workloads.

Matching is repeated at each look: a container that `spec.adopt` matches is a replica whether it is remembered or not, so a lost
ledger loses no replica. The ledger remembers which replica a container is (so that ordinals do not move) and the template that it
was known to fit. The rules after this one see an adopted container as one of ours: its fact gets the mark that it cannot carry,
and `adopted` where that makes a difference. Called by `foreign`, and through it by `decide` and the probing.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, count

from manifests.values.desired import Desired, Template, Workload
from manifests.values.pod import Live, RuntimeRestart
from providers.facts import ContainerFact, ContainerState, Mark, PortFact
from reconciler.core.model.adopted import Adopted
from reconciler.core.model.reasons import Hold, Rule
from reconciler.core.replicas import ends, template_fit

REPLACED = "adopted"
"""The revision of an adopted container that is to be replaced; no template has it, because revisions are hex digits."""

ONE_OFF = ("com.docker.compose.oneoff", "True")
"""The label of containers of `docker compose run`: they carry the labels of the service and are no replicas of it."""

_DOWN = {ContainerState.CREATED, ContainerState.EXITED}


@dataclass(slots=True)
class Adoption:
    """The answer for all workloads. Filled while this stage runs, read-only after it.

    `facts` are the adopted containers with their mark, by (node, id); `rows` are the new rows of the ledger; `leaving` are the ids of
    adopted containers that their workload does not match any more; `pending` says, by workload key, which matches are not adopted
    and why: while there are any, nothing is created. `released` are containers that run and whose workload is not declared any more.
    """

    facts: dict[tuple[str, str], ContainerFact] = field(default_factory=dict)
    rows: dict[str, Adopted] = field(default_factory=dict)
    leaving: set[str] = field(default_factory=set)
    pending: dict[str, list[str]] = field(default_factory=dict)
    released: list[ContainerFact] = field(default_factory=list)
    holds: list[Hold] = field(default_factory=list)


NOTHING = Adoption()

NOWHERE: Mapping[str, str] = {}
"""No replica has a node yet."""


def matches(workload: Workload, fact: ContainerFact) -> bool:
    """Whether `spec.adopt` of a workload matches this container, by its name or by all of the labels."""
    adopt = workload.adopt
    if adopt is None or fact.mark is not None or fact.foreign_mark or fact.node not in workload.nodes:
        return False
    if fact.name in adopt.names:
        return True
    if not adopt.labels or ONE_OFF in fact.labels:
        return False
    return set(adopt.labels) <= set(fact.labels)


def adopt(
    desired: Desired,
    runtimes: Mapping[str, Sequence[ContainerFact]],
    unreadable: Iterable[str],
    rows: Mapping[str, Adopted],
    placed: Mapping[str, str] = NOWHERE,
) -> Adoption:
    """Match foreign containers with workloads.

    Args:
        desired: the manifests in force.
        runtimes: the containers of all nodes that can be read.
        unreadable: the nodes that cannot be read: their rows stay, and keep their ordinals.
        rows: the rows of the ledger, by container id.
        placed: the node of each replica, as far as the ledger knows it.
    """
    adopting = [workload for workload in desired.workloads if workload.adopt is not None]
    if not adopting and not rows:
        return NOTHING
    out = Adoption()
    nodes = set(unreadable)
    out.rows.update((key, row) for key, row in rows.items() if row.node in nodes)
    by_key = {workload.key: workload for workload in desired.workloads}
    matched: dict[str, list[tuple[ContainerFact, Adopted | None]]] = {}
    named = _Named(adopting)
    for fact in sorted(_unmarked(runtimes), key=lambda unmarked: (unmarked.name, unmarked.node, unmarked.id)):
        workloads = [workload for workload in named.by(fact) if matches(workload, fact)]
        row = rows.get(fact.id)
        owner = by_key.get(row.workload) if row is not None else None
        if owner is not None:
            matched.setdefault(owner.key, []).append((fact, row))
            others = [workload for workload in workloads if workload is not owner]
            if others:
                out.holds.append(_conflict(fact, [owner, *others], f"it stays with {owner.key}"))
        elif len(workloads) > 1:
            out.holds.append(_conflict(fact, workloads, "no workload adopts it"))
            for workload in workloads:
                out.pending.setdefault(workload.key, []).append(f"{fact.name} matches another workload too")
        elif workloads:
            matched.setdefault(workloads[0].key, []).append((fact, None))
        elif row is not None:
            out.rows[fact.id] = row._replace(left=True)
            out.released.append(_with_ports(fact, set(row.ports)))
    unseen: dict[str, set[int]] = {}
    for row in out.rows.values():
        if row.node in nodes:
            unseen.setdefault(row.workload, set()).add(row.ordinal)
    for key, facts in sorted(matched.items()):
        adopter = _Adopter(desired, by_key[key], runtimes, placed, out)
        adopter.taken |= unseen.get(key, set())
        adopter.adopt(facts)
    return out


class _Named:
    """The workloads whose `spec.adopt` may match a container, found by what it names: every node has unmarked containers."""

    def __init__(self, adopting: Sequence[Workload]) -> None:
        self._adopting = adopting
        self._by_name: dict[str, list[int]] = {}
        self._by_label: dict[tuple[str, str], list[int]] = {}
        for place, workload in enumerate(adopting):
            if workload.adopt is None:
                continue
            for name in workload.adopt.names:
                self._by_name.setdefault(name, []).append(place)
            if workload.adopt.labels:  # all of them must match, so one is enough to find it
                self._by_label.setdefault(workload.adopt.labels[0], []).append(place)

    def by(self, fact: ContainerFact) -> list[Workload]:
        """Those that name this container or one of its labels, in the order of the manifests."""
        places = set(self._by_name.get(fact.name, ()))
        for label in fact.labels if self._by_label else ():
            places.update(self._by_label.get(label, ()))
        return [self._adopting[place] for place in sorted(places)]


def _unmarked(runtimes: Mapping[str, Sequence[ContainerFact]]) -> Iterator[ContainerFact]:
    """The containers without any mark."""
    return (fact for facts in runtimes.values() for fact in facts if fact.mark is None and not fact.foreign_mark)


def _conflict(fact: ContainerFact, workloads: Sequence[Workload], therefore: str) -> Hold:
    keys = sorted(workload.key for workload in workloads)
    message = f"{fact.name} on {fact.node} matches spec.adopt of {' and '.join(keys)}; {therefore}"
    next_step = f"narrow spec.adopt so that only one of {', '.join(keys)} matches it"
    return Hold(keys[0], f"adopt {fact.name}", Rule.ADOPT_CONFLICT, message, next_step=next_step)


class _Adopter:
    """Gives the containers of one workload their ordinals."""

    def __init__(
        self,
        desired: Desired,
        workload: Workload,
        runtimes: Mapping[str, Sequence[ContainerFact]],
        placed: Mapping[str, str],
        out: Adoption,
    ) -> None:
        self.workload, self.placed, self.out = workload, placed, out
        self.instance = desired.instance.id
        self.ours = {
            fact.mark.ordinal
            for facts in runtimes.values()
            for fact in facts
            if fact.mark is not None
            and (fact.mark.instance, fact.mark.workload) == (self.instance, workload.name)
            and fact.mark.revision == workload.template.revision
        }
        self.taken = set(self.ours)

    def adopt(self, facts: Sequence[tuple[ContainerFact, Adopted | None]]) -> None:
        """Remembered containers keep their ordinals; the others get the lowest free ones of their node, in the order of names."""
        kept = [(fact, row) for fact, row in facts if row is not None and not self._replaced(fact, row)]
        self.taken |= {row.ordinal for _, row in kept}
        for fact, row in kept:
            self._keep(fact, row)
        ids = {fact.id for fact, _ in kept}
        for fact, _ in facts:
            if fact.id not in ids:
                self._new(fact)

    def _replaced(self, fact: ContainerFact, row: Adopted) -> bool:
        """Whether one of our containers already is the replica that a remembered one would be: then it needs another ordinal."""
        adopt = self.workload.adopt
        stays = adopt is not None and not adopt.replace and row.baseline in ("", self.workload.template.revision)
        return stays and row.ordinal in self.ours and matches(self.workload, fact)

    def _keep(self, fact: ContainerFact, row: Adopted) -> None:
        adopt = self.workload.adopt
        row = row._replace(node=fact.node, name=fact.name, left=False)
        if adopt is None or not matches(self.workload, fact):
            self.out.leaving.add(fact.id)
        self._replica(fact, row)

    def _new(self, fact: ContainerFact) -> None:
        adopt, pending = self.workload.adopt, self.out.pending
        if adopt is None:
            return
        if fact.state in _DOWN:
            cause = f"{fact.name} is {fact.state.value}: start or remove it"
            pending.setdefault(self.workload.key, []).append(cause)
            return
        ordinal = self._free(fact.node, without_end=adopt.replace)
        if ordinal is None:
            cause = f"{fact.name} on {fact.node} exceeds spec.replicas ({self.workload.replicas})"
            pending.setdefault(self.workload.key, []).append(cause)
            next_step = f"raise spec.replicas of {self.workload.key}, narrow its spec.adopt, or remove the container"
            hold = Hold(self.workload.key, f"adopt {fact.name}", Rule.ADOPT_PENDING, cause, next_step=next_step)
            self.out.holds.append(hold)
            return
        self.taken.add(ordinal)
        self._replica(fact, Adopted(self.workload.key, ordinal, fact.node, fact.name))

    def _free(self, node: str, without_end: bool) -> int | None:
        """The lowest free ordinal that belongs to this node or to none yet; None when all are taken.

        Of those that belong to none, the first are those that would come to this node if replicas were created in turn.

        Args:
            without_end: the container is replaced anyway, so its ordinal may be above `spec.replicas`.
        """
        nodes, replicas = self.workload.nodes, self.workload.replicas
        in_turn = range(nodes.index(node), replicas, len(nodes))
        for ordinal in chain(in_turn, range(replicas)):
            place = self.placed.get(f"{self.workload.key}/{ordinal}", node)
            if ordinal not in self.taken and place == node:
                return ordinal
        if not without_end:
            return None
        beyond: int = next(ordinal for ordinal in count(replicas) if ordinal not in self.taken)
        return beyond

    def _replica(self, fact: ContainerFact, row: Adopted) -> None:
        """Give the container its mark and its row."""
        template, adopt = self.workload.template, self.workload.adopt
        fact = _reachable(fact, template)
        revision = template.revision
        if fact.id not in self.out.leaving and adopt is not None:
            differences = template_fit.differing(template, fact)
            if adopt.replace:
                revision = REPLACED
            elif row.baseline:
                revision = row.baseline
            elif differences:
                self.out.holds.append(self._differs(fact, row, differences))
            else:
                row = row._replace(baseline=revision)
            if policy := template_fit.policy_kept(template, fact):
                self.out.holds.append(self._keeps_policy(fact, *policy))
        ports = tuple(sorted({port.number for port in fact.ports})) or row.ports
        self.out.rows[fact.id] = row._replace(ports=ports, reach=ends.reach_of(fact))
        mark = Mark(self.instance, self.workload.name, row.ordinal, revision)
        self.out.facts[fact.node, fact.id] = replace(fact, mark=mark, adopted=True)

    def _differs(self, fact: ContainerFact, row: Adopted, differences: Sequence[str]) -> Hold:
        obj = f"{self.workload.key}/{row.ordinal}"
        message = f"adopted container {fact.name} differs from the template: {'; '.join(differences)}"
        next_step = (
            "change the template to match the container, or set spec.adopt.replace to true to replace the container"
        )
        return Hold(obj, f"replace {fact.name}", Rule.TEMPLATE_DIFFERS, message, next_step=next_step)

    def _keeps_policy(self, fact: ContainerFact, policy: str, wanted: str) -> Hold:
        # On the workload: it does not hold the replica, and a new one would have the template's policy.
        message = f"{fact.name} keeps its restart policy {policy}, because it is adopted; the template has {wanted}"
        next_step = f"set runtimeRestart in {self.workload.key}, or run: docker update --restart={wanted} {fact.name}"
        action = f"change the restart policy of {fact.name}"
        return Hold(self.workload.key, action, Rule.POLICY_KEPT, message, next_step=next_step)


def _reachable(fact: ContainerFact, template: Template) -> ContainerFact:
    """An adopted container with the address that a replica would have, and with the ports of the template.

    An image need not declare the ports on which it listens; on the container's own address a port is reached by its number.
    """
    address = fact.address
    if template.networks and address:
        address = dict(fact.addresses).get(template.networks[0], address)
    if not address:
        return fact
    numbers = {port.number for port in template.container.ports if port.protocol == "TCP"}
    return _with_ports(replace(fact, address=address), numbers)


def _with_ports(fact: ContainerFact, numbers: set[int]) -> ContainerFact:
    """The container with these ports added, on its own address."""
    if not fact.address:
        return fact
    numbers = numbers | {port.number for port in fact.ports}
    return replace(fact, ports=tuple(PortFact(number, fact.address, number) for number in sorted(numbers)))


def wanted_live(workload: Workload, fact: ContainerFact) -> tuple[Live, ...]:
    """The live settings that a container should have: the template's; its own where it was adopted.

    A container of another revision changes only in those of its containers that the declared revision has too.

    Of an adopted container only the restart policy `always` is changed: with it the runtime starts again every container that was
    stopped, also by us.
    """
    if not fact.adopted:
        live = workload.template.live
        if fact.live == live or not fact.live:
            return live
        by_container = {settings.container: settings for settings in live}
        return tuple(by_container.get(settings.container, settings) for settings in fact.live)
    if workload.restart_only:
        return fact.live
    declared = (settings.restart for settings in workload.template.live if not settings.container)
    wanted = next((restart for restart in declared if restart), RuntimeRestart.UNLESS_STOPPED.value)
    return tuple(
        settings._replace(restart=wanted) if settings.restart == "always" else settings for settings in fact.live
    )
