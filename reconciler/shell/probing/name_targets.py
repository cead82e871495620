"""Probes of leaves: the addresses that names lead to, asked by the same engine as containers. Used by `probing.py`.

What is asked comes from `core.leaf_health`; here it becomes targets of the engine, and their results the facts of
`Observed.leaves`. A verdict lives as long as something asks that question: editing a target's weight keeps it, and
an engine that died takes all of them along, which leaves what is published as it is.
"""

from dataclasses import dataclass, replace
from hashlib import blake2b

from manifests.values.desired import Desired, Probe, ProbeTLS
from manifests.values.dns import Publish
from manifests.values.pod import SecretSource
from providers.facts import Generation, ProbeFact, ProbeValue
from reconciler.core.dns.target_health import leaf_probes
from reconciler.core.model.leaf_probe import LeafProbe
from reconciler.core.replicas.roster import Roster
from reconciler.probes.target import Target
from reconciler.shell.probing.inputs import ProbeInputs

LEAF = "leaf"
"""The name under which the engine knows these probes, beside startup, liveness and readiness."""

TRIES = 3
"""Results of no meaning (no route, no resolver) after which a single run does not wait for a verdict any more."""


@dataclass(slots=True)
class _Asked:
    """One question as the engine has it; `blind` counts its results of no meaning in a row."""

    leaf: LeafProbe
    probe: Probe
    blind: int = 0


class NameTargets:
    """What is asked about the leaves of names, and the answers so far.

    Attributes:
        verdicts: the newest fact of each question that has one.
        needy: those of the probes that need a secret.
        silent: a person has suspended all probes: nothing is asked, and no answer is waited for.
    """

    def __init__(self) -> None:
        self.verdicts: dict[LeafProbe, ProbeFact] = {}
        self.needy: tuple[Probe, ...] = ()
        self.silent = False
        self._asked: dict[Generation, _Asked] = {}
        self._leaves: tuple[LeafProbe, ...] = ()
        self._desired: Desired | None = None
        self._crew: Roster | None = None
        self._allowed: tuple[str, ...] = ()

    def follow(self, desired: Desired, roster: Roster) -> bool:
        """Take note of what runs: names may lead to its addresses. Whether that changes what is asked."""
        if not by_endpoint(desired):
            return False
        self._crew = roster
        return leaf_probes(desired, roster) != self._leaves

    def want(self, desired: Desired) -> bool:
        """Ask what these manifests want to know, and no more; whether that is anything new."""
        if desired is self._desired and not by_endpoint(desired):
            return False
        leaves = leaf_probes(desired, self._crew)
        allowed = desired.instance.allow_addresses
        self._desired = desired
        if leaves == self._leaves and allowed == self._allowed:
            return False
        self._leaves, self._allowed = leaves, allowed
        before = self._asked
        named = {stand_in(leaf): leaf for leaf in leaves}
        self._asked = {key: before.get(key) or _Asked(leaf, question(leaf)) for key, leaf in named.items()}
        self.verdicts = {one.leaf: self.verdicts[one.leaf] for one in self._asked.values() if one.leaf in self.verdicts}
        self.needy = tuple(one.probe for one in self._asked.values() if _needs_secret(one.probe))
        return True

    def targets(self, inputs: ProbeInputs) -> list[Target]:
        """What the engine should ask, with the secrets as they are known now."""
        root = self._desired.root if self._desired is not None else ""
        return [
            Target(
                key,
                LEAF,
                one.probe,
                one.leaf.address,
                one.probe.port,
                0,
                None,
                False,
                inputs.given(one.probe, root),
                self._allowed,
            )
            for key, one in (() if self.silent else self._asked.items())
        ]

    def take(self, key: Generation, fact: ProbeFact) -> bool:
        """Take a result; whether the verdict changed."""
        asked = self._asked.get(key)
        if asked is None:
            return False  # of a question that is not asked any more
        asked.blind = 0 if fact.last in _MEANT else asked.blind + 1
        before = self.verdicts.get(asked.leaf)
        self.verdicts[asked.leaf] = fact
        return before is None or before.value is not fact.value

    def forget(self) -> None:
        """Nothing is known any more: the engine died or fell silent."""
        self.verdicts = {}

    def unanswered(self) -> bool:
        """Whether something that is asked has no result at all yet."""
        return not self.silent and any(one.leaf not in self.verdicts for one in self._asked.values())

    def undecided(self) -> bool:
        """Whether a verdict may still come by waiting for it: not where nothing can be asked, or nothing is understood."""
        for one in self._asked.values():
            fact = self.verdicts.get(one.leaf)
            if fact is None or (fact.value is ProbeValue.UNKNOWN and one.blind < TRIES):
                return not self.silent
        return False

    def open(self) -> tuple[str, ...]:
        """Whatever has no verdict now, in a sentence each with the reason: in a single run that is the end of it."""
        found = []
        for one in self._asked.values():
            fact = self.verdicts.get(one.leaf)
            if fact is None or fact.value not in _MEANT:
                detail = "no answer yet" if fact is None else fact.detail
                found.append(f"{one.leaf.address.removesuffix('.')}: its check has no verdict ({detail})")
        return tuple(found)


_MEANT = {ProbeValue.PASS, ProbeValue.FAIL}


def question(leaf: LeafProbe) -> Probe:
    """The probe of a leaf. A host name is asked under its own name where its policy gives no other."""
    probe = leaf.probe()
    if probe.host or not leaf.is_name:
        return probe
    host = leaf.address.removesuffix(".")
    tls = replace(probe.tls, server_name=host) if isinstance(probe.tls, ProbeTLS) else None
    return replace(probe, host=host, tls=tls)


def stand_in(leaf: LeafProbe) -> Generation:
    """What the engine knows a leaf by: the same in every process, so that its phase within the interval stays."""
    digest = blake2b(repr(leaf.check).encode(), digest_size=16).hexdigest()
    return Generation(f"{LEAF} {leaf.address} {digest}", 0)


def by_endpoint(desired: Desired) -> bool:
    """Whether leaves depend on what runs: a target publishes the endpoints of a service and is asked for its health."""
    return any(
        target.publish is Publish.ENDPOINTS and policy.check is not None
        for policy in desired.policies
        for target in policy.targets
    )


def _needs_secret(probe: Probe) -> bool:
    return any(isinstance(value, SecretSource) for _, value in probe.headers)
