"""Real name servers that refuse some record sets of a long list: all others are written, in few calls."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import pytest

from manifests.values.dns import RecordList, SetKey, SetValue
from providers.actions import ChangeRecords
from providers.dns.zonefile.provider import ZoneFiles, ZoneFileSettings
from providers.errors import ProviderError, Rejected
from providers.facts import Known, RecordKey
from providers.spi import Context, DNSProvider
from providers.wrappers.owned import owned
from reconciler.core.actions.asked import digest
from reconciler.core.decide import decide
from reconciler.core.decision import Decision
from reconciler.core.dns.list_batches import CALLS
from reconciler.core.model.ledger_fold import Outcome, OutcomeKind, fold
from reconciler.core.model.reasons import Rule
from tests.core.dns.test_record_lists import Listed
from tests.core.dns.world import INSTANCE, NAMES
from tests.providers.dns.powerdns.power_servers import PowerServer
from tests.providers.dns.rfc2136.name_servers import Knot, Named

COUNT = 400


@dataclass
class Real(Listed):
    """A list and a zone of a real server."""

    provider: DNSProvider | None = None
    name: str = ""
    calls: int = 0

    def look(self) -> None:
        assert self.provider is not None
        (fact,) = self.provider.observe([self.name])
        self.zone = Known(fact, NAMES, self.now.steady)

    def turn(self) -> Decision:
        """One look, one decision, and its calls."""
        assert self.provider is not None
        self.look()
        observed = replace(self.observed(), zones={(NAMES, self.name): self.zone})
        decision = decide(self.desired(), observed, self.now)
        self.ledger = decision.ledger
        assert len(decision.steps) <= CALLS
        outcomes = []
        for step in decision.steps:
            self.calls += 1
            kind, message, whole = OutcomeKind.DONE, "", False
            try:
                self.provider.perform(cast("ChangeRecords", step.action))
            except Rejected as error:
                kind, message, whole = OutcomeKind.REJECTED, str(error), error.whole
            except ProviderError as error:
                kind, message = OutcomeKind.FAILED, str(error)
            asked = digest(step.action, self.desired(), {})
            outcomes.append(Outcome(step.id, kind, message, step.object, asked, whole=whole))
        self.ledger = fold(self.ledger, tuple(outcomes), self.now)
        self.pass_time(0.01)
        return decision

    def run(self, turns: int) -> Decision:
        for _ in range(turns):
            decision = self.turn()
            if not decision.steps:
                return decision
        pytest.fail(f"steps are still due after {turns} turns")


def listed(zone: str, bad: dict[SetKey, SetValue]) -> RecordList:
    sets: dict[SetKey, SetValue] = {
        (f"n{index}.{zone}", "A", ""): (300, (f"192.0.2.{index % 250 + 1}",), None, "", False) for index in range(COUNT)
    }
    # A mail exchanger whose address is in the same list: alone, some servers refuse it before they have the address.
    for index in range(0, COUNT, 40):
        sets[f"m{index}.{zone}", "MX", ""] = (300, (f"10 n{index}.{zone}",), None, "", False)
    return RecordList("recordlist/all", "all", NAMES, zone, sets | bad)


def world(provider: DNSProvider, zone: str, bad: dict[SetKey, SetValue]) -> Real:
    made = Real((), lists=(listed(zone, bad),))
    made.provider, made.name = owned(provider, INSTANCE), zone
    return made


SERVERS = (
    pytest.param("named", marks=[pytest.mark.server("named"), pytest.mark.server("nsupdate")]),
    pytest.param("knot", marks=pytest.mark.server("knotd")),
    pytest.param("powerdns", marks=pytest.mark.server("pdns_server")),
    "zonefile",
)


@pytest.fixture(params=SERVERS)
def zone_of(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[DNSProvider, str, str]]:
    """A provider, an empty zone, and the type and value (with the zone as `{}`) of record sets that it refuses."""
    context = Context(INSTANCE, str(tmp_path))
    kind = request.param
    if kind == "zonefile":
        yield ZoneFiles("names", ZoneFileSettings(), context), "lists.test.", "CNAME"
        return
    if kind == "powerdns":
        power = PowerServer(tmp_path)
        power.start()
        yield power.provider(), power.new_zone(), "CNAME"
        power.kill()
        return
    server = (Named if kind == "named" else Knot)(tmp_path)
    server.start()
    yield server.provider(context), server.new_zone(), "MX" if kind == "named" else "CNAME"
    server.kill()


def test_a_long_list_is_written_but_for_its_three_bad_sets(zone_of: tuple[DNSProvider, str, str]) -> None:
    provider, zone, kind = zone_of
    # BIND refuses a mail exchanger without an address in its zone. Nothing may stand beside a CNAME, nor two of them at a name.
    values = {"MX": ("10 nowhere.{}",), "CNAME": ("a.example.", "b.example.")}[kind]
    values = tuple(value.format(zone) for value in values)
    bad: dict[SetKey, SetValue] = {
        (f"bad{index}.{zone}", kind, ""): (300, values, None, "", False) for index in range(3)
    }
    made = world(provider, zone, bad)
    decision = made.run(14)
    made.look()
    (record_list,) = made.lists
    assert {key for key in record_list.sets if RecordKey(*key) not in made.sets} == set(bad)
    held = {hold.action for hold in decision.holds if hold.rule is Rule.STEP_FAILED}
    assert held == {f"records {NAMES}/{zone}/recordlist/all/{name} {record_type}" for name, record_type, _ in bad}
    assert made.calls <= 120

    calls, first = made.calls, min(bad)
    good = {**record_list.sets, first: (300, (f"10 n1.{zone}" if kind == "MX" else f"n1.{zone}",), None, "", False)}
    made.lists = (replace(record_list, sets=good),)
    made.turn()
    made.look()
    assert (RecordKey(*first) in made.sets, made.calls - calls) == (True, 1)


@pytest.mark.server("named")
@pytest.mark.server("nsupdate")
def test_a_server_that_gives_no_rights_is_asked_once_for_a_long_list(tmp_path: Path) -> None:
    server = Named(tmp_path)
    server.start()
    made = world(server.provider(Context(INSTANCE, str(tmp_path))), "readonly.test.", {})
    made.run(3)
    server.kill()
    assert made.calls == 1
