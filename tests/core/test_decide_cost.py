"""The cost of a decision grows linearly with the number of objects, also when all of them change at once.

The unit is lines of the core that run, so that the speed of the machine does not matter: four times as many objects may cost five
times as many lines; quadratic growth would cost sixteen times as many.
"""

import sys
from collections.abc import Callable
from dataclasses import replace
from types import FrameType
from typing import Any

import pytest

from bench.decide import NOW, world
from manifests.values.desired import SECOND, Desired
from providers.facts import (
    ContainerFact,
    ContainerState,
    ExitCause,
    Known,
    PoolFact,
    ProbeFact,
    Probes,
    ProbeValue,
    ZoneFact,
)
from reconciler.core.decide import decide
from reconciler.core.dns.tree import manages, possible_hosts
from reconciler.core.model.ledger import Ledger
from reconciler.core.model.observed import Observed

Case = Callable[[Desired, Observed], tuple[Desired, Observed]]
FEW = 10


def _each(observed: Observed, change: Callable[[ContainerFact], ContainerFact]) -> Observed:
    known = observed.runtimes["local"]
    assert isinstance(known, Known)
    return replace(
        observed, runtimes={"local": Known(tuple(change(fact) for fact in known.value), "local", NOW.steady)}
    )


def _down(fact: ContainerFact) -> ContainerFact:
    return replace(fact, state=ContainerState.EXITED, running_since=0, exit_cause=ExitCause.EXITED, exit_code=1)


def _unpublished(observed: Observed) -> Observed:
    zones = {key: Known(ZoneFact(key[1], 1, {}, {}), "zone", NOW.steady) for key in observed.zones}
    return replace(observed, zones=zones)


def _idle(desired: Desired, observed: Observed) -> tuple[Desired, Observed]:
    return desired, observed


def _everything_is_missing(desired: Desired, observed: Observed) -> tuple[Desired, Observed]:
    pools = {key: Known(PoolFact(key[1]), "pool", NOW.steady) for key in observed.pools}
    return desired, replace(_unpublished(observed), runtimes={"local": Known((), "local", NOW.steady)}, pools=pools)


def _no_name_is_published(desired: Desired, observed: Observed) -> tuple[Desired, Observed]:
    return desired, _unpublished(observed)


def _all_fail(desired: Desired, observed: Observed) -> tuple[Desired, Observed]:
    fail = ProbeFact(ProbeValue.FAIL, ProbeValue.FAIL, 9, 3, NOW.steady - SECOND, NOW.steady, 60 * SECOND)
    return desired, replace(observed, probes=dict.fromkeys(observed.probes, Probes(None, fail, fail)))


def _all_have_been_down_for_an_hour(desired: Desired, observed: Observed) -> tuple[Desired, Observed]:
    observed = _each(observed, _down)
    ledger = decide(
        desired, observed, NOW._replace(wall=NOW.wall - 3600 * SECOND, steady=NOW.steady - 3600 * SECOND)
    ).ledger
    return desired, replace(observed, ledger=ledger)


def _all_names_have_moved(desired: Desired, observed: Observed) -> tuple[Desired, Observed]:
    return replace(
        desired, policies=tuple(replace(policy, host=f"new-{policy.host}") for policy in desired.policies)
    ), observed


def _all_is_destroyed(desired: Desired, observed: Observed) -> tuple[Desired, Observed]:
    return replace(desired, workloads=(), services=(), policies=(), services_of={}, destroy=True), observed


def _lines(count: int, case: Case) -> int:
    """Lines that run in a decision over so many workloads of three replicas."""
    desired, observed = world(count)
    desired, observed = case(desired, replace(observed, ledger=Ledger(source="/")))
    lines = 0

    def trace(_frame: FrameType, event: str, _arg: Any) -> Any:
        nonlocal lines
        lines += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        decide(desired, observed, NOW)
    finally:
        sys.settrace(before)
    return lines


@pytest.mark.parametrize(
    "case",
    [
        _idle,
        _everything_is_missing,
        _no_name_is_published,
        _all_fail,
        _all_have_been_down_for_an_hour,
        _all_names_have_moved,
        _all_is_destroyed,
    ],
    ids=lambda case: case.__name__.strip("_"),
)
def test_four_times_as_many_objects_cost_about_four_times_as_much(case: Case) -> None:
    assert _lines(4 * FEW, case) <= 5 * _lines(FEW, case)


@pytest.mark.parametrize("host", ["a.example.", "*.example.", "klb.example.", "x.klb.a.example."])
@pytest.mark.parametrize("below", ["", "klb.", "default.klb.", "klb-wildcard.", "a1.klb-wildcard.", "other."])
def test_the_hosts_that_may_have_a_name_are_found_from_the_name(host: str, below: str) -> None:
    policy = replace(world(1)[0].policies[0], host=host)
    name = below + host.removeprefix("*.") if below else host
    assert host in possible_hosts(name) or not manages(policy, name)
