"""Actions one after another, for providers whose other side takes no more."""

from manifests.values.desired import SECOND
from providers.actions import EndpointAction, SetWeight
from providers.errors import Conflict, Unreachable
from providers.facts import Endpoint
from providers.lib.one_by_one import one_by_one

ACTIONS = [SetWeight("edge", "web", Endpoint("192.0.2.1", port), "", 1, None) for port in (1, 2, 3)]


def test_one_that_fails_does_not_stop_the_others() -> None:
    done: list[EndpointAction] = []
    stale = Conflict("web", "not as the plan saw it")

    def act(action: EndpointAction) -> None:
        if action is ACTIONS[1]:
            raise stale
        done.append(action)

    performed = one_by_one(ACTIONS, act)
    assert performed.errors == (None, stale, None)
    assert performed.pools == ()
    assert done == [ACTIONS[0], ACTIONS[2]]


def test_after_the_patience_the_rest_is_not_begun() -> None:
    now = [0]

    def act(action: EndpointAction) -> None:
        now[0] += 6 * SECOND

    performed = one_by_one(ACTIONS, act, patience=10 * SECOND, steady=lambda: now[0])
    assert performed.errors[:2] == (None, None)
    assert isinstance(performed.errors[2], Unreachable)
    assert str(performed.errors[2]) == (
        "web/192.0.2.1:3: not begun: the actions before it took 10 s; nothing was changed"
    )
    assert now == [12 * SECOND]
