"""The kinds of manifests: one module each. `KINDS` is the table that validation, the schema and the reference use."""

from manifests.kinds.base import Manifest
from manifests.kinds.dns_policy import DNSPolicy
from manifests.kinds.guard import Guard
from manifests.kinds.health_check import HealthCheck
from manifests.kinds.instance import Instance
from manifests.kinds.provider import Provider
from manifests.kinds.record import Record
from manifests.kinds.record_list import RecordList
from manifests.kinds.service import Service
from manifests.kinds.workload import Workload

KINDS: dict[str, type[Manifest]] = {
    "Instance": Instance,
    "Provider": Provider,
    "Workload": Workload,
    "Service": Service,
    "DNSPolicy": DNSPolicy,
    "HealthCheck": HealthCheck,
    "Record": Record,
    "RecordList": RecordList,
    "Guard": Guard,
}
"""Model of each kind, in the order of the reference."""

__all__ = [
    "KINDS",
    "DNSPolicy",
    "Guard",
    "HealthCheck",
    "Instance",
    "Manifest",
    "Provider",
    "Record",
    "RecordList",
    "Service",
    "Workload",
]
