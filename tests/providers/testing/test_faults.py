"""Scripted faults happen exactly as scripted."""

import pytest

from providers.actions import SetWeight
from providers.errors import OutcomeUnknown, ProviderError, Rejected, Unreachable
from providers.facts import Endpoint
from providers.spi import Context
from providers.testing.checks import perform_one
from providers.testing.faults import Call, Fault, faulty, sequence
from providers.testing.memory import MemoryEndpoints, MemorySettings, MemoryWorld

ACTION = SetWeight("edge", "web", Endpoint("192.0.2.1", 80), "", 5, None)


def inner() -> MemoryEndpoints:
    return MemoryEndpoints("edge", MemorySettings(), Context("demo", "/nowhere"), MemoryWorld())


@pytest.mark.parametrize(
    ("fault", "error", "done"),
    [
        (Fault.UNREACHABLE, Unreachable, False),
        (Fault.REJECTED, Rejected, False),
        (Fault.LOST_REQUEST, OutcomeUnknown, False),
        (Fault.LOST_REPLY, OutcomeUnknown, True),
        (Fault.TRUNCATED, OutcomeUnknown, True),
    ],
)
def test_a_write_fails_before_or_after_it_is_done(fault: Fault, error: type[ProviderError], done: bool) -> None:
    provider = faulty(inner(), sequence(Fault.NONE, fault))
    perform_one(provider, SetWeight("edge", "other", Endpoint("192.0.2.1", 80), "", 5, None))
    with pytest.raises(error, match=r"on purpose,? at call 1"):
        perform_one(provider, ACTION)
    assert bool(provider.observe(["web"])[1].members) is done
    perform_one(provider, ACTION)


@pytest.mark.parametrize("fault", [fault for fault in Fault if fault not in (Fault.NONE, Fault.REJECTED)])
def test_a_read_that_fails_never_answers_with_a_part(fault: Fault) -> None:
    provider = faulty(inner(), sequence(fault, verb="observe"))
    perform_one(provider, ACTION)
    with pytest.raises(Unreachable):
        provider.observe(["web"])
    assert len(provider.observe(["web"])[0].members) == 1


def test_a_script_sees_each_call_and_a_hook_may_let_time_pass() -> None:
    calls: list[Call] = []
    clock = [0]

    def delay(call: Call) -> None:
        clock[0] += call.index + 10

    def script(call: Call) -> Fault:
        calls.append(call)
        return Fault.REJECTED if call.verb == "observe" else Fault.NONE

    provider = faulty(inner(), script, delay)
    perform_one(provider, ACTION)
    with pytest.raises(Rejected):
        provider.observe([])
    assert calls == [Call(0, "perform", "web/192.0.2.1:80", ACTION), Call(1, "observe", "edge")]
    assert clock == [21]
    provider.close()
