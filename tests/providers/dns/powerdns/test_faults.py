"""Every way in which an HTTP server fails: an unknown outcome stays unknown, and a failed call changes nothing."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from manifests.values.desired import SECOND
from providers.actions import ChangeRecords, RecordChange
from providers.dns.powerdns.provider import PowerDNSZones
from providers.dns.powerdns.settings import PowerDNSSettings
from providers.errors import OutcomeUnknown, ProviderError, Rejected, Unreachable
from providers.facts import RecordKey, RecordSet
from providers.spi import Context
from tests.providers.dns.powerdns.api_relay import Relay, Spoil, answer, cut, forward, hang, lose
from tests.providers.dns.powerdns.power_servers import KEY, PowerServer

pytestmark = pytest.mark.server("pdns_server")
A1 = RecordSet(60, ("192.0.2.1",))


class Time:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 1_000 * SECOND

    def steady(self) -> int:
        return self.now

    def wall(self) -> float:
        return self.now / SECOND


@pytest.fixture
def relay(power: PowerServer) -> Iterator[Relay]:
    with Relay(power.url) as found:
        yield found


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def names(request: pytest.FixtureRequest, power: PowerServer, relay: Relay, time: Time) -> Iterator[PowerDNSZones]:
    """The provider; it is patient with a busy machine, unless the test is about an answer that never comes."""
    spoil = request.node.callspec.params.get("spoil") if hasattr(request.node, "callspec") else None
    settings = power.settings(url=relay.url, timeout="2s" if spoil is hang else "60s")
    provider = PowerDNSZones("names", settings, Context("suite", "/nowhere"), steady=time.steady, wall=time.wall)
    yield provider
    provider.close()


def action(zone: str, before: RecordSet | None = None, after: RecordSet | None = A1) -> ChangeRecords:
    return ChangeRecords("names", zone, (RecordChange(RecordKey(f"app.{zone}", "A"), before, after, "suite/x"),))


def served(power: PowerServer, zone: str) -> list[str]:
    return power.dig(f"app.{zone}", "A")


@pytest.mark.parametrize(
    ("spoil", "kind"),
    [
        (answer(429, Retry_After="7"), Unreachable),
        (answer(503, Retry_After="7"), Unreachable),
        (answer(500), Unreachable),
        (answer(502, b"<html>bad gateway</html>"), Unreachable),
        (answer(200, b"<html>a login page</html>"), Unreachable),
        (answer(200, b"[]"), Unreachable),
        (answer(200, b'{"kind": "Native", "serial": 1}'), Unreachable),
        (answer(200, b'{"kind": "Native", "serial": 1, "rrsets": [{"name": 3}]}'), Unreachable),
        (cut, Unreachable),
        (lose, Unreachable),
        (hang, Unreachable),
        (answer(401), Rejected),
        (answer(403), Rejected),
        (answer(302, Location="http://192.0.2.1/"), Rejected),
        (answer(400), Rejected),
    ],
)
def test_a_look_that_fails_raises_and_no_change_follows(
    power: PowerServer, relay: Relay, names: PowerDNSZones, spoil: Spoil, kind: type[ProviderError]
) -> None:
    zone = power.new_zone()
    relay.spoil["GET"] = spoil
    for act in (lambda: names.observe([zone]), lambda: names.perform(action(zone))):
        with pytest.raises(kind) as raised:
            act()
        assert KEY not in str(raised.value)
    assert not any(call.startswith("PATCH") for call in relay.calls)
    assert served(power, zone) == []


@pytest.mark.parametrize(
    ("spoil", "kind", "done"),
    [
        (answer(429, Retry_After="1"), Unreachable, []),
        (answer(503), Unreachable, []),
        (answer(401), Rejected, []),
        (answer(422), Rejected, []),
        (answer(413), Rejected, []),
        (answer(500), OutcomeUnknown, []),
        (hang, OutcomeUnknown, []),
        (lose, OutcomeUnknown, ["192.0.2.1"]),
    ],
)
def test_a_failed_write_says_if_it_may_be_done_and_can_be_repeated(
    power: PowerServer,
    relay: Relay,
    names: PowerDNSZones,
    time: Time,
    spoil: Spoil,
    kind: type[ProviderError],
    done: list[str],
) -> None:
    zone = power.new_zone()
    relay.spoil["PATCH"] = spoil
    with pytest.raises(kind):
        names.perform(action(zone))
    assert served(power, zone) == done
    relay.spoil["PATCH"] = forward
    time.now += 2 * SECOND
    names.perform(action(zone))
    assert served(power, zone) == ["192.0.2.1"]


def test_a_change_whose_reading_back_fails_is_unknown(power: PowerServer, relay: Relay, names: PowerDNSZones) -> None:
    zone = power.new_zone()

    def then_blind(handler: object) -> None:
        relay.spoil["GET"] = answer(500)  # before the answer: the next question follows it at once
        forward(handler)  # type: ignore[arg-type]

    relay.spoil["PATCH"] = then_blind
    with pytest.raises(OutcomeUnknown, match="reading it back failed"):
        names.perform(action(zone))
    assert served(power, zone) == ["192.0.2.1"]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30", 30), ("Thu, 01 Jan 1970 00:17:10 GMT", 30), ("999999999", 3600), ("soon", 0), ("-5", 0), ("", 0)],
)
def test_a_server_that_asks_for_patience_is_left_alone_until_then(
    power: PowerServer, relay: Relay, names: PowerDNSZones, time: Time, text: str, seconds: int
) -> None:
    zone = power.new_zone()
    relay.spoil["GET"] = answer(429, Retry_After=text)
    with pytest.raises(Unreachable, match="429"):
        names.observe([zone])
    relay.spoil["GET"] = forward
    if seconds:
        time.now += seconds * SECOND - 1
        calls = len(relay.calls)
        with pytest.raises(Unreachable, match="asked to wait another 1 s"):
            names.observe([zone])
        assert len(relay.calls) == calls
        time.now += 1
    assert names.observe([zone])


def test_an_unchanged_zone_costs_one_small_call_for_15_minutes(
    power: PowerServer, relay: Relay, names: PowerDNSZones, time: Time
) -> None:
    zone = power.new_zone()
    names.observe([zone])
    relay.calls.clear()
    names.observe([zone])
    assert relay.calls == [f"GET /api/v1/servers/localhost/zones/{zone}?rrsets=false"]
    time.now += 15 * 60 * SECOND
    names.observe([zone])
    assert len(relay.calls) == 3


def test_a_missing_server_and_a_missing_key_have_different_errors(power: PowerServer) -> None:
    zone = power.new_zone()
    gone = PowerDNSZones("names", power.settings(url="http://127.0.0.1:1"), Context("suite", "/nowhere"))
    with pytest.raises(Unreachable, match="no connection"):
        gone.observe([zone])
    assert "no connection" in gone.check([zone])[0]
    gone.close()
    keyless = PowerDNSZones("names", power.settings(apiKey={"env": "NOT_SET_ANYWHERE"}), Context("suite", "/nowhere"))
    with pytest.raises(Rejected, match="NOT_SET_ANYWHERE is not set"):
        keyless.observe([zone])
    keyless.close()


def test_certificates_that_cannot_be_used_are_named(power: PowerServer) -> None:
    settings = power.settings(url="https://127.0.0.1:1", caFile="/nowhere/ca.pem")
    names = PowerDNSZones("names", settings, Context("suite", "/nowhere"))
    with pytest.raises(Rejected, match=r"/nowhere/ca\.pem"):
        names.observe(["example.test."])
    names.close()


@pytest.mark.parametrize(
    "url", ["", "127.0.0.1:8081", "ftp://host", "http://", "http://u:p@host", "http://host/?q=1", "http://host:x"]
)
def test_a_url_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="base URL"):
        PowerDNSSettings.model_validate({"url": url, "apiKey": {"env": "KEY"}})


@pytest.mark.parametrize("secret", ["two\nlines", "ümlaut-sentinel", "tab\tsentinel"])
def test_a_key_that_no_header_can_hold_is_refused_without_being_shown(
    power: PowerServer, tmp_path: Path, secret: str
) -> None:
    file = tmp_path / "key"
    file.write_text(secret)
    file.chmod(0o600)
    names = PowerDNSZones("names", power.settings(apiKey={"file": str(file)}), Context("suite", "/nowhere"))
    with pytest.raises(Rejected, match="not allowed in an HTTP header") as raised:
        names.observe(["example.test."])
    assert secret not in str(raised.value)
    names.close()
