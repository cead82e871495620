"""Addresses that probes of DNS targets must not connect to."""

import os
import subprocess
import sys

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
    "::127.0.0.1": "loopback",
    "::ffff:0:127.0.0.1": "loopback",
    "64:ff9b:1::7f00:1": "loopback",
    "64:ff9b:1:7f00:0:100::": "loopback",
    "64:ff9b:1:127f:0:1::": "loopback",
    "64:ff9b:1:0:7f:0:100:0": "loopback",
    "64:ff9b:1::a9fe:a9fe": "link-local",
    "2001:0:cb00:7101::8000:fffe": "protocol assignments",
    "2001:db8::5efe:7f00:1": "loopback",
    "2001:db8::200:5efe:a9fe:a9fe": "link-local",
    "192.0.0.8": "protocol assignments",
    "240.0.0.1": "reserved",
    "fec0::1": "site-local",
    "100::1": "discard-only",
    "5f00::1": "segment identifier",
}


@pytest.mark.parametrize(("address", "kind"), REFUSED.items())
def test_special_addresses_are_refused_with_kind_and_next_step(address: str, kind: str) -> None:
    reason = refusal(address, ())
    assert kind in reason
    assert "allowAddresses of the Instance" in reason


@pytest.mark.parametrize("address", METADATA)
def test_metadata_servers_are_refused(address: str) -> None:
    assert "metadata" in refusal(address, ())


ORDINARY = [
    "203.0.113.1",
    "10.0.0.1",
    "192.168.1.1",
    "2001:db8::1",
    "fd12::1",
    "100.64.0.1",
    "64:ff9b:1::cb00:7101",
    "192.0.0.9",
]


@pytest.mark.parametrize("address", ORDINARY)
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


OWN = """
import subprocess, sys
from reconciler.probes.off_limits import refusal

def run(*words):
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)

assert refusal("203.0.113.9", ()) == "" and refusal("2001:db8::9", ()) == "" and refusal("198.51.100.77", ()) == ""
run("ip", "link", "set", "lo", "up")
run("ip", "link", "add", "d0", "type", "veth", "peer", "name", "d1")
run("ip", "link", "set", "d1", "up")
run("ip", "link", "set", "d0", "up")
run("ip", "address", "add", "203.0.113.9/24", "dev", "d0")
run("ip", "address", "add", "2001:db8::9/64", "dev", "d0", "nodad")
run("ip", "route", "add", "local", "198.51.100.0/24", "dev", "lo")
for address in ("203.0.113.9", "203.0.113.255", "2001:db8::9", "198.51.100.77", "::ffff:203.0.113.9", "64:ff9b::203.0.113.9"):
    assert "an address of this host" in refusal(address, ()), address
for address in ("203.0.113.10", "2001:db8::10", "198.51.101.1"):
    assert refusal(address, ()) == "", address
assert refusal("203.0.113.9", ("203.0.113.9/32",)) == ""
run("ip", "address", "del", "203.0.113.9/24", "dev", "d0")
assert refusal("203.0.113.9", ()) == ""
print("seen")
"""


def test_addresses_of_this_host_are_refused_as_long_as_it_has_them() -> None:
    if os.geteuid():
        pytest.skip("a network of its own needs root")
    command = ["unshare", "--net", sys.executable, "-c", OWN]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.strip() == "seen", done.stderr
