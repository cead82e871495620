"""Specs: a container is judged and reached as its own revision says, whatever a newer manifest declares.

Containers of a superseded revision keep the probes, the grace, the networks and the service ports that were declared with them until
they are gone. Where these are lost, such a container is unknown: it keeps its weight, its name and its life until its successor
serves. A change without a new revision takes effect in two ways: times and thresholds at once; a probe that asks something else, or
another port of a service, only after it has passed once on that container. Until then the trial runs beside what was declared
before, which decides.

`decide` calls `follow` before it sorts the containers; `roster` and `shell/probing` ask `Specs` about each container.
`replicas/trials` reports the trials.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from manifests.values.desired import AddressFrom, Container, Desired, Probe, Service, Template, Workload
from providers.facts import ContainerFact, ContainerState, Endpoint, ProbeValue
from reconciler.core.model import value_json
from reconciler.core.model.ledger import Ledger
from reconciler.core.model.ledger_fold import accepts
from reconciler.core.model.observed import Observed
from reconciler.core.model.revision import Rollout, Standing, revision_key
from reconciler.core.model.spec import Answer, ServicePort, Spec, Trial
from reconciler.core.replicas.foreign import ForeignContainers

PROBES = ("startup", "liveness", "readiness")
SERVICE = "service "
"""Trials are named by their probe, or by this and the key of the service."""

AGAIN = "again "
"""Extra answers of probes that decide are named by this and the probe: they are asked once more before traffic moves."""

_TIMES = ("initial_delay", "period", "timeout", "success_threshold", "failure_threshold", "grace")
"""Fields of a probe that say when and how often it asks, not what."""

_PASS, _FAIL = ProbeValue.PASS, ProbeValue.FAIL
_NO_ANSWERS: Mapping[str, Answer] = {}

Selected = tuple[tuple[str, int], ...]
"""(service key, container port) of each service that selects a workload, as in `Desired.services_of`."""


def declared(template: Template, selected: Selected, services: Mapping[str, Service]) -> Spec:
    """The spec of a revision as the manifests declare it."""
    main = template.container
    ports = tuple((key, _port(services[key], number)) for key, number in selected)
    return Spec(main.startup, main.liveness, main.readiness, template.grace, template.networks, ports)


def _port(service: Service, number: int) -> ServicePort:
    return ServicePort(number, service.address_from, service.network)


def _is_declared(spec: Spec, template: Template, selected: Selected, services: Mapping[str, Service]) -> bool:
    """Whether a spec is what the manifests declare, by identity: what has not changed since it was stored are the same objects."""
    main = template.container
    if not (
        spec.startup is main.startup
        and spec.liveness is main.liveness
        and spec.readiness is main.readiness
        and spec.grace == template.grace
        and spec.networks == template.networks
        and len(spec.services) == len(selected)
    ):
        return False
    for (known, port), (key, number) in zip(spec.services, selected, strict=True):
        service = services[key]
        if known != key or port != (number, service.address_from, service.network):
            return False
    return True


# --- what changes at once, and what is tried -------------------------------------------------------------------------------


def asks_the_same(probe: Probe | None, other: Probe | None) -> bool:
    """Whether two probes send the same request, whatever their times and thresholds."""
    if probe is None or other is None:
        return probe is other
    return probe is other or probe == replace(other, **{name: getattr(probe, name) for name in _TIMES})


def _tuned(spec: Spec, want: Spec) -> Spec:
    """A spec with everything of `want` that takes effect at once: times and thresholds, removed probes, services that are new."""
    probes: dict[str, Probe | None] = {}
    for name in PROBES:
        before, after = getattr(spec, name), getattr(want, name)
        if before is None or after is None:
            probes[name] = None
        elif asks_the_same(before, after):
            probes[name] = after
        else:
            probes[name] = replace(before, **{field: getattr(after, field) for field in _TIMES})
    services = tuple((key, spec.port_of(key) or port) for key, port in want.services)
    return Spec(**probes, grace=want.grace, networks=want.networks, services=services)


def trials_between(spec: Spec, want: Spec) -> list[tuple[str, Trial]]:
    """What must pass once on a container before the declared spec counts for it, by name."""
    trials: list[tuple[str, Trial]] = []
    for name in PROBES:
        after: Probe | None = getattr(want, name)
        if after is not None and not asks_the_same(getattr(spec, name), after):
            trials.append((name, after))
    trials += [(f"{SERVICE}{key}", port) for key, port in want.services if spec.port_of(key) != port]
    return trials


def _with_trial(spec: Spec, name: str, trial: Trial) -> Spec:
    """The spec after a trial has passed."""
    if isinstance(trial, Probe):
        probes: dict[str, Any] = {name: trial}
        return spec._replace(**probes)
    service = name.removeprefix(SERVICE)
    return spec._replace(services=tuple((key, trial if key == service else port) for key, port in spec.services))


def passed(answer: Answer | None, trial: Trial) -> bool:
    """Whether a trial has passed once."""
    return answer is not None and answer.trial == trial and _PASS in (answer.fact.value, answer.fact.last)


def failed(answer: Answer | None, trial: Trial) -> bool:
    """Whether a trial has failed as often in a row as its failureThreshold says."""
    return answer is not None and answer.trial == trial and answer.fact.value is _FAIL


# --- the ledger ------------------------------------------------------------------------------------------------------------


def follow(admitted: ForeignContainers, observed: Observed) -> tuple[Ledger, "Specs"]:
    """The ledger with the specs of all revisions that are declared or have containers, and the specs for this decision."""
    desired, ledger = admitted.desired, observed.ledger
    services = {service.key: service for service in desired.services}
    rows: dict[str, Spec] = {}
    changing: list[tuple[Workload, Spec, Spec]] = []
    declared_keys: set[str] = set()
    for workload in desired.workloads:
        if workload.restart_only:
            continue
        template, selected = workload.template, desired.services_of.get(workload.key, ())
        key = revision_key(workload.key, template.revision)
        declared_keys.add(key)
        known = ledger.specs.get(key)
        if known is not None and not ledger.proven and _is_declared(known, template, selected, services):
            continue
        want = declared(template, selected, services)
        if known is None or (known == want and not ledger.proven):
            rows[key] = want
        else:
            changing.append((workload, known, want))
    found = _Found(admitted)
    trials = _Trials(observed, dict(ledger.proven))
    unproven: set[str] = set()
    for workload, known, want in changing:
        facts = found.by_revision.get(revision_key(workload.key, workload.template.revision), [])
        unseen = found.may_have_more(workload.key, workload.template.revision)
        spec = trials.judge(workload, known, want, facts, unseen)
        rows[revision_key(workload.key, workload.template.revision)] = spec
        if spec is not want:
            unproven.add(workload.name)
    undeclared = ledger.specs.keys() - declared_keys
    rebuilt = _rebuilt(admitted, ledger, declared_keys, services, found)
    gone = {key for key in undeclared if not found.needed(key, ledger.rollouts)} if undeclared else set()
    proven = trials.proven
    if proven:
        ids, unseen_ids = found.ids, admitted.unseen
        proven = {id_: spec for id_, spec in proven.items() if id_ in ids or unseen_ids.may_exist(id_)}
    changes: dict[str, object] = {}
    if gone or any(ledger.specs.get(key) is not spec for key, spec in {**rebuilt, **rows}.items()):
        changes["specs"] = {key: spec for key, spec in {**ledger.specs, **rebuilt, **rows}.items() if key not in gone}
    if proven != ledger.proven:
        changes["proven"] = proven
    ledger = replace(ledger, **changes) if changes else ledger  # type: ignore[arg-type]
    return ledger, Specs(desired, ledger, services, frozenset(unproven))


class _Found:
    """The containers with a mark, by revision; collected when they are first asked for."""

    def __init__(self, admitted: ForeignContainers) -> None:
        self._admitted = admitted
        self._by_revision: dict[str, list[ContainerFact]] | None = None

    def may_have_more(self, key: str, revision: str) -> bool:
        """Whether a revision may have containers on nodes that cannot be read."""
        unseen = self._admitted.unseen
        rows = unseen.by_workload.get(key, ())
        return bool(unseen.unlisted) or any(container.revision in ("", revision) for container in rows)

    @property
    def by_revision(self) -> Mapping[str, list[ContainerFact]]:
        """The containers by `workload key@revision`."""
        if self._by_revision is None:
            self._by_revision = defaultdict(list)
            instance = self._admitted.desired.instance.id
            for facts in self._admitted.sight.runtimes.values():
                for fact in facts:
                    if fact.mark is not None and fact.mark.instance == instance:
                        key = revision_key(f"workload/{fact.mark.workload}", fact.mark.revision)
                        self._by_revision[key].append(fact)
        return self._by_revision

    @property
    def ids(self) -> set[str]:
        """The ids of these containers."""
        return {fact.id for facts in self.by_revision.values() for fact in facts}

    def needed(self, key: str, rollouts: Mapping[str, Rollout]) -> bool:
        """Whether a revision has containers, or may get some again."""
        workload, _, revision = key.rpartition("@")
        if self.by_revision.get(key) or self.may_have_more(workload, revision):
            return True
        rollout = rollouts.get(workload)
        if rollout is None:
            return False
        row = rollout.of(revision)
        return revision in (rollout.active, rollout.back) or (row is not None and row.standing is Standing.SCHEDULED)


@dataclass(slots=True)
class _Trials:
    """The trials of one decision. `proven` are the rows of containers."""

    observed: Observed
    proven: dict[str, Spec]

    def judge(self, workload: Workload, known: Spec, want: Spec, facts: Sequence[ContainerFact], unseen: bool) -> Spec:
        """The spec of a declared revision that has changed: the declared one once all of its running containers have proven it.

        Args:
            known, want: the spec so far, and as declared now.
            facts: the containers of the revision; `unseen`: there may be others on nodes that cannot be read.
        """
        base = _tuned(known, want)
        specs = {fact.id: self._of_container(workload, fact, known, want) for fact in facts}
        running = [fact for fact in facts if fact.state is ContainerState.RUNNING]
        settled = not any(trials_between(specs[fact.id], want) for fact in running)
        for id_ in specs:
            self.proven.pop(id_, None)
        if settled and not unseen and (running or not facts):
            return want
        self.proven |= {id_: spec for id_, spec in specs.items() if spec != base}
        return base

    def _of_container(self, workload: Workload, fact: ContainerFact, known: Spec, want: Spec) -> Spec:
        """The spec of one container, with the trials that have passed on it or that an operator has accepted."""
        spec = _tuned(self.proven.get(fact.id, known), want)
        if fact.state is not ContainerState.RUNNING:
            return spec
        answers = self.observed.trials.get(fact.generation, _NO_ANSWERS)
        replica = f"{workload.key}/{fact.mark.ordinal}" if fact.mark is not None else workload.key
        is_accepted = accepts(self.observed.ledger, replica)
        for name, trial in trials_between(spec, want):
            answer = answers.get(name)
            if passed(answer, trial) or (is_accepted and failed(answer, trial)):
                spec = _with_trial(spec, name, trial)
        return spec


def _rebuilt(
    admitted: ForeignContainers,
    ledger: Ledger,
    declared_keys: set[str],
    services: Mapping[str, Service],
    found: _Found,
) -> dict[str, Spec]:
    """Specs that an older version of the program did not keep: from the templates of undeclared revisions, and of adopted containers."""
    rebuilt: dict[str, Spec] = {}
    workloads = {workload.key: workload for workload in admitted.desired.workloads}
    for key in ledger.templates.keys() - ledger.specs.keys() - declared_keys:
        workload = workloads.get(key.rpartition("@")[0])
        template = value_json.parse(Template, ledger.templates[key])
        if workload is None or template is None:
            continue
        selected = admitted.desired.services_of.get(workload.key, ())
        names = {port.number: port.name for port in workload.template.container.ports}
        numbers = {port.name: port.number for port in template.container.ports}
        own = tuple((service, numbers.get(names.get(number, ""), number)) for service, number in selected)
        rebuilt[key] = declared(template, own, services)
    if admitted.rows:
        for key in found.by_revision.keys() - ledger.specs.keys() - declared_keys:
            workload = workloads.get(key.rpartition("@")[0])
            if workload is not None and all(fact.adopted for fact in found.by_revision[key]):
                selected = admitted.desired.services_of.get(workload.key, ())
                rebuilt[key] = declared(workload.template, selected, services)
    return rebuilt


def endpoint_at(fact: ContainerFact, port: ServicePort) -> Endpoint | None:
    """Where a service reaches a container; None while its address or its port is not observed.

    Where the service uses ports of the host, the observed mapping counts, not the requested one.
    """
    if port.source is AddressFrom.HOST:
        mappings = fact.published
    elif port.network:
        address = dict(fact.addresses).get(port.network)
        return None if address is None else Endpoint(address, port.port)
    else:
        mappings = fact.ports
    for mapping in mappings:
        if mapping.number == port.port:
            return Endpoint(mapping.address, mapping.port)
    return None


# --- one container ---------------------------------------------------------------------------------------------------------


class Asked(NamedTuple):
    """How one container is judged and reached: its probes (None: not known any more), its spec, and what is tried on it beside."""

    container: Container | None
    spec: Spec | None
    trials: tuple[tuple[str, Trial], ...] = ()


class Specs:
    """The specs of all containers, for one decision or one look.

    Attributes:
        changing: the names of workloads whose declared spec is not in force for all containers yet.
    """

    def __init__(
        self, desired: Desired, ledger: Ledger, services: Mapping[str, Service], changing: frozenset[str]
    ) -> None:
        self._desired, self._ledger, self._services = desired, ledger, services
        self._want: dict[str, Spec] = {}
        self._asked: dict[str, Asked] = {}
        self.changing = changing

    @classmethod
    def of(cls, desired: Desired, ledger: Ledger) -> "Specs":
        """The specs that a ledger has, beside these manifests."""
        services = {service.key: service for service in desired.services}
        changing = frozenset(
            workload.name
            for workload in desired.workloads
            if (known := ledger.specs.get(revision_key(workload.key, workload.template.revision))) is not None
            and not _is_declared(known, workload.template, desired.services_of.get(workload.key, ()), services)
        )
        return cls(desired, ledger, services, changing)

    def own(self, workload: Workload, fact: ContainerFact) -> Asked | None:
        """How a container is judged and reached that does not simply follow the manifest; None when it does."""
        mark, template = fact.mark, workload.template
        if workload.restart_only or mark is None:
            return None
        superseded = mark.revision != template.revision
        if not superseded and workload.name not in self.changing and fact.id not in self._ledger.proven:
            return None
        key = revision_key(workload.key, mark.revision)
        spec = self._ledger.proven.get(fact.id)
        shared = spec is None
        if shared and key in self._asked:
            return self._asked[key]
        spec = spec or self._ledger.specs.get(key)
        asked = self._of(workload, spec, superseded, fact.adopted)
        if shared:
            self._asked[key] = asked
        return asked

    def _of(self, workload: Workload, spec: Spec | None, superseded: bool, adopted: bool) -> Asked:
        template = workload.template
        if spec is None:
            # An adopted container was never created from a template, so it has no earlier one either.
            return Asked(None if superseded and not adopted else template.container, None)
        main = replace(template.container, startup=spec.startup, liveness=spec.liveness, readiness=spec.readiness)
        if superseded:
            return Asked(main, spec)
        want = self._want.get(workload.key)
        if want is None:
            selected = self._desired.services_of.get(workload.key, ())
            want = self._want[workload.key] = declared(template, selected, self._services)
        return Asked(main, spec, tuple(trials_between(spec, want)))
