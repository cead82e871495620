"""Failures with a real name server: each has an error with a next step, and does no harm."""

import base64
from collections.abc import Callable

import pytest

from providers.actions import ChangeRecords, RecordChange
from providers.dns.rfc2136.provider import RFC2136Zones
from providers.errors import Conflict, Gone, OutcomeUnknown, ProviderError, Rejected, Unreachable
from providers.facts import RecordKey, RecordSet
from providers.spi import Context
from tests.providers.dns.rfc2136.name_servers import SECRETS, NameServer
from tests.providers.dns.rfc2136.relay import UPDATE, Relay, opcode

A1 = RecordSet(60, ("192.0.2.1",))
A2 = RecordSet(60, ("192.0.2.1", "192.0.2.2"))

pytestmark = [pytest.mark.server("named"), pytest.mark.server("nsupdate")]
Make = Callable[..., Context]


def change(zone: str, label: str, before: RecordSet | None, after: RecordSet | None, kind: str = "A") -> ChangeRecords:
    key = RecordKey(f"{label}.{zone}", kind)
    return ChangeRecords("names", zone, (RecordChange(key, before, after, "demo/dnspolicy/app"),))


def records(names: RFC2136Zones, zone: str) -> dict[RecordKey, RecordSet]:
    (fact,) = names.observe([zone])
    return {key: record for key, record in fact.records.items() if key[:2] != (zone, "NS")}


@pytest.fixture(params=["named", "knot"])
def server(request: pytest.FixtureRequest) -> NameServer:
    return request.getfixturevalue(request.param)


def without_secrets(text: str) -> str:
    """The text, after making sure that no secret is in it in any spelling."""
    for secret in SECRETS.values():
        assert secret not in text
        assert base64.b64decode(secret).decode() not in text
    return text


# --- keys ---------------------------------------------------------------------------------------------------------


def test_a_wrong_secret_is_refused_with_the_name_of_the_key(server: NameServer, here: Make) -> None:
    zone = server.new_zone()
    wrong = server.key("update.key", "transfer.key")
    names = server.provider(here(), updateKey=wrong)
    with pytest.raises(
        Rejected, match=r"key update\.key: the server does not accept our signature \(BADSIG\)"
    ) as caught:
        names.perform(change(zone, "app", None, A1))
    assert "secret of key update.key (hmac-sha256) here and on the server" in without_secrets(str(caught.value))
    assert records(names, zone) == {}
    with pytest.raises(Rejected, match="BADSIG"):
        server.provider(here(), transferKey=server.key("transfer.key", "update.key")).observe([zone])


def test_a_key_that_the_server_does_not_know_is_named(server: NameServer, here: Make) -> None:
    zone = server.new_zone()
    unknown = server.key("unknown.key", "update.key")
    with pytest.raises(Rejected, match=r"add key unknown\.key with algorithm hmac-sha256 to the server"):
        server.provider(here(), updateKey=unknown).perform(change(zone, "app", None, A1))
    with pytest.raises(Rejected, match=r"add key unknown\.key"):
        server.provider(here(), transferKey=unknown).observe([zone])


def test_another_algorithm_than_the_servers_is_refused(server: NameServer, here: Make) -> None:
    other = server.key("transfer.key") | {"algorithm": "hmac-sha512"}
    with pytest.raises(Rejected, match=r"transfer\.key"):
        server.provider(here(), transferKey=other).observe([server.new_zone()])


@pytest.mark.parametrize("skew", [-3600, 3600])
def test_different_clocks_are_named_as_the_cause(server: NameServer, here: Make, skew: int) -> None:
    times = RFC2136Zones("names", server.settings(), here())._server.clocks
    names = RFC2136Zones("names", server.settings(), here(), wall=lambda: times.wall() + skew)
    with pytest.raises(Rejected, match="set the clocks of both machines"):
        names.observe([server.new_zone()])


def test_the_transfer_key_must_not_update(server: NameServer, here: Make) -> None:
    zone = server.new_zone()
    names = server.provider(here(), updateKey=server.key("transfer.key"))
    with pytest.raises(Rejected) as caught:
        names.perform(change(zone, "app", None, A1))
    assert "update-policy { grant transfer.key zonesub ANY; }" in str(caught.value)
    assert records(names, zone) == {}


def test_secrets_are_in_no_printed_form(server: NameServer, here: Make) -> None:
    names = server.provider(here())
    zone = server.new_zone()
    names.observe([zone])
    settings = server.settings()
    signer = names._server.signer(settings.update_key, zone)
    without_secrets(f"{names!r} {vars(names)!r} {settings!r} {settings.model_dump()} {signer!r}")


# --- refusals -----------------------------------------------------------------------------------------------------


def test_a_refused_transfer_names_the_line_and_the_other_setting(server: NameServer, here: Make) -> None:
    with pytest.raises(Rejected) as caught:
        server.provider(here()).observe(["closed.test."])
    assert 'allow-transfer { key "transfer.key"; }' in str(caught.value)
    assert "readBack: queries" in str(caught.value)


@pytest.mark.parametrize("read_back", ["axfr", "queries"])
def test_a_refused_update_names_the_line_to_add(server: NameServer, here: Make, read_back: str) -> None:
    names = server.provider(here(), readBack=read_back)
    with pytest.raises(Rejected) as caught:
        names.perform(change("readonly.test.", "app", None, A1))
    assert "update-policy { grant update.key zonesub ANY; }" in str(caught.value)
    assert "action: update" in str(caught.value)


@pytest.mark.parametrize("read_back", ["axfr", "queries"])
def test_a_zone_that_is_not_loaded_is_unknown_not_empty(server: NameServer, here: Make, read_back: str) -> None:
    with pytest.raises(Unreachable, match="SERVFAIL"):
        server.provider(here(), readBack=read_back).observe(["broken.test."])


@pytest.mark.parametrize("read_back", ["axfr", "queries"])
def test_a_zone_that_the_server_does_not_serve_is_refused(server: NameServer, here: Make, read_back: str) -> None:
    with pytest.raises(Rejected, match=r"configure nowhere\.test\. on this server"):
        server.provider(here(), readBack=read_back).observe(["nowhere.test."])


def test_one_unreadable_zone_makes_the_whole_look_fail(server: NameServer, here: Make) -> None:
    with pytest.raises(ProviderError):
        server.provider(here()).observe([server.new_zone(), "broken.test."])


def test_a_server_that_does_not_run_is_unreachable(named: NameServer, here: Make) -> None:
    names = named.provider(here())
    zone = named.new_zone()
    names.perform(change(zone, "app", None, A1))
    named.kill()
    with pytest.raises(Unreachable, match="Connection refused"):
        names.perform(change(zone, "app", A1, A2))
    named.start()
    assert records(names, zone) == {RecordKey(f"app.{zone}", "A"): A1}


# --- missing answers -------------------------------------------------------------------------------------


def test_an_update_without_an_answer_is_unknown_and_can_be_repeated(server: NameServer, here: Make) -> None:
    zone = server.new_zone()
    cut = [True]

    def answers(framed: bytes) -> bytes | None:
        return None if cut and opcode(framed[2:]) == UPDATE else framed

    with Relay(server.port, answers=answers) as relay:
        names = server.provider(here(), port=relay.port)
        with pytest.raises(OutcomeUnknown, match="the update was sent, but its answer is missing"):
            names.perform(change(zone, "app", None, A1))
        assert records(names, zone) == {RecordKey(f"app.{zone}", "A"): A1}
        cut.clear()
        serial = names.observe([zone])[0].serial
        names.perform(change(zone, "app", None, A1))
        assert names.observe([zone])[0].serial == serial


def test_a_server_killed_during_an_update_leaves_the_outcome_unknown(named: NameServer, here: Make) -> None:
    zone = named.new_zone()

    def before(message: bytes) -> None:
        if opcode(message) == UPDATE:
            named.kill()

    with Relay(named.port, before=before) as relay, pytest.raises(OutcomeUnknown):
        named.provider(here(), port=relay.port).perform(change(zone, "app", None, A1))
    named.start()
    assert records(named.provider(here()), zone) == {}


def test_a_silent_server_is_unreachable_after_the_time_out(here: Make, named: NameServer) -> None:
    with Relay(None, answers=lambda framed: b"") as relay:
        names = named.provider(here(), port=relay.port, timeout="100ms")
        with pytest.raises(Unreachable, match=r"no progress within 0\.1 s"):
            names.observe([named.new_zone()])


def test_an_incomplete_transfer_never_counts_as_the_zone(server: NameServer, here: Make) -> None:
    zone = server.new_zone()
    many = tuple(
        RecordChange(RecordKey(f"n{index}.{zone}", "A"), None, A1, "demo/dnspolicy/app") for index in range(60)
    )
    server.provider(here()).perform(ChangeRecords("names", zone, many))
    whole: list[int] = []
    with Relay(server.port, answers=lambda framed: whole.append(len(framed)) or framed) as relay:
        server.provider(here(), port=relay.port).observe([zone])
    size = whole[-1]
    for keep in (1, 2, 40, size // 2, size - 1):

        def answers(framed: bytes, keep: int = keep) -> bytes | None:
            return framed[:keep] if len(framed) == size else framed

        with Relay(server.port, answers=answers) as relay:
            names = server.provider(here(), port=relay.port, timeout="100ms")
            with pytest.raises(Unreachable):
                names.observe([zone])


def test_unsigned_answers_are_not_accepted(named: NameServer, here: Make) -> None:
    def forged(framed: bytes) -> bytes:
        message = framed[2:]
        head = message[:2] + bytes((message[2] | 0x84, 0)) + message[4:6] + bytes(6)
        end = message.index(b"\0", 12) + 5
        answer = head + message[12:end]
        return len(answer).to_bytes(2, "big") + answer

    zone = named.new_zone()
    with Relay(None, answers=forged) as relay, pytest.raises(Rejected, match="the answer is not signed"):
        named.provider(here(), port=relay.port).observe([zone])

    def only_updates(framed: bytes) -> bytes:
        message = framed[2:]
        return forged(framed) if opcode(message) == UPDATE else framed

    with Relay(named.port, answers=only_updates) as relay, pytest.raises(OutcomeUnknown, match="cannot be trusted"):
        named.provider(here(), port=relay.port).perform(change(zone, "app", None, A1))


@pytest.mark.parametrize("answer", [b"\0\0", b"\0\1x", b"\0\14" + bytes(12), b"\0\20" + bytes(16)])
def test_octets_that_are_not_an_answer_are_an_error(named: NameServer, here: Make, answer: bytes) -> None:
    with Relay(None, answers=lambda framed: answer) as relay, pytest.raises(Unreachable):
        named.provider(here(), port=relay.port).observe([named.new_zone()])


# --- other writers ---------------------------------------------------------------------------------------------


def test_an_edit_by_hand_after_the_plan_is_a_conflict(server: NameServer, here: Make) -> None:
    zone = server.new_zone()
    names = server.provider(here())
    names.perform(change(zone, "app", None, A1))
    server.nsupdate([f"zone {zone}", f"update add app.{zone} 60 A 192.0.2.9"])
    with pytest.raises(Conflict, match=r"192\.0\.2\.9"):
        names.perform(change(zone, "app", A1, A2))
    server.nsupdate([f"zone {zone}", f"update delete app.{zone} A"])
    with pytest.raises(Gone):
        names.perform(change(zone, "app", A1, A2))
    assert records(names, zone) == {}


@pytest.mark.parametrize(
    ("label", "before", "after", "edit"),
    [
        ("app", A1, A2, "update add app.{zone} 60 A 192.0.2.9"),
        ("app", A1, None, "update delete app.{zone} A"),
        ("new", None, A1, "update add new.{zone} 60 A 192.0.2.9"),
        ("new", None, A1, "update add new.{zone} 60 CNAME elsewhere.example.net."),
    ],
)
def test_the_server_detects_an_edit_during_the_update(
    server: NameServer, here: Make, label: str, before: RecordSet | None, after: RecordSet | None, edit: str
) -> None:
    """The edit happens when the update is sent already: only its prerequisites detect it."""
    zone = server.new_zone()
    server.provider(here()).perform(change(zone, "app", None, A1))
    serials: list[int] = []

    def edited(message: bytes) -> None:
        if opcode(message) == UPDATE:
            server.nsupdate([f"zone {zone}", edit.format(zone=zone)])
            serials.append(server.provider(here()).observe([zone])[0].serial)

    with Relay(server.port, before=edited) as relay, pytest.raises(Conflict, match="another writer changed"):
        server.provider(here(), port=relay.port).perform(change(zone, label, before, after))
    assert server.provider(here()).observe([zone])[0].serial == serials[0]


def test_another_ttl_than_expected_is_a_conflict(server: NameServer, here: Make) -> None:
    zone = server.new_zone()
    names = server.provider(here())
    names.perform(change(zone, "app", None, A1))
    slow = RecordSet(3600, A1.values)
    server.provider(here()).perform(change(zone, "app", A1, slow))
    with pytest.raises(Conflict, match="TTL 3600"):
        names.perform(change(zone, "app", A1, A2))
    names.perform(change(zone, "app", slow, A1))
    assert records(names, zone) == {RecordKey(f"app.{zone}", "A"): A1}


def test_reading_back_detects_an_accepted_change_that_is_missing(named: NameServer, here: Make) -> None:
    """Another writer reverts the change between its answer and the look."""
    zone = named.new_zone()

    def undone(framed: bytes) -> bytes:
        if opcode(framed[2:]) == UPDATE:
            named.nsupdate([f"zone {zone}", f"update delete app.{zone} A"])
        return framed

    with Relay(named.port, answers=undone) as relay, pytest.raises(Conflict, match="found absent"):
        named.provider(here(), port=relay.port).perform(change(zone, "app", None, A1))
