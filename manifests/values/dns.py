"""DNS names as manifests declare them: values of `desired.Desired`, resolved and frozen.

Apart from `desired.py` because only the stages that publish names read them. Pure values: created by `resolve/dns.py` and
`resolve/record_list.py`, read by `reconciler.core`. Durations are nanoseconds; TTLs are seconds, as on the wire. Names are lower case with a final dot.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from manifests.problems import NOWHERE, Where
from manifests.values.secret_sources import SecretSource

_SECOND = 1_000_000_000


class Publish(StrEnum):
    """What a target publishes: addresses of a service's balancers, of its ready endpoints, fixed ones, or another name."""

    BALANCER = "balancer"
    ENDPOINTS = "endpoints"
    ADDRESSES = "addresses"
    HOSTNAME = "hostname"


class Routing(StrEnum):
    """How the answers of a name are chosen: all together, by weight, by the client's place, or by weight within a place."""

    SIMPLE = "simple"
    WEIGHTED = "weighted"
    GEO = "geo"
    GEO_WEIGHTED = "geoWeighted"


class AllUnhealthy(StrEnum):
    """What a name publishes when nothing is healthy: everything, the current records, nothing, or a fallback target."""

    PUBLISH_ALL = "publishAll"
    FREEZE = "freeze"
    CLOSED = "closed"
    FALLBACK = "fallback"


@dataclass(frozen=True, slots=True)
class Check:
    """The health check of a target address over HTTP. `protocol` is HTTPS or HTTP; `expected` holds the statuses that pass.

    `host` (without final dot) is the Host header, the TLS server name, and the name that the certificate must have; empty =
    the address itself. Header values may be secrets, by reference. Redirects are never followed.
    """

    host: str = ""
    protocol: str = "HTTPS"
    port: int = 443
    path: str = "/"
    interval: int = 30 * _SECOND
    timeout: int = 3 * _SECOND
    failure_threshold: int = 5
    success_threshold: int = 1
    headers: tuple[tuple[str, str | SecretSource], ...] = ()
    expected: tuple[int, ...] = (200, 201)
    verify: bool = True

    @property
    def first_verdict(self) -> int:
        """The time (ns) within which a healthy target address gets its first verdict."""
        return self.interval * self.success_threshold + self.timeout


@dataclass(frozen=True, slots=True)
class HealthCheck:
    """A declared check of one address, or of a host name (final dot), which is resolved for each probe."""

    key: str
    name: str
    address: str
    check: Check
    where: Where = NOWHERE


@dataclass(frozen=True, slots=True)
class Target:
    """One source of addresses of a name, balanced as one gateway.

    `service` and `check` are keys, empty where there is none; `hostname` is set where `publish` is HOSTNAME. `weight` counts
    within a place; `geo` is a place of `manifests.values.geo`, empty = all clients. With `default` its place also serves
    clients that no other place is for. `check` names the HealthCheck that decides for all of its addresses. `force` is `up`
    or `down` and overrides its health; empty = its health decides.
    """

    name: str
    publish: Publish
    service: str = ""
    addresses: tuple[str, ...] = ()
    hostname: str = ""
    weight: int = 100
    geo: str = ""
    default: bool = False
    check: str = ""
    force: str = ""


@dataclass(frozen=True, slots=True)
class TreeTTL:
    """TTLs of the levels above the addresses: the host, the balancer name, the names of places."""

    host: int = 300
    balancer: int = 300
    geo: int = 60


@dataclass(frozen=True, slots=True)
class DNSPolicy:
    """A name and its targets. `ttl` is that of address records, `tree_ttl` of the levels above them.

    `check` runs against every address of targets that name no HealthCheck; None = such addresses count as healthy, or as
    their service says. `fallback` names the target that is published only when nothing else is healthy. `adopt`: existing sets that
    no instance owns are taken over.
    """

    key: str
    name: str
    host: str
    provider: str
    zone: str
    targets: tuple[Target, ...]
    ttl: int = 60
    routing: Routing = Routing.SIMPLE
    tree_ttl: TreeTTL = TreeTTL()
    check: Check | None = None
    all_unhealthy: AllUnhealthy = AllUnhealthy.FREEZE
    fallback: str = ""
    where: Where = NOWHERE
    adopt: bool = False


@dataclass(frozen=True, slots=True)
class Record:
    """One plain record set. `values` are canonical and sorted. `adopt` as in `DNSPolicy`."""

    key: str
    name: str
    host: str
    provider: str
    zone: str
    type: str
    ttl: int
    values: tuple[str, ...]
    where: Where = NOWHERE
    adopt: bool = False


SetKey = tuple[str, str, str]
"""(name, type, ""): equal to the key of the same record set in a look at a zone."""

SetValue = tuple[int, tuple[str, ...], None, str, bool]
"""(TTL, values, None, "", False): equal to a plain record set of a look. Values are canonical and sorted."""


@dataclass(frozen=True, slots=True)
class RecordList:
    """Many plain record sets of one zone: tuples that compare equal to those of looks, because there may be 100,000.

    `adopt` as in `DNSPolicy`.
    """

    key: str
    name: str
    provider: str
    zone: str
    sets: Mapping[SetKey, SetValue]
    where: Where = NOWHERE
    adopt: bool = False
