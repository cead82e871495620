"""Probe contexts in labels of containers without a mark: each text is parsed once. Called by `targets.py`.

Which of these containers are probed is a rule of the core (`core/replicas/foreign.py`); this module only parses labels for it.
"""

from collections.abc import Mapping

from manifests.resolve.probe_context import parse_context
from manifests.values.desired import Container, Desired
from providers.facts import ContainerFact, Known
from reconciler.core.model.ledger import Ledger
from reconciler.core.model.observed import RuntimeFacts
from reconciler.core.model.probe_context import Context
from reconciler.core.replicas.foreign import probed
from reconciler.core.replicas.labelled import labelled

Probed = Mapping[str, tuple[ContainerFact, str, Container]]
"""By container id: its fact, the key of its workload, and the container with its probes."""


class LabelContexts:
    """The probe contexts of the latest facts.

    Attributes:
        contexts: the parsed contexts, by the label's text.
    """

    def __init__(self) -> None:
        self.contexts: dict[str, Context] = {}
        self._allowed: object = None

    def find(self, desired: Desired, runtimes: Mapping[str, RuntimeFacts], ledger: Ledger) -> Probed:
        """The containers without a mark to probe. A text is parsed again only when the Guard allows other commands."""
        facts = {node: known.value for node, known in runtimes.items() if isinstance(known, Known)}
        texts: set[str] = set()
        if desired.instance.enhanced_liveness:
            texts = {text for containers in facts.values() for fact in containers if (text := labelled(fact))}
        allowed = desired.guard.exec_commands
        known = self.contexts if allowed == self._allowed else {}
        self.contexts = {text: known.get(text) or _parse(text, allowed) for text in texts}
        self._allowed = allowed
        return probed(desired, facts, set(runtimes) - set(facts), ledger, self.contexts)


def _parse(text: str, allowed: tuple[tuple[str, ...], ...] | None) -> Context:
    try:
        return Context(parse_context(text, allowed))
    except ValueError as error:
        return Context(problem=str(error))
