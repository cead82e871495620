"""An activation and a rolling rollout wait until the balancers' own checks of the raised replicas pass."""

from dataclasses import replace

import pytest

from manifests.values.rollouts import Rollout as Times
from manifests.values.rollouts import Strategy
from reconciler.core.decide import decide
from reconciler.core.model.revision import Revision, RevisionMark, Rollout, Standing
from tests.builders import NOW, Scene, ago, container
from tests.sim.manifest import Spec, shop

OLD, NEW = Spec(image="v1"), Spec(image="v2")


def scene(new: str, old: str) -> Scene:
    """Both revisions have weight; the balancer's own checks say `new` of one new replica, and `old` of the old ones."""
    made = Scene(OLD)
    for number in range(NEW.replicas):
        fact = container(NEW, number)
        address = f"10.0.200.{number + 1}"
        ports = tuple(port._replace(address=address) for port in fact.ports)
        made.add(NEW, replace(fact, address=address, ports=ports))
    for pool, members in made.pools.items():
        checks = [old] * OLD.replicas + [new] + ["up"] * (NEW.replicas - 1)
        if old == "down":
            checks = ["down"] * len(members)
        made.pools[pool] = [member._replace(operational=check) for member, check in zip(members, checks, strict=True)]
    rows = (
        Revision(OLD.revision, 1, Standing.ACTIVE, ago(900), activated=ago(800)),
        Revision(NEW.revision, 2, Standing.SCHEDULED, ago(60), due=ago(5), opened=ago(3)),
    )
    rollouts = {NEW.key: Rollout(active=OLD.revision, rows=rows)}
    made.ledger = replace(made.ledger, revisions={NEW.key: RevisionMark(2, NEW.revision)}, rollouts=rollouts)
    return made


@pytest.mark.parametrize(
    ("new", "old", "active"),
    [
        ("up", "up", NEW),
        ("", "", NEW),
        ("starting", "up", NEW),
        ("down", "up", OLD),
        ("down", "", OLD),
        ("down", "down", NEW),
        ("checking", "up", OLD),
    ],
)
def test_a_replica_that_fails_balancer_checks_keeps_old_ones_in_traffic(new, old, active):
    desired = shop(image="v2", strategy=Strategy.ACTIVATE, rollout=Times()).desired()
    decision = decide(desired, scene(new, old).observed(), NOW)
    assert decision.ledger.rollouts[NEW.key].active == active.revision
    if active is OLD:
        assert f"not every pool gives traffic to all replicas of revision {NEW.revision[:8]} yet" in {
            wait.message for wait in decision.waits
        }


@pytest.mark.parametrize(
    ("new", "old", "leaves"),
    [("up", "up", 1), ("", "", 1), ("down", "up", 0), ("down", "", 0), ("down", "down", 1), ("checking", "up", 0)],
)
def test_an_old_replica_stays_until_its_successor_gets_balancer_traffic(new, old, leaves):
    """One new replica has weight beside three old ones; what the balancer's checks say decides whether an old one may go."""
    made = Scene(OLD)
    fact = container(NEW, 0)
    ports = tuple(port._replace(address="10.0.200.1") for port in fact.ports)
    made.add(NEW, replace(fact, address="10.0.200.1", ports=ports))
    (pool,) = made.pools
    checks = [old] * OLD.replicas + [new]
    made.pools[pool] = [
        member._replace(operational=check) for member, check in zip(made.pools[pool], checks, strict=True)
    ]
    (name,) = made.records
    values = tuple(sorted({*made.records[name].values, "10.0.200.1"}))
    made.records[name] = made.records[name]._replace(values=values)
    decision = decide(shop(image="v2").desired(), made.observed(), NOW)
    going = {fact.id for fact in made.facts} & set(decision.ledger.grants)
    assert len(going) == leaves
    assert f"id-{fact.name}" not in going
    waits = any("do not get traffic from every pool and name yet" in wait.message for wait in decision.waits)
    assert waits is not bool(leaves)
