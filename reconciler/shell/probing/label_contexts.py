"""Somebody else's containers as the shell needs them: probe contexts read once per text, and what is to be probed of whom.

Who is treated as ours is a rule of the core (`core/foreign.py`); this module only reads labels for it. Called by `probing`.
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
"""By container id: its fact, the key of the workload it is treated as part of, and its probes."""


class LabelContexts:
    """The probe contexts of the latest facts.

    Attributes:
        contexts: what was read, by the label's text.
    """

    def __init__(self) -> None:
        self.contexts: dict[str, Context] = {}
        self._allowed: object = None

    def find(self, desired: Desired, runtimes: Mapping[str, RuntimeFacts], ledger: Ledger) -> Probed:
        """Who of somebody else's containers is probed, and how. A text is read again only when the Guard allows other commands."""
        seen = {node: one.value for node, one in runtimes.items() if isinstance(one, Known)}
        texts: set[str] = set()
        if desired.instance.enhanced_liveness:
            texts = {text for facts in seen.values() for fact in facts if (text := labelled(fact))}
        allowed = desired.guard.exec_commands
        known = self.contexts if allowed == self._allowed else {}
        self.contexts = {text: known.get(text) or _read(text, allowed) for text in texts}
        self._allowed = allowed
        return probed(desired, seen, set(runtimes) - set(seen), ledger, self.contexts)


def _read(text: str, allowed: tuple[tuple[str, ...], ...] | None) -> Context:
    try:
        return Context(parse_context(text, allowed))
    except ValueError as error:
        return Context(problem=str(error))
