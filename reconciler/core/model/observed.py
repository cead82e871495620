"""Observed: all facts at one instant, as `decide` gets them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from manifests.values.secret_sources import SecretSource
from providers.facts import ContainerFact, Generation, Known, PoolFact, ProbeFact, Probes, Unknown, ZoneFact
from reconciler.core.model.ledger import Ledger
from reconciler.core.model.probe_context import Context
from reconciler.core.model.push_fact import PushFact
from reconciler.core.model.reasons import Hold
from reconciler.core.model.secret_problem import SecretProblem
from reconciler.core.model.source_problem import SourceProblem
from reconciler.core.model.spec import Answer
from reconciler.core.model.target_probe import TargetProbe
from reconciler.core.model.waiting_revision import WaitingRevision

RuntimeFacts = Known[tuple[ContainerFact, ...]] | Unknown
PoolFacts = Known[PoolFact] | Unknown
ZoneFacts = Known[ZoneFact] | Unknown

NEVER_READ = -1
"""`source_read_at` while this process has read nothing but invalid manifests."""


@dataclass(frozen=True, slots=True)
class Observed:
    """All facts of the latest looks, the probe verdicts and the ledger.

    runtimes: node -> containers. pools: (provider, pool). zones: (provider, zone). probes: generation -> verdicts.
    pushes: generation -> the latest push that counts. target_answers: question about a target address -> its verdict.
    source_read_at: steady instant of the last complete read of the source that equals the manifests in force; NEVER_READ while there
    was none, because the manifests in force were stored by an earlier run. source_problem: why the source cannot be put in force. waiting: a
    valid revision at the source that is not in force yet. busy: container names, `provider/pool/address:port`
    or `provider/zone` with a call whose outcome is unknown after its time limit. under_way: the same for calls within their limit.
    contexts: parsed probe contexts on labels of foreign containers, by their text. trials: generation -> what was tried on it beside
    the probes that decide, by name (`replicas/specs`). references: digests of what the references of a provider or workload resolve to, by its key.
    secrets: what is wrong with secrets that containers need, by their place; those that can be used are left out.
    faults: holds of the program as a whole, such as a full disk or manifests that cannot be read. booted: the steady instant at which
    this host booted; a moment before it is one of an earlier boot, or of another host.
    """

    runtimes: Mapping[str, RuntimeFacts] = field(default_factory=dict)
    pools: Mapping[tuple[str, str], PoolFacts] = field(default_factory=dict)
    zones: Mapping[tuple[str, str], ZoneFacts] = field(default_factory=dict)
    probes: Mapping[Generation, Probes] = field(default_factory=dict)
    pushes: Mapping[Generation, PushFact] = field(default_factory=dict)
    ledger: Ledger = field(default_factory=Ledger)
    source_read_at: int = 0
    source_problem: SourceProblem | None = None
    waiting: WaitingRevision | None = None
    busy: frozenset[str] = frozenset()
    under_way: frozenset[str] = frozenset()
    contexts: Mapping[str, Context] = field(default_factory=dict)
    target_answers: Mapping[TargetProbe, ProbeFact] = field(default_factory=dict)
    trials: Mapping[Generation, Mapping[str, Answer]] = field(default_factory=dict)
    references: Mapping[str, str] = field(default_factory=dict)
    faults: tuple[Hold, ...] = ()
    secrets: Mapping[SecretSource, SecretProblem] = field(default_factory=dict)
    booted: int = 0
