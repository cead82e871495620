import json

import pytest

from reconciler.core.model.ledger_codec import from_rows
from reconciler.core.model.ledger_fold import apply_commands
from reconciler.core.model.override import Force
from reconciler.shell.clock import SystemClock
from reconciler.shell.store.memory import BlockingMemory
from reconciler.shell.store.state_db import Store

ENDPOINT = "endpoint/pool/web/127.0.0.10:8080"


def inbox(state) -> list[tuple[str, dict, str]]:
    with Store.join(state, SystemClock()) as store:
        return [(row.command, json.loads(row.payload), row.who) for row in store.pending()]


def orders(state) -> dict:
    """The orders that the next run has."""
    with Store.open(state, SystemClock()) as store:
        words = tuple(command for _, command in BlockingMemory(store, "test").commands())
        return dict(apply_commands(from_rows(store.load_ledger()), words).overrides)


def test_a_drain_is_queued_with_its_operator_reason_and_expiry(stored, reconcile):
    done = reconcile("drain", "workload/web/1", "--for", "30m", "--reason", "looking into a leak")
    assert done.code == 0
    assert "will be drained until" in done.out
    assert "the next 'reconcile --once PATH' or" in done.out
    [override] = orders(stored).values()
    left = override.until_wall - SystemClock().now().wall
    assert (override.force, override.who, override.reason) == (Force.DRAIN, "ada", "looking into a leak")
    assert (override.forced, override.waits) == (False, True)
    assert 29 * 60e9 < left <= 30 * 60e9


@pytest.mark.parametrize("value", ["up", "down"])
def test_an_endpoint_of_one_pool_can_be_forced_in_both_directions(stored, reconcile, value):
    why = ("--for", "10m", "--reason", "its probe is wrong")
    done = reconcile("force", ENDPOINT, value, *why, "--force", "-o", "json")
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
        ("service/web", "give a replica such as workload/web/0"),
        ("workload/wbe", "did you mean 'workload/web'?"),
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
    reconcile("drain", "workload/web/0", "--force")
    reconcile("drain", ENDPOINT, "--force")
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


LOST = "no other endpoint of pool web of pool is ready and carries weight"


@pytest.mark.parametrize(
    ("key", "phrase"),
    [
        ("workload/web/0", LOST),
        ("workload/web/0", "app.example.test. publishes no other address that is ready"),
        ("workload/web", LOST),
        (ENDPOINT, LOST),
    ],
)
@pytest.mark.parametrize(
    "words", [("drain", "{key}"), ("force", "{key}", "down", "--for", "1h", "--reason", "a bad disk")]
)
def test_taking_the_last_endpoint_out_needs_force(words, key, phrase, stored, reconcile):
    words = [word.format(key=key) for word in words]
    done = reconcile(*words)
    assert done.code == 64
    assert phrase in done.err
    command = f"reconcile {' '.join(words)} --force".replace("a bad disk", "'a bad disk'")
    assert command in done.err.replace("--for 3600s", "--for 1h")
    assert inbox(stored) == []
    assert reconcile(*words, "--force").code == 0
    assert orders(stored)
    assert all(override.forced and not override.waits for override in orders(stored).values())


def test_a_replica_that_carries_nothing_is_drained_without_force(stored, reconcile):
    assert reconcile("drain", "workload/web/1").code == 0


def test_drains_that_nothing_has_read_yet_count_as_drained(stored, reconcile):
    reconcile("drain", "workload/web/0", "--force")
    assert reconcile("drain", "workload/web/1").code == 64


def test_a_workload_is_drained_and_released_with_all_its_replicas(stored, reconcile):
    assert reconcile("drain", "workload/web", "--force").code == 0
    assert set(orders(stored)) == {f"workload/web/{ordinal}" for ordinal in range(3)}
    assert reconcile("release", "workload/web").code == 0
    assert orders(stored) == {}
