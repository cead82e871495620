"""Specs: what a revision declared about its running containers, and the trials of what is declared now. Values only.

A container is judged and reached as its own revision says. The ledger keeps the spec of every revision that has containers;
`replicas/specs` has the rules, `ledger_codec` stores them.
"""

from dataclasses import asdict
from typing import Any, NamedTuple

from manifests.values.desired import AddressFrom, Probe
from providers.facts import ProbeFact
from reconciler.core.model import value_json


class ServicePort(NamedTuple):
    """Where a service reaches a container: its port, as seen from `source`; on `network`, empty = the first one of the template."""

    port: int
    source: AddressFrom = AddressFrom.CONTAINER
    network: str = ""


class Spec(NamedTuple):
    """The probes, the grace (ns) and the networks of a revision, and for each service that selects it where that reaches it."""

    startup: Probe | None = None
    liveness: Probe | None = None
    readiness: Probe | None = None
    grace: int = 0
    networks: tuple[str, ...] = ()
    services: tuple[tuple[str, ServicePort], ...] = ()

    def port_of(self, service: str) -> ServicePort | None:
        """Where the service of this key reaches a container; None when it did not select the revision."""
        for key, port in self.services:
            if key == service:
                return port
        return None


Trial = Probe | ServicePort
"""What is tried on a running container beside what decides there: a probe that asks something else, or another port of a service."""


class Answer(NamedTuple):
    """What a trial has shown so far on one generation."""

    trial: Trial
    fact: ProbeFact


def write(spec: Spec) -> dict[str, Any]:
    """A spec for JSON, without what is empty."""
    row: dict[str, Any] = {
        name: asdict(probe)
        for name in ("startup", "liveness", "readiness")
        if (probe := getattr(spec, name)) is not None
    }
    return {**row, "grace": spec.grace, "networks": spec.networks, "services": spec.services}


def read(raw: Any) -> Spec | None:
    """A spec from its parsed JSON; None when another version of the program wrote it with other fields."""
    if not isinstance(raw, dict):
        return None
    try:
        values = {name: value_json.read(Spec.__annotations__[name], value) for name, value in raw.items()}
    except (ValueError, TypeError, KeyError):
        return None
    return Spec(**values)
