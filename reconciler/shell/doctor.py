"""Doctor: is every provider reachable and configured for the manifests? Read-only. Called by `wire.examine`.

A provider may have a `check` method, which returns missing settings and rights with the lines to add, and a `warnings`
method, which returns what works, but costs more than it seems, or was not checked.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

from manifests.values.desired import Desired, Role
from manifests.values.rollouts import Strategy
from manifests.values.secret_sources import SecretSource
from providers.errors import ProviderError
from providers.facts import PoolFact
from providers.lib.secrets import resolve
from providers.spi import Provider
from reconciler.core.traffic import fixed_weights
from reconciler.shell.providers import Providers, Runner, innermost
from reconciler.shell.secrets import all_references


@dataclass(frozen=True, slots=True)
class Finding:
    """The result for one provider: whether it answers, a summary or the error, what is missing, and what works at a cost."""

    provider: str
    role: Role
    type: str
    reached: bool
    summary: str
    missing: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SecretFinding:
    """The result for one secret: which objects need it, whether it can be used, why not and the next step, or what to know about it."""

    secret: str
    needed_by: tuple[str, ...]
    usable: bool
    message: str


def examine_secrets(desired: Desired) -> tuple[SecretFinding, ...]:
    """One finding per secret that the manifests name, by its place. Blocks on files and programs; no value is in a finding."""
    needed: dict[SecretSource, list[str]] = {}
    for key, sources in all_references(desired):
        for source in dict.fromkeys(sources):
            needed.setdefault(source, []).append(key)
    return tuple(
        _secret(source, tuple(dict.fromkeys(keys)))
        for source, keys in sorted(needed.items(), key=lambda item: str(item[0]))
    )


def _secret(source: SecretSource, keys: tuple[str, ...]) -> SecretFinding:
    try:
        resolve(source, keys[0])
    except ProviderError as error:
        tail = f"; next step: {error.next_step}" if error.next_step else ""
        return SecretFinding(str(source), keys, False, f"{error.cause}{tail}")
    except ValueError:
        return SecretFinding(str(source), keys, False, "its name is not valid; next step: correct the reference")
    known = "read once, when reconcile starts: a change counts after a restart" if source.env else "can be read"
    return SecretFinding(str(source), keys, True, known)


def _named(desired: Desired, role: Role, name: str) -> list[str]:
    """The pools or zones of a provider that the manifests name; none for a runtime, which is looked at as a whole."""
    if role is Role.ENDPOINTS:
        return sorted(
            {
                balancer.pool
                for service in desired.services
                for balancer in service.balancers
                if balancer.provider == name
            }
        )
    if role is Role.DNS:
        return sorted(zone for provider, zone in desired.zones if provider == name)
    return []


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _look(
    providers: Providers, desired: Desired, role: Role, name: str, named: Collection[str]
) -> tuple[str, tuple[str, ...]]:
    """A one-line summary of one look, and what the provider does not take. Raises `ProviderError`."""
    if role is Role.RUNTIME:
        facts = providers.runtimes[name].observe()
        marked = sum(1 for fact in facts if fact.mark is not None)
        return f"{_count(len(facts), 'container')}, {marked} owned by an instance", ()
    if role is Role.ENDPOINTS:
        pools = providers.endpoints[name].observe(named)
        members = sum(len(pool.members) for pool in pools)
        summary = f"{_count(len(pools), 'pool')}, {_count(members, 'member')}"
        return summary, tuple(_lost_weights(desired, name, {pool.pool: pool for pool in pools}))
    zones = providers.dns[name].observe(named)
    summary = ", ".join(f"{zone.zone} {_count(len(zone.records), 'record set')}" for zone in zones)
    return summary or "no manifest names a zone of it", ()


def _lost_weights(desired: Desired, provider: str, pools: Mapping[str, PoolFact]) -> Iterator[str]:
    """What the pools do not take of the weights, ramps and canaries of the manifests."""
    canaries = {workload.key for workload in desired.workloads if workload.strategy is Strategy.CANARY}
    for service in desired.services:
        shares = any(backend.workload in canaries for backend in service.backends)
        for balancer in service.balancers:
            pool = pools.get(balancer.pool) if balancer.provider == provider else None
            lost = "" if pool is None else fixed_weights.lost(service, pool, shares)
            if lost:
                yield f"{service.key}: {lost}; {fixed_weights.NEXT_STEP}"


def _missing(provider: Provider, desired: Desired, role: Role, named: Collection[str]) -> tuple[str, ...]:
    """The result of the provider's own check. Raises `ProviderError`."""
    check: Callable[..., tuple[str, ...]] | None = getattr(innermost(provider), "check", None)
    if check is None:
        return ()
    if role is not Role.RUNTIME:
        return check(named)
    return check([workload.template for workload in desired.workloads if provider.name in workload.nodes])


def _warnings(provider: Provider, desired: Desired, role: Role, named: Collection[str]) -> tuple[str, ...]:
    """What works at a cost, or was not checked, as the provider says it. An error is one of the check, too."""
    warn: Callable[..., tuple[str, ...]] | None = getattr(innermost(provider), "warnings", None)
    if warn is None:
        return ()
    try:
        if role is not Role.RUNTIME:
            return warn(named)
        return warn([workload.template for workload in desired.workloads if provider.name in workload.nodes])
    except ProviderError:
        return ()


async def examine(desired: Desired, providers: Providers, runner: Runner) -> tuple[Finding, ...]:
    """One finding per provider, in the order of roles and names."""
    types = {provider.name: provider.type for provider in desired.providers}
    findings: list[Finding] = []
    for provider in providers.all():
        role, name = provider.role, provider.name
        named = _named(desired, role, name)

        def ask(
            provider: Provider = provider, role: Role = role, name: str = name, named: list[str] = named
        ) -> Finding:
            try:
                summary, lost = _look(providers, desired, role, name, named)
            except ProviderError as error:
                return Finding(
                    name, role, types[name], False, str(error), _missing_or_error(provider, desired, role, named)
                )
            missing = (*_missing_or_error(provider, desired, role, named), *lost)
            warnings = _warnings(provider, desired, role, named)
            return Finding(name, role, types[name], True, summary, missing, warnings)

        findings.append(await runner.run(ask))
    return tuple(findings)


def _missing_or_error(provider: Provider, desired: Desired, role: Role, named: Collection[str]) -> tuple[str, ...]:
    """What is missing, or the error of the check."""
    try:
        return _missing(provider, desired, role, named)
    except ProviderError as error:
        return (str(error),)
