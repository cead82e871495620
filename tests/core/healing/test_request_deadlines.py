"""The deadline of a restart request that names none: never less than the times of the manifest."""

from dataclasses import replace

import pytest

from manifests.values.desired import SECOND, Desired, Push
from manifests.values.dns import Check, Publish
from reconciler.core.decide import decide
from reconciler.core.model.ledger_codec import from_rows, to_rows
from reconciler.core.model.restart_request import DEADLINE, Request
from tests.builders import NOW, Scene, ago
from tests.sim.manifest import NODE, Spec, shop

MINUTE = 60 * SECOND
TWO_PROBES = 2 * (2 * 5 * SECOND)
START = 5 * SECOND + TWO_PROBES
"""The grace of the pod, and the verdicts of liveness and readiness."""


def deadline(spec: Spec, desired: Desired | None = None, **request: object) -> int:
    scene = Scene(spec)
    scene.ledger = replace(scene.ledger, requests={"r1": Request("workload/web", ago(1), "ada", **request)})
    declared = shop(**{name: getattr(spec, name) for name in spec.__dataclass_fields__}).desired()
    decision = decide(desired or declared, scene.observed(), NOW)
    return decision.ledger.requests["r1"].limit


@pytest.mark.parametrize(
    ("fields", "request_fields", "expected"),
    [
        ({}, {}, DEADLINE),
        ({"replicas": 10, "ttl": 300}, {}, 10 * (300 * SECOND + 10 * SECOND + START) + 5 * MINUTE),
        ({"replicas": 10, "ttl": 300, "max_unavailable": 4}, {}, 3 * (310 * SECOND + START) + 5 * MINUTE),
        (
            {"replicas": 10, "ttl": 300, "max_unavailable": 4},
            {"ordered": True},
            10 * (310 * SECOND + START) + 5 * MINUTE,
        ),
        ({"replicas": 4, "ttl": 300, "max_unavailable": 4}, {}, 2 * (310 * SECOND + START) + 5 * MINUTE),
        ({"replicas": 4, "publish": None, "max_unavailable": 4, "min_ready": 1200 * SECOND}, {}, 1510 * SECOND + START),
        (
            {"replicas": 2, "publish": Publish.BALANCER, "drain": 600 * SECOND},
            {},
            2 * (600 * SECOND + START) + 5 * MINUTE,
        ),
        ({"replicas": 2, "ttl": 900}, {"drain": 0}, 2 * (900 * SECOND + START) + 5 * MINUTE),
        ({"replicas": 2, "ttl": 900}, {"min_started": MINUTE}, 2 * (970 * SECOND + START) + 5 * MINUTE),
        ({"replicas": 2, "ttl": 900}, {"deadline": MINUTE}, MINUTE),
    ],
)
def test_it_covers_all_rounds_of_the_request(fields, request_fields, expected):
    assert deadline(Spec(**fields), **request_fields) == expected


def test_checks_of_names_and_startup_by_pushes_take_time_too():
    desired = shop(replicas=3, ttl=300).desired()
    (policy,), (web,) = desired.policies, desired.workloads
    check = Check(interval=60 * SECOND, timeout=5 * SECOND, success_threshold=2)
    push = Push(startup_deadline=400 * SECOND)
    desired = replace(desired, policies=(replace(policy, check=check),), workloads=(replace(web, push=push),))
    expected = 3 * (300 + 10 + 5 + 400 + 125) * SECOND + 5 * MINUTE
    assert deadline(Spec(replicas=3, ttl=300), desired) == expected


def test_it_is_the_shortest_while_no_replica_was_observed():
    scene = Scene(Spec(replicas=10, ttl=300))
    scene.ledger = replace(scene.ledger, requests={"r1": Request("workload/web", ago(601), "ada")})
    scene.unknown = {NODE}
    request = decide(shop(replicas=10, ttl=300).desired(), scene.observed(), NOW).ledger.requests["r1"]
    assert request.finished is not None
    assert request.message == "its replicas were not observed before the deadline"


def test_it_is_stored_with_the_replicas_and_stays():
    scene = Scene(Spec(replicas=10, ttl=300))
    scene.ledger = replace(scene.ledger, requests={"r1": Request("workload/web", ago(1), "ada")})
    scene.ledger = from_rows(to_rows(decide(shop(replicas=10, ttl=300).desired(), scene.observed(), NOW).ledger))
    later = decide(shop(replicas=10, ttl=5).desired(), scene.observed(), NOW).ledger.requests["r1"]
    assert later.deadline == 10 * (310 * SECOND + START) + 5 * MINUTE
