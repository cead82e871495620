"""The forecast of a batch of weights equals what is made of the servers that are read back."""

import pytest

from providers.actions import EndpointAction, RemoveEndpoint, SetWeight
from providers.endpoints.haproxy.forecast import forecast
from providers.endpoints.haproxy.moves import Free, Move, moves_for
from providers.endpoints.haproxy.pool_facts import pool_fact
from providers.endpoints.haproxy.state import Server, Slots, table
from providers.endpoints.haproxy.tables import parse_servers
from providers.facts import Endpoint

HEAD = (
    "1\n# be_id be_name srv_id srv_name srv_addr srv_op_state srv_admin_state srv_uweight srv_iweight srv_check_state"
    " srv_agent_state srv_fqdn srv_port srv_check_status srv_check_health\n"
)
WEB, OTHER = Slots("web", "web", "suite"), Slots("other", "other", "suite")


def servers(backend: str, *weights: int, admin: int = 0) -> dict[str, Server]:
    rows = (
        f"3 {backend} {n} {backend}{n} 192.0.2.{n} 2 {admin} {weight} 0 6 0 slot.invalid 80 3 4\n"
        for n, weight in enumerate(weights, 1)
    )
    return {server.name: server for server in parse_servers(HEAD + "".join(rows))}


def put(number: int, weight: int, before: int | None) -> SetWeight:
    return SetWeight("edge", "web", Endpoint(f"192.0.2.{number}", 80), "", weight, before)


def moved(slots: Slots, known: dict[str, Server], action: EndpointAction) -> tuple[Slots, tuple[Move, ...]]:
    found = table(slots, known.values())
    return slots, moves_for(found, action, Free(found), cut=False)


def test_servers_and_pools_are_foreseen_as_they_will_be_read() -> None:
    before, after = servers("web", 10, 20, 30), servers("web", 11, 20, 256)
    changes = [
        moved(WEB, before, put(1, 11, 10)),
        moved(WEB, before, put(2, 20, 20)),
        moved(WEB, before, put(3, 256, 30)),
    ]
    found = forecast({"web": before}, {}, changes, "7@1")
    assert found is not None
    assert found.holds({"web": after, "other": servers("other", 1)})
    assert found.pools == {WEB: pool_fact([table(WEB, after.values())], "7@1")}
    for other in (servers("web", 11, 20), servers("web", 11, 21, 256), servers("web", 11, 20, 256, admin=1)):
        assert not found.holds({"web": other})
    assert not found.holds({})


def test_a_pool_of_which_nothing_is_written_is_not_foreseen() -> None:
    """It is not read back, so it must not be reported as if it were."""
    before = {"web": servers("web", 10), "other": servers("other", 10)}
    still = moved(OTHER, before["other"], put(1, 10, 10))
    found = forecast(before, {}, [moved(WEB, before["web"], put(1, 11, 10)), still], "7@1")
    assert found is not None
    assert (set(found.pools), set(found.servers)) == ({WEB}, {"web"})


def test_a_pool_with_a_member_of_weight_0_has_no_forecast() -> None:
    before = servers("web", 10, 0)
    found = forecast({"web": before}, {}, [moved(WEB, before, put(1, 11, 10))], "7@1")
    assert found is not None
    assert (found.pools, found.holds({"web": servers("web", 11, 0)})) == ({}, True)


@pytest.mark.parametrize(
    ("admin", "action"),
    [
        (0, put(1, 0, 10)),
        (0, put(9, 5, None)),
        (8, put(1, 10, 0)),
        (0, RemoveEndpoint("edge", "web", Endpoint("192.0.2.1", 80), "")),
    ],
    ids=["no weight", "a slot taken", "out of use before", "released"],
)
def test_nothing_but_plain_weights_is_foreseen(admin: int, action: EndpointAction) -> None:
    free = servers("web", 0)["web1"]._replace(name="web2", admin=1, endpoint=Endpoint("127.0.0.1", 1))
    before = {**servers("web", 10, admin=admin), "web2": free}
    assert forecast({"web": before}, {}, [moved(WEB, before, action)], "7@1") is None
