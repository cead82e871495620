"""From checked DNSPolicy, HealthCheck and Record manifests to the values of `dns.py`. Called by `resolve.py`.

What concerns one document is judged here, what concerns names of several of them in `check_names.py`.
"""

from collections.abc import Sequence
from dataclasses import replace

from manifests import kinds
from manifests.kinds.dns_policy import WEIGHT, WORDS, DNSPolicySpec, Target
from manifests.kinds.health_check import CheckFields
from manifests.kinds.validate import Declared, Path
from manifests.problems import Code, did_you_mean
from manifests.resolve.references import Scope
from manifests.values import dns
from manifests.values.desired import SECOND, Role
from manifests.values.dns import AllUnhealthy, Publish, Routing
from manifests.values.dns_names import LONGEST, target_label, within

TIMEOUT = 3 * SECOND
"""How long an answer of a leaf may take; never longer than its interval."""

_GEO = (Routing.GEO, Routing.GEO_WEIGHTED)
_WEIGHTED = (Routing.WEIGHTED, Routing.GEO_WEIGHTED)


def health_check(declared: Declared, scope: Scope) -> dns.HealthCheck | None:
    """A check that stands alone."""
    del scope  # nothing in it names another document; kept so that all builders read alike
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
    if spec.host == spec.zone and spec.type in ("CNAME", "NS", "DNAME"):
        cause = (
            "the zone's name servers belong to its provider"
            if spec.type == "NS"
            else "the zone's own records are there"
        )
        message = f"{declared.key}: {spec.type} cannot stand at {spec.host}, the name of the zone: {cause}"
        hint = "for addresses of another name at the top of a zone write a DNSPolicy with a hostname target"
        scope.report(declared, ("spec", "type"), Code.CONFLICT, message, "" if spec.type == "NS" else hint)
    if spec.host.startswith("_acme-challenge"):
        message = (
            f"{declared.key}: records at {spec.host} come and go with certificates and are left to those who make them"
        )
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
    )


def policy(declared: Declared, scope: Scope) -> dns.DNSPolicy | None:
    """A policy with its provider, its routing, and what each of its targets publishes."""
    manifest = declared.manifest
    if not isinstance(manifest, kinds.DNSPolicy):
        return None
    spec = manifest.spec
    provider = _provider(declared, scope, spec.provider)
    _inside(declared, scope, spec.host, spec.zone)
    targets = tuple(_target(declared, scope, target, index) for index, target in enumerate(spec.targets))
    fallback = "" if spec.when_all_unhealthy in (None, *WORDS) else spec.when_all_unhealthy or ""
    regular = [one for one in spec.targets if one.name != fallback]
    routing = _routing(spec, regular)
    _check_fallback(declared, scope, spec, fallback)
    _check_routing(declared, scope, spec, routing, fallback)
    check = _policy_check(declared, scope, spec)
    answer = _when_all_unhealthy(declared, scope, spec, check is not None, fallback)
    default = _default_geo(regular)
    return dns.DNSPolicy(
        key=declared.key,
        name=declared.name,
        host=spec.host,
        provider=provider,
        zone=spec.zone,
        targets=tuple(sorted((_at_home(one, routing, default, fallback) for one in targets), key=lambda one: one.name)),
        ttl=int(spec.ttl) // SECOND,
        routing=routing,
        tree_ttl=dns.TreeTTL(
            int(spec.tree_ttl.host) // SECOND, int(spec.tree_ttl.balancer) // SECOND, int(spec.tree_ttl.geo) // SECOND
        ),
        check=check,
        all_unhealthy=answer,
        fallback=fallback,
        where=declared.document.where,
    )


# --- parts ----------------------------------------------------------------------------------------------------------


def _provider(declared: Declared, scope: Scope, given: str | None) -> str:
    if given is None:
        return scope.only_provider(Role.DNS, declared, ("spec",), "spec.provider")
    scope.provider(given, Role.DNS, declared, ("spec", "provider"))
    return given


def _inside(declared: Declared, scope: Scope, host: str, zone: str) -> None:
    if not within(host, zone):
        message = f"{declared.key}: {host} is not in the zone {zone}"
        scope.report(
            declared, ("spec", "host"), Code.OUTSIDE_ZONE, message, "a host is the zone itself or a name below it"
        )


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
        message = f"{declared.key}: {spec.host} is a pattern, so it cannot be what the health check asks for"
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
    """The target with where its addresses come from."""
    if target.addresses is not None:
        return _with(common, Publish.ADDRESSES, addresses=tuple(sorted(target.addresses)))
    if target.hostname is not None:
        return _with(common, Publish.HOSTNAME, hostname=target.hostname)
    assert target.service is not None  # noqa: S101  (the model has made sure of exactly one)
    found = scope.find("Service", target.service.name, declared, path)
    has_addresses = (
        found is not None
        and isinstance(found.manifest, kinds.Service)
        and any(balancer.addresses for balancer in found.manifest.spec.balancers)
    )
    default = Publish.BALANCER if has_addresses else Publish.ENDPOINTS
    publish = Publish(target.service.publish) if target.service.publish else default
    if publish is Publish.BALANCER and found is not None and found.manifest is not None and not has_addresses:
        hint = "add addresses to a balancer of the service, or write publish: endpoints"
        message = f"{declared.key}: the balancers of {found.key} have no addresses to publish"
        scope.report(declared, (*path[:-1], "publish"), Code.NOTHING_TO_PUBLISH, message, hint)
    return _with(common, publish, service=f"service/{target.service.name}")


def _with(
    common: dns.Target, publish: Publish, service: str = "", addresses: tuple[str, ...] = (), hostname: str = ""
) -> dns.Target:
    return replace(common, publish=publish, service=service, addresses=addresses, hostname=hostname)


# --- routing --------------------------------------------------------------------------------------------------------


def _routing(spec: DNSPolicySpec, regular: Sequence[Target]) -> Routing:
    """What is written, or what the fields of the targets ask for."""
    if spec.routing is not None:
        return Routing(spec.routing)
    weighted = any(one.weight is not None for one in regular)
    if any(one.geo is not None for one in regular):
        return Routing.GEO_WEIGHTED if weighted else Routing.GEO
    return Routing.WEIGHTED if len(spec.targets) > 1 else Routing.SIMPLE


def _default_geo(regular: Sequence[Target]) -> str:
    """The place that also serves everybody else: the marked one, that of targets without a place, or the only one."""
    marked = next((one.geo or "" for one in regular if one.default), None)
    if marked is not None:
        return marked
    places = sorted({one.geo or "" for one in regular})
    return "" if "" in places or not places else places[0]


def _at_home(target: dns.Target, routing: Routing, default: str, fallback: str) -> dns.Target:
    """The target as its routing takes it: without a place where there are none, equal where nothing is weighed."""
    geo = target.geo if routing in _GEO else ""
    weight = target.weight if routing in _WEIGHTED else WEIGHT
    return replace(target, weight=weight, geo=geo, default=geo == default and target.name != fallback)


def _check_routing(declared: Declared, scope: Scope, spec: DNSPolicySpec, routing: Routing, fallback: str) -> None:
    """Fields of targets that the routing has no use for, and what it needs."""

    def refuse(index: int, field: str, message: str, hint: str) -> None:
        scope.report(declared, ("spec", "targets", index, field), Code.BAD_VALUE, f"{declared.key}: {message}", hint)

    labels: dict[str, str] = {}
    for index, target in enumerate(spec.targets):
        if target.name == fallback:
            continue
        if target.weight is not None and routing not in _WEIGHTED:
            refuse(index, "weight", f"a weight does nothing with {routing} routing", "remove it, or write geoWeighted")
        for field, given in (("geo", target.geo is not None), ("default", target.default)):
            if given and routing not in _GEO:
                refuse(index, field, f"a place does nothing with {routing} routing", "remove it, or write geoWeighted")
        other = labels.setdefault(target_label(target.name), target.name)
        if other != target.name and routing is not Routing.SIMPLE:
            refuse(index, "name", f"targets {other} and {target.name} get the same name in DNS", "rename one of them")
    if routing is Routing.SIMPLE:
        _check_simple(declared, scope, spec, fallback)
    elif len(spec.host) + LONGEST > 254:
        message = f"{declared.key}: {spec.host[:60]}… leaves no room for the names that balance it"
        scope.report(declared, ("spec", "host"), Code.OUT_OF_RANGE, message, "shorten it, or write routing: simple")
    if routing in _GEO:
        _check_places(declared, scope, spec, fallback)


def _check_simple(declared: Declared, scope: Scope, spec: DNSPolicySpec, fallback: str) -> None:
    names = [index for index, one in enumerate(spec.targets) if one.hostname is not None and one.name != fallback]
    if names and len([target for target in spec.targets if target.name != fallback]) > 1:
        message = f"{declared.key}: a host name cannot be published beside other targets of one name"
        hint = "write routing: weighted, or keep one of them"
        scope.report(declared, ("spec", "targets", names[0], "hostname"), Code.CONFLICT, message, hint)


def _check_places(declared: Declared, scope: Scope, spec: DNSPolicySpec, fallback: str) -> None:
    """Exactly one place serves everybody that no other place is for."""
    regular = [target for target in spec.targets if target.name != fallback]
    places = {one.geo or "" for one in regular}
    if places == {""}:
        message = f"{declared.key}: no target has a place"
        scope.report(
            declared, ("spec", "routing"), Code.BAD_VALUE, message, "add geo to the targets, or write weighted"
        )
        return
    marked = {one.geo or "" for one in regular if one.default}
    if len(marked) > 1 or ("" in places and marked - {""}):
        others = ", ".join(sorted(place or "that without geo" for place in (marked | ({""} & places))))
        message = f"{declared.key}: more than one place would serve everybody else: {others}"
        scope.report(
            declared, ("spec", "targets"), Code.CONFLICT, message, "keep default: true on targets of one place"
        )
    elif len(places) > 1 and not marked and "" not in places:
        message = f"{declared.key}: no place serves clients that are in none of {', '.join(sorted(places))}"
        hint = "write default: true on the targets of one place"
        scope.report(declared, ("spec", "targets"), Code.NO_DEFAULT, message, hint)


# --- when nothing is healthy ------------------------------------------------------------------------------------------


def _check_fallback(declared: Declared, scope: Scope, spec: DNSPolicySpec, fallback: str) -> None:
    if not fallback:
        if spec.when_all_unhealthy in {one.name for one in spec.targets}:
            message = (
                f"{declared.key}: '{spec.when_all_unhealthy}' is a word of its own as well as the name of a target"
            )
            scope.report(declared, ("spec", "whenAllUnhealthy"), Code.CONFLICT, message, "rename the target")
        return
    names = [one.name for one in spec.targets]
    if fallback not in names:
        hint = did_you_mean(fallback, [*WORDS, *names], "choose from")
        message = f"{declared.key}: there is no target '{fallback}'"
        scope.report(declared, ("spec", "whenAllUnhealthy"), Code.UNKNOWN_REFERENCE, message, hint)
        return
    index = names.index(fallback)
    target = spec.targets[index]
    if len(names) == 1:
        message = f"{declared.key}: target '{fallback}' cannot stand in for itself"
        scope.report(
            declared, ("spec", "whenAllUnhealthy"), Code.BAD_VALUE, message, "add the targets that it stands in for"
        )
    for field, given in (
        ("weight", target.weight is not None),
        ("geo", target.geo is not None),
        ("default", target.default),
        ("healthCheck", target.health_check is not None),
        ("force", target.force is not None),
    ):
        if given:
            message = (
                f"{declared.key}: {field} does nothing on '{fallback}', which serves only when nothing else is healthy"
            )
            scope.report(declared, ("spec", "targets", index, field), Code.BAD_VALUE, message, "remove it")


def _when_all_unhealthy(
    declared: Declared, scope: Scope, spec: DNSPolicySpec, checked: bool, fallback: str
) -> AllUnhealthy:
    checked = checked or any(target.health_check is not None for target in spec.targets)
    if spec.when_all_unhealthy is None:
        return AllUnhealthy.PUBLISH_ALL if checked else AllUnhealthy.FREEZE
    if not checked and all(target.service is None for target in spec.targets if target.name != fallback):
        message = f"{declared.key}: nothing tells whether these targets are healthy, so whenAllUnhealthy does nothing"
        hint = "add healthCheck, or remove whenAllUnhealthy"
        scope.report(declared, ("spec", "whenAllUnhealthy"), Code.BAD_VALUE, message, hint)
    if spec.when_all_unhealthy == AllUnhealthy.CLOSED:
        message = f"{declared.key}: {spec.host} will have no answer while nothing behind it is healthy"
        hint = "resolvers may remember that for half an hour; publishAll leaves clients something to try"
        scope.report(declared, ("spec", "whenAllUnhealthy"), Code.FAILS_CLOSED, message, hint)
    return AllUnhealthy.FALLBACK if fallback else AllUnhealthy(spec.when_all_unhealthy)
