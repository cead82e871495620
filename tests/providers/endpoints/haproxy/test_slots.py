"""Slots on a real HAProxy: which one is taken, which servers are left alone, refusals, and writers that were killed."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from providers.actions import RemoveEndpoint, SetWeight
from providers.endpoints.haproxy.provider import HAProxyEndpoints
from providers.endpoints.haproxy.state import DISAGREE
from providers.errors import Conflict, Foreign, Gone, Rejected, Unreachable
from providers.facts import Endpoint, MemberFact
from providers.testing.checks import perform_one
from tests.providers.endpoints.haproxy.server import HAProxy, wait_until

pytestmark = pytest.mark.server("haproxy")

Make = Callable[..., HAProxyEndpoints]
FREE = ("127.0.0.1:1", 0, 5)
"""In maintenance (1), and `disabled` in the configuration (4)."""


def put(pool: str, number: int, weight: int, before: int | None = None) -> SetWeight:
    return SetWeight("edge", pool, place(number), f"web-{number}", weight, before)


def place(number: int) -> Endpoint:
    return Endpoint(f"192.0.2.{number}", 8080)


def weights(endpoints: HAProxyEndpoints, pool: str) -> dict[Endpoint, int]:
    (fact,) = (fact for fact in endpoints.observe([pool]) if fact.pool == pool)
    return {member.endpoint: member.weight for member in fact.members if member.ours}


def test_a_new_endpoint_takes_the_lowest_free_slot_and_gives_it_back(haproxy: HAProxy, provider: Make) -> None:
    endpoints = provider()
    for number in (1, 2, 3):
        perform_one(endpoints, put("web", number, 10))
    perform_one(endpoints, put("web", 2, 0, before=10))
    perform_one(endpoints, RemoveEndpoint("edge", "web", place(2), "web-2"))
    assert haproxy.servers("web")["web2"] == FREE
    perform_one(endpoints, put("web", 4, 256))
    found = haproxy.servers("web")
    assert [found[f"web{number}"] for number in (1, 2, 3, 4)] == [
        ("192.0.2.1:8080", 10, 4),
        ("192.0.2.4:8080", 256, 4),
        ("192.0.2.3:8080", 10, 4),
        FREE,
    ]


def test_weight_zero_keeps_the_slot(haproxy: HAProxy, provider: Make) -> None:
    endpoints = provider()
    perform_one(endpoints, put("web", 1, 10))
    perform_one(endpoints, put("web", 1, 0, before=10))
    assert haproxy.servers("web")["web1"] == ("192.0.2.1:8080", 0, 4)
    assert weights(endpoints, "web") == {place(1): 0}


def test_without_a_free_slot_nothing_is_written_and_the_line_is_named(haproxy: HAProxy, provider: Make) -> None:
    endpoints = provider()
    for number in range(1, 6):
        perform_one(endpoints, put("web", number, 10))
    before = haproxy.servers("web")
    with pytest.raises(Rejected) as refused:
        perform_one(endpoints, put("web", 6, 10))
    assert "no free slot: all 5 of web1 to web5 are in use" in str(refused.value)
    line = "server-template web 1-20 suite.slot.invalid:1 init-addr last,127.0.0.1 weight 0 disabled"
    assert f"in backend web: '{line}', then reload" in str(refused.value)
    assert haproxy.servers("web") == before


def test_other_servers_of_the_backend_are_shown_and_never_touched(haproxy: HAProxy, provider: Make) -> None:
    endpoints = provider()
    for number in (1, 2, 3):
        perform_one(endpoints, put("be_app:app", number, 10))
        perform_one(endpoints, put("be_app:app", number, 0, before=10))
    with pytest.raises(Rejected):
        perform_one(endpoints, put("be_app:app", 4, 10))
    perform_one(endpoints, RemoveEndpoint("edge", "be_app:app", place(1), "web-1"))
    old, app9 = Endpoint("192.0.2.77", 80), Endpoint("192.0.2.78", 80)
    for endpoint in (old, app9):
        with pytest.raises(Foreign):
            perform_one(endpoints, SetWeight("edge", "be_app:app", endpoint, "x", 0, None))
    (fact,) = endpoints.observe(["be_app:app"])
    assert [member for member in fact.members if not member.ours] == [
        MemberFact(old, 7, False, "old1"),
        MemberFact(app9, 9, False, "app9"),
    ]
    found = haproxy.servers("be_app")
    assert (found["old1"], found["app9"]) == (("192.0.2.77:80", 7, 0), ("192.0.2.78:80", 9, 0))
    assert [found[f"aux{number}"] for number in (1, 2, 3)] == [FREE] * 3


def test_two_sets_of_slots_in_one_backend_are_two_pools(haproxy: HAProxy, provider: Make) -> None:
    endpoints = provider()
    perform_one(endpoints, put("be_app:app", 1, 10))
    perform_one(endpoints, put("be_app:aux", 2, 20))
    assert weights(endpoints, "be_app:app") == {place(1): 10}
    assert weights(endpoints, "be_app:aux") == {place(2): 20}
    found = haproxy.servers("be_app")
    assert (found["app1"], found["aux1"]) == (("192.0.2.1:8080", 10, 4), ("192.0.2.2:8080", 20, 4))


def test_slots_of_another_instance_are_not_taken_when_ours_are_full(haproxy: HAProxy, provider: Make) -> None:
    stranger = provider("third")
    with pytest.raises(Rejected, match=r"the existing ones are for other\.slot\.invalid, suite\.slot\.invalid"):
        perform_one(stranger, put("web", 1, 10))
    assert set(haproxy.servers("web").values()) == {FREE}


def test_only_pools_with_slots_of_this_instance_are_found_by_a_look(provider: Make) -> None:
    perform_one(provider(), put("web", 1, 10))
    perform_one(provider(), put("be_app:app", 1, 10))
    assert [fact.pool for fact in provider().observe([])] == ["web"]
    assert provider("other").observe([]) == ()


def test_a_wrong_backend_is_an_empty_pool_and_a_write_suggests_another(provider: Make) -> None:
    endpoints = provider()
    assert endpoints.observe(["be_ap:app"])[0].members == ()
    with pytest.raises(Rejected, match=r"has no backend 'be_ap'; did you mean 'be_app'\?"):
        perform_one(endpoints, put("be_ap:app", 1, 10))
    with pytest.raises(
        Rejected, match="its backends: be_agent, be_app, be_asked, be_checked, be_plain, be_source, be_static, "
    ):
        perform_one(endpoints, put("zzzzzzzz", 1, 10))
    perform_one(endpoints, RemoveEndpoint("edge", "be_ap:app", place(1), "web-1"))


def test_servers_with_names_of_slots_are_refused_with_the_line_to_write(haproxy: HAProxy, provider: Make) -> None:
    before = haproxy.servers("be_plain")
    with pytest.raises(Rejected, match="plain1, plain2 would lose their addresses at a reload") as refused:
        perform_one(provider(), put("be_plain:plain", 1, 10))
    assert "server-template plain 1-20 suite.slot.invalid:1" in str(refused.value)
    assert haproxy.servers("be_plain") == before


def test_an_algorithm_without_weights_is_an_error_that_says_so(provider: Make) -> None:
    with pytest.raises(Rejected, match="use balance roundrobin, leastconn or random"):
        perform_one(provider(), put("be_source:src", 1, 50))


def test_ipv6_endpoints_are_the_same_in_any_spelling_of_haproxy(haproxy: HAProxy, provider: Make) -> None:
    endpoints = provider()
    for address in ("2001:db8::1", "::ffff:102:304"):
        action = SetWeight("edge", "web", Endpoint(address, 443), "web-0", 10, None)
        perform_one(endpoints, action)
        perform_one(endpoints, action)
    assert weights(endpoints, "web") == {Endpoint("2001:db8::1", 443): 10, Endpoint("::ffff:102:304", 443): 10}
    haproxy.ask("set server web/web1 addr 2001:0DB8:0:0::1 port 443")
    assert Endpoint("2001:db8::1", 443) in weights(endpoints, "web")


@pytest.mark.parametrize(
    "endpoint",
    [
        Endpoint("web.example.com", 80),
        Endpoint("192.0.2.1;set server web/web1 weight 9", 80),
        Endpoint("192.0.2.1\nshow info", 80),
        Endpoint("2001:DB8::1", 80),
        Endpoint("fe80::1%eth0", 80),
        Endpoint("192.0.2.1", 0),
        Endpoint("192.0.2.1", 65536),
        Endpoint("127.0.0.1", 1),
    ],
)
def test_what_is_no_address_and_port_never_reaches_the_socket(
    haproxy: HAProxy, provider: Make, endpoint: Endpoint
) -> None:
    with pytest.raises(Rejected):
        perform_one(provider(), SetWeight("edge", "web", endpoint, "web-0", 10, None))
    assert set(haproxy.servers("web").values()) == {FREE}


@pytest.mark.parametrize("pool", ["", "web:", ":web", "web;show info", "web\n", "web a", "wéb", "web:a:b", "web:web1"])
def test_an_impossible_pool_name_is_refused_by_looks_and_writes(provider: Make, pool: str) -> None:
    with pytest.raises(Rejected):
        provider().observe([pool])
    with pytest.raises(Rejected):
        perform_one(provider(), put(pool, 1, 10))


@pytest.mark.parametrize("weight", [-1, 257])
def test_a_weight_that_haproxy_cannot_have_is_refused(provider: Make, weight: int) -> None:
    with pytest.raises(Rejected, match="not from 0 to 256"):
        perform_one(provider(), put("web", 1, weight))


@pytest.mark.parametrize(
    "done",
    [
        [],
        ["set server web/web2 addr 192.0.2.1 port 8080"],
        ["set server web/web2 addr 192.0.2.1 port 8080", "set server web/web2 state ready"],
    ],
)
def test_the_next_writer_finishes_taking_a_slot_after_a_kill(haproxy: HAProxy, provider: Make, done: list[str]) -> None:
    haproxy.ask("show info", *done)
    before = weights(provider(), "web").get(place(1))
    perform_one(provider(), put("web", 1, 10, before))
    assert weights(provider(), "web") == {place(1): 10}
    assert [found for found in haproxy.servers("web").values() if found != FREE] == [("192.0.2.1:8080", 10, 4)]


@pytest.mark.parametrize("steps", [0, 1, 2, 3, 4])
def test_the_next_writer_finishes_releasing_a_slot_after_a_kill(haproxy: HAProxy, provider: Make, steps: int) -> None:
    perform_one(provider(), put("web", 1, 0))
    commands = ["weight 0", "state drain", "state maint", "addr 127.0.0.1 port 1"]
    haproxy.ask("show info", *[f"set server web/web1 {command}" for command in commands[:steps]])
    perform_one(provider(), RemoveEndpoint("edge", "web", place(1), "web-1"))
    assert weights(provider(), "web") == {}
    assert haproxy.servers("web")["web1"][1:] == (0, 5)
    perform_one(provider(), put("web", 2, 10))
    assert haproxy.servers("web")["web1"] == ("192.0.2.2:8080", 10, 4)


@pytest.mark.parametrize("state", ["maint", "drain"])
def test_a_slot_that_another_writer_took_out_is_corrected(haproxy: HAProxy, provider: Make, state: str) -> None:
    endpoints = provider()
    perform_one(endpoints, put("web", 1, 10))
    haproxy.ask(f"set server web/web1 state {state}")
    assert weights(endpoints, "web") == {place(1): 0}
    perform_one(endpoints, put("web", 1, 10, before=0))
    assert haproxy.servers("web")["web1"] == ("192.0.2.1:8080", 10, 4)


def test_an_endpoint_in_two_slots_is_put_into_one(haproxy: HAProxy, provider: Make) -> None:
    endpoints = provider()
    perform_one(endpoints, put("web", 1, 10))
    haproxy.ask(*[f"set server web/web4 {what}" for what in ("addr 192.0.2.1 port 8080", "state ready", "weight 90")])
    assert weights(endpoints, "web") == {place(1): DISAGREE}
    perform_one(endpoints, put("web", 1, 10, before=DISAGREE))
    assert weights(endpoints, "web") == {place(1): 10}
    assert haproxy.servers("web")["web4"] == FREE


def test_a_slot_that_was_opened_without_an_address_can_be_removed(haproxy: HAProxy, provider: Make) -> None:
    endpoints = provider()
    haproxy.ask("set server web/web3 state ready", "set server web/web3 weight 5")
    nowhere = Endpoint("127.0.0.1", 1)
    assert weights(endpoints, "web") == {nowhere: 5}
    perform_one(endpoints, SetWeight("edge", "web", nowhere, "", 0, 5))
    perform_one(endpoints, RemoveEndpoint("edge", "web", nowhere, ""))
    assert haproxy.servers("web")["web3"] == FREE


def test_a_socket_without_admin_rights_is_refused_and_says_what_to_write(haproxy: HAProxy, provider: Make) -> None:
    endpoints = provider(sockets=[haproxy.operator])
    assert weights(endpoints, "web") == {}
    with pytest.raises(Rejected, match="stats socket <path> level admin"):
        perform_one(endpoints, put("web", 1, 10))
    assert set(haproxy.servers("web").values()) == {FREE}


def test_each_action_of_a_batch_has_its_own_outcome(haproxy: HAProxy, provider: Make) -> None:
    endpoints = provider()
    perform_one(endpoints, put("web", 9, 10))
    outcomes = endpoints.perform(
        [
            put("web", 1, 10),
            put("web", 2, 300),
            put("web", 3, 10, before=5),
            put("we;b", 4, 10),
            put("nosuch", 5, 10),
            put("web", 6, 20),
            RemoveEndpoint("edge", "web", place(9), "web-9"),
            put("web", 1, 0, before=10),
        ]
    ).errors
    kinds = [type(outcome) for outcome in outcomes]
    assert kinds == [type(None), Rejected, Gone, Rejected, Rejected, type(None), Conflict, type(None)]
    assert weights(endpoints, "web") == {place(1): 0, place(6): 20, place(9): 10}


def test_a_batch_is_limited_by_free_slots_not_by_order(provider: Make) -> None:
    endpoints = provider()
    outcomes = endpoints.perform([put("web", number, number) for number in range(1, 8)]).errors
    assert [type(outcome) for outcome in outcomes] == [type(None)] * 5 + [Rejected] * 2
    assert weights(endpoints, "web") == {place(number): number for number in range(1, 6)}


def test_a_socket_that_is_not_there_is_unreachable(provider: Make) -> None:
    endpoints = provider(sockets=["/nonexistent/haproxy.sock"])
    for act in (lambda: endpoints.observe(["web"]), lambda: perform_one(endpoints, put("web", 1, 1))):
        with pytest.raises(Unreachable, match="correct the path in sockets"):
            act()


def test_writers_at_the_same_time_never_take_the_same_slot(haproxy: HAProxy, provider: Make) -> None:
    endpoints = provider()
    with ThreadPoolExecutor(5) as pool:
        list(pool.map(lambda number: perform_one(endpoints, put("web", number, number)), range(1, 6)))
    assert weights(endpoints, "web") == {place(number): number for number in range(1, 6)}
    assert len({haproxy.servers("web")[f"web{number}"][0] for number in range(1, 6)}) == 5


def test_a_server_that_haproxy_finds_down_keeps_its_weight_and_state(haproxy: HAProxy, provider: Make) -> None:
    endpoints = provider()
    closed = Endpoint("127.0.0.1", 2)
    perform_one(endpoints, SetWeight("edge", "be_checked:chk", closed, "web-0", 10, None))
    wait_until(lambda: haproxy.operational("be_checked", "chk1") == 0, "HAProxy finds the server down")
    assert weights(endpoints, "be_checked:chk") == {closed: 10}
    perform_one(endpoints, SetWeight("edge", "be_checked:chk", closed, "web-0", 20, 10))
    assert weights(endpoints, "be_checked:chk") == {closed: 20}
    assert haproxy.operational("be_checked", "chk1") == 0
