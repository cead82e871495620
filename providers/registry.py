"""Finds the provider class for a type name in a manifest: built-in types first, then entry points of other packages.

Only the composition root calls this. Modules are imported when a manifest names their type. Manifests are checked with the
settings of a built-in type alone; its provider is imported when one is made. Entry points name the class of a provider, and are
searched only for names that are not built in.
"""

import difflib
from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import NamedTuple, cast

from pydantic import BaseModel, ValidationError

from manifests.values.desired import Role
from providers.errors import Rejected
from providers.spi import Context, Provider

GROUP = "reconciler.providers"
"""The entry point group in which other packages register types."""


class BuiltIn(NamedTuple):
    """Where a built-in type is: the model of its settings, and its class, whose module may load much more than the model's."""

    role: Role
    settings: str
    provider: str


_DNS, _ENDPOINTS, _RUNTIME, _TESTING = "providers.dns", "providers.endpoints", "providers.runtime", "providers.testing"

BUILT_IN: Mapping[str, BuiltIn] = {
    "docker": BuiltIn(
        Role.RUNTIME, f"{_RUNTIME}.docker.runtime:DockerSettings", f"{_RUNTIME}.docker.runtime:DockerRuntime"
    ),
    "file": BuiltIn(
        Role.ENDPOINTS, f"{_ENDPOINTS}.file.provider:FileSettings", f"{_ENDPOINTS}.file.provider:FileEndpoints"
    ),
    "haproxy": BuiltIn(
        Role.ENDPOINTS,
        f"{_ENDPOINTS}.haproxy.settings:HAProxySettings",
        f"{_ENDPOINTS}.haproxy.provider:HAProxyEndpoints",
    ),
    "memory-dns": BuiltIn(Role.DNS, f"{_TESTING}.memory:MemorySettings", f"{_TESTING}.memory:MemoryDNS"),
    "memory-endpoints": BuiltIn(
        Role.ENDPOINTS, f"{_TESTING}.memory:MemorySettings", f"{_TESTING}.memory:MemoryEndpoints"
    ),
    "memory-runtime": BuiltIn(
        Role.RUNTIME, f"{_TESTING}.memory:MemorySettings", f"{_TESTING}.memory_runtime:MemoryRuntime"
    ),
    "nginx": BuiltIn(
        Role.ENDPOINTS, f"{_ENDPOINTS}.nginx.settings:NginxSettings", f"{_ENDPOINTS}.nginx.provider:NginxEndpoints"
    ),
    "powerdns": BuiltIn(
        Role.DNS, f"{_DNS}.powerdns.settings:PowerDNSSettings", f"{_DNS}.powerdns.provider:PowerDNSZones"
    ),
    "process": BuiltIn(
        Role.RUNTIME, f"{_RUNTIME}.process.runtime:ProcessSettings", f"{_RUNTIME}.process.runtime:ProcessRuntime"
    ),
    "rfc2136": BuiltIn(Role.DNS, f"{_DNS}.rfc2136.settings:RFC2136Settings", f"{_DNS}.rfc2136.provider:RFC2136Zones"),
    "route53": BuiltIn(Role.DNS, f"{_DNS}.route53.settings:Route53Settings", f"{_DNS}.route53.provider:Route53Zones"),
    "zonefile": BuiltIn(Role.DNS, f"{_DNS}.zonefile.provider:ZoneFileSettings", f"{_DNS}.zonefile.provider:ZoneFiles"),
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
    """The role of a type and the model of its settings; None for a name that is not registered.

    Raises:
        Rejected: the type is registered, but cannot be used: its module fails to import, its entry point names no provider,
            or two packages register the name.
    """
    if type_name in BUILT_IN:
        built_in = BUILT_IN[type_name]
        return built_in.role, cast("type[BaseModel]", _load(type_name, built_in.settings, "this program"))
    provider = _find(type_name)
    return None if provider is None else (provider.role, provider.Settings)


def template_support(type_name: str) -> tuple[frozenset[str], frozenset[str]] | None:
    """The fields of a pod template that a runtime type supports beyond the common ones, and those that it requires.

    None for a type without the class attribute `supports`.
    """
    provider = _find(type_name)
    supports: frozenset[str] | None = getattr(provider, "supports", None)
    requires: frozenset[str] = getattr(provider, "requires", frozenset())
    return None if supports is None else (supports, requires)


def create(type_name: str, name: str, settings: Mapping[str, object], context: Context) -> Provider:
    """Make a provider. It does no I/O yet.

    Args:
        type_name: the manifest's `type`.
        name: the name of the Provider document.
        settings: its settings, as a JSON object.
        context: this instance and its state directory.

    Raises:
        Rejected: no such type, a type that cannot be used, or settings it does not accept.
    """
    provider = _find(type_name)
    if provider is None:
        close = difflib.get_close_matches(type_name, known_types(), 1)
        hint = f"did you mean {close[0]!r}?" if close else f"known types: {', '.join(known_types())}"
        raise Rejected(f"provider {name}", f"unknown provider type {type_name!r}", hint)
    try:
        model = provider.Settings.model_validate(settings)
    except ValidationError as error:
        raise Rejected(f"provider {name}", _problems(error), f"correct spec.settings for type {type_name!r}") from None
    make = cast("type", provider)
    return cast("Provider", make(name, model, context))


def _find(type_name: str) -> type[Provider] | None:
    if type_name in BUILT_IN:
        return cast("type[Provider]", _load(type_name, BUILT_IN[type_name].provider, "this program"))
    points = [point for point in entry_points(group=GROUP) if point.name == type_name]
    if not points:
        return None
    if len(points) > 1:
        owners = " and ".join(sorted(_package(point) for point in points))
        raise Rejected(_label(type_name), f"registered more than once: by {owners}", "uninstall all but one of them")
    where, package = points[0].value, _package(points[0])
    provider = _load(type_name, where, package)
    lacks = _lacks(provider)
    if lacks:
        cause = f"{where} of {package} is not a provider: {lacks}"
        raise Rejected(_label(type_name), cause, f"report it to the author of {package}")
    return cast("type[Provider]", provider)


def _load(type_name: str, where: str, package: str) -> object:
    """What `module:attribute` names. Raises `Rejected` when it cannot be loaded."""
    module, _, attribute = where.partition(":")
    try:
        return getattr(import_module(module.strip()), attribute.strip())
    except Exception as error:  # another package may do anything at import time
        cause = f"cannot load {where} of {package}: {type(error).__name__}: {error}"
        raise Rejected(_label(type_name), cause, f"repair or uninstall {package}") from error


def _lacks(provider: object) -> str:
    """What a class lacks to be a provider; empty when it is one."""
    if not isinstance(provider, type):
        return "it is not a class"
    role = getattr(provider, "role", None)
    if not isinstance(role, Role):
        return "it has no role"
    model = getattr(provider, "Settings", None)
    if not isinstance(model, type) or not issubclass(model, BaseModel):
        return "its Settings is not a pydantic model"
    missing = [method for method in NEEDED[role] if not callable(getattr(provider, method, None))]
    return f"it lacks {', '.join(missing)}" if missing else ""


def _package(point: EntryPoint) -> str:
    return f"package {point.dist.name}" if point.dist else "an unknown package"


def _label(type_name: str) -> str:
    return f"provider type {type_name!r}"


def _problems(error: ValidationError) -> str:
    """The problems of the settings, by key, without their values: those may be secrets."""
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    return "; ".join(f"{'.'.join(map(str, problem['loc'])) or 'settings'}: {problem['msg']}" for problem in problems)
