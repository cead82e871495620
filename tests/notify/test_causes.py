"""One notice for each cause, in simulated worlds: a dead dependency, refused manifests, failed rollouts, nodes that cannot be read."""

import shutil
from dataclasses import replace

import pytest

from manifests.values.desired import SECOND
from manifests.values.notices import Topic
from providers.errors import Rejected, Unreachable
from providers.facts import ProbeValue
from providers.testing.faults import Fault
from reconciler.core.model.reasons import Hold, Rule
from reconciler.core.model.source_problem import SourceProblem
from reconciler.core.notices.model import Phase
from reconciler.core.notices.outbox import REFUSALS
from reconciler.notify.store import FILE
from tests.notify.watched import ALL, CHANNEL, FORGE, Killed, Watched
from tests.sim.manifest import Shop, Spec, shop
from tests.sim.world import World

MINUTE = 60 * SECOND
DAY = 24 * 60 * MINUTE
TWENTY = Shop(
    tuple(
        Spec(f"app-{number:02}", replicas=1, pools=(f"app-{number:02}",), publish=None, liveness=number % 2 == 0)
        for number in range(20)
    )
)


@pytest.fixture
def world():
    made = World(shop())
    yield made
    made.close()


@pytest.fixture
def twenty():
    made = World(TWENTY)
    yield made
    made.close()


def die(world: World, probe: str = "readiness") -> None:
    """The database behind all applications dies: all of them say so."""
    world.apps.lies["*", probe] = ProbeValue.FAIL


@pytest.mark.parametrize("probe", ["readiness", "liveness"])
def test_one_dead_dependency_is_one_notice_naming_all_workloads(twenty, probe):
    watched = Watched(twenty)
    watched.run(3 * MINUTE)
    assert watched.ops.titles == []
    die(twenty, probe)
    watched.run(15 * MINUTE)
    affected = 20 if probe == "readiness" else 10
    assert watched.ops.titles == [f"began: {affected} workloads are not healthy"]
    assert len(watched.ops.sent[0].lines) == affected


def test_the_end_of_a_cause_is_one_notice_too(twenty):
    watched = Watched(twenty)
    watched.run(3 * MINUTE)
    die(twenty)
    watched.run(10 * MINUTE)
    twenty.apps.lies.clear()
    watched.run(10 * MINUTE)
    assert watched.ops.titles == ["began: 20 workloads are not healthy", "over: 20 workloads are not healthy"]
    began, over = watched.ops.sent
    assert began.incident == over.incident
    assert began.id != over.id


def test_a_cause_is_not_over_while_its_objects_are_unknown(twenty):
    watched = Watched(twenty)
    watched.run(3 * MINUTE)
    die(twenty)
    watched.run(5 * MINUTE)
    twenty.apps.lies["*", "readiness"] = ProbeValue.UNKNOWN
    watched.run(10 * MINUTE)
    assert watched.ops.titles == ["began: 20 workloads are not healthy"]
    twenty.apps.lies.clear()
    watched.run(5 * MINUTE)
    assert watched.ops.titles[1:] == ["over: 20 workloads are not healthy"]


def test_a_later_failure_is_a_notice_of_its_own_while_an_old_one_lasts(twenty):
    watched = Watched(twenty)
    watched.run(3 * MINUTE)
    old = next(name for name in twenty.running() if "app-01" in name)
    twenty.apps.mute.add(old)
    watched.run(30 * MINUTE)
    twenty.apps.mute.add(next(name for name in twenty.running() if "app-03" in name))
    watched.run(10 * MINUTE)
    assert watched.ops.titles == ["began: workload/app-01 is not healthy", "began: workload/app-03 is not healthy"]


def test_objects_that_follow_within_minutes_are_one_more_notice(twenty):
    watched = Watched(twenty)
    watched.run(3 * MINUTE)
    for number in (1, 3, 5):
        twenty.apps.mute.add(next(name for name in twenty.running() if f"app-{number:02}" in name))
        watched.run(4 * MINUTE)
    watched.run(10 * MINUTE)
    assert watched.ops.titles[0] == "began: workload/app-01 is not healthy"
    assert watched.ops.titles[-1] == "more: 3 workloads are not healthy"
    assert len(watched.ops.titles) <= 3


def test_a_restart_that_helps_within_a_minute_is_no_notice(world):
    watched = Watched(world)
    watched.run(3 * MINUTE)
    world.apps.sick.add(world.generation(world.running()[0]))
    watched.run(5 * MINUTE)
    assert watched.ops.titles == []


def test_flapping_is_reported_less_and_less(twenty):
    watched = Watched(twenty)
    watched.run(3 * MINUTE)
    name = next(name for name in twenty.running() if "app-01" in name)
    for _ in range(12):  # bad for 3 minutes, well for 4
        twenty.apps.mute.add(name)
        watched.run(3 * MINUTE, 30 * SECOND)
        twenty.apps.mute.discard(name)
        watched.run(4 * MINUTE, 30 * SECOND)
    assert 2 <= len(watched.ops.sent) <= 5


def test_a_restart_of_the_program_repeats_no_notice(twenty):
    watched = Watched(twenty)
    watched.run(3 * MINUTE)
    die(twenty)
    watched.run(5 * MINUTE)
    for _ in range(3):
        twenty.kill()
        watched.restart()
        watched.run(5 * MINUTE)
    assert watched.ops.titles == ["began: 20 workloads are not healthy"]
    twenty.apps.lies.clear()
    watched.run(10 * MINUTE)
    assert watched.ops.titles[1:] == ["over: 20 workloads are not healthy"]


def test_a_restart_while_a_cause_begins_loses_no_notice(twenty):
    watched = Watched(twenty)
    watched.run(3 * MINUTE)
    die(twenty)
    watched.run(40 * SECOND)
    twenty.kill()
    watched.restart()
    watched.run(5 * MINUTE)
    assert watched.ops.titles == ["began: 20 workloads are not healthy"]


def test_refused_manifests_are_one_notice_for_each_revision(world):
    watched = Watched(world)
    watched.run(3 * MINUTE)
    world.source.broken = "web.yaml:3:1: replicas must be a number"
    watched.run(10 * MINUTE)
    assert watched.ops.titles == ["began: the manifests are refused"]
    assert "web.yaml:3:1" in watched.ops.sent[0].lines[0][1]
    world.source.broken = ""
    watched.run(10 * MINUTE)
    assert watched.ops.titles[1:] == ["over: the manifests are refused"]


def test_a_failed_rollout_is_one_notice_for_each_revision(world):
    watched = Watched(world)
    watched.run(3 * MINUTE)
    for image in ("v2", "v3"):
        world.apps.lies["*", "readiness"] = ProbeValue.FAIL
        world.push(shop(image=image))
        watched.run(30 * MINUTE, 15 * SECOND)
        world.apps.lies.clear()
    failed = [notice for notice in watched.ops.sent if notice.kind == "rollout" and notice.phase is Phase.BEGAN]
    assert [notice.title for notice in failed] == ["the rollout of workload/web failed"] * 2
    assert len({notice.revision for notice in failed}) == 2


def test_a_node_that_cannot_be_read_is_one_notice_with_its_workloads(twenty):
    watched = Watched(twenty)
    watched.run(3 * MINUTE)
    twenty.hosts.silence("node-a")
    watched.run(10 * MINUTE)
    (notice,) = watched.ops.sent
    assert notice.title == "provider node-a cannot be read; it affects 20 workloads"
    assert notice.topic is Topic.PROVIDER


def test_steps_that_are_refused_are_one_notice(world):
    watched = Watched(world)
    watched.run(3 * MINUTE)
    world.fail_next("node-a", *[Fault.REJECTED] * 50)
    world.push(shop(image="v2"))
    watched.run(8 * MINUTE)
    steps = [title for title in watched.ops.titles if "refused" in title]
    assert steps == ["began: changes of workload/web are refused"]


# --- orders of operators --------------------------------------------------------------------------------------------


def suspend(world: World, until: int = 0) -> None:
    world.memory.say("suspend", "workload/web", until_wall=until)


def test_a_suspension_is_reminded_of_and_not_announced(world):
    watched = Watched(world, (replace(CHANNEL, remind=30 * MINUTE),))
    watched.run(3 * MINUTE)
    suspend(world)
    watched.run(25 * MINUTE, MINUTE)
    assert watched.ops.titles == []
    watched.run(75 * MINUTE, MINUTE)
    assert watched.ops.titles == ["reminder: workload/web is suspended or overridden by an operator"] * 3
    assert watched.ops.sent[0].lines[0][1] == "an operator suspended workload/web: a test"
    assert watched.ops.sent[0].next_steps == ("reconcile resume workload/web",)


def test_a_suspension_with_an_end_needs_no_reminder(world):
    watched = Watched(world, (replace(CHANNEL, remind=10 * MINUTE),))
    watched.run(3 * MINUTE)
    suspend(world, world.now().wall + DAY)
    watched.run(30 * MINUTE, MINUTE)
    assert watched.ops.titles == []


# --- delivery -------------------------------------------------------------------------------------------------------


def test_a_kill_between_message_and_record_sends_it_twice_with_one_id(twenty):
    watched = Watched(twenty)
    watched.run(3 * MINUTE)
    die(twenty)
    watched.lose_results = True
    with pytest.raises(Killed):
        watched.run(10 * MINUTE)
    watched.lose_results = False
    watched.restart()
    watched.run(5 * MINUTE)
    assert watched.ops.titles == ["began: 20 workloads are not healthy"] * 2
    assert len({notice.id for notice in watched.ops.sent}) == 1


def test_actions_and_other_channels_go_on_while_a_channel_fails(world):
    other = replace(CHANNEL, name="other")
    watched = Watched(world, (CHANNEL, other))
    watched.ops.fault = Unreachable("channel ops", "no connection")
    watched.run(3 * MINUTE)
    world.source.broken = "web.yaml:1:1: bad"
    watched.run(5 * MINUTE)
    world.source.broken = ""
    old = set(world.running())
    world.push(shop(image="v2"))
    watched.run(5 * MINUTE)
    assert old.isdisjoint(world.running())
    assert watched.recorders["other"].titles[0] == "began: the manifests are refused"
    assert watched.ops.sent == []


def test_a_channel_whose_calls_never_end_delays_no_other(world):
    watched = Watched(world, (CHANNEL, replace(CHANNEL, name="other")))
    watched.hanging = {"ops"}
    watched.run(3 * MINUTE)
    world.source.broken = "web.yaml:1:1: bad"
    watched.run(5 * MINUTE)
    world.source.broken = ""
    watched.run(10 * MINUTE)
    assert len(watched.recorders["other"].sent) == 2
    assert watched.ops.tries == 0
    assert watched.dispatcher.waiting == {"ops": 2, "other": 0}


def test_a_state_directory_that_cannot_be_written_stops_no_notice(world):
    watched = Watched(world)
    watched.run(3 * MINUTE)
    shutil.rmtree(watched.state)
    world.source.broken = "web.yaml:1:1: bad"
    watched.run(5 * MINUTE)
    assert watched.ops.titles == ["began: the manifests are refused"]
    assert len([note for note in watched.notes if "may be repeated after a restart" in note]) == 1
    watched.state.mkdir(mode=0o700)
    watched.run(MINUTE)
    watched.restart()
    watched.run(5 * MINUTE)
    assert watched.ops.titles == ["began: the manifests are refused"]


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"version": 99}', b"\xff\xfe", b"[" * 100_000])
def test_a_damaged_file_is_replaced_and_named(world, damage):
    watched = Watched(world)
    (watched.state / FILE).write_bytes(damage)
    world.source.broken = "web.yaml:1:1: bad"
    watched.run(5 * MINUTE)
    assert watched.ops.titles == ["began: the manifests are refused"]
    assert len([note for note in watched.notes if "is damaged" in note]) == 1
    watched.restart()
    watched.run(5 * MINUTE)
    assert watched.ops.titles == ["began: the manifests are refused"]


def test_a_channel_that_is_dead_for_hours_gets_what_is_still_to_be_said(twenty):
    watched = Watched(twenty)
    watched.run(3 * MINUTE)
    watched.ops.fault = Unreachable("channel ops", "no connection to https://hooks.example.com")
    die(twenty)
    watched.run(2 * 60 * MINUTE, MINUTE)
    assert watched.ops.sent == []
    assert 8 <= watched.ops.tries <= 20  # 5 s, 10 s … 15 min
    assert [note for note in watched.notes if "does not work" in note] == [
        "channel ops does not work: channel ops: no connection to https://hooks.example.com; retried automatically"
    ]
    twenty.kill()
    watched.restart()
    watched.ops.fault = None
    watched.run(20 * MINUTE)
    assert watched.ops.titles == ["began: 20 workloads are not healthy"]
    assert ("ops", "sent") in watched.counts


def test_a_cause_that_ended_while_the_channel_was_dead_is_one_message(twenty):
    watched = Watched(twenty)
    watched.run(3 * MINUTE)
    watched.ops.fault = Unreachable("channel ops", "no connection")
    die(twenty)
    watched.run(30 * MINUTE, 30 * SECOND)
    twenty.apps.lies.clear()
    watched.run(30 * MINUTE, 30 * SECOND)
    watched.ops.fault = None
    watched.run(20 * MINUTE)
    assert watched.ops.titles == ["over: 20 workloads are not healthy"]


def test_idle_hours_write_and_send_nothing(world):
    watched = Watched(world, (ALL,))
    watched.run(5 * MINUTE)
    before = (watched.state / "notices.json").stat()
    sent = len(watched.ops.sent)
    watched.run(3 * 60 * MINUTE, 5 * MINUTE)
    after = (watched.state / "notices.json").stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert len(watched.ops.sent) == sent
    assert after.st_mode & 0o777 == 0o600


# --- commit statuses --------------------------------------------------------------------------------------------------

ONE, TWO, THREE = "1" * 40, "2" * 40, "3" * 40


def test_a_commit_is_pending_then_applied_and_set_once_each(world):
    watched = Watched(world, (), FORGE)
    watched.commit = ONE
    watched.run(5 * MINUTE)
    assert [row[:2] for row in watched.forge.statuses] in ([(ONE, "success")], [(ONE, "pending"), (ONE, "success")])
    watched.commit = TWO
    world.push(shop(image="v2"))
    watched.run(10 * MINUTE)
    assert [row[:2] for row in watched.forge.statuses if row[0] == TWO] == [(TWO, "pending"), (TWO, "success")]
    assert watched.forge.statuses[-1][2] == "applied, and 1 workload is healthy"


def test_a_commit_that_is_superseded_ends_and_a_failed_one_says_why(world):
    watched = Watched(world, (), FORGE)
    watched.commit = ONE
    watched.run(5 * MINUTE)
    world.apps.lies["*", "readiness"] = ProbeValue.FAIL
    watched.commit = TWO
    world.push(shop(image="v2"))
    watched.run(MINUTE)
    watched.commit = THREE
    world.push(shop(image="v3"))
    watched.run(40 * MINUTE, 15 * SECOND)
    by_commit = {commit: (state, text) for commit, state, text in watched.forge.statuses}
    assert by_commit[TWO] == ("superseded", f"superseded by {THREE[:12]}")
    assert by_commit[THREE][0] == "failure"
    assert by_commit[THREE][1].startswith("workload/web: ")
    assert all(len(text) <= 140 for _, _, text in watched.forge.statuses)


def test_a_refused_commit_fails_and_the_one_in_force_keeps_its_status(world):
    watched = Watched(world, (), FORGE)
    watched.commit = ONE
    watched.run(5 * MINUTE)
    problem = SourceProblem("b" * 64, TWO, "web.yaml:3:1: replicas must be a number", 1, "a" * 12, 1, 1)
    world.source.problem = lambda: problem  # type: ignore[method-assign]
    watched.run(5 * MINUTE)
    assert watched.forge.statuses[-1][:2] == (TWO, "failure")
    assert "web.yaml:3:1" in watched.forge.statuses[-1][2]
    assert [row for row in watched.forge.statuses if row[0] == ONE][-1][1] == "success"


def test_a_remote_that_does_not_answer_is_no_failure_and_no_newer_commit(world):
    """After a start without the remote the newest commit is not known, and a commit that waited still may be it."""
    watched = Watched(world, (), FORGE)
    watched.commit = ONE
    watched.run(5 * MINUTE)
    silent = SourceProblem("b" * 64, TWO, "the remote does not answer", 1, "a" * 12, 1, 1, unreadable=True)
    world.source.problem = lambda: silent  # type: ignore[method-assign]
    watched.run(5 * MINUTE)
    assert watched.forge.statuses[-1][:2] == (TWO, "pending")
    world.source.problem = lambda: replace(silent, commit="")  # type: ignore[method-assign]
    watched.run(5 * MINUTE)
    assert watched.forge.statuses[-1][:2] == (TWO, "pending")
    world.source.problem = lambda: replace(silent, commit=THREE)  # type: ignore[method-assign]
    watched.run(5 * MINUTE)
    assert {row[:2] for row in watched.forge.statuses[-2:]} == {(TWO, "superseded"), (THREE, "pending")}
    watched.refused = THREE  # what is wrong is in the commit
    watched.run(5 * MINUTE)
    assert watched.forge.statuses[-1][:2] == (THREE, "failure")


def test_a_commit_that_changes_no_manifests_gets_the_status_too(world):
    watched = Watched(world, (), FORGE)
    watched.commit = watched.newest = ONE
    watched.run(5 * MINUTE)
    watched.newest = TWO
    watched.run(MINUTE)
    assert [row[:2] for row in watched.forge.statuses][-2:] == [(ONE, "success"), (TWO, "success")]
    world.push(shop(image="v2"))
    watched.commit = watched.newest = THREE
    watched.run(10 * MINUTE)
    assert [row[:2] for row in watched.forge.statuses if row[0] != THREE][-2:] == [(ONE, "success"), (TWO, "success")]


@pytest.mark.parametrize("by", ["guard", "operator"])
def test_a_commit_that_waits_is_pending_and_the_one_in_force_stays(world, by):
    watched = Watched(world, (CHANNEL,), FORGE)
    watched.commit = ONE
    watched.run(5 * MINUTE)
    if by == "operator":
        world.memory.say("suspend", "commits:*")
        world.push(shop(image="v2"))
    else:
        desired = shop(image="v2").desired()
        world.source.next = replace(desired, guard=replace(desired.guard, suspend_commits=True))
    world.source.commit_at_source = TWO
    watched.run(5 * MINUTE)
    assert watched.forge.statuses[-1][:2] == (TWO, "pending")
    assert "suspend" in watched.forge.statuses[-1][2]
    assert [row for row in watched.forge.statuses if row[0] == ONE][-1][1] == "success"
    assert watched.ops.titles == ["began: new commits wait for an operator"]
    assert watched.ops.sent[0].topic is Topic.HOLD


@pytest.mark.parametrize("rule", [Rule.DRIFT, Rule.FILES_KEPT])
def test_what_the_manifests_ask_for_is_no_notice_and_delays_no_status(world, rule):
    watched = Watched(world, (ALL,), FORGE)
    watched.commit = ONE
    watched.run(5 * MINUTE)
    before = (list(watched.ops.titles), list(watched.forge.statuses))
    tick = world.monitoring.last
    hold = Hold("workload/web/0", "correct it", rule, "memory: 1Gi declared, 2Gi observed")
    world.monitoring.last = tick._replace(decision=replace(tick.decision, holds=(hold,)))
    watched.commit = TWO
    for _ in range(20):
        world.clock.advance(MINUTE)
        watched.step()
    assert watched.ops.titles == before[0]
    assert watched.forge.statuses[len(before[1]) :] == [(TWO, "success", before[1][-1][2])]


def test_an_unverified_commit_is_refused_like_invalid_manifests(world):
    watched = Watched(world)
    watched.run(5 * MINUTE)
    problem = SourceProblem("b" * 64, TWO, "not signed", 1, "a" * 12, 1, 1, unreadable=True, unverified=True)
    world.source.problem = lambda: problem  # type: ignore[method-assign]
    watched.run(5 * MINUTE)
    (notice,) = watched.ops.sent
    assert (notice.topic, notice.title, notice.revision) == (Topic.SOURCE, "the manifests are refused", "b" * 64)


def test_statuses_survive_a_dead_forge_and_a_restart(world):
    watched = Watched(world, (), FORGE)
    watched.forge.fault = Unreachable("forge", "no connection", wait=30 * SECOND)
    watched.commit = ONE
    watched.run(60 * MINUTE, 15 * SECOND)
    assert watched.forge.statuses == []
    world.kill()
    watched.restart()
    watched.forge.fault = None
    watched.run(20 * MINUTE)
    assert watched.forge.statuses[-1][:2] == (ONE, "success")
    count = len(watched.forge.statuses)
    world.kill()
    watched.restart()
    watched.run(10 * MINUTE)
    assert len(watched.forge.statuses) == count


def test_a_status_waits_for_a_token_that_works(world):
    watched = Watched(world, (), FORGE)
    watched.forge.fault = Rejected("forge", "answers 401", "check the token", whole=True)
    watched.commit = ONE
    watched.run(30 * MINUTE, 15 * SECOND)
    assert (watched.forge.statuses, len(watched.notes)) == ([], 1)
    watched.forge.fault = None  # an operator has replaced the token
    watched.run(20 * MINUTE, 15 * SECOND)
    assert watched.forge.statuses[-1][:2] == (ONE, "success")


def test_a_status_that_is_refused_for_its_content_is_left(world):
    watched = Watched(world, (), FORGE)
    watched.run(10 * MINUTE)
    watched.commit = ONE
    watched.forge.fault = Rejected("forge", "answers 422", "")
    watched.run(30 * MINUTE, 15 * SECOND)
    assert watched.forge.tries == REFUSALS
    assert watched.dispatcher.waiting["forge"] == 0


def test_an_applied_revision_is_announced_once_where_it_is_asked_for(world):
    watched = Watched(world, (ALL,))
    watched.run(5 * MINUTE)
    world.push(shop(image="v2"))
    watched.run(10 * MINUTE)
    world.kill()
    watched.restart()
    watched.run(5 * MINUTE)
    applied = [notice.revision for notice in watched.ops.sent if notice.phase is Phase.APPLIED]
    assert len(applied) == len(set(applied)) == 2
