"""Whole plans as an operator reviews them, compared with golden texts."""

import json
from dataclasses import replace

import pytest

from manifests.problems import Where
from manifests.values.desired import SECOND, Guard, MassChange
from manifests.values.rollouts import Strategy
from providers.facts import ContainerFact, ContainerState, ExitCause, Probes, ProbeValue
from reconciler.core.decide import decide
from reconciler.core.decision import Manifests
from reconciler.core.forecast import forecast
from reconciler.core.model.ledger import Ledger
from reconciler.core.model.observed import NEVER_READ
from reconciler.core.model.reasons import Rule, Waiting
from reconciler.core.model.source_problem import OBJECT, SourceProblem
from reconciler.core.plan_markdown import to_markdown
from reconciler.core.plan_places import placed
from reconciler.core.plan_text import review_of, to_json, to_text
from tests.builders import NOW, Scene, container, down, gone, probe
from tests.sim.manifest import NAMES, NODE, POOLS, Shop, Spec, shop

WEB = Spec()
OLD = Spec(name="old", replicas=1, pools=("old",))
STRICT = Guard(mass_change=MassChange(30, 1))


def first_start():
    scene = Scene()
    scene.pools["web"] = []
    scene.ledger = Ledger()
    return shop().desired(), scene.observed()


def nothing_to_do():
    return shop().desired(), Scene(WEB).observed()


def template_changed():
    return shop(image="v2").desired(), Scene(WEB).observed()


def scaled_down():
    return shop(replicas=1).desired(), Scene(WEB).observed()


def liveness_failed():
    scene = Scene(WEB)
    scene.sick(1)
    return shop().desired(), scene.observed()


def readiness_failed():
    scene = Scene(WEB)
    scene.sick(1, "readiness")
    return shop().desired(), scene.observed()


def all_failed_at_once():
    scene = Scene(WEB)
    for number in range(3):
        scene.sick(number)
    return shop().desired(), scene.observed()


def crashed():
    scene = Scene(WEB)
    scene.change(2, down(scene.facts[2]))
    return shop().desired(), scene.observed()


def host_rebooted():
    scene = Scene(replace(WEB, replicas=6))
    for number, fact in enumerate(scene.facts):
        scene.change(number, down(fact, ExitCause.HOST_RESTARTED, None))
    return shop(replicas=6).desired(), scene.observed()


def foreign_name():
    scene = Scene(replace(WEB, replicas=0))
    scene.records.clear()
    scene.owners.clear()
    name = container(WEB, 1).name
    scene.facts.append(ContainerFact(NODE, name, "theirs", ContainerState.RUNNING, 1, 1, "10.0.9.9"))
    return shop().desired(), scene.observed()


def foreign_record():
    scene = Scene(WEB)
    scene.owners.clear()
    return shop().desired(), scene.observed()


def unknown(provider):
    scene = Scene(WEB)
    scene.unknown.add(provider)
    return shop(image="v2").desired(), scene.observed()


def pruned(**changes):
    scene = Scene(WEB, OLD)
    proven = changes.pop("proven", True)
    if "ledger_source" in changes:
        scene.ledger = replace(scene.ledger, source=changes.pop("ledger_source"))
    return gone(replace(Shop((WEB,), prune=True), **changes), scene, proven)


BROKEN = SourceProblem("b" * 64, "c" * 40, "web.yaml:3:1: yaml-syntax: wrong", 2, "aaaaaaaaaaaa", NOW.steady, NOW.wall)


def invalid_source():
    desired, observed = pruned()
    return desired, replace(observed, source_read_at=NEVER_READ, source_problem=BROKEN)


def destroyed():
    return Shop((WEB,), destroy=True).desired(), Scene(WEB).observed()


SITUATIONS = {
    "first-start": first_start,
    "nothing-to-do": nothing_to_do,
    "template-changed": template_changed,
    "scaled-down": scaled_down,
    "liveness-failed": liveness_failed,
    "readiness-failed": readiness_failed,
    "all-failed-at-once": all_failed_at_once,
    "crashed": crashed,
    "host-rebooted": host_rebooted,
    "foreign-name": foreign_name,
    "foreign-record": foreign_record,
    "unknown-runtime": lambda: unknown(NODE),
    "unknown-pool": lambda: unknown(POOLS),
    "unknown-zone": lambda: unknown(NAMES),
    "pruned": pruned,
    "prune-off": lambda: pruned(prune=False),
    "prune-incomplete-source": lambda: pruned(complete=False),
    "prune-other-source": lambda: pruned(ledger_source="git:elsewhere"),
    "prune-unproven": lambda: pruned(proven=False),
    "prune-invalid-source": invalid_source,
    "prune-mass-change": lambda: pruned(guard=STRICT),
    "destroyed": destroyed,
}


@pytest.mark.parametrize("name", SITUATIONS)
def test_the_plan_of(name, golden):
    golden(f"plan/{name}.txt", to_text(forecast(*SITUATIONS[name](), NOW)))


def test_invalid_manifests_are_a_hold_and_change_nothing_else():
    scene = Scene(WEB)
    scene.sick(1)
    desired, observed = shop().desired(), scene.observed()
    plain, held = decide(desired, observed, NOW), decide(desired, replace(observed, source_problem=BROKEN), NOW)
    assert [hold.rule for hold in held.holds if hold not in plain.holds] == [Rule.SOURCE_INVALID]
    (hold,) = [hold for hold in held.holds if hold.object == OBJECT]
    assert "web.yaml:3:1" in hold.message
    assert hold.since == NOW.steady
    assert (held.steps, held.waits, held.wake_at, held.ledger) == (
        plain.steps,
        plain.waits,
        plain.wake_at,
        plain.ledger,
    )


def test_the_json_form_of_a_plan(golden):
    plan = forecast(*template_changed(), NOW)
    golden("plan/template-changed.json", json.dumps(to_json(plan, NOW.steady), indent=2) + "\n")


def test_a_forecast_waits_for_no_verdict_that_never_gets_old():
    scene = Scene(Spec(startup=True))
    for fact in scene.facts:
        scene.probes[fact.generation] = Probes(probe(ProbeValue.UNKNOWN), None, None)
    plan = forecast(shop(startup=True).desired(), scene.observed(), NOW)
    assert plan.truncated == ""
    assert [wait.waiting for wait in plan.waits] == [Waiting.VERDICT] * 3


# --- a review ------------------------------------------------------------------------------------------------------------------


DB = Spec(name="db", replicas=1, image="v1", pools=(), publish=None, strategy=Strategy.RECREATE)


def with_env(desired, **env):
    """The manifests with these variables in the containers of `web`, and each document at a line."""
    workloads = []
    for number, workload in enumerate(desired.workloads):
        template = workload.template
        if workload.name == "web":
            template = replace(template, container=replace(template.container, env=tuple(sorted(env.items()))))
        where = Where(f"{workload.name}.yaml", 4 + number, 1)
        workloads.append(replace(workload, template=template, where=where))
    return replace(desired, workloads=tuple(workloads))


def reviewed():
    """`web` gets another command, variable and drain, `db` another command, and `old` goes."""
    before = with_env(Shop((DB, OLD, WEB)).desired(), LEVEL="info", OWNER="a")
    after = with_env(
        Shop((replace(DB, image="v2"), replace(WEB, image="v2")), prune=True).desired(), LEVEL="debug", MODE="b"
    )
    web = next(workload for workload in after.workloads if workload.name == "web")
    probed = replace(web.template.container, liveness=replace(web.template.container.liveness, period=9 * SECOND))
    web = replace(web, drain_max=20 * SECOND, template=replace(web.template, container=probed))
    after = replace(after, workloads=tuple(web if workload.name == "web" else workload for workload in after.workloads))
    scene = Scene(DB, OLD, WEB)
    observed = gone(Shop((WEB,), prune=True), scene, True)[1]
    plan = forecast(after, observed, NOW, before)
    plan = placed(plan, after, Nearby())
    return replace(
        plan, in_force=Manifests("a1" * 32, "c0ffee" * 6 + "1234"), planned=Manifests("b2" * 32, "decade" * 6 + "5678")
    )


class Nearby:
    """Every field stands ten lines below its document."""

    def of(self, where, field):
        assert field
        return Where(where.file, where.line + 10, 7)


def test_the_review_of_a_change_as_text_markdown_and_json(golden):
    plan = reviewed()
    golden("plan/reviewed.txt", to_text(plan))
    golden("plan/reviewed.json", json.dumps(to_json(plan, NOW.steady), indent=2) + "\n")
    sentence, command = "changes are planned (exit 2)", "reconcile plan manifests/"
    comment = to_markdown(review_of(plan), instance=plan.instance, result=sentence, command=command)
    golden("plan/reviewed.md", comment)
    golden("plan/reviewed-head.md", comment[: comment.index("<details>")])
