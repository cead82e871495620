"""Passed probes: what the ledger remembers of probes that passed once, by revision.

A probe that has never passed in its revision may be wrong itself: `status` shows it as cannot-run while it does not reach its
target, and the message about a replica that is not restarted any more names it. It holds nothing. `memory.remember` calls `learn`;
`healing/restart_gates` and `status/objects` ask `has_passed`.
"""

from collections.abc import Iterable, Iterator, Mapping

from manifests.values.desired import Container, Probe
from providers.facts import ContainerFact, ProbeFact, ProbeValue
from reconciler.core.health.belief import Belief
from reconciler.core.model.ledger import Ledger
from reconciler.core.model.observed import Observed
from reconciler.core.model.passed_probe import probe_key, revision_of
from reconciler.core.model.revision import RevisionMark, revision_key
from reconciler.core.model.spec import Spec
from reconciler.core.replicas import specs
from reconciler.core.replicas.roster import Group
from reconciler.core.replicas.snapshot import Snapshot


def has_passed(ledger: Ledger, workload_key: str, fact: ContainerFact, probe: str) -> bool:
    """Whether this probe has passed once in the revision of this container, on any replica."""
    revision = fact.mark.revision if fact.mark is not None else ""
    return probe_key(workload_key, revision, probe) in ledger.passed


def learn(snap: Snapshot, ledger: Ledger, revisions: Mapping[str, RevisionMark]) -> frozenset[str]:
    """The rows of the next ledger: with probes that passed for the first time, without those of revisions that are gone.

    Args:
        ledger: with the specs of this look.
        revisions: the declared revision of each workload, after this look.
    """
    before = snap.observed.ledger
    passed = ledger.passed
    if ledger.specs is not before.specs or revisions is not before.revisions:
        declared = {revision_key(workload, mark.revision) for workload, mark in revisions.items()}
        changed = set(_changed(before.specs, ledger.specs))
        passed = frozenset(
            key for key in passed if key not in changed and ((of := revision_of(key)) in ledger.specs or of in declared)
        )
    new = {key for group in snap.roster.groups.values() for key in _new(group, snap.observed, ledger, passed)}
    return passed | new if new else passed


def _changed(before: Mapping[str, Spec], after: Mapping[str, Spec]) -> Iterator[str]:
    """The probes of known revisions that ask for something else now: they have to pass again."""
    for key, spec in after.items():
        known = before.get(key)
        if known is None or known is spec:
            continue
        for probe in specs.PROBES:
            if not specs.asks_the_same(getattr(known, probe), getattr(spec, probe)):
                yield f"{key}|{probe}"


def _new(group: Group, observed: Observed, ledger: Ledger, passed: frozenset[str]) -> Iterator[str]:
    """The probes of one workload that passed for the first time. While all have passed, it costs a look-up for each."""
    workload = group.workload
    key, container = workload.key, workload.template.container
    if group.serving == workload.template.revision:
        yield from _passing(key, group.serving, container, group.current.values(), observed, passed)
    else:
        yield from _of_others(key, group.current.values(), observed, ledger, passed)
    for beliefs in (group.outgoing, group.surplus, group.waiting):
        if beliefs:
            yield from _of_others(key, beliefs, observed, ledger, passed)


def _of_others(
    key: str, beliefs: Iterable[Belief], observed: Observed, ledger: Ledger, passed: frozenset[str]
) -> Iterator[str]:
    """The same for containers of any revision, by the specs of these."""
    for belief in beliefs:
        revision = belief.fact.mark.revision if belief.fact.mark is not None else ""
        spec = ledger.specs.get(revision_key(key, revision))
        if spec is not None:
            yield from _passing(key, revision, spec, (belief,), observed, passed)


def _passing(
    key: str,
    revision: str,
    asks: Container | Spec,
    beliefs: Iterable[Belief],
    observed: Observed,
    passed: frozenset[str],
) -> Iterator[str]:
    """The probes of one revision that pass on one of these containers and have not passed before."""
    for name in specs.PROBES:
        probe: Probe | None = getattr(asks, name)
        if probe is None or (row := probe_key(key, revision, name)) in passed:
            continue
        if any(_last(observed, belief.fact, name, probe) is ProbeValue.PASS for belief in beliefs):
            yield row


def _last(observed: Observed, fact: ContainerFact, name: str, probe: Probe) -> ProbeValue | None:
    """The latest result of a probe; of its trial where it has just become the probe that decides."""
    answer = observed.trials[fact.generation].get(name) if fact.generation in observed.trials else None
    if answer is not None and answer.trial == probe:
        return answer.fact.last
    verdicts = observed.probes.get(fact.generation)
    verdict: ProbeFact | None = getattr(verdicts, name) if verdicts is not None else None
    return None if verdict is None else verdict.last
