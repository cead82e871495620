"""Each step says the commit, the place and the fields that it comes from; a later step with another cause has no fields."""

from dataclasses import replace

from manifests.problems import Where
from providers.actions import CreateContainer, SetWeight
from reconciler.core.decide import decide
from reconciler.core.model import value_json
from reconciler.core.model.revision import revision_key
from reconciler.shell.report.origins import Origin, Origins, as_json, read, write
from tests.builders import NOW, Scene
from tests.sim.manifest import Shop, Spec

OLD, NEW = Spec(), Spec(image="v2")
WHERE = Where("web.yaml", 3, 1)
FIELD = "containers[main].command"


class Lines:
    """All fields are in line 9."""

    def of(self, where: Where, field: str) -> Where:
        assert field
        return where._replace(line=9) if hasattr(where, "_replace") else Where(where.file, 9, where.column)


def desired(spec: Spec):
    made = Shop((spec,)).desired()
    return replace(made, workloads=tuple(replace(workload, where=WHERE) for workload in made.workloads))


def origins() -> Origins:
    return Origins(lambda: "c" * 40, Lines)


def steps_of(spec: Spec, scene: Scene):
    decision = decide(desired(spec), scene.observed(), NOW)
    return decision, decision.steps


def test_a_replacement_names_the_field_the_line_and_the_commit():
    found = origins()
    found.manifests(desired(OLD), desired(NEW))
    decision, (create, *_) = steps_of(NEW, Scene(OLD))
    assert isinstance(create.action, CreateContainer)
    origin = read(found.of(create, decision))
    assert origin == Origin("c" * 40, "web.yaml:3:1", ((FIELD, "web.yaml:9:1"),))
    assert origin.text == f"for {FIELD} at web.yaml:9:1, commit cccccccccccc"


def test_a_variable_of_a_file_has_its_line_in_that_file():
    made = desired(NEW)
    found = origins()
    found.manifests(
        desired(OLD), replace(made, workloads=(replace(made.workloads[0], env_origins=(("main", "A", "a.env:3"),)),))
    )
    assert found._at("workload/web", "containers[main].env[A]") == "a.env:3:1"
    assert found._at("workload/web", FIELD) == "web.yaml:9:1"


def test_after_a_restart_the_fields_come_from_the_ledger():
    found = origins()
    found.manifests(None, desired(NEW))
    scene = Scene(OLD)
    template = desired(OLD).workloads[0].template
    name = revision_key("workload/web", template.revision)
    scene.ledger = replace(scene.ledger, templates={name: value_json.write_short(template)})
    decision, (create, *_) = steps_of(NEW, scene)
    assert [field for field, _ in read(found.of(create, decision)).fields] == [FIELD]


def test_once_an_object_is_settled_its_steps_have_other_causes():
    found = origins()
    found.manifests(desired(OLD), desired(NEW))
    settled = Scene(NEW)
    settled.ledger = steps_of(NEW, settled)[0].ledger  # the first decision only learns which revision has the traffic
    quiet, steps = steps_of(NEW, settled)
    assert (steps, quiet.unsettled) == ((), False)
    found.settled(quiet)
    scene = Scene(NEW)
    del scene.facts[1:]
    decision, created = steps_of(NEW, scene)
    replica = next(step for step in created if isinstance(step.action, CreateContainer))
    assert read(found.of(replica, decision)) == Origin("c" * 40, "web.yaml:3:1")


def test_a_step_for_health_has_a_place_and_no_field():
    found = origins()
    found.manifests(desired(OLD), desired(NEW))
    scene = Scene(NEW)
    scene.sick(1)
    decision, steps = steps_of(NEW, scene)
    weight = next(step for step in steps if isinstance(step.action, SetWeight))
    assert read(found.of(weight, decision)).fields == ()
    assert found.at("workload/web/0") == write(Origin("c" * 40, "web.yaml:3:1"))
    assert as_json(found.at("workload/none")) == {"commit": "c" * 40, "where": None, "fields": []}


def test_a_row_of_another_version_has_no_origin():
    for text in ("", "x", "[]", '{"fields":[1]}', "null"):
        assert read(text) == Origin()
