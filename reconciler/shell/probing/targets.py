"""Builds the targets of the probe engine from manifests and facts, and keeps the verdicts. Called by the loop.

The set of targets is always complete; the engine compares it with its running probes. The startup probe gates the other two:
they become targets once it passed. Then it does not run again in that generation, nor in a later process once that generation
was ready. Probes of kind runtimeHealth are never targets: their verdict is read from the facts of each look.
"""

import asyncio
from collections.abc import Iterable, Mapping
from itertools import zip_longest
from typing import NamedTuple, Protocol

from manifests.values.desired import AddressFrom, Container, Desired, Probe, ProbeKind, Workload
from providers.errors import ProviderError
from providers.facts import ContainerFact, ContainerState, Generation, Known, ProbeFact, Probes, ProbeValue
from providers.spi import ExecTarget
from reconciler.core.health import runtime_health
from reconciler.core.limits.suspensions import node_key
from reconciler.core.model.instant import FOREVER
from reconciler.core.model.ledger import Ledger
from reconciler.core.model.revision import rechecked, revision_key
from reconciler.core.model.spec import Answer, ServicePort, Trial
from reconciler.core.replicas import specs
from reconciler.core.replicas.specs import Specs
from reconciler.probes.target import Target
from reconciler.shell.daemon_view import DaemonView
from reconciler.shell.looks.facts import Looks
from reconciler.shell.probing.inputs import ProbeInputs, probes_with_inputs
from reconciler.shell.probing.label_contexts import LabelContexts
from reconciler.shell.probing.life import ProbeLog
from reconciler.shell.probing.name_targets import LEAF, NameTargets
from reconciler.shell.secrets import masked_verdict

PATIENCE = 0.2
"""Seconds that a tick waits for runtimes to say how probes are executed; an engine takes some ms."""

EVERYTHING = "*"
"""In `suspended`: no object is probed."""

TRIAL = "trial of "
"""The names of trials in the engine begin with this; their names for the core follow."""


class Prober(Protocol):
    """What the loop needs of the probe engine."""

    def set_targets(self, targets: list[Target]) -> None:
        """Run exactly these probes from now on."""

    def read(self) -> Mapping[tuple[Generation, str], ProbeFact]:
        """The results since the last call, newest per target."""

    def fileno(self) -> int:
        """A descriptor that is readable when there are results; -1 when there is none."""

    def silent(self) -> str:
        """Why the engine's results cannot be used now; empty when they can."""

    def restart(self) -> None:
        """Start a new child in place of one that died or does not answer."""

    def close(self) -> None:
        """End the engine."""


def _suspension_keys(fact: ContainerFact, node: str, key: str) -> tuple[str, ...]:
    """The keys by which probes of a container can be suspended: by the operator, or while its revision waits."""
    ordinal, revision = (-1, "") if fact.mark is None else (fact.mark.ordinal, fact.mark.revision)
    return (EVERYTHING, node_key(node), key, f"{key}/{ordinal}", revision_key(key, revision))


class Probing:
    """The targets of the latest facts and the verdicts of their generations.

    Attributes:
        network_only: skip exec probes: a plan must not run commands in containers.
        probes_nothing: only verdicts of `view` and of the runtime count: no probe runs, and no input of one is read.
        view: of a process whose verdicts count here, for a plan beside it.
        verdicts: of the probes that decide, by generation.
        trials: of those that are tried beside them, by generation and name.
    """

    def __init__(self, prober: Prober, looks: Looks) -> None:
        self.prober, self.looks = prober, looks
        self.network_only = False
        self.probes_nothing = False
        self.view: DaemonView | None = None
        self.verdicts: dict[Generation, Probes] = {}
        self.trials: dict[Generation, dict[str, Answer]] = {}
        self._tried: dict[tuple[Generation, str], Trial] = {}
        self._asking: dict[tuple[Generation, tuple[str, ...]], asyncio.Task[None]] = {}
        self._ask_until = 0.0
        self.inputs = ProbeInputs(looks.runner, looks.clock, looks.wake)
        self.label_contexts = LabelContexts()
        self.name_targets = NameTargets()
        self.log = ProbeLog()
        self._with_inputs: tuple[Probe, ...] = ()
        self._inputs_of: tuple[object, ...] = ()
        self._again: frozenset[str] = frozenset()
        self._probed: dict[Generation, Container] = {}
        self._nodes: dict[Generation, str] = {}
        """The node on which each generation of `verdicts` was observed."""
        self._exec: dict[tuple[Generation, tuple[str, ...]], ExecTarget | None] = {}
        self._dirty = True
        self._version: tuple[int, str] = (-1, "")

    def read(self) -> tuple[bool, bool]:
        """Take the new results. Whether a verdict changed, and whether one changed to fail."""
        changed = failed = False
        for (generation, name), raw in self.prober.read().items():
            fact = masked_verdict(raw) if raw.detail else raw
            if name == LEAF:
                changed |= self.name_targets.take(generation, fact)
                continue
            if name.startswith(TRIAL):
                new = self._take_trial(generation, name.removeprefix(TRIAL), fact)
                changed, failed = changed or new, failed or (new and fact.value is ProbeValue.FAIL)
                continue
            before = self.verdicts.get(generation)
            if before is None:
                continue
            old: ProbeFact | None = getattr(before, name)
            if name == "startup" and fact.value is ProbeValue.PASS:
                # Once started, a generation stays started.
                fact = fact._replace(valid_for=FOREVER)
            self.verdicts[generation] = before._replace(**{name: fact})
            if old is None or old.value is not fact.value:
                changed = True
                failed = failed or fact.value is ProbeValue.FAIL
                if name == "startup":
                    self._dirty = True
        return changed, failed

    def _take_trial(self, generation: Generation, name: str, fact: ProbeFact) -> bool:
        """Keep the result of a trial. Whether its verdict changed."""
        trial = self._tried.get((generation, name))
        if trial is None:
            return False
        answers = self.trials.setdefault(generation, {})
        before = answers.get(name)
        same = before is not None and before.trial == trial
        once = not name.startswith(specs.AGAIN)
        if before is not None and same and once and ProbeValue.PASS in (before.fact.value, before.fact.last):
            return False  # it has passed once; the core takes it over at its next decision
        answers[name] = Answer(trial, fact)
        return (
            before is None or not same or not once or (before.fact.value, before.fact.last) != (fact.value, fact.last)
        )

    def forget(self) -> None:
        """Drop all verdicts except those of startup probes: the engine died or does not answer."""
        self.verdicts = {generation: Probes(startup=probes.startup) for generation, probes in self.verdicts.items()}
        self.trials = {}
        self.name_targets.forget()
        self._dirty = True

    async def retarget(
        self,
        desired: Desired,
        stopping: Iterable[str],
        suspended: frozenset[str] = frozenset(),
        ledger: Ledger = Ledger(),  # noqa: B008  (a frozen value)
    ) -> None:
        """Give the engine its targets if anything changed. Containers that are being stopped are not probed.

        Args:
            desired: the manifests in force.
            stopping: names of containers that are being stopped.
            suspended: keys of nodes, workloads, replicas and revisions that are not probed, or EVERYTHING. Their verdicts expire
                and are unknown then.
            ledger: the adopted containers, and which generations were ready.
        """
        names_changed = self.name_targets.set_desired(desired, ledger.checks)
        sources = (desired, ledger.specs, ledger.proven, ledger.rollouts)
        if any(now is not before for now, before in zip_longest(sources, self._inputs_of)):
            self._inputs_of, self._dirty = sources, True
            self._with_inputs = probes_with_inputs(desired, (*ledger.specs.values(), *ledger.proven.values()))
            self._again = frozenset(rechecked(ledger.rollouts))
        if not self.probes_nothing:
            await self.inputs.learn(desired)
            await self.inputs.prepare((*self._with_inputs, *self.name_targets.with_secrets), desired.root)
        parts = (sorted(stopping), sorted(suspended), sorted(ledger.adopted))
        version = (self.looks.version, f"{desired.revision}/{'/'.join(','.join(part) for part in parts)}")
        if not self._dirty and not names_changed and not self.inputs.changed and version == self._version:
            return
        self._version, self._dirty, self.inputs.changed = version, False, False
        self._ask_until = asyncio.get_running_loop().time() + PATIENCE
        workloads = {workload.key: workload for workload in desired.workloads}
        foreign = self.label_contexts.find(desired, self.looks.runtimes, ledger)
        spec_of = Specs.of(desired, ledger)
        self._tried = {}
        excluded = set(stopping)
        self.name_targets.suspended = self.probes_nothing or EVERYTHING in suspended
        targets = self.name_targets.targets(self.inputs)
        live: dict[Generation, dict[str, ProbeFact]] = {}
        self._probed = {}
        replicas: dict[Generation, tuple[str, str]] = {}
        nodes: dict[Generation, str] = {}
        silent: set[str] = set()
        for node, known in self.looks.runtimes.items():
            if not isinstance(known, Known):
                silent.add(node)
                continue
            for fact in known.value:
                if fact.state is not ContainerState.RUNNING:
                    continue
                match = foreign.get(fact.id) if fact.mark is None else _own(fact, desired, workloads)
                if match is None:
                    continue
                fact, key, declared = match  # noqa: PLW2901  (the fact of an adopted container has more fields)
                own = spec_of.own(workloads[key], fact) if key in workloads else None
                container = declared if own is None else own.container
                generation = fact.generation
                live[generation] = {}
                nodes[generation] = node
                if fact.name in excluded or (suspended and not suspended.isdisjoint(_suspension_keys(fact, node, key))):
                    continue
                if container is None:
                    continue  # what its revision declared is not known any more
                self._probed[generation] = container
                replicas[generation] = f"{key}/{fact.mark.ordinal}" if fact.mark else key, fact.name
                if container.startup is not None and _has_been_ready(fact, ledger):
                    self._remember_start(generation, known.observed_at)
                look = _Look(node, known.observed_at, desired.instance.look_runtime, desired.root)
                if generation in self.trials:
                    self._take_over(generation, container)
                live[generation] = await self._add_targets(look, fact, container, targets)
                if own is not None and own.trials:
                    await self._add_trials(look, fact, container, own.trials, targets)
                if self._again and fact.mark is not None and revision_key(key, fact.mark.revision) in self._again:
                    await self._add_trials(look, fact, container, _again(container), targets)
        # No await from here on: results may have arrived while a runtime was asked.
        kept = {
            generation: self.verdicts.get(generation, Probes())._replace(**verdicts)
            for generation, verdicts in live.items()
        }
        # Generations on a node that cannot be read may still run.
        hidden = {generation: node for generation, node in self._nodes.items() if node in silent} if silent else {}
        unseen = {generation: self.verdicts[generation] for generation in hidden if generation in self.verdicts}
        self.verdicts, self._nodes = {**unseen, **kept}, {**hidden, **nodes}
        self.trials = {
            generation: {name: answer for name, answer in answers.items() if (generation, name) in self._tried}
            for generation, answers in self.trials.items()
            if generation in self.verdicts
        }
        self._exec = {key: target for key, target in self._exec.items() if key[0] in self.verdicts}
        self.prober.set_targets(targets)
        self.log.compare(targets, replicas)

    def _remember_start(self, generation: Generation, at: int) -> None:
        """Set the startup probe to passed: the generation was ready before. A new process could not find out if it fails now."""
        before = self.verdicts.get(generation, Probes())
        if before.startup is None:
            started = ProbeFact(ProbeValue.PASS, ProbeValue.PASS, 1, 1, at, at, FOREVER, "it was ready before")
            self.verdicts[generation] = before._replace(startup=started)

    async def _add_targets(
        self, look: "_Look", fact: ContainerFact, container: Container, targets: list[Target]
    ) -> dict[str, ProbeFact]:
        """Add the targets of one container. Returns the verdicts that need no target, by name of the probe: from the look itself, or lent."""
        verdicts = self.verdicts.get(fact.generation, Probes())
        from_look: dict[str, ProbeFact] = {}
        for name, probe in _probes(container):
            lent = None if self.view is None else self.view.verdict(fact.generation, name, probe)
            if lent is not None:
                from_look[name] = lent
                verdicts = verdicts._replace(**{name: lent})
            elif probe.kind is ProbeKind.RUNTIME:
                before: ProbeFact | None = getattr(verdicts, name)
                from_look[name] = _runtime_verdict(fact, before, look, name)
                verdicts = verdicts._replace(**{name: from_look[name]})
            elif name == "startup" and _passed(verdicts):
                continue
            elif self.runs(probe):
                targets.append(await self._target(look, fact, name, probe))
            if name == "startup" and not _passed(verdicts):
                break
        return from_look

    def _take_over(self, generation: Generation, container: Container) -> None:
        """Keep the verdicts of trials that have become the probes that decide."""
        passed = {
            name: answer.fact
            for name, answer in self.trials[generation].items()
            if name in specs.PROBES and answer.trial == getattr(container, name)
        }
        if "startup" in passed and passed["startup"].value is ProbeValue.PASS:
            passed["startup"] = passed["startup"]._replace(valid_for=FOREVER)
        if passed:
            self.verdicts[generation] = self.verdicts.get(generation, Probes())._replace(**passed)

    async def _add_trials(
        self,
        look: "_Look",
        fact: ContainerFact,
        container: Container,
        trials: Iterable[tuple[str, Trial]],
        targets: list[Target],
    ) -> None:
        """Add the targets of what is tried beside the probes that decide; the startup probe that decides gates all but its own."""
        started = container.startup is None or _passed(self.verdicts.get(fact.generation, Probes()))
        for name, trial in trials:
            if not started and name != "startup":
                continue
            lent = None if self.view is None else self.view.trial(fact.generation, name, trial)
            if lent is not None:
                self._tried[fact.generation, name] = trial
                self.trials.setdefault(fact.generation, {})[name] = Answer(trial, lent)
                continue
            if self.probes_nothing:
                continue
            if isinstance(trial, ServicePort):
                endpoint = specs.endpoint_at(fact, trial)
                if endpoint is None:
                    continue
                probe = Probe(ProbeKind.TCP, port=trial.port)
                host = trial.source is AddressFrom.HOST
                target = Target(fact.generation, TRIAL + name, probe, *endpoint, fact.running_since, published=host)
            elif trial.kind is ProbeKind.RUNTIME:
                before = self.trials.get(fact.generation, {}).get(name)
                verdict = _runtime_verdict(fact, None if before is None else before.fact, look, name)
                self._tried[fact.generation, name] = trial
                self.trials.setdefault(fact.generation, {})[name] = Answer(trial, verdict)
                continue
            elif not self.runs(trial):
                continue
            else:
                target = await self._target(look, fact, TRIAL + name, trial)
            self._tried[fact.generation, name] = trial
            targets.append(target)

    def runs(self, probe: Probe) -> bool:
        """Whether this probe runs at all."""
        return not self.probes_nothing and not (self.network_only and probe.kind is ProbeKind.EXEC)

    def unanswered(self) -> bool:
        """Whether a running probe has no result yet."""
        if self.name_targets.unanswered():
            return True
        if any(name not in self.trials.get(generation, {}) for generation, name in self._tried):
            return True
        for generation, container in self._probed.items():
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

    async def _target(self, look: "_Look", fact: ContainerFact, name: str, probe: Probe) -> Target:
        """The target of one probe: the container's own address, else the host's with a published port."""
        address, port = fact.address, probe.port
        published = False
        own = next((port for port in fact.ports if port.number == probe.port), None)
        if own is None and not address:
            own = next((port for port in fact.published if port.number == probe.port), None)
            published = own is not None
        if own is not None:
            address, port = own.address, own.port
        exec_target = await self._exec_target(look.node, fact, probe) if probe.kind is ProbeKind.EXEC else None
        given = self.inputs.given(probe, look.root)
        return Target(fact.generation, name, probe, address, port, fact.running_since, exec_target, published, given)

    async def _exec_target(self, node: str, fact: ContainerFact, probe: Probe) -> ExecTarget | None:
        """How to execute a probe; None while it is unknown. A runtime that is slow delays only its own exec probes."""
        key = (fact.generation, probe.command)
        if key not in self._exec:
            if key not in self._asking:
                # A container without a valid mark of its own is addressed by its id.
                container = fact.id if fact.adopted or fact.claim is not None else fact.name
                self._asking[key] = asyncio.create_task(self._ask(key, node, container))
            left = max(0.0, self._ask_until - asyncio.get_running_loop().time())
            await asyncio.wait({self._asking[key]}, timeout=left)
        return self._exec.get(key)

    async def _ask(self, key: tuple[Generation, tuple[str, ...]], node: str, container: str) -> None:
        provider = self.looks.providers.runtimes.get(node)
        try:
            if provider is None:
                return
            self._exec[key] = await self.looks.runner.run(lambda: provider.exec_target(container, key[1]))
            if asyncio.get_running_loop().time() > self._ask_until:
                self._dirty = True
                self.looks.wake.set(f"the exec probe of {container} can run")
        except ProviderError:
            # Unknown now; tried again at the next tick.
            self._dirty = True
        finally:
            self._asking.pop(key, None)

    async def settle(self) -> None:
        """End what is asked of runtimes, at the end of a run."""
        asking = {*self._asking.values(), *self.inputs.learning()}
        for task in asking:
            task.cancel()
        if asking:
            await asyncio.wait(asking)


def _again(container: Container) -> tuple[tuple[str, Trial], ...]:
    """The probes of a container that can be asked once more, out of turn."""
    probes = (("liveness", container.liveness), ("readiness", container.readiness))
    return tuple(
        (f"{specs.AGAIN}{name}", probe)
        for name, probe in probes
        if probe is not None and probe.kind is not ProbeKind.RUNTIME
    )


class _Look(NamedTuple):
    """The look that observed a container: its node, instant and cadence (ns); and the root of the manifests' tree."""

    node: str
    observed_at: int
    cadence: int
    root: str


def _probes(container: Container) -> tuple[tuple[str, Probe], ...]:
    """The probes of a container by name; the startup probe first, because it gates the others."""
    probes = (("startup", container.startup), ("liveness", container.liveness), ("readiness", container.readiness))
    return tuple((name, probe) for name, probe in probes if probe is not None)


def _own(
    fact: ContainerFact, desired: Desired, workloads: Mapping[str, Workload]
) -> tuple[ContainerFact, str, Container] | None:
    """A container with a mark as part of its workload; None when it is of another instance or of no workload."""
    mark = fact.mark
    ours = mark is not None and mark.instance == desired.instance.id
    workload = workloads.get(f"workload/{mark.workload}") if ours and mark is not None else None
    return None if workload is None else (fact, workload.key, workload.template.container)


def _has_been_ready(fact: ContainerFact, ledger: Ledger) -> bool:
    """Whether it was ready in this generation, and so had started."""
    row = ledger.ready.get(fact.id)
    return row is not None and row.started_at == fact.started_at


def _passed(verdicts: Probes) -> bool:
    return verdicts.startup is not None and verdicts.startup.value is ProbeValue.PASS


def _runtime_verdict(fact: ContainerFact, before: ProbeFact | None, look: _Look, name: str) -> ProbeFact:
    """The verdict of the runtime's own health check. Once started, a generation stays started."""
    if name == "startup" and before is not None and before.value is ProbeValue.PASS:
        return before
    verdict = runtime_health.verdict(fact.health, before, look.observed_at, look.cadence, fact.running_since)
    return verdict._replace(valid_for=FOREVER) if name == "startup" and verdict.value is ProbeValue.PASS else verdict
