"""Trials in reports: what is tried on containers beside the probes that decide there. Called by `decide`; `specs` has the rules.

A trial without a result is a wait. A trial that fails is a hold: the earlier probe or port decides until the manifest
changes, the trial passes, or an operator accepts it.
"""

from dataclasses import dataclass, field

from manifests.values.desired import AddressFrom, Probe, ProbeKind
from providers.facts import ContainerFact, ContainerState
from reconciler.core.model.reasons import Hold, Rule, Wait, Waiting
from reconciler.core.model.spec import ServicePort, Trial
from reconciler.core.replicas import specs
from reconciler.core.replicas.snapshot import Snapshot


@dataclass(slots=True)
class Trials:
    """The holds and waits of all trials. `objects`: the replicas with a trial, also those that do not run now."""

    objects: set[str] = field(default_factory=set)
    holds: list[Hold] = field(default_factory=list)
    waits: list[Wait] = field(default_factory=list)


def report(snap: Snapshot) -> Trials:
    """A hold for every trial that fails, and a wait for every other one."""
    out = Trials()
    if not snap.roster.asked:
        return out
    for group in snap.roster.groups.values():
        for belief in group.members():
            fact = belief.fact
            own = snap.roster.asked.get(fact.id)
            if own is None or fact.mark is None or not own.trials:
                continue
            replica = f"{group.workload.key}/{fact.mark.ordinal}"
            out.objects.add(replica)
            for name, trial in own.trials if fact.state is ContainerState.RUNNING else ():
                _report(snap, replica, fact, name, trial, out)
    return out


def _report(snap: Snapshot, replica: str, fact: ContainerFact, name: str, trial: Trial, out: Trials) -> None:
    answer = snap.observed.trials.get(fact.generation, {}).get(name)
    tried = describe(name, trial)
    workload = replica.rpartition("/")[0]
    if isinstance(trial, ServicePort):
        service = name.removeprefix(specs.SERVICE)
        before, correct = f"{service} keeps its earlier port there", f"correct the port of {service}"
    else:
        before, correct = f"the earlier {name}Probe still decides", f"correct the {name}Probe of {workload}"
    if isinstance(trial, ServicePort) and specs.endpoint_at(fact, trial) is None:
        message = f"{fact.name} does not have {tried}; {before}"
    elif specs.failed(answer, trial) and answer is not None:
        message = f"{tried} fails on {fact.name}: {answer.fact.detail}; {before}"
    else:
        message = f"{tried} has not passed on {fact.name} yet; {before}"
        out.waits.append(Wait(replica, Waiting.VERDICT, message))
        return
    next_step = f"{correct}, or accept it although it fails: reconcile resume {workload}"
    out.holds.append(Hold(replica, f"use {tried}", Rule.PROBE_UNPROVEN, message, next_step=next_step))


def describe(name: str, trial: Trial) -> str:
    """A trial in words, without header values: `the new readinessProbe (httpGet /ready, port 8080)`."""
    if isinstance(trial, ServicePort):
        place = "the host" if trial.source is AddressFrom.HOST else trial.network
        return f"port {trial.port}{f' on {place}' if place else ''} of {name.removeprefix(specs.SERVICE)}"
    return f"the new {name}Probe ({_asks(trial)})"


def _asks(probe: Probe) -> str:
    if probe.kind is ProbeKind.EXEC:
        return f"exec {probe.command[0]}" if probe.command else "exec"
    path = f" {probe.path}" if probe.kind is ProbeKind.HTTP else ""
    return f"{probe.kind.value}{path}{f', port {probe.port}' if probe.port else ''}"
