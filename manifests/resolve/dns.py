"""From checked DNSPolicy, HealthCheck and Record manifests to their values. Called by `resolver.py`.

This module checks single documents; `name_conflicts.py` checks the names of all documents together.
"""

from collections.abc import Sequence
from dataclasses import replace

from manifests import kinds
from manifests.kinds.dns_policy import KEYWORDS, WEIGHT, DNSPolicySpec, Target
from manifests.kinds.health_check import CheckFields
from manifests.kinds.validate import Declared, Path
from manifests.problems import Code, did_you_mean
from manifests.resolve.references import Scope
from manifests.values import dns
from manifests.values.desired import SECOND, Role
from manifests.values.dns import AllUnhealthy, Publish, Routing
from manifests.values.dns_names import LONGEST, target_label, within

TIMEOUT = 3 * SECOND
"""Longest time of a response of a target address; never longer than its interval."""

NOT_AT_APEX = ("CNAME", "NS", "DNAME", "DS")
"""Types that the apex of a zone cannot have."""

_GEO = (Routing.GEO, Routing.GEO_WEIGHTED)
_WEIGHTED = (Routing.WEIGHTED, Routing.GEO_WEIGHTED)


def health_check(declared: Declared) -> dns.HealthCheck | None:
    """A declared check."""
    manifest = declared.manifest
    if not isinstance(manifest, kinds.HealthCheck):
        return None
    spec = manifest.spec
    host = spec.host or (spec.address.removesuffix(".") if spec.address.endswith(".") else "")
    return dns.HealthCheck(declared.key, declared.name, spec.address, _check(spec, host), declared.document.where)


def record(declared: Declared, scope: Scope) -> dns.Record | None:
    """A plain record set."""
    manifest = declared.manifest
    if not isinstance(manifest, kinds.Record):
        return None
    spec = manifest.spec
    provider = _provider(declared, scope, spec.provider)
    _inside(declared, scope, spec.host, spec.zone)
    if spec.host == spec.zone and spec.type in NOT_AT_APEX:
        message, hint = apex_problem(spec.type)
        scope.report(declared, ("spec", "type"), Code.CONFLICT, f"{declared.key}: {spec.host}: {message}", hint)
    if spec.host.startswith("_acme-challenge"):
        message = f"{declared.key}: records at {spec.host} belong to the ACME client that creates them"
        scope.report(declared, ("spec", "host"), Code.CONFLICT, message, "remove the Record")
    return dns.Record(
        declared.key,
        declared.name,
        spec.host,
        provider,
        spec.zone,
        spec.type,
        int(spec.ttl) // SECOND,
        spec.canonical(),
        declared.document.where,
        spec.adopt,
    )


def apex_problem(kind: str) -> tuple[str, str]:
    """Message and hint for a record of one of `NOT_AT_APEX` at the name of its zone."""
    if kind == "NS":
        return "NS cannot be at the name of the zone: the name servers belong to the provider", "remove it"
    if kind == "DS":
        return "DS cannot be at the name of the zone: it belongs to the zone above", "declare it in the zone above"
    hint = "write a DNSPolicy with a hostname target for the addresses of another name"
    return f"{kind} cannot be at the name of the zone: it excludes the zone's own records", hint


def policy(declared: Declared, scope: Scope) -> dns.DNSPolicy | None:
    """A policy with its provider, its routing, and what each of its targets publishes."""
    manifest = declared.manifest
    if not isinstance(manifest, kinds.DNSPolicy):
        return None
    spec = manifest.spec
    provider = _provider(declared, scope, spec.provider)
    _inside(declared, scope, spec.host, spec.zone)
    targets = tuple(_target(declared, scope, target, index) for index, target in enumerate(spec.targets))
    fallback = "" if spec.when_all_unhealthy in (None, *KEYWORDS) else spec.when_all_unhealthy or ""
    regular = [target for target in spec.targets if target.name != fallback]
    routing = _routing(spec, regular)
    _check_fallback(declared, scope, spec, fallback)
    _check_routing(declared, scope, spec, routing, fallback)
    check = _policy_check(declared, scope, spec)
    all_unhealthy = _when_all_unhealthy(declared, scope, spec, check is not None, fallback)
    default = _default_geo(regular)
    routed = [_routed(target, routing, default, fallback) for target in targets]
    return dns.DNSPolicy(
        key=declared.key,
        name=declared.name,
        host=spec.host,
        provider=provider,
        zone=spec.zone,
        targets=tuple(sorted(routed, key=lambda target: target.name)),
        ttl=int(spec.ttl) // SECOND,
        routing=routing,
        tree_ttl=dns.TreeTTL(
            int(spec.tree_ttl.host) // SECOND, int(spec.tree_ttl.balancer) // SECOND, int(spec.tree_ttl.geo) // SECOND
        ),
        check=check,
        all_unhealthy=all_unhealthy,
        fallback=fallback,
        where=declared.document.where,
        adopt=spec.adopt,
    )


# --- parts ----------------------------------------------------------------------------------------------------------


def _provider(declared: Declared, scope: Scope, given: str | None) -> str:
    if given is None:
        return scope.only_provider(Role.DNS, declared, ("spec",), "spec.provider")
    scope.provider(given, Role.DNS, declared, ("spec", "provider"))
    return given


def _inside(declared: Declared, scope: Scope, host: str, zone: str) -> None:
    if not within(host, zone):
        message = f"{declared.key}: {host} is not in zone {zone}"
        hint = "write the zone itself or a name below it, or another zone"
        scope.report(declared, ("spec", "host"), Code.OUTSIDE_ZONE, message, hint)


def _check(spec: CheckFields, host: str) -> dns.Check:
    return dns.Check(
        host=host,
        protocol=spec.protocol,
        port=spec.port,
        path=spec.path,
        interval=int(spec.interval),
        timeout=min(TIMEOUT, int(spec.interval)),
        failure_threshold=spec.failure_threshold,
        success_threshold=spec.success_threshold,
        headers=tuple(
            (header.name, header.value_from.secret.source() if header.value_from is not None else header.value or "")
            for header in spec.additional_headers
        ),
        expected=tuple(sorted(spec.expected_responses)),
        verify=not spec.allow_insecure_certificates,
    )


def _policy_check(declared: Declared, scope: Scope, spec: DNSPolicySpec) -> dns.Check | None:
    if spec.health_check is None:
        return None
    host = spec.health_check.host
    if host is None and spec.host.startswith("*."):
        message = f"{declared.key}: {spec.host} is a wildcard, and the health check needs one host"
        hint = f"add host, such as www.{spec.host[2:].removesuffix('.')}, to spec.healthCheck"
        scope.report(declared, ("spec", "healthCheck"), Code.MISSING_FIELD, message, hint)
    return _check(spec.health_check, host or spec.host.removesuffix("."))


def _target(declared: Declared, scope: Scope, target: Target, index: int) -> dns.Target:
    common = dns.Target(
        target.name,
        Publish.ADDRESSES,
        weight=WEIGHT if target.weight is None else target.weight,
        geo=target.geo or "",
        default=target.default,
        check="" if target.health_check is None else f"healthcheck/{target.health_check}",
        force=target.force or "",
    )
    if target.health_check is not None:
        scope.find("HealthCheck", target.health_check, declared, ("spec", "targets", index, "healthCheck"))
    return _source(declared, scope, target, common, ("spec", "targets", index, "service", "name"))


def _source(declared: Declared, scope: Scope, target: Target, common: dns.Target, path: Path) -> dns.Target:
    """The target with the source of its addresses."""
    if target.addresses is not None:
        return _with(common, Publish.ADDRESSES, addresses=tuple(sorted(target.addresses)))
    if target.hostname is not None:
        return _with(common, Publish.HOSTNAME, hostname=target.hostname)
    assert target.service is not None  # noqa: S101  (the model ensures exactly one)
    service = scope.find("Service", target.service.name, declared, path)
    has_addresses = (
        service is not None
        and isinstance(service.manifest, kinds.Service)
        and any(balancer.addresses for balancer in service.manifest.spec.balancers)
    )
    default = Publish.BALANCER if has_addresses else Publish.ENDPOINTS
    publish = Publish(target.service.publish) if target.service.publish else default
    if publish is Publish.BALANCER and service is not None and service.manifest is not None and not has_addresses:
        hint = "add addresses to a balancer of the service, or write publish: endpoints"
        message = f"{declared.key}: the balancers of {service.key} have no addresses to publish"
        scope.report(declared, (*path[:-1], "publish"), Code.NOTHING_TO_PUBLISH, message, hint)
    return _with(common, publish, service=f"service/{target.service.name}")


def _with(
    common: dns.Target, publish: Publish, service: str = "", addresses: tuple[str, ...] = (), hostname: str = ""
) -> dns.Target:
    return replace(common, publish=publish, service=service, addresses=addresses, hostname=hostname)


# --- routing --------------------------------------------------------------------------------------------------------


def _routing(spec: DNSPolicySpec, regular: Sequence[Target]) -> Routing:
    """The given routing, or the one that the fields of the targets need."""
    if spec.routing is not None:
        return Routing(spec.routing)
    weighted = any(target.weight is not None for target in regular)
    if any(target.geo is not None for target in regular):
        return Routing.GEO_WEIGHTED if weighted else Routing.GEO
    return Routing.WEIGHTED if len(spec.targets) > 1 else Routing.SIMPLE


def _default_geo(regular: Sequence[Target]) -> str:
    """The place that also serves all other clients: the marked one, that of targets without a place, or the only one."""
    marked = next((target.geo or "" for target in regular if target.default), None)
    if marked is not None:
        return marked
    places = sorted({target.geo or "" for target in regular})
    return "" if "" in places or not places else places[0]


def _routed(target: dns.Target, routing: Routing, default: str, fallback: str) -> dns.Target:
    """The target for its routing: without a place where the routing has none, with equal weight where it has no weights."""
    geo = target.geo if routing in _GEO else ""
    weight = target.weight if routing in _WEIGHTED else WEIGHT
    return replace(target, weight=weight, geo=geo, default=geo == default and target.name != fallback)


def _check_routing(declared: Declared, scope: Scope, spec: DNSPolicySpec, routing: Routing, fallback: str) -> None:
    """Report fields of targets that the routing does not use, and missing ones that it needs."""

    def refuse(index: int, field: str, message: str, hint: str) -> None:
        scope.report(declared, ("spec", "targets", index, field), Code.BAD_VALUE, f"{declared.key}: {message}", hint)

    labels: dict[str, str] = {}
    for index, target in enumerate(spec.targets):
        if target.name == fallback:
            continue
        if target.weight is not None and routing not in _WEIGHTED:
            refuse(
                index,
                "weight",
                f"weight does nothing with {routing} routing",
                "remove it, or write routing: geoWeighted",
            )
        for field, given in (("geo", target.geo is not None), ("default", target.default)):
            if given and routing not in _GEO:
                refuse(
                    index,
                    field,
                    f"{field} does nothing with {routing} routing",
                    "remove it, or write routing: geoWeighted",
                )
        other = labels.setdefault(target_label(target.name), target.name)
        if other != target.name and routing is not Routing.SIMPLE:
            refuse(index, "name", f"targets {other} and {target.name} have the same DNS label", "rename one of them")
    if routing is Routing.SIMPLE:
        _check_simple(declared, scope, spec, fallback)
    elif len(spec.host) + LONGEST > 254:
        message = f"{declared.key}: {spec.host[:60]}… is too long for the names of its targets below it"
        scope.report(declared, ("spec", "host"), Code.OUT_OF_RANGE, message, "shorten it, or write routing: simple")
    if routing in _GEO:
        _check_places(declared, scope, spec, fallback)


def _check_simple(declared: Declared, scope: Scope, spec: DNSPolicySpec, fallback: str) -> None:
    hostnames = [
        index for index, target in enumerate(spec.targets) if target.hostname is not None and target.name != fallback
    ]
    if hostnames and len([target for target in spec.targets if target.name != fallback]) > 1:
        message = f"{declared.key}: a hostname target cannot have other targets beside it with simple routing"
        hint = "write routing: weighted, or keep one target"
        scope.report(declared, ("spec", "targets", hostnames[0], "hostname"), Code.CONFLICT, message, hint)


def _check_places(declared: Declared, scope: Scope, spec: DNSPolicySpec, fallback: str) -> None:
    """Exactly one place must serve clients that no other place is for."""
    regular = [target for target in spec.targets if target.name != fallback]
    places = {target.geo or "" for target in regular}
    if places == {""}:
        message = f"{declared.key}: no target has geo, which this routing needs"
        scope.report(
            declared, ("spec", "routing"), Code.BAD_VALUE, message, "add geo to the targets, or write routing: weighted"
        )
        return
    marked = {target.geo or "" for target in regular if target.default}
    if len(marked) > 1 or ("" in places and marked - {""}):
        others = ", ".join(sorted(place or "no geo" for place in (marked | ({""} & places))))
        message = f"{declared.key}: more than one place would serve all other clients: {others}"
        scope.report(
            declared, ("spec", "targets"), Code.CONFLICT, message, "write default: true only on targets of one place"
        )
    elif len(places) > 1 and not marked and "" not in places:
        message = f"{declared.key}: no place serves clients outside {', '.join(sorted(places))}"
        hint = "write default: true on the targets of one place"
        scope.report(declared, ("spec", "targets"), Code.NO_DEFAULT, message, hint)


# --- when nothing is healthy ------------------------------------------------------------------------------------------


def _check_fallback(declared: Declared, scope: Scope, spec: DNSPolicySpec, fallback: str) -> None:
    if not fallback:
        if spec.when_all_unhealthy in {target.name for target in spec.targets}:
            message = f"{declared.key}: '{spec.when_all_unhealthy}' is both a value of whenAllUnhealthy and the name of a target"
            scope.report(declared, ("spec", "whenAllUnhealthy"), Code.CONFLICT, message, "rename the target")
        return
    names = [target.name for target in spec.targets]
    if fallback not in names:
        hint = did_you_mean(fallback, [*KEYWORDS, *names], "choose from")
        message = f"{declared.key}: there is no target '{fallback}'"
        scope.report(declared, ("spec", "whenAllUnhealthy"), Code.UNKNOWN_REFERENCE, message, hint)
        return
    index = names.index(fallback)
    target = spec.targets[index]
    if len(names) == 1:
        message = f"{declared.key}: the fallback '{fallback}' is the only target"
        hint = "add another target, or choose another value"
        scope.report(declared, ("spec", "whenAllUnhealthy"), Code.BAD_VALUE, message, hint)
    for field, given in (
        ("weight", target.weight is not None),
        ("geo", target.geo is not None),
        ("default", target.default),
        ("healthCheck", target.health_check is not None),
        ("force", target.force is not None),
    ):
        if given:
            message = f"{declared.key}: {field} does nothing on the fallback '{fallback}', which serves only when no other target is healthy"
            scope.report(declared, ("spec", "targets", index, field), Code.BAD_VALUE, message, "remove it")


def _when_all_unhealthy(
    declared: Declared, scope: Scope, spec: DNSPolicySpec, checked: bool, fallback: str
) -> AllUnhealthy:
    checked = checked or any(target.health_check is not None for target in spec.targets)
    if spec.when_all_unhealthy is None:
        return AllUnhealthy.PUBLISH_ALL if checked else AllUnhealthy.FREEZE
    if not checked and all(target.service is None for target in spec.targets if target.name != fallback):
        message = f"{declared.key}: whenAllUnhealthy does nothing: these targets have no health check"
        hint = "add healthCheck, or remove whenAllUnhealthy"
        scope.report(declared, ("spec", "whenAllUnhealthy"), Code.BAD_VALUE, message, hint)
    if spec.when_all_unhealthy == AllUnhealthy.CLOSED:
        message = (
            f"{declared.key}: {spec.host} has no answer while no target is healthy; resolvers may cache that for 30m"
        )
        hint = "write whenAllUnhealthy: publishAll to keep the addresses"
        scope.report(declared, ("spec", "whenAllUnhealthy"), Code.FAILS_CLOSED, message, hint)
    return AllUnhealthy.FALLBACK if fallback else AllUnhealthy(spec.when_all_unhealthy)
