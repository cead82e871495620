import json

import pytest

from reconciler.core.model.ledger_codec import from_rows
from reconciler.core.model.ledger_fold import apply_commands
from reconciler.core.model.override import Force
from reconciler.shell.clock import SystemClock
from reconciler.shell.store.memory import StoreMemory
from reconciler.shell.store.state_db import Store

ENDPOINT = "endpoint/pool/web/127.0.0.10:8080"


def inbox(state) -> list[tuple[str, dict, str]]:
    with Store.join(state, SystemClock()) as store:
        return [(row.command, json.loads(row.payload), row.who) for row in store.pending()]


def orders(state) -> dict:
    """The orders that the next run has."""
    with Store.open(state, SystemClock()) as store:
        words = tuple(command for _, command in StoreMemory(store, "test").commands())
        return dict(apply_commands(from_rows(store.load_ledger()), words).overrides)


def test_a_drain_is_queued_with_its_operator_reason_and_expiry(stored, reconcile):
    done = reconcile("drain", "workload/web/0", "--for", "30m", "--reason", "looking into a leak")
    assert done.code == 0
    assert "will be drained until" in done.out
    assert "the next 'reconcile --once PATH' or" in done.out
    [override] = orders(stored).values()
    left = override.until_wall - SystemClock().now().wall
    assert (override.force, override.who, override.reason) == (Force.DRAIN, "ada", "looking into a leak")
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
def test_a_drain_of_another_object_is_refused_with_the_right_key(stored, reconcile, key, message):
    done = reconcile("drain", key)
    assert done.code == 64
    assert message in done.err
    assert inbox(stored) == []


def test_a_release_ends_an_override_even_a_queued_one(stored, reconcile):
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


def test_a_dns_target_can_be_forced_and_released_but_not_drained(home, tree, reconcile):
    why = ("--for", "10m", "--reason", "work on the line")
    done = reconcile("force", "dnspolicy/app/local", "down", tree, *why)
    assert (done.code, done.err) == (0, "")
    assert "will be forced down until" in done.out
    (instance,) = home.iterdir()
    assert orders(instance)["dnspolicy/app/local"].force is Force.DOWN
    refused = reconcile("force", "dnspolicy/app/us", "down", tree, *why)
    assert (refused.code, "targets: dnspolicy/app/local" in refused.err) == (64, True)
    whole = reconcile("force", "dnspolicy/app", "down", tree, *why)
    assert (whole.code, "or a target of a DNSPolicy such as dnspolicy/app/eu" in whole.err) == (64, True)
    drained = reconcile("drain", "dnspolicy/app/local", tree)
    assert (drained.code, "reconcile force dnspolicy/app/local down" in drained.err) == (64, True)
    assert reconcile("release", "dnspolicy/app/local", tree).code == 0
    assert orders(instance) == {}
