"""Ends of containers: found down or already up again, each reported once, and called what it was."""

from dataclasses import replace

import pytest

from manifests.values.desired import SECOND
from providers.facts import ContainerFact, ContainerState, EndFact, ExitCause
from reconciler.core.decide import decide
from reconciler.core.model.owned import Owned
from reconciler.core.model.reasons import Reason
from reconciler.core.replicas import ends
from reconciler.core.replicas.ends import End
from tests.builders import NOW, Scene, down
from tests.sim.manifest import NODE, Shop, Spec

WEB = Spec(pools=(), publish=None)
AT = NOW.wall - 5 * SECOND
KILLED = EndFact(AT, 137, ExitCause.SIGNALLED)


def look(scene: Scene) -> tuple[End, ...]:
    """The ends that one look adds, which the ledger of the scene then knows."""
    before = scene.ledger.owned
    decision = decide(Shop((WEB,)).desired(), scene.observed(), NOW)
    scene.ledger = decision.ledger
    assert decision.status.sight is not None
    return ends.between(before, decision.ledger.owned, decision.status.sight.runtimes)


def again(fact: ContainerFact, end: EndFact = KILLED, restarts: int = 1) -> ContainerFact:
    """The container, started again since its end."""
    return replace(fact, started_at=end.at + SECOND, last_end=end, restarts=restarts)


@pytest.fixture
def scene() -> Scene:
    made = Scene(WEB)
    assert look(made) == ()
    return made


def test_an_end_that_the_runtime_repaired_is_found(scene: Scene) -> None:
    scene.change(1, again(scene.facts[1]))
    (end,) = look(scene)
    assert (end.object, end.reason, end.exit_code, end.at) == ("workload/web/1", Reason.CRASHED, 137, AT)
    assert end.message == (
        f"{scene.facts[1].name} was killed by signal 9 (SIGKILL), exit code 137; started again by the runtime"
    )
    assert look(scene) == ()


@pytest.mark.parametrize(
    ("end", "reason", "said"),
    [
        (EndFact(AT, 0, ExitCause.EXITED), Reason.EXITED, "exited with code 0"),
        (EndFact(AT, 3, ExitCause.EXITED), Reason.CRASHED, "exited with code 3"),
        (EndFact(AT, 137, ExitCause.OOM_KILLED), Reason.OOM_KILLED, "was killed at its memory limit, exit code 137"),
        (EndFact(AT, 190, ExitCause.SIGNALLED), Reason.CRASHED, "was killed by signal 62, exit code 190"),
        (EndFact(AT, None, ExitCause.UNKNOWN), Reason.CRASHED, "exited with an unknown exit code"),
    ],
)
def test_each_end_is_called_what_it_was(scene: Scene, end: EndFact, reason: Reason, said: str) -> None:
    scene.change(1, again(scene.facts[1], end))
    (found,) = look(scene)
    assert (found.reason, f" {said}; " in found.message) == (reason, True), found.message


def test_a_container_that_is_down_and_then_started_ended_once(scene: Scene) -> None:
    fact = scene.facts[1]
    scene.change(1, replace(down(fact, ExitCause.EXITED, 0), last_end=EndFact(AT, 0, ExitCause.EXITED)))
    (end,) = look(scene)
    assert (end.reason, end.again) == (Reason.EXITED, "it is down")
    scene.change(1, again(fact, EndFact(AT, 0, ExitCause.EXITED), restarts=0))
    assert look(scene) == ()


def test_a_runtime_that_does_not_date_ends_ends_each_generation_once(scene: Scene) -> None:
    fact = scene.facts[1]
    scene.change(1, down(fact))
    (end,) = look(scene)
    assert (end.at, end.exit_code) == (0, 1)
    assert look(scene) == ()
    scene.change(1, replace(fact, started_at=fact.started_at + SECOND))
    assert look(scene) == ()
    scene.change(1, down(replace(fact, started_at=fact.started_at + SECOND)))
    assert len(look(scene)) == 1


@pytest.mark.parametrize("cause", [ExitCause.STOPPED_BY_US, ExitCause.HOST_RESTARTED])
def test_our_stops_and_the_hosts_restarts_are_no_ends(scene: Scene, cause: ExitCause) -> None:
    scene.change(1, replace(down(scene.facts[1], cause, 0), last_end=EndFact(AT, 0, cause)))
    assert look(scene) == ()
    scene.change(1, again(scene.facts[1], EndFact(AT, 0, ExitCause.EXITED), restarts=0))
    assert look(scene) == (), "the same end, of which the runtime has forgotten whose it was"


def test_a_restart_by_another_program_is_reported_as_one(scene: Scene) -> None:
    scene.change(1, again(scene.facts[1], restarts=0))
    (end,) = look(scene)
    assert end.again == "started again, not by reconcile"


def test_a_container_that_is_being_removed_was_not_started_again(scene: Scene) -> None:
    scene.change(1, replace(scene.facts[1], state=ContainerState.STOPPING, last_end=KILLED))
    (end,) = look(scene)
    assert end.again == "it is being stopped or removed, not by reconcile"


def test_a_container_whose_start_failed_was_not_started_again(scene: Scene) -> None:
    scene.change(1, replace(scene.facts[1], state=ContainerState.CREATED, last_end=KILLED))
    (end,) = look(scene)
    assert end.again == "it is down"


def test_several_restarts_between_two_looks_are_counted(scene: Scene) -> None:
    scene.change(1, again(scene.facts[1], restarts=3))
    (end,) = look(scene)
    assert end.again == "started again by the runtime, 3 times since"


def test_a_container_that_the_runtime_is_restarting_has_ended(scene: Scene) -> None:
    scene.change(1, replace(again(scene.facts[1]), state=ContainerState.RESTARTING, running_since=0))
    (end,) = look(scene)
    assert end.again == "the runtime starts it again"
    scene.change(1, again(scene.facts[1]))
    assert look(scene) == ()


def test_a_killed_child_is_reported_while_the_container_runs_on(scene: Scene) -> None:
    fact = replace(scene.facts[1], oom_at=AT)
    scene.change(1, fact)
    (end,) = look(scene)
    assert (end.child, end.reason, end.cause) == (True, Reason.OOM_KILLED, ExitCause.OOM_KILLED)
    assert "runs on" in end.message
    assert look(scene) == ()
    scene.change(1, replace(fact, oom_at=0))
    assert look(scene) == (), "the engine has forgotten it"
    scene.change(1, fact)
    assert look(scene) == ()


def test_earlier_ends_of_running_containers_are_history() -> None:
    """A lost ledger, or one of an earlier version: what was reported is not known."""
    scene = Scene(WEB)
    scene.change(1, again(scene.facts[1]))
    assert look(scene) == ()
    assert scene.ledger.owned[scene.facts[1].id][:3] == Owned(AT, 0, 1)[:3]


def test_a_container_that_is_found_down_has_ended() -> None:
    scene = Scene(WEB)
    scene.change(1, replace(down(scene.facts[1]), last_end=KILLED))
    assert len(look(scene)) == 1


def test_an_unreadable_node_ends_nothing(scene: Scene) -> None:
    scene.unknown.add(NODE)
    assert look(scene) == ()
    scene.unknown.clear()
    scene.change(1, again(scene.facts[1]))
    assert len(look(scene)) == 1
