"""Whether a probe has passed once belongs to a revision: no upgrade and no node forgets it, and a changed request has to pass again."""

from dataclasses import replace

import pytest

from manifests.values.desired import Desired
from manifests.values.rollouts import Strategy
from providers.facts import ProbeFact, Probes, ProbeValue, Unknown
from reconciler.core.decide import decide
from reconciler.core.model.ledger import Ledger
from reconciler.core.model.ledger_codec import from_rows, to_rows
from reconciler.core.model.ledger_fold import Command, apply_commands
from reconciler.core.model.observed import Observed
from reconciler.core.model.passed_probe import probe_key
from reconciler.core.model.revision import Revision, RevisionMark, Rollout, Standing
from reconciler.core.model.spec import Answer
from reconciler.core.status.objects import rows
from tests.builders import FAIL, NOW, PASS, Scene, ago, container
from tests.sim.manifest import HTTP, NODE, Shop, Spec

WEB, NEXT = Spec(publish=None), Spec(publish=None, image="v2")
LIVENESS = probe_key(WEB.key, WEB.revision, "liveness")
READINESS = probe_key(WEB.key, WEB.revision, "readiness")
UNKNOWN = FAIL._replace(value=ProbeValue.UNKNOWN, last=ProbeValue.UNKNOWN)
NEW = replace(HTTP, path="/new")


def manifests(spec: Spec = WEB, **probes: object) -> Desired:
    """One workload, with these probes instead of its own."""
    desired = Shop((spec,)).desired()
    (workload,) = desired.workloads
    template = replace(workload.template, container=replace(workload.template.container, **probes))
    return replace(desired, revision=f"{desired.revision}{probes}", workloads=(replace(workload, template=template),))


def passed(scene: Scene, desired: Desired, **changes: object) -> frozenset[str]:
    """The rows after one decision over this scene, which then has the new ledger."""
    scene.ledger = decide(desired, replace(scene.observed(), **changes), NOW).ledger
    return scene.ledger.passed


# --- what is learned ----------------------------------------------------------------------------------------------------


def test_one_replica_that_passes_is_enough_for_all_of_its_revision():
    scene = Scene(WEB)
    for fact in scene.facts[1:]:
        scene.probes[fact.generation] = Probes(None, FAIL, UNKNOWN)
    assert passed(scene, manifests()) == {LIVENESS, READINESS}


def test_a_probe_that_only_fails_or_says_nothing_has_not_passed():
    scene = Scene(WEB)
    for fact in scene.facts:
        scene.probes[fact.generation] = Probes(None, FAIL, UNKNOWN)
    assert passed(scene, manifests()) == frozenset()


@pytest.mark.parametrize("nodes", [(NODE,), tuple(f"node-{letter}" for letter in "abcdefgh")])
def test_the_rows_do_not_depend_on_the_nodes_that_a_workload_may_use(nodes):
    scene = Scene(replace(WEB, replicas=1))
    assert len(passed(scene, manifests(Spec(replicas=1, publish=None, nodes=nodes)))) == 2


def test_what_has_passed_stays_while_replicas_fail_or_are_not_seen():
    scene = Scene(WEB)
    assert passed(scene, manifests()) == {LIVENESS, READINESS}
    for fact in scene.facts:
        scene.probes[fact.generation] = Probes(None, FAIL, FAIL)
    assert passed(scene, manifests()) == {LIVENESS, READINESS}
    assert passed(scene, manifests(NEXT), runtimes={NODE: Unknown("timeout", NODE, NOW.steady)}) >= {
        LIVENESS,
        READINESS,
    }


# --- revisions ----------------------------------------------------------------------------------------------------------


def test_a_new_revision_with_the_same_probes_has_to_pass_itself():
    scene = Scene(WEB)
    passed(scene, manifests())
    fact = container(NEXT, 0)
    scene.facts.append(fact)
    scene.probes[fact.generation] = Probes(None, UNKNOWN, UNKNOWN)
    assert passed(scene, manifests(NEXT)) == {LIVENESS, READINESS}
    scene.probes[fact.generation] = Probes(None, PASS, PASS)
    news = {probe_key(NEXT.key, NEXT.revision, probe) for probe in ("liveness", "readiness")}
    assert passed(scene, manifests(NEXT)) == {LIVENESS, READINESS} | news


def test_the_rows_of_a_revision_go_with_its_last_container():
    scene = Scene(WEB)
    passed(scene, manifests())
    scene.facts = [container(NEXT, ordinal) for ordinal in range(NEXT.replicas)]
    scene.probes = {fact.generation: Probes(None, PASS, PASS) for fact in scene.facts}
    passed(scene, manifests(NEXT))
    assert passed(scene, manifests(NEXT)) == {
        probe_key(NEXT.key, NEXT.revision, probe) for probe in ("liveness", "readiness")
    }


def test_the_rows_of_a_workload_go_with_it():
    scene = Scene(WEB, Spec("api", publish=None))
    both = Shop((WEB, Spec("api", publish=None))).desired()
    assert len(passed(scene, both)) == 4
    scene.facts = [fact for fact in scene.facts if fact.mark is None or fact.mark.workload == "web"]
    passed(scene, manifests())  # the rollout of the other one ends first
    assert passed(scene, manifests()) == {LIVENESS, READINESS}


def test_a_waiting_revision_passes_before_it_has_the_traffic():
    staged = replace(NEXT, strategy=Strategy.ACTIVATE)
    rollout = Rollout(
        active=WEB.revision,
        rows=(
            Revision(WEB.revision, 1, Standing.ACTIVE, ago(900)),
            Revision(staged.revision, 2, Standing.SCHEDULED, ago(60), at=NOW.wall + 10**15),
        ),
    )
    scene = Scene(replace(WEB, strategy=Strategy.ACTIVATE))
    scene.ledger = replace(
        scene.ledger, rollouts={WEB.key: rollout}, revisions={WEB.key: RevisionMark(2, staged.revision)}
    )
    fact = container(staged, 0)
    scene.facts.append(fact)
    scene.probes[fact.generation] = Probes(None, PASS, UNKNOWN)
    assert passed(scene, manifests(staged)) == {
        LIVENESS,
        READINESS,
        probe_key(staged.key, staged.revision, "liveness"),
    }


# --- a change without a new revision --------------------------------------------------------------------------------------


def tried(scene: Scene, *values: ProbeFact) -> dict[str, object]:
    """The results of the new liveness probe beside the earlier one."""
    generations = [fact.generation for fact in scene.facts]
    return {
        "trials": {
            generation: {"liveness": Answer(NEW, value)} for generation, value in zip(generations, values, strict=True)
        }
    }


def test_a_changed_request_that_passed_on_all_replicas_has_passed():
    scene = Scene(WEB)
    passed(scene, manifests())
    assert passed(scene, manifests(liveness=NEW), **tried(scene, PASS, PASS, PASS)) == {LIVENESS, READINESS}


def test_while_a_changed_request_is_tried_the_earlier_one_has_passed():
    scene = Scene(WEB)
    passed(scene, manifests())
    assert passed(scene, manifests(liveness=NEW), **tried(scene, PASS, UNKNOWN, UNKNOWN)) == {LIVENESS, READINESS}
    assert scene.ledger.specs[f"{WEB.key}@{WEB.revision}"].liveness == HTTP


def test_a_failing_request_that_an_operator_accepted_has_not_passed():
    scene = Scene(WEB)
    passed(scene, manifests())
    scene.ledger = apply_commands(scene.ledger, (Command("resume", WEB.key),))
    assert passed(scene, manifests(liveness=NEW), **tried(scene, FAIL, FAIL, FAIL)) == {READINESS}
    assert scene.ledger.specs[f"{WEB.key}@{WEB.revision}"].liveness == NEW


def test_a_changed_request_of_a_workload_without_containers_has_not_passed():
    scene = Scene(WEB)
    passed(scene, manifests())
    scene.facts, scene.probes = [], {}
    assert passed(scene, manifests(liveness=NEW)) == {READINESS}


def test_other_times_of_a_probe_change_nothing():
    scene = Scene(WEB)
    passed(scene, manifests())
    scene.facts, scene.probes = [], {}
    assert passed(scene, manifests(liveness=replace(HTTP, failure_threshold=9))) == {LIVENESS, READINESS}


# --- rows of earlier versions -------------------------------------------------------------------------------------------


def stored(ledger: Ledger, *old: str) -> dict[tuple[str, str], str]:
    """The rows of a ledger that an earlier version of the program has written."""
    kept = {key: text for key, text in to_rows(ledger).items() if key[0] != "passed"}
    return kept | {("passed", key): "true" for key in old}


def test_rows_with_a_node_count_for_the_revision_in_force():
    scene = Scene(WEB)
    old = (f"{WEB.key}|liveness|{NODE}", f"{WEB.key}|liveness|node-b", f"{WEB.key}|readiness|{NODE}")
    scene.ledger = from_rows(stored(scene.ledger, *old))
    assert scene.ledger.passed == {LIVENESS, READINESS}
    for fact in scene.facts:
        scene.probes[fact.generation] = Probes(None, UNKNOWN, UNKNOWN)
    assert passed(scene, manifests()) == {LIVENESS, READINESS}


def test_rows_with_a_node_count_for_both_revisions_of_an_activation():
    rollout = Rollout(active=WEB.revision, rows=(Revision(WEB.revision, 1, Standing.ACTIVE, ago(900)),))
    ledger = Ledger(revisions={WEB.key: RevisionMark(2, NEXT.revision)}, rollouts={WEB.key: rollout})
    assert from_rows(stored(ledger, f"{WEB.key}|liveness|{NODE}")).passed == {
        LIVENESS,
        probe_key(WEB.key, NEXT.revision, "liveness"),
    }


def test_rows_with_a_node_of_a_group_of_labelled_containers_stay():
    key = f"container/{NODE}/shop-web"
    ledger = Ledger(revisions={key: RevisionMark(1, "")})
    assert from_rows(stored(ledger, f"{key}|liveness|{NODE}")).passed == {probe_key(key, "", "liveness")}


@pytest.mark.parametrize("row", [f"workload/gone|liveness|{NODE}", "", "|", "workload/web", "a|b|c|d"])
def test_rows_of_no_known_workload_are_dropped(row):
    assert from_rows(stored(Scene(WEB).ledger, row)).passed == frozenset()


def test_rows_of_this_version_are_read_back():
    ledger = replace(Scene(WEB).ledger, passed=frozenset({LIVENESS, probe_key("container/n/a|b", "", "liveness")}))
    assert from_rows(to_rows(ledger)).passed == ledger.passed


# --- what the operator sees -----------------------------------------------------------------------------------------------


def shown(observed: Observed) -> list[str]:
    """The verdict of the liveness probe of each replica, as `status` shows it."""
    decision = decide(manifests(), observed, NOW)
    (web,) = rows(decision.status, decision.holds, NOW)["workloads"]
    return [replica["probes"]["liveness"]["verdict"] for replica in web["replicas"]]


def test_a_probe_that_reached_no_replica_is_shown_as_one_that_cannot_run():
    scene = Scene(WEB)
    for fact in scene.facts:
        scene.probes[fact.generation] = Probes(None, UNKNOWN, PASS)
    assert shown(scene.observed()) == ["cannot-run"] * 3
    scene.probes[scene.facts[0].generation] = Probes(None, PASS, PASS)
    assert shown(scene.observed()) == ["pass", "unknown", "unknown"], "the probe is right; these two are not reached"
