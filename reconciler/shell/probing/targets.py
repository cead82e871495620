"""Probing: which probes should run for what was observed, and the verdicts that came back.

The shell builds the complete set of targets from manifests and facts; the probe engine compares it with what it runs. Startup
gates the other two: they become targets once it passed, and it is not probed again in that generation, nor by a later process
once that generation was ready. Probes of kind runtimeHealth are never targets: their verdict is read from the facts of each
look. Called by the loop.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol

from manifests.values.desired import Container, Desired, Probe, ProbeKind, Workload
from providers.errors import ProviderError
from providers.facts import ContainerFact, ContainerState, Generation, Known, ProbeFact, Probes, ProbeValue
from providers.spi import ExecTarget
from reconciler.core.health import runtime_health
from reconciler.core.limits.suspensions import node_key
from reconciler.core.model.instant import FOREVER
from reconciler.core.model.ledger import Ledger
from reconciler.core.rollouts.revisions import revision_key
from reconciler.probes.target import Target
from reconciler.shell.looks.facts import Looks
from reconciler.shell.probing.inputs import ProbeInputs, needy
from reconciler.shell.probing.label_contexts import LabelContexts
from reconciler.shell.probing.name_targets import LEAF, NameTargets

EVERYTHING = "*"
"""In `silent`: no object is probed."""


class Prober(Protocol):
    """What the loop needs of the probe engine."""

    def set_targets(self, targets: list[Target]) -> None:
        """Probe exactly these from now on."""

    def read(self) -> Mapping[tuple[Generation, str], ProbeFact]:
        """All results that arrived since the last call, newest per target."""

    def fileno(self) -> int:
        """Readable when there are results; -1 when results never come by themselves."""

    def silent(self) -> str:
        """Why the engine is not to be believed now; empty when it is."""

    def restart(self) -> None:
        """Start a new child in place of one that died or fell silent."""

    def close(self) -> None:
        """End it."""


def _names(fact: ContainerFact, node: str, key: str) -> tuple[str, ...]:
    """The words under which the probes of a container can be silenced: by a person, or because its revision waits."""
    ordinal, revision = (-1, "") if fact.mark is None else (fact.mark.ordinal, fact.mark.revision)
    return (EVERYTHING, node_key(node), key, f"{key}/{ordinal}", revision_key(key, revision))


class Probing:
    """The targets of the latest facts and the verdicts of their generations.

    Attributes:
        network_only: leave exec probes out: a plan must not run commands in containers.
    """

    def __init__(self, prober: Prober, looks: Looks) -> None:
        self.prober, self.looks = prober, looks
        self.network_only = False
        self.verdicts: dict[Generation, Probes] = {}
        self.inputs = ProbeInputs(looks.runner, looks.clock, looks.wake)
        self.label_contexts = LabelContexts()
        self.name_targets = NameTargets()
        self._needy: tuple[Probe, ...] = ()
        self._needy_of: Desired | None = None
        self._aimed: dict[Generation, Container] = {}
        self._exec: dict[tuple[Generation, tuple[str, ...]], ExecTarget | None] = {}
        self._dirty = True
        self._seen: tuple[int, str] = (-1, "")

    def read(self) -> tuple[bool, bool]:
        """Take what arrived: whether a verdict changed, and whether one turned to fail."""
        changed = failed = False
        for (generation, name), fact in self.prober.read().items():
            if name == LEAF:
                changed |= self.name_targets.take(generation, fact)
                continue
            before = self.verdicts.get(generation)
            if before is None:
                continue
            old: ProbeFact | None = getattr(before, name)
            if name == "startup" and fact.value is ProbeValue.PASS:
                # Once started, a generation stays started.
                fact = fact._replace(valid_for=FOREVER)  # noqa: PLW2901
            self.verdicts[generation] = before._replace(**{name: fact})
            if old is None or old.value is not fact.value:
                changed = True
                failed = failed or fact.value is ProbeValue.FAIL
                if name == "startup":
                    self._dirty = True
        return changed, failed

    def forget(self) -> None:
        """Nothing is known any more: the engine died or fell silent."""
        self.verdicts = {generation: Probes(startup=one.startup) for generation, one in self.verdicts.items()}
        self.name_targets.forget()
        self._dirty = True

    async def aim(
        self,
        desired: Desired,
        stopping: Iterable[str],
        silent: frozenset[str] = frozenset(),
        ledger: Ledger = Ledger(),  # noqa: B008  (a frozen value)
    ) -> None:
        """Tell the engine what to probe now, when anything changed. Containers that are being stopped are left alone.

        Args:
            desired: the manifests in force.
            stopping: names of containers that are being stopped.
            silent: keys of nodes, workloads, replicas and revisions that are not probed at all, or EVERYTHING: their verdicts grow old
                and are unknown then.
            ledger: what is remembered of adopted containers, and of who was ready.
        """
        fresh = self.name_targets.want(desired)
        if desired is not self._needy_of:
            self._needy_of, self._needy = desired, needy(desired)
        await self.inputs.prepare((*self._needy, *self.name_targets.needy), desired.root)
        parts = (sorted(stopping), sorted(silent), sorted(ledger.adopted))
        version = (self.looks.version, f"{desired.revision}/{'/'.join(','.join(part) for part in parts)}")
        if not self._dirty and not fresh and not self.inputs.changed and version == self._seen:
            return
        self._seen, self._dirty, self.inputs.changed = version, False, False
        workloads = {workload.name: workload for workload in desired.workloads}
        foreign = self.label_contexts.find(desired, self.looks.runtimes, ledger)
        leave_alone = set(stopping)
        self.name_targets.silent = EVERYTHING in silent
        targets = self.name_targets.targets(self.inputs)
        live: dict[Generation, dict[str, ProbeFact]] = {}
        self._aimed = {}
        unseen = False
        for node, known in self.looks.runtimes.items():
            if not isinstance(known, Known):
                unseen = True
                continue
            for fact in known.value:
                if fact.state is not ContainerState.RUNNING:
                    continue
                found = foreign.get(fact.id) if fact.mark is None else _own(fact, desired, workloads)
                if found is None:
                    continue
                fact, key, container = found  # noqa: PLW2901  (an adopted one has more to it)
                generation = fact.generation
                live[generation] = {}
                if fact.name in leave_alone or (silent and not silent.isdisjoint(_names(fact, node, key))):
                    continue
                self._aimed[generation] = container
                if container.startup is not None and _has_been_ready(fact, ledger):
                    self._remember_start(generation, known.observed_at)
                seen = _Seen(node, known.observed_at, desired.instance.look_runtime, desired.root)
                live[generation] = await self._aim_one(seen, fact, container, targets)
        # Only now, without giving way in between: results may have come while a runtime was asked.
        kept = {one: self.verdicts.get(one, Probes())._replace(**read_off) for one, read_off in live.items()}
        # Generations on a node that cannot be seen may well live on.
        self.verdicts = {**self.verdicts, **kept} if unseen else kept
        self._exec = {key: one for key, one in self._exec.items() if key[0] in self.verdicts}
        self.prober.set_targets(targets)

    def _remember_start(self, generation: Generation, at: int) -> None:
        """It has started, which a new process need not find out, and could not of one that fails by now."""
        before = self.verdicts.get(generation, Probes())
        if before.startup is None:
            started = ProbeFact(ProbeValue.PASS, ProbeValue.PASS, 1, 1, at, at, FOREVER, "it has been ready before")
            self.verdicts[generation] = before._replace(startup=started)

    async def _aim_one(
        self, seen: "_Seen", fact: ContainerFact, container: Container, targets: list[Target]
    ) -> dict[str, ProbeFact]:
        """Add the targets of one container; the verdicts, by name of the probe, that the look itself gave."""
        verdicts = self.verdicts.get(fact.generation, Probes())
        found: dict[str, ProbeFact] = {}
        for name, probe in _probes(container):
            if probe.kind is ProbeKind.RUNTIME:
                before: ProbeFact | None = getattr(verdicts, name)
                found[name] = _read_off(fact, before, seen, name)
                verdicts = verdicts._replace(**{name: found[name]})
            elif name == "startup" and _passed(verdicts):
                continue
            elif self.runs(probe):
                targets.append(await self._target(seen, fact, name, probe))
            if name == "startup" and not _passed(verdicts):
                break
        return found

    def runs(self, probe: Probe) -> bool:
        """Whether this probe is asked, or read, at all."""
        return not (self.network_only and probe.kind is ProbeKind.EXEC)

    def unanswered(self) -> bool:
        """Whether a probe that was aimed has no result at all yet."""
        if self.name_targets.unanswered():
            return True
        for generation, container in self._aimed.items():
            verdicts = self.verdicts.get(generation, Probes())
            if container.startup is not None and verdicts.startup is None:
                if self.runs(container.startup):
                    return True
                continue
            for probe, verdict in (
                (container.liveness, verdicts.liveness),
                (container.readiness, verdicts.readiness),
            ):
                if probe is not None and verdict is None and self.runs(probe):
                    return True
        return False

    async def _target(self, seen: "_Seen", fact: ContainerFact, name: str, probe: Probe) -> Target:
        """The container's own address first; the host's, with a published port, where it has none that was observed."""
        address, port = fact.address, probe.port
        published = False
        own = next((one for one in fact.ports if one.number == probe.port), None)
        if own is None and not address:
            own = next((one for one in fact.published if one.number == probe.port), None)
            published = own is not None
        if own is not None:
            address, port = own.address, own.port
        how = await self._how(seen.node, fact, probe) if probe.kind is ProbeKind.EXEC else None
        given = self.inputs.given(probe, seen.root)
        return Target(fact.generation, name, probe, address, port, fact.running_since, how, published, given)

    async def _how(self, node: str, fact: ContainerFact, probe: Probe) -> ExecTarget | None:
        key = (fact.generation, probe.command)
        if key not in self._exec:
            provider = self.looks.providers.runtimes[node]
            try:
                # A container without our mark is meant by its id.
                who = fact.id if fact.adopted else fact.name
                self._exec[key] = await self.looks.runner.run(lambda: provider.exec_target(who, probe.command))
            except ProviderError:
                # Not known now; asked again at the next change.
                self._dirty = True
                return None
        return self._exec[key]


class _Seen(NamedTuple):
    """The look that saw a container: of which node, when, how often it is made; and the root of the manifests' tree."""

    node: str
    observed_at: int
    cadence: int
    root: str


def _probes(container: Container) -> tuple[tuple[str, Probe], ...]:
    """The probes that a container has, by name; the startup probe, which gates the others, first."""
    found = (("startup", container.startup), ("liveness", container.liveness), ("readiness", container.readiness))
    return tuple((name, probe) for name, probe in found if probe is not None)


def _own(
    fact: ContainerFact, desired: Desired, workloads: Mapping[str, Workload]
) -> tuple[ContainerFact, str, Container] | None:
    """A container with our mark as part of its workload; None when it is another instance's, or no manifest's."""
    mark = fact.mark
    workload = workloads.get(mark.workload) if mark is not None and mark.instance == desired.instance.id else None
    return None if workload is None else (fact, workload.key, workload.template.container)


def _has_been_ready(fact: ContainerFact, ledger: Ledger) -> bool:
    """Whether it was ready, and so had started, in this generation."""
    row = ledger.ready.get(fact.id)
    return row is not None and row.started_at == fact.started_at


def _passed(verdicts: Probes) -> bool:
    return verdicts.startup is not None and verdicts.startup.value is ProbeValue.PASS


def _read_off(fact: ContainerFact, before: ProbeFact | None, seen: _Seen, name: str) -> ProbeFact:
    """The verdict of the runtime's own health check. Once started, a generation stays started."""
    if name == "startup" and before is not None and before.value is ProbeValue.PASS:
        return before
    found = runtime_health.verdict(fact.health, before, seen.observed_at, seen.cadence, fact.running_since)
    return found._replace(valid_for=FOREVER) if name == "startup" and found.value is ProbeValue.PASS else found
