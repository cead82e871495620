"""A scene on several nodes, each replica on the node where the manifest places it, and a ledger that has observed it once."""

from dataclasses import replace

from manifests.values.desired import Desired
from providers.facts import ContainerFact, Known, Unknown
from reconciler.core.decide import decide
from reconciler.core.decision import Decision
from reconciler.core.model.instant import Now
from reconciler.core.model.observed import Observed
from tests.builders import NOW, SEEN, Scene
from tests.sim.manifest import Shop, Spec

NODES = ("node-a", "node-b", "node-c", "node-d")
SILENT = "node-d"


def spec(**fields) -> Spec:
    return Spec(**{"replicas": 4, "nodes": NODES, **fields})


class Fleet(Scene):
    """All replicas of the specs, healthy, spread over the nodes.

    `silent` nodes do not answer. `manifests` are those in force; None = those of `shop`.
    """

    def __init__(self, *specs: Spec, prune: bool = False) -> None:
        self.silent: set[str] = set()
        self.manifests: Desired | None = None
        self.shop = Shop(specs, prune=prune)
        super().__init__(*specs)

    @property
    def desired(self) -> Desired:
        return self.manifests or self.shop.desired()

    def add(self, spec: Spec, fact: ContainerFact, weight: int = 100) -> None:
        ordinal = fact.mark.ordinal if fact.mark is not None else 0
        node = spec.nodes[ordinal % len(spec.nodes)] if fact.node not in NODES[1:] else fact.node
        super().add(spec, replace(fact, node=node), weight)

    def observed(self) -> Observed:
        runtimes: dict[str, Known | Unknown] = {}
        for node in NODES:
            facts = tuple(fact for fact in self.facts if fact.node == node)
            silent = Unknown("no answer", node, SEEN - 5)
            runtimes[node] = silent if node in self.silent else Known(facts, node, SEEN)
        return replace(super().observed(), runtimes=runtimes)

    def decide(self, now: Now = NOW, **changes: object) -> Decision:
        """Decide, and keep the ledger."""
        decision = decide(self.desired, replace(self.observed(), **changes), now)
        self.ledger = decision.ledger
        return decision

    def learned(self) -> "Fleet":
        """The same, after looks at all nodes."""
        for _ in range(3):
            assert not self.decide().steps
        return self

    def without(self, number: int) -> ContainerFact:
        """Remove a container, and nothing of what pools and names have of it."""
        return self.facts.pop(number)


def steps(decision: Decision) -> list[str]:
    return sorted(step.id for step in decision.steps)
