"""Doctor: can every provider be reached, and is it configured for what the manifests ask? Reads only.

Providers that know more than a look shows have a `check` method, which returns what is missing, with the lines to add. Called by
`wire.examine`.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass

from manifests.values.desired import Desired, Role
from providers.errors import ProviderError
from providers.spi import Provider
from reconciler.shell.providers import Providers, Runner, innermost


@dataclass(frozen=True, slots=True)
class Finding:
    """One provider: whether it answers, what it showed or why not, and what is missing."""

    provider: str
    role: Role
    type: str
    reached: bool
    summary: str
    missing: tuple[str, ...] = ()


def _asked(desired: Desired, role: Role, name: str) -> list[str]:
    """The pools or zones that the manifests name of a provider; for a runtime, the workloads on it."""
    if role is Role.ENDPOINTS:
        return sorted({b.pool for service in desired.services for b in service.balancers if b.provider == name})
    if role is Role.DNS:
        return sorted(zone for provider, zone in desired.zones if provider == name)
    return sorted(workload.key for workload in desired.workloads if name in workload.nodes)


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _look(providers: Providers, role: Role, name: str, asked: Collection[str]) -> str:
    """One look, in a few words. Raises `ProviderError`."""
    if role is Role.RUNTIME:
        facts = providers.runtimes[name].observe()
        marked = sum(1 for fact in facts if fact.mark is not None)
        return f"{_count(len(facts), 'container')}, {marked} with a mark"
    if role is Role.ENDPOINTS:
        pools = providers.endpoints[name].observe(asked)
        members = sum(len(pool.members) for pool in pools)
        return f"{_count(len(pools), 'pool')}, {_count(members, 'member')}"
    zones = providers.dns[name].observe(asked)
    return (
        ", ".join(f"{zone.zone} {_count(len(zone.records), 'record set')}" for zone in zones) or "no zone is asked for"
    )


def _missing(provider: Provider, desired: Desired, role: Role, asked: Collection[str]) -> tuple[str, ...]:
    """What the provider itself says is missing. Raises `ProviderError`."""
    check: Callable[..., tuple[str, ...]] | None = getattr(innermost(provider), "check", None)
    if check is None:
        return ()
    if role is not Role.RUNTIME:
        return check(asked)
    return check([workload.template for workload in desired.workloads if provider.name in workload.nodes])


async def examine(desired: Desired, providers: Providers, runner: Runner) -> tuple[Finding, ...]:
    """One finding per provider, in the order of roles and names."""
    types = {one.name: one.type for one in desired.providers}
    findings: list[Finding] = []
    for provider in providers.all():
        role, name = provider.role, provider.name
        asked = _asked(desired, role, name)

        def ask(
            provider: Provider = provider, role: Role = role, name: str = name, asked: list[str] = asked
        ) -> Finding:
            try:
                summary = _look(providers, role, name, asked)
            except ProviderError as error:
                return Finding(name, role, types[name], False, str(error), _told(provider, desired, role, asked))
            return Finding(name, role, types[name], True, summary, _told(provider, desired, role, asked))

        findings.append(await runner.run(ask))
    return tuple(findings)


def _told(provider: Provider, desired: Desired, role: Role, asked: Collection[str]) -> tuple[str, ...]:
    """What is missing, or why that cannot be found out."""
    try:
        return _missing(provider, desired, role, asked)
    except ProviderError as error:
        return (str(error),)
