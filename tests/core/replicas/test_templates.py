"""Templates of revisions are kept after their declaration: a removed replica of such a revision is recreated."""

from dataclasses import replace

import pytest

from manifests.values.desired import SECOND, Container, Port, Probe, ProbeKind, ProbeTLS, Template
from manifests.values.pod import Engine, Live, Mount, PullPolicy, Ulimit, VolumeKind
from manifests.values.policy import PodPolicy, PodSecurity, Policy
from manifests.values.rollouts import Rollout, Strategy, Supersede
from manifests.values.secret_sources import SecretSource
from providers.actions import CreateContainer, UpdateContainer
from providers.facts import PortFact
from reconciler.core.decide import decide
from reconciler.core.model import value_json
from reconciler.core.model.ledger_codec import from_rows, to_rows
from reconciler.core.model.reasons import Rule
from reconciler.core.model.revision import Revision, RevisionMark, Standing
from reconciler.core.model.revision import Rollout as RolloutRow
from tests.builders import NOW, Scene, ago, container
from tests.core.rollouts.world import names_of, of, revision, staged, standing, up
from tests.sim.manifest import Spec, shop
from tests.sim.world import World

PROBE = Probe(
    ProbeKind.HTTP,
    8080,
    headers=(("Accept", "*/*"), ("Authorization", SecretSource(file="/run/secrets/key"))),
    expected=((200, 299), (304, 304)),
    tls=ProbeTLS(True, "ca.pem"),
)
FULL = Template(
    (("app", "web"),),
    Container(
        "main",
        ("serve",),
        env=(("MODE", "on"),),
        ports=(Port("http", 8080, 80, "127.0.0.1"), Port("", 53, protocol="UDP")),
        startup=PROBE,
        readiness=replace(PROBE, kind=ProbeKind.EXEC, command=("true", "-x")),
        engine=Engine(
            "registry.example.com/app:1",
            PullPolicy.ALWAYS,
            secret_env=(("TOKEN", SecretSource(env="APP_TOKEN")),),
            mounts=(Mount(VolumeKind.NAMED, "data", "/data", exclusive=True),),
            ulimits=(Ulimit("nofile", 1, 2),),
            log_options=(("a", "b"),),
        ),
        depends_on=("log",),
    ),
    revision="1234567890abcdef",
    sidecars=(Container("log", (), working_dir="/srv"),),
    networks=("edge",),
    live=(Live(""), Live("log", 100, 1 << 30, "no")),
)


# --- as text ------------------------------------------------------------------------------------------------------


def test_a_template_survives_its_text_form():
    assert value_json.parse(Template, value_json.write(FULL)) == FULL
    bare = Template((), Container("main", ("x",)))
    assert value_json.parse(Template, value_json.write(bare)) == bare


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"grace":', '"mercy":'),
        ('"labels":[["app","web"]],', ""),
        ('"grace":30000000000', '"grace":"30s"'),
        ('"Always"', '"Sometimes"'),
        ('["MODE","on"]', '["MODE"]'),
        ("{", "["),
    ],
)
def test_a_text_with_other_fields_is_not_used(old, new):
    text = value_json.write(FULL)
    assert old in text
    assert value_json.parse(Template, text.replace(old, new, 1)) is None


# --- recreation -----------------------------------------------------------------------------------------------


def gone(world: World, image: str, ordinal: int) -> None:
    """Another program removes a container."""
    world.runtime.vanish(names_of(image)[ordinal])


def test_a_removed_active_replica_is_recreated_while_a_newer_one_waits(world):
    here = world(staged())
    here.push(staged("v2", delay=7200 * SECOND))
    here.run(60 * SECOND)
    gone(here, "v1", 1)
    here.run(120 * SECOND)
    assert up(here, "v1") == up(here, "v2") == 3
    assert all(of(here, "v1").values())
    assert len(of(here, "v1")) == 3
    assert not any(of(here, "v2").values())
    assert not here.tape.last.holds


def test_the_next_process_recreates_a_removed_active_replica_too(world):
    here = world(staged())
    here.push(staged("v2", delay=7200 * SECOND))
    here.run(60 * SECOND)
    here.kill()
    gone(here, "v1", 1)
    here.run(120 * SECOND)
    assert up(here, "v1") == 3
    assert all(of(here, "v1").values())


def test_a_removed_replica_of_a_waiting_revision_is_recreated(world):
    here = world(staged(supersede=Supersede.ON_ACTIVATION))
    here.push(staged("v2", delay=600 * SECOND, supersede=Supersede.ON_ACTIVATION))
    here.run(60 * SECOND)
    here.push(staged("v3", delay=3600 * SECOND, supersede=Supersede.ON_ACTIVATION))
    here.run(60 * SECOND)
    gone(here, "v2", 0)
    here.run(660 * SECOND)
    assert standing(here, "v2") is Standing.ACTIVE
    assert all(of(here, "v2").values())
    assert up(here, "v2") == up(here, "v3") == 3


def test_after_a_rollback_the_previous_revision_is_made_complete(world):
    here = world(staged(replicas=2))
    here.push(staged("v2", replicas=4))
    here.run(300 * SECOND)
    here.memory.say("rollback", "workload/web")
    here.run(300 * SECOND)
    assert standing(here, "v1") is Standing.ACTIVE
    assert up(here, "v1") == 4
    assert len(of(here, "v1")) == 4
    assert not any(of(here, "v2").values())


def test_only_templates_that_may_be_needed_are_kept(world):
    here = world(staged())
    for number in range(2, 6):
        here.push(staged(f"v{number}", delay=30 * SECOND))
        here.run(900 * SECOND)
    assert set(here.memory.ledger().templates) == {f"workload/web@{revision('v5')}"}
    here.push(shop(image="v5"))
    here.run(60 * SECOND)
    assert set(here.memory.ledger().templates) == {f"workload/web@{revision('v5')}"}  # a plan compares with it


# --- one look -----------------------------------------------------------------------------------------------------

OLD = Spec(replicas=2)
NEW = replace(OLD, image="v2")


def waiting():
    """v2 waits beside v1, which has lost its second replica."""
    later = Rollout(activate_at=NOW.wall + 3600 * SECOND)
    desired = shop(replicas=2, image="v2", strategy=Strategy.ACTIVATE, rollout=later).desired()
    scene = Scene(OLD)
    for ordinal in range(2):
        fact = container(NEW, ordinal)
        address = fact.address.replace("10.0", "10.1")
        scene.add(NEW, replace(fact, address=address, ports=(PortFact(8080, address, 8080),)), weight=0)
    del scene.facts[1]
    old = Revision(OLD.revision, 1, Standing.ACTIVE, ago(9999), activated=ago(9999))
    new = Revision(NEW.revision, 2, Standing.SCHEDULED, ago(99), at=later.activate_at)
    rollouts = {OLD.key: RolloutRow(OLD.revision, rows=(old, new))}
    scene.ledger = replace(
        scene.ledger, rollouts=rollouts, clock=ago(99), revisions={OLD.key: RevisionMark(2, NEW.revision)}
    )
    return desired, scene


def test_a_replica_is_recreated_from_the_kept_template_and_pins():
    desired, scene = waiting()
    (web,) = shop(replicas=2, image="v1").desired().workloads
    name = f"{OLD.key}@{OLD.revision}"
    pins = {name: (("", "sha256:1"),)}
    scene.ledger = replace(scene.ledger, templates={name: value_json.write(web.template)}, pins=pins)
    scene.ledger = from_rows(to_rows(scene.ledger))
    decision = decide(desired, scene.observed(), NOW)
    (action,) = [step.action for step in decision.steps if isinstance(step.action, CreateContainer)]
    assert (action.mark.revision, action.mark.ordinal) == (OLD.revision, 1)
    assert action.template == web.template
    assert action.pins == pins[name]
    assert not any(hold.rule is Rule.TEMPLATE_GONE for hold in decision.holds)


def test_a_kept_template_that_the_policy_forbids_is_not_used():
    desired, scene = waiting()
    (web,) = shop(replicas=2, image="v1").desired().workloads
    main = replace(web.template.container, engine=Engine("shop/web:1", cap_add=("SYS_ADMIN",)))
    text = value_json.write(replace(web.template, container=main))
    scene.ledger = replace(scene.ledger, templates={f"{OLD.key}@{OLD.revision}": text})
    for level in PodSecurity:
        policy = Policy(PodPolicy(level))
        judged = replace(desired, guard=replace(desired.guard, policy=policy))
        decision = decide(judged, scene.observed(), NOW)
        created = [step for step in decision.steps if isinstance(step.action, CreateContainer)]
        holds = [hold for hold in decision.holds if hold.rule is Rule.POLICY_VIOLATION]
        assert (len(created), len(holds)) == ((1, 0) if level is PodSecurity.PRIVILEGED else (0, 1))
        assert all("capability SYS_ADMIN" in hold.message for hold in holds)


@pytest.mark.parametrize("text", [None, "{}", "nonsense"])
def test_a_lost_template_is_reported_and_other_replicas_go_on(text):
    desired, scene = waiting()
    known = {} if text is None else {f"{OLD.key}@{OLD.revision}": text}
    scene.ledger = replace(scene.ledger, templates=known)
    decision = decide(desired, scene.observed(), NOW)
    (hold,) = [hold for hold in decision.holds if hold.rule is Rule.TEMPLATE_GONE]
    assert hold.next_step
    assert not any(isinstance(step.action, CreateContainer) for step in decision.steps)


def test_settings_of_a_container_that_only_the_declared_revision_has():
    desired, scene = waiting()
    (web,) = desired.workloads
    live = (Live("", 500), Live("proxy", 100, restart="no"))
    desired = replace(desired, workloads=(replace(web, template=replace(web.template, live=live)),))
    scene.facts = [
        replace(fact, live=(Live(""),) if fact.mark.revision == OLD.revision else live) for fact in scene.facts
    ]
    decision = decide(desired, scene.observed(), NOW)
    updates = [step.action for step in decision.steps if isinstance(step.action, UpdateContainer)]
    assert [update.live for update in updates] == [(Live("", 500),)]
