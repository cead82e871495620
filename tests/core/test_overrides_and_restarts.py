"""No push and no override prevents the restart of a container that fails its liveness or startup probe."""

from dataclasses import replace

import pytest

from manifests.values.desired import SECOND, Desired, Push
from reconciler.core.decide import decide
from reconciler.core.model.ledger_fold import Command, apply_commands
from reconciler.core.model.push_fact import PushEvent, PushFact
from reconciler.core.model.reasons import Reason
from tests.builders import FAIL, NOW, PASS, SEEN, Scene
from tests.sim.manifest import Shop, Spec

PROBES = pytest.mark.parametrize(
    ("probe", "cause"), [("liveness", Reason.LIVENESS_FAILED), ("startup", Reason.STARTUP_FAILED)]
)


def shop() -> Desired:
    desired = Shop((Spec(replicas=3, publish=None, startup=True),)).desired()
    (web,) = desired.workloads
    return replace(desired, workloads=(replace(web, push=Push()),))


def scene(probe: str) -> Scene:
    """Three replicas, the first of which fails this probe."""
    made = Scene(Spec(replicas=3, publish=None, startup=True))
    made.probes = {generation: probes._replace(startup=PASS) for generation, probes in made.probes.items()}
    generation = made.facts[0].generation
    made.probes[generation] = made.probes[generation]._replace(**{probe: FAIL})
    return made


def granted(made: Scene, **changes: object) -> dict[str, Reason]:
    """Container -> why it may be restarted."""
    decision = decide(shop(), replace(made.observed(), **changes), NOW)  # type: ignore[arg-type]
    assert not decision.unsettled
    return {container: grant.cause for container, grant in decision.ledger.grants.items()}


@PROBES
@pytest.mark.parametrize("event", [PushEvent.READY, PushEvent.NOT_READY])
def test_no_push_prevents_a_restart(probe, cause, event):
    made = scene(probe)
    first = made.facts[0]
    push = PushFact(event, SEEN - SECOND, SEEN - SECOND, "boot", 1)
    assert granted(made, pushes={first.generation: push}) == {first.id: cause}


@PROBES
@pytest.mark.parametrize(
    "command", [Command("drain", ""), Command("force", "", value="up"), Command("force", "", value="down")]
)
def test_no_override_prevents_a_restart(probe, cause, command):
    made = scene(probe)
    ledger = apply_commands(made.ledger, (replace(command, object="workload/web/0", who="ada", reason="a test"),))
    assert ledger.overrides, "the override stands"
    assert granted(made, ledger=ledger) == {made.facts[0].id: cause}
