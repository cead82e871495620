"""The belief about a container from its state and its three probes, as tables."""

from dataclasses import replace

import pytest

from manifests.values.desired import SECOND
from providers.facts import ContainerState, Generation, Probes, ProbeValue
from reconciler.core.health.belief import believe
from reconciler.core.model.instant import FOREVER
from reconciler.core.model.reasons import Reason
from tests.builders import FAIL, PASS, SEEN, container, probe
from tests.sim.manifest import Spec, workload

P, F, U = ProbeValue.PASS, ProbeValue.FAIL, ProbeValue.UNKNOWN
WEB = Spec(startup=True)
FACT = container(WEB, 0)
MAIN = workload(WEB).template.container
UNKNOWN = probe(U)
CANNOT = probe(ProbeValue.CANNOT_RUN)
STALE = probe(P, age=17)


@pytest.mark.parametrize(
    ("startup", "liveness", "readiness", "expected"),
    [
        (PASS, PASS, PASS, (P, P, Reason.READY)),
        (PASS, PASS, FAIL, (P, F, Reason.NOT_READY)),
        (PASS, PASS, UNKNOWN, (P, U, Reason.READINESS_UNKNOWN)),
        (PASS, PASS, CANNOT, (P, U, Reason.READINESS_UNKNOWN)),
        (PASS, PASS, None, (P, U, Reason.READINESS_UNKNOWN)),
        (PASS, PASS, STALE, (P, U, Reason.READINESS_UNKNOWN)),
        (PASS, FAIL, PASS, (F, F, Reason.LIVENESS_FAILED)),
        (PASS, UNKNOWN, PASS, (U, P, Reason.READY)),
        (PASS, CANNOT, PASS, (U, P, Reason.READY)),
        (PASS, STALE, PASS, (U, P, Reason.READY)),
        (None, FAIL, FAIL, (U, U, Reason.STARTING)),
        (UNKNOWN, FAIL, FAIL, (U, U, Reason.STARTING)),
        (CANNOT, FAIL, PASS, (U, U, Reason.STARTING)),
        (FAIL, PASS, PASS, (F, F, Reason.STARTUP_FAILED)),
    ],
)
def test_three_probes_of_a_running_container_make_one_belief(startup, liveness, readiness, expected):
    probes = {FACT.generation: Probes(startup, liveness, readiness)}
    belief = believe(FACT, MAIN, probes, SEEN)
    assert (belief.live, belief.ready, belief.reason) == expected


@pytest.mark.parametrize("state", [state for state in ContainerState if state is not ContainerState.RUNNING])
def test_a_container_that_does_not_run_is_not_ready_and_fails_no_liveness(state):
    belief = believe(replace(FACT, state=state), MAIN, {FACT.generation: Probes(PASS, FAIL, PASS)}, SEEN)
    assert (belief.ready, belief.live) == (F, U)


def test_without_probes_a_container_is_ready_while_it_runs_and_never_fails():
    bare = workload(Spec(liveness=False, readiness=False)).template.container
    belief = believe(FACT, bare, {}, SEEN)
    assert (belief.live, belief.ready, belief.until) == (P, P, FOREVER)


def test_verdicts_of_another_generation_do_not_count():
    other = Generation(FACT.id, FACT.started_at - 1)
    assert believe(FACT, MAIN, {other: Probes(PASS, FAIL, FAIL)}, SEEN).reason is Reason.STARTING


def test_a_belief_ends_when_its_oldest_verdict_is_too_old():
    probes = {FACT.generation: Probes(probe(P, age=0), probe(P, age=5), probe(P, age=1))}
    assert believe(FACT, MAIN, probes, SEEN).until == SEEN + 11 * SECOND
