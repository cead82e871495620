import json

import pytest

from reconciler.core.model.ledger import from_rows, obey
from reconciler.core.model.override import Force
from reconciler.shell.clock import SystemClock
from reconciler.shell.store.memory import StoreMemory
from reconciler.shell.store.state_db import Store

ENDPOINT = "endpoint/pool/web/127.0.0.10:8080"


def inbox(state) -> list[tuple[str, dict, str]]:
    with Store.join(state, SystemClock()) as store:
        return [(one.command, json.loads(one.payload), one.who) for one in store.pending()]


def orders(state) -> dict:
    """The orders that the next run has."""
    with Store.open(state, SystemClock()) as store:
        words = tuple(command for _, command in StoreMemory(store, "test").commands())
        return dict(obey(from_rows(store.load_ledger()), words).overrides)


def test_a_drain_waits_in_the_inbox_and_is_an_order_with_owner_reason_and_expiry(stored, reconcile):
    done = reconcile("drain", "workload/web/0", "--for", "30m", "--reason", "looking into a leak")
    assert done.code == 0
    assert "to be drained until" in done.out
    assert "the next 'reconcile --once PATH' does it" in done.out
    [one] = orders(stored).values()
    left = one.until_wall - SystemClock().now().wall
    assert (one.force, one.who, one.reason) == (Force.DRAIN, "ada", "looking into a leak")
    assert 29 * 60e9 < left <= 30 * 60e9


@pytest.mark.parametrize("value", ["up", "down"])
def test_an_endpoint_of_one_pool_can_be_forced_in_both_directions(stored, reconcile, value):
    done = reconcile("force", ENDPOINT, value, "--for", "10m", "--reason", "its probe is wrong", "-o", "json")
    assert done.code == 0
    assert done.document["words"][0]["value"] == value
    assert orders(stored)[ENDPOINT].force is Force(value)


def test_forcing_needs_a_reason_and_an_end(stored, reconcile):
    assert reconcile("force", ENDPOINT, "up", "--reason", "x").code == 64
    assert reconcile("force", ENDPOINT, "up", "--for", "1m").code == 64
    assert reconcile("force", ENDPOINT, "up", "--for", "1m", "--reason", " ").code == 64
    assert reconcile("force", ENDPOINT, "sideways", "--for", "1m", "--reason", "x").code == 64
    assert inbox(stored) == []


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("workload/web", "give a replica such as workload/web/0"),
        ("service/web", "give a replica such as workload/web/0"),
        ("workload/wbe/0", "did you mean 'workload/web/0'?"),
        ("endpoint/pool/web/127.0.0.10:8081", "did you mean 'endpoint/pool/web/127.0.0.10:8080'?"),
    ],
)
def test_what_is_no_replica_and_no_endpoint_is_refused_with_what_to_write_instead(stored, reconcile, key, message):
    done = reconcile("drain", key)
    assert done.code == 64
    assert message in done.err
    assert inbox(stored) == []


def test_releasing_takes_an_order_back_even_one_that_still_waits(stored, reconcile):
    reconcile("drain", "workload/web/0")
    reconcile("drain", ENDPOINT)
    assert reconcile("release", "workload/web/0").code == 0
    assert set(orders(stored)) == {ENDPOINT}
    done = reconcile("release", "workload/web/0")
    assert done.code == 64
    assert f"drained or forced: {ENDPOINT}" in done.err
    assert reconcile("release", "--all").code == 0
    assert orders(stored) == {}
    assert reconcile("release", "--all").code == 64


def test_release_takes_a_key_or_all(stored, tree, reconcile):
    assert reconcile("release").code == 64
    assert "KEY is missing" in reconcile("release").err
    assert reconcile("release", "--all", "workload/web/0", tree).code == 64
    reconcile("drain", "workload/web/1", tree)
    assert reconcile("release", "--all", tree).code == 0


def test_a_target_of_a_name_can_be_forced_and_released_and_not_drained(home, tree, reconcile):
    why = ("--for", "10m", "--reason", "work on the line")
    done = reconcile("force", "dnspolicy/app/local", "down", tree, *why)
    assert (done.code, done.err) == (0, "")
    assert "to be forced down until" in done.out
    (instance,) = home.iterdir()
    assert orders(instance)["dnspolicy/app/local"].force is Force.DOWN
    refused = reconcile("force", "dnspolicy/app/us", "down", tree, *why)
    assert (refused.code, "targets: dnspolicy/app/local" in refused.err) == (64, True)
    whole = reconcile("force", "dnspolicy/app", "down", tree, *why)
    assert (whole.code, "or a target of a name such as dnspolicy/app/eu" in whole.err) == (64, True)
    drained = reconcile("drain", "dnspolicy/app/local", tree)
    assert (drained.code, "reconcile force dnspolicy/app/local down" in drained.err) == (64, True)
    assert reconcile("release", "dnspolicy/app/local", tree).code == 0
    assert orders(instance) == {}
