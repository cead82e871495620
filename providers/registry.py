"""From a type's name in a manifest to the class behind it: built-in types first, then entry points of other packages.

Only the composition root calls this. Modules are imported when a manifest names their type, so that nobody pays for
providers that are not used. Entry points are searched only for names that are not built in.
"""

import difflib
from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import cast

from pydantic import BaseModel, ValidationError

from manifests.values.desired import Role
from providers.errors import Rejected
from providers.spi import Context, Provider

GROUP = "reconciler.providers"
"""The entry point group in which other packages register types."""

BUILT_IN: Mapping[str, str] = {
    "docker": "providers.runtime.docker.runtime:DockerRuntime",
    "file": "providers.endpoints.file.provider:FileEndpoints",
    "haproxy": "providers.endpoints.haproxy.provider:HAProxyEndpoints",
    "memory-dns": "providers.testing.memory:MemoryDNS",
    "memory-endpoints": "providers.testing.memory:MemoryEndpoints",
    "memory-runtime": "providers.testing.memory_runtime:MemoryRuntime",
    "nginx": "providers.endpoints.nginx.provider:NginxEndpoints",
    "powerdns": "providers.dns.powerdns.provider:PowerDNSZones",
    "process": "providers.runtime.process.runtime:ProcessRuntime",
    "rfc2136": "providers.dns.rfc2136.provider:RFC2136Zones",
    "route53": "providers.dns.route53.provider:Route53Zones",
    "zonefile": "providers.dns.zonefile.provider:ZoneFiles",
}

NEEDED = {
    Role.RUNTIME: ("observe", "perform", "exec_target", "logs", "close"),
    Role.ENDPOINTS: ("observe", "perform", "close"),
    Role.DNS: ("observe", "perform", "close"),
}
"""The methods of each role's contract."""


def known_types() -> tuple[str, ...]:
    """All names a manifest may use, sorted. Other packages' names are listed without importing them."""
    return tuple(sorted(BUILT_IN.keys() | {point.name for point in entry_points(group=GROUP)}))


def settings_model(type_name: str) -> tuple[Role, type[BaseModel]] | None:
    """The role of a type and the model of its settings; None for a name that nobody registered.

    Raises:
        Rejected: the type is registered, but cannot be used: its module fails to import, what it names is no provider, or
            two packages claim the name.
    """
    found = _find(type_name)
    return None if found is None else (found.role, found.Settings)


def template_support(type_name: str) -> tuple[frozenset[str], frozenset[str]] | None:
    """The fields of a pod template that a runtime type has beyond the common ones, and those that it needs.

    None for a type that does not say, with its class attributes `supports` and `requires`.
    """
    found = _find(type_name)
    supports: frozenset[str] | None = getattr(found, "supports", None)
    requires: frozenset[str] = getattr(found, "requires", frozenset())
    return None if supports is None else (supports, requires)


def create(type_name: str, name: str, settings: Mapping[str, object], context: Context) -> Provider:
    """A provider object. No I/O is done yet.

    Args:
        type_name: the manifest's `type`.
        name: the name of the Provider document.
        settings: its settings, as a JSON object.
        context: this instance and its state directory.

    Raises:
        Rejected: no such type, a type that cannot be used, or settings it does not accept.
    """
    found = _find(type_name)
    if found is None:
        close = difflib.get_close_matches(type_name, known_types(), 1)
        hint = f"did you mean {close[0]!r}?" if close else f"known types: {', '.join(known_types())}"
        raise Rejected(f"provider {name}", f"there is no provider type {type_name!r}", hint)
    try:
        model = found.Settings.model_validate(settings)
    except ValidationError as error:
        raise Rejected(f"provider {name}", _problems(error), f"correct its settings for type {type_name!r}") from None
    make = cast("type", found)
    return cast("Provider", make(name, model, context))


def _find(type_name: str) -> type[Provider] | None:
    if type_name in BUILT_IN:
        return _load(type_name, BUILT_IN[type_name], "this program")
    points = [point for point in entry_points(group=GROUP) if point.name == type_name]
    if not points:
        return None
    if len(points) > 1:
        owners = " and ".join(sorted(_package(point) for point in points))
        raise Rejected(_label(type_name), f"is registered more than once: by {owners}", "uninstall all but one of them")
    return _load(type_name, points[0].value, _package(points[0]))


def _load(type_name: str, where: str, package: str) -> type[Provider]:
    module, _, attribute = where.partition(":")
    try:
        found = getattr(import_module(module.strip()), attribute.strip())
    except Exception as error:  # another package may do anything at import time
        cause = f"cannot load {where} of {package}: {type(error).__name__}: {error}"
        raise Rejected(_label(type_name), cause, f"repair or uninstall {package}") from error
    lacks = _lacks(found)
    if lacks:
        raise Rejected(
            _label(type_name), f"{where} of {package} is no provider: {lacks}", f"tell the author of {package}"
        )
    return cast("type[Provider]", found)


def _lacks(found: object) -> str:
    """What a class lacks to be a provider; empty for nothing."""
    if not isinstance(found, type):
        return "it is not a class"
    role = getattr(found, "role", None)
    if not isinstance(role, Role):
        return "it has no role"
    model = getattr(found, "Settings", None)
    if not isinstance(model, type) or not issubclass(model, BaseModel):
        return "its Settings is not a pydantic model"
    missing = [method for method in NEEDED[role] if not callable(getattr(found, method, None))]
    return f"it lacks {', '.join(missing)}" if missing else ""


def _package(point: EntryPoint) -> str:
    return f"package {point.dist.name}" if point.dist else "an unknown package"


def _label(type_name: str) -> str:
    return f"provider type {type_name!r}"


def _problems(error: ValidationError) -> str:
    """What is wrong with the settings, by key, without their values: those may be secrets."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    return "; ".join(f"{'.'.join(map(str, one['loc'])) or 'settings'}: {one['msg']}" for one in found)
