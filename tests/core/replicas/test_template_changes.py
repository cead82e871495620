"""What a plan says about two templates: each field by the name in a manifest, both values, and no secret."""

from dataclasses import replace

import pytest

from manifests.values.desired import SECOND, ProbeKind, Template
from manifests.values.files import FilesVolume, OnFilesChange
from manifests.values.pod import Engine
from manifests.values.secret_sources import SecretSource
from reconciler.core.model import value_json
from reconciler.core.replicas import template_changes
from reconciler.core.replicas.field_changes import Effect
from tests.core.replicas.test_templates import FULL
from tests.sim.manifest import Spec, workload

SMALL = workload(Spec()).template


def reported(before: Template, after: Template) -> list[tuple[str, str, str]]:
    return [tuple(change[:3]) for change in template_changes.changes(before, after)]


def effects(before: Template, after: Template) -> dict[str, Effect]:
    return {change.field: change.effect for change in template_changes.changes(before, after)}


def test_equal_templates_have_no_changes():
    assert reported(FULL, FULL) == reported(SMALL, SMALL) == []


def test_a_variable_is_reported_with_both_values():
    main = replace(SMALL.container, env=(("LEVEL", "info"), ("MODE", "a")))
    after = replace(SMALL, container=replace(main, env=(("LEVEL", "debug"), ("NEW", "1"))))
    assert reported(replace(SMALL, container=main), after) == [
        ("containers[main].env[LEVEL]", "info", "debug"),
        ("containers[main].env[MODE]", "a", "(none)"),
        ("containers[main].env[NEW]", "(none)", "1"),
    ]


def test_a_command_a_port_and_a_period_are_reported_under_their_names():
    main = SMALL.container
    after = replace(
        main,
        argv=("serve", "v2"),
        ports=(replace(main.ports[0], number=9090),),
        liveness=replace(main.liveness, period=7 * SECOND),
    )
    assert reported(SMALL, replace(SMALL, container=after, grace=9 * SECOND)) == [
        ("containers[main].command", '["serve", "v1"]', '["serve", "v2"]'),
        ("containers[main].livenessProbe.periodSeconds", "5s", "7s"),
        ("containers[main].ports[http].containerPort", "8080", "9090"),
        ("terminationGracePeriodSeconds", "5s", "9s"),
    ]


def test_a_secret_is_only_reported_to_have_changed():
    def with_secret(env: str) -> Template:
        engine = replace(SMALL.container.engine, secret_env=(("TOKEN", SecretSource(env=env)),))
        return replace(SMALL, container=replace(SMALL.container, engine=engine))

    changes = reported(with_secret("ONE"), with_secret("TWO"))
    assert changes == [("containers[main].env[TOKEN]", "(secret)", "another (secret)")]
    plain = replace(SMALL, container=replace(SMALL.container, env=(("TOKEN", "open"),)))
    assert reported(plain, with_secret("ONE")) == [("containers[main].env[TOKEN]", "open", "(secret)")]


@pytest.mark.parametrize("template", [FULL, SMALL, replace(FULL, sidecars=())])
def test_the_short_form_is_read_back_as_the_same_value(template):
    text = value_json.write_short(template)
    assert value_json.parse(Template, text) == template
    assert len(text) <= len(value_json.write(template))


def test_the_effect_follows_the_field_and_not_words_in_its_name():
    label = replace(SMALL, labels=(("a.resources.livenessProbe.x", "1"),), revision="other")
    assert set(effects(SMALL, label).values()) == {Effect.NEW_CONTAINER}
    assert set(effects(SMALL, replace(label, revision=SMALL.revision)).values()) == {Effect.NO_CONTAINER}


def test_of_all_probes_only_runtime_health_forces_a_new_container():
    main = SMALL.container
    asked = replace(
        SMALL, container=replace(main, liveness=replace(main.liveness, kind=ProbeKind.RUNTIME)), revision="o"
    )
    changed = effects(SMALL, asked)
    assert changed["containers[main].livenessProbe.runtimeHealth"] is Effect.NEW_CONTAINER
    assert changed["containers[main].livenessProbe.httpGet.port"] is Effect.NO_CONTAINER


def test_an_image_has_its_digest_and_an_unpulled_one_is_no_change():
    def images(old: str, new: str, *digests: str) -> list[tuple[str, str, str]]:
        templates = [
            replace(SMALL, container=replace(SMALL.container, engine=Engine(image)), revision=image)
            for image in (old, new)
        ]
        pins = [(("", digest),) if digest else () for digest in digests]
        return [tuple(row[:3]) for row in template_changes.changes(*templates, *pins)]

    first, second = "example.org/app@sha256:" + "a" * 64, "sha256:" + "b" * 64
    field = "containers[main].image"
    assert images("app:1", "app:2", first, "") == [(field, "app:1 (sha256:aaaaaaaaaaaa)", "app:2")]
    assert images("app:1", "app:2", first, second) == [
        (field, "app:1 (sha256:aaaaaaaaaaaa)", "app:2 (sha256:bbbbbbbbbbbb)")
    ]
    assert images("app:1", "app:1", first, second) == [
        (field, "app:1 (sha256:aaaaaaaaaaaa)", "app:1 (sha256:bbbbbbbbbbbb)")
    ]
    assert images("app:1", "app:1", first, "") == []


def test_the_files_of_a_volume_have_the_names_of_the_manifest():
    def with_files(on_change: OnFilesChange) -> Template:
        return replace(SMALL, volumes=(FilesVolume("conf", "d1", on_change=on_change),))

    (row, *_) = reported(with_files(OnFilesChange.ROLLOUT), with_files(OnFilesChange.NOTHING))
    assert row[0] == "volumes[conf].files.onChange"
