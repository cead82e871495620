"""Addresses that probes of DNS targets must not connect to."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.probes.off_limits import METADATA, refusal

REFUSED = {
    "127.0.0.1": "loopback",
    "127.9.8.7": "loopback",
    "::1": "loopback",
    "0.0.0.0": "unspecified",
    "0.1.2.3": "unspecified",
    "::": "unspecified",
    "169.254.169.254": "link-local",
    "169.254.1.1": "link-local",
    "fe80::1": "link-local",
    "fe80::1%eth0": "link-local",
    "224.0.0.1": "multicast or broadcast",
    "ff02::1": "multicast or broadcast",
    "255.255.255.255": "multicast or broadcast",
    "::ffff:127.0.0.1": "loopback",
    "::ffff:169.254.169.254": "link-local",
    "2002:7f00:1::": "loopback",
    "64:ff9b::7f00:1": "loopback",
    "64:ff9b::a9fe:a9fe": "link-local",
    "::ffff:168.63.129.16": "metadata",
}


@pytest.mark.parametrize(("address", "kind"), REFUSED.items())
def test_special_addresses_are_refused_with_kind_and_next_step(address: str, kind: str) -> None:
    reason = refusal(address, ())
    assert kind in reason
    assert "allowAddresses of the Instance" in reason


@pytest.mark.parametrize("address", METADATA)
def test_metadata_servers_are_refused(address: str) -> None:
    assert "metadata" in refusal(address, ())


@pytest.mark.parametrize("address", ["203.0.113.1", "10.0.0.1", "192.168.1.1", "2001:db8::1", "fd12::1", "100.64.0.1"])
def test_public_and_private_addresses_are_allowed(address: str) -> None:
    assert refusal(address, ()) == ""


def test_allowed_networks_are_not_refused() -> None:
    assert refusal("127.0.0.5", ("127.0.0.0/8",)) == ""
    assert refusal("127.0.0.5", ("::1/128", "127.0.0.5/32")) == ""
    assert refusal("169.254.169.254", ("127.0.0.0/8",)) != ""
    assert refusal("::1", ("127.0.0.0/8",)) != ""


def test_an_allowed_network_does_not_include_embedded_forms() -> None:
    assert refusal("::ffff:127.0.0.1", ("127.0.0.0/8",)) != ""
    assert refusal("64:ff9b::7f00:1", ("127.0.0.0/8",)) != ""


@given(st.ip_addresses(v=4))
def test_an_embedded_ipv4_address_is_refused_like_the_plain_one(address: object) -> None:
    plain = refusal(str(address), ())
    for form in (f"::ffff:{address}", f"64:ff9b::{address}"):
        assert bool(refusal(form, ())) == bool(plain)
