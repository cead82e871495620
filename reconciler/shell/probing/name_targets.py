"""Probes of the target addresses of names, made by the same engine as probes of containers. Used by `targets.py`.

`core/dns/target_health.py` says what to probe. Here that becomes targets of the engine, and their results become
`Observed.target_answers`. A verdict is kept while any policy asks for that probe: a new weight of a target keeps it. A dead engine loses
all verdicts, which leaves the published records unchanged.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b

from manifests.values.desired import Desired, Probe, ProbeTLS
from manifests.values.dns import Publish
from manifests.values.secret_sources import SecretSource
from providers.facts import Generation, ProbeFact, ProbeValue
from reconciler.core.dns.target_health import target_probes
from reconciler.core.model.dns_memory import CheckRow
from reconciler.core.model.target_probe import TargetProbe
from reconciler.core.replicas.roster import Roster
from reconciler.probes.target import Target
from reconciler.shell.daemon_view import DaemonView
from reconciler.shell.probing.inputs import ProbeInputs

LEAF = "leaf"
"""The name of these probes in the engine, beside startup, liveness and readiness."""

MAX_UNCLEAR = 3
"""Results in a row that are neither pass nor fail (no route, no resolver) after which a single run stops waiting for a verdict."""


@dataclass(slots=True)
class _Running:
    """One probe in the engine; `unclear` counts its results in a row that are neither pass nor fail."""

    target_address: TargetProbe
    probe: Probe
    unclear: int = 0


class NameTargets:
    """The probes of target addresses, and their verdicts.

    Attributes:
        verdicts: the newest result of each probe that has one.
        with_secrets: the probes that need a secret.
        view: of a process whose verdicts count here, for a plan beside it.
        suspended: the operator has suspended all probes: none runs, and no verdict is waited for.
    """

    def __init__(self) -> None:
        self.verdicts: dict[TargetProbe, ProbeFact] = {}
        self.with_secrets: tuple[Probe, ...] = ()
        self.suspended = False
        self.view: DaemonView | None = None
        self._running: dict[Generation, _Running] = {}
        self._leaves: tuple[TargetProbe, ...] = ()
        self._desired: Desired | None = None
        self._roster: Roster | None = None
        self._checks: Mapping[str, CheckRow] = {}
        self._allowed: tuple[str, ...] = ()

    def follow(self, desired: Desired, roster: Roster, checks: Mapping[str, CheckRow]) -> bool:
        """Take over the roster and the checks that decide, because names may publish addresses of its containers.

        Whether the probes change.
        """
        if not by_endpoint(desired) and checks == self._checks:
            return False
        self._roster, self._checks, self._desired = roster, checks, None
        return target_probes(desired, roster, checks) != self._leaves

    def set_desired(self, desired: Desired, checks: Mapping[str, CheckRow] | None = None) -> bool:
        """Run exactly the probes of these manifests, and of the checks that decide by the ledger. Whether the probes changed."""
        if checks is not None and checks is not self._checks:
            self._checks, self._desired = checks, None
        if desired is self._desired and not by_endpoint(desired):
            return False
        target_addresses = target_probes(desired, self._roster, self._checks)
        allowed = desired.instance.allow_addresses
        self._desired = desired
        if target_addresses == self._leaves and allowed == self._allowed:
            return False
        self._leaves, self._allowed = target_addresses, allowed
        before = self._running
        self._running = {
            key: before.get(key) or _Running(target_address, probe_of(target_address))
            for key, target_address in (
                (generation_of(target_address), target_address) for target_address in target_addresses
            )
        }
        self.verdicts = {
            running.target_address: self.verdicts[running.target_address]
            for running in self._running.values()
            if running.target_address in self.verdicts
        }
        if self.view is not None:
            known = {target_address: self.view.check(target_address) for target_address in target_addresses}
            self.verdicts |= {target_address: fact for target_address, fact in known.items() if fact is not None}
        self.with_secrets = tuple(running.probe for running in self._running.values() if _needs_secret(running.probe))
        return True

    def targets(self, inputs: ProbeInputs) -> list[Target]:
        """The targets for the engine, with the secrets as they are known now."""
        root = self._desired.root if self._desired is not None else ""
        return [
            Target(
                key,
                LEAF,
                running.probe,
                running.target_address.address,
                running.probe.port,
                0,
                None,
                False,
                inputs.given(running.probe, root),
                self._allowed,
            )
            for key, running in (() if self.suspended else self._running.items())
            if self.view is None or self.view.check(running.target_address) is None
        ]

    def take(self, key: Generation, fact: ProbeFact) -> bool:
        """Take a result. Whether the verdict changed."""
        running = self._running.get(key)
        if running is None:
            return False  # the probe was removed meanwhile
        running.unclear = 0 if fact.last in _CLEAR else running.unclear + 1
        before = self.verdicts.get(running.target_address)
        self.verdicts[running.target_address] = fact
        return before is None or before.value is not fact.value

    def forget(self) -> None:
        """Drop all verdicts: the engine died or does not answer."""
        self.verdicts = {}

    def unanswered(self) -> bool:
        """Whether a probe has no result yet."""
        return not self.suspended and any(
            running.target_address not in self.verdicts for running in self._running.values()
        )

    def undecided(self) -> bool:
        """Whether waiting may still bring a verdict: not for probes with only unclear results."""
        for running in self._running.values():
            fact = self.verdicts.get(running.target_address)
            if fact is None or (fact.value is ProbeValue.UNKNOWN and running.unclear < MAX_UNCLEAR):
                return not self.suspended
        return False

    def open(self) -> tuple[str, ...]:
        """One message with the reason for each probe without a verdict. Called at the end of a single run."""
        messages = []
        for running in self._running.values():
            fact = self.verdicts.get(running.target_address)
            if fact is None or fact.value not in _CLEAR:
                detail = "no answer yet" if fact is None else fact.detail
                messages.append(
                    f"{running.target_address.address.removesuffix('.')}: its check has no verdict ({detail})"
                )
        return tuple(messages)


_CLEAR = {ProbeValue.PASS, ProbeValue.FAIL}


def probe_of(target_address: TargetProbe) -> Probe:
    """The probe of a target address. For a host name, Host header and TLS name default to the host name itself."""
    probe = target_address.probe()
    if probe.host or not target_address.is_name:
        return probe
    host = target_address.address.removesuffix(".")
    tls = replace(probe.tls, server_name=host) if isinstance(probe.tls, ProbeTLS) else None
    return replace(probe, host=host, tls=tls)


def generation_of(target_address: TargetProbe) -> Generation:
    """The id of a target address in the engine: equal in every process, so that its phase within the interval stays."""
    digest = blake2b(repr(target_address.check).encode(), digest_size=16).hexdigest()
    return Generation(f"{LEAF} {target_address.address} {digest}", 0)


def by_endpoint(desired: Desired) -> bool:
    """Whether target addresses depend on running containers: a target publishes the endpoints of a service, with a check."""
    return any(
        target.publish is Publish.ENDPOINTS and policy.check is not None
        for policy in desired.policies
        for target in policy.targets
    )


def _needs_secret(probe: Probe) -> bool:
    return any(isinstance(value, SecretSource) for _, value in probe.headers)
