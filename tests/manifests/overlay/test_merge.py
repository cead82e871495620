"""Documents of an environment over those of the base: what merges, what is removed, which mistakes are reported, and where fields stand."""

import copy
import json
from pathlib import Path
from time import process_time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manifests.kinds import KINDS
from manifests.overlay.merge import MergedDocument, merged
from manifests.overlay.objects import overlaid
from manifests.overlay.shape import Shape, shape_of
from manifests.problems import Code, Problem
from manifests.yaml.read import Document, read_file
from tests.manifests.trees import GOOD, POLICY, WORKLOAD, load_path, problems_at, write

HEAD = "apiVersion: reconciler/v1\nkind: Workload\nmetadata: {name: web}\n"


def document(text: str, file: str = "base.yaml") -> Document:
    documents, problems = read_file(file, text.encode())
    assert problems == []
    return documents[0]


def over(base: str, overlay: str) -> tuple[Any, list[Problem]]:
    """The spec of a workload of these specs, and the problems."""
    both, problems = merged(document(HEAD + base), document(HEAD + overlay, "over.yaml"))
    value: Any = both.value
    return value["spec"], problems


def pod(containers: str) -> str:
    return f"spec: {{template: {{spec: {{containers: {containers}}}}}}}"


def containers_of(spec: Any) -> Any:
    return spec["template"]["spec"]["containers"]


# --- what merges -----------------------------------------------------------------------------------------------------


def test_mappings_merge_by_key_and_null_removes_one():
    spec, problems = over(
        "spec: {replicas: 1, drain: {min: 5s, max: 10s}}", "spec: {replicas: 3, drain: {min: null, max: 20s}}"
    )
    assert (spec, problems) == ({"replicas": 3, "drain": {"max": "20s"}}, [])


def test_lists_of_values_are_replaced():
    spec, _ = over(pod("[{name: a, args: [one, two]}]"), pod("[{name: a, args: [three]}]"))
    assert containers_of(spec) == [{"name": "a", "args": ["three"]}]


def test_a_name_that_the_base_has_twice_is_removed_as_a_whole():
    spec, problems = over(pod("[{name: a}, {name: b}, {name: a, args: [x]}]"), pod("[{name: a, $patch: delete}]"))
    assert (containers_of(spec), problems) == ([{"name": "b"}], [])
    twice = [document(HEAD + "spec: {replicas: 1}"), document(HEAD + "spec: {replicas: 2}")]
    assert overlaid(twice, [document(HEAD + "spec: null", "over.yaml")]) == ([], [])


def test_fields_of_an_object_that_is_removed_are_reported():
    gone = "apiVersion: reconciler/v1\nkind: Workload\nmetadata: {name: web, labels: {a: b}}\nspec: null\nmore: 1\n"
    result, problems = overlaid([document(HEAD + "spec: {replicas: 1}")], [document(gone, "over.yaml")])
    assert result == []
    assert sorted((problem.path, problem.line) for problem in problems) == [("metadata.labels", 3), ("more", 5)]
    assert all(problem.code is Code.BAD_VALUE and "does nothing" in problem.message for problem in problems)


def test_items_merge_by_name_and_new_ones_come_last():
    spec, problems = over(
        pod("[{name: a, image: x:1}, {name: b, image: y:1}]"), pod("[{name: c, image: z:1}, {name: b, image: y:2}]")
    )
    assert containers_of(spec) == [
        {"name": "a", "image": "x:1"},
        {"name": "b", "image": "y:2"},
        {"name": "c", "image": "z:1"},
    ]
    assert problems == []


@pytest.mark.parametrize(
    ("field", "base", "overlay", "result"),
    [
        ("env", "{name: A, value: x}", "{name: A, value: z}", [{"name": "A", "value": "z"}]),
        ("volumeMounts", "{name: v, mountPath: /a}", "{name: w, mountPath: /a}", [{"name": "w", "mountPath": "/a"}]),
        ("ulimits", "{name: nofile, soft: 1}", "{name: nofile, soft: 2}", [{"name": "nofile", "soft": 2}]),
        ("ports", "{name: http, containerPort: 80}", "{name: http, containerPort: 81}", [{"name": "http", "containerPort": 81}]),
        ("ports", "{name: http, containerPort: 80}", "{containerPort: 80, hostPort: 8}", [{"name": "http", "containerPort": 80, "hostPort": 8}]),
        ("ports", "{containerPort: 53, protocol: TCP}", "{containerPort: 53, hostPort: 5}", [{"containerPort": 53, "protocol": "TCP", "hostPort": 5}]),
        ("ports", "{containerPort: 53}", "{containerPort: 53, protocol: UDP}", [{"containerPort": 53}, {"containerPort": 53, "protocol": "UDP"}]),
    ],
)  # fmt: skip
def test_each_list_has_the_key_that_must_be_unique_in_it(field, base, overlay, result):
    spec, problems = over(pod(f"[{{name: a, {field}: [{base}]}}]"), pod(f"[{{name: a, {field}: [{overlay}]}}]"))
    assert containers_of(spec)[0][field] == result
    assert problems == []


def test_files_of_variables_are_replaced_however_they_are_written():
    for form in ("[a.env]", "[{path: a.env}]", "a.env"):
        spec, _ = over(pod("[{name: a, envFile: [{path: base.env}]}]"), pod(f"[{{name: a, envFile: {form}}}]"))
        assert containers_of(spec)[0]["envFile"] in (["a.env"], [{"path": "a.env"}], "a.env")


def test_a_pool_is_found_without_its_provider_unless_two_have_it():
    head = "apiVersion: reconciler/v1\nkind: Service\nmetadata: {name: web}\nspec: {balancers: [%s]}"
    change = document(head % "{pool: web, slots: b}", "over.yaml")
    both, problems = merged(document(head % "{provider: edge, pool: web, slots: a}"), change)
    value: Any = both.value
    assert value["spec"]["balancers"] == [{"provider": "edge", "pool": "web", "slots": "b"}]
    assert problems == []
    _, problems = merged(document(head % "{provider: edge, pool: web}, {provider: back, pool: web}"), change)
    assert [(problem.code, problem.hint) for problem in problems] == [(Code.CONFLICT, "add provider to say which one")]


def keyed(shape: Shape, path: str = "") -> dict[str, tuple[str, ...]]:
    found = {path: shape.keys.fields} if shape.keys is not None else {}
    for name, inner in shape.fields.items():
        found |= keyed(inner, f"{path}.{name}")
    return found | (keyed(shape.item, f"{path}[]") if shape.item is not None else {})


def test_the_lists_with_keys_of_all_kinds_of_a_tree():
    found = {
        f"{kind}{path}": keys for kind in KINDS for path, keys in keyed(shape_of(kind)).items() if kind != "Instance"
    }
    container = "Workload.spec.template.spec.containers"
    assert found == {
        "DNSPolicy.spec.targets": ("name",),
        "Guard.spec.windows": ("name",),
        "Service.spec.balancers": ("provider", "pool"),
        "Workload.spec.template.spec.volumes": ("name",),
        "Workload.spec.template.spec.volumes[].files.items": ("key",),
        "Workload.spec.imagePolicies": ("container",),
        container: ("name",),
        f"{container}[].env": ("name",),
        f"{container}[].ports": ("containerPort", "protocol"),
        f"{container}[].volumeMounts": ("mountPath",),
        f"{container}[].ulimits": ("name",),
    }


# --- what is removed, and mistakes -----------------------------------------------------------------------------------


def test_an_item_is_removed_by_name():
    spec, problems = over(
        pod("[{name: a, env: [{name: A, value: x}, {name: B, value: z}]}]"),
        pod("[{name: a, env: [{name: A, $patch: delete}]}]"),
    )
    assert containers_of(spec) == [{"name": "a", "env": [{"name": "B", "value": "z"}]}]
    assert problems == []


@pytest.mark.parametrize(
    ("base", "overlay", "code", "hint"),
    [
        ("spec: {replicas: 1}", "spec: {replcas: null}", Code.NOTHING_TO_REMOVE, "did you mean 'replicas'?"),
        ("spec: {}", "spec: {replicas: null}", Code.NOTHING_TO_REMOVE, "remove it from the environment"),
        (pod("[{name: app}]"), pod("[{name: ap, $patch: delete}]"), Code.NOTHING_TO_REMOVE, "did you mean 'app'?"),
        (pod("[{name: app}]"), pod("[{name: app, $patch: remove}]"), Code.BAD_VALUE, "write $patch: delete to remove the container; without $patch it is changed"),
        (pod("[{name: app}]"), pod("[{name: app, image: x, $patch: delete}]"), Code.BAD_VALUE, "remove this field, or $patch"),
        (pod("[]"), pod("[{name: new, $patch: delete}]"), Code.NOTHING_TO_REMOVE, "remove it from the environment"),
    ],
)  # fmt: skip
def test_what_cannot_be_removed_is_reported_in_the_environment(base, overlay, code, hint):
    _, problems = over(base, overlay)
    assert [(problem.file, problem.line, problem.code, problem.hint) for problem in problems] == [
        ("over.yaml", 4, code, hint)
    ]


def environment(root: Path, text: str, name: str = "a.yaml") -> Path:
    write(root, GOOD)
    return write(root, {f"environments/prod/{name}": text})


@pytest.mark.parametrize(
    ("text", "code", "place", "hint"),
    [
        (f"{HEAD}spec: {{replcas: 2}}", Code.UNKNOWN_FIELD, (4, 8), "did you mean 'replicas'?"),
        (f"{HEAD}spec: {{replicas: many}}", Code.WRONG_TYPE, (4, 18), ""),
        (f"{HEAD}{pod('[{name: app, livenessProbe: {httpGet: {port: htp}}}]')}", Code.UNKNOWN_PORT, (4, 83), "htp"),
        (f"{HEAD}{pod('[{name: app, command: null}]')}", Code.MISSING_FIELD, None, "add command"),
        (f"{HEAD}spec: {{template: null}}", Code.MISSING_FIELD, (4, 18), "add template"),
        (f"{HEAD}{pod('[{name: app, env: [{name: MOD}]}]')}", Code.BAD_VALUE, (4, 57), "did you mean 'MODE'?"),
        (HEAD.replace("web", "wbe") + "spec: {replicas: 2}", Code.MISSING_FIELD, (4, 7), "did you mean workload/web?"),
        (HEAD.replace("web", "wbe") + "spec: null", Code.NOTHING_TO_REMOVE, (4, 1), "did you mean 'web'?"),
        (f"{HEAD}spec: {{replicas: 2}}\n---\n{HEAD}spec: {{replicas: 3}}", Code.DUPLICATE_OBJECT, (6, 1), "into one document"),
        (HEAD.replace("Workload", "Worklod"), Code.UNKNOWN_KIND, (2, 7), "did you mean 'Workload'?"),
        ("spec: {replicas: 2}", Code.NOT_A_MANIFEST, (1, 1), ""),
        (f"{HEAD}spec: [", Code.YAML_SYNTAX, None, ""),
    ],
)  # fmt: skip
def test_a_mistake_of_an_environment_has_its_place_there(tmp_path, text, code, place, hint):
    problems = problems_at(environment(tmp_path, text), environment="prod")
    assert [problem.code for problem in problems] == [code], [problem.render() for problem in problems]
    (problem,) = problems
    if place is not None:
        assert (problem.file, problem.line, problem.column) == ("environments/prod/a.yaml", *place)
    assert hint in problem.render()


def test_a_problem_of_a_field_of_the_base_keeps_its_place(tmp_path):
    environment(tmp_path, f"{HEAD}spec: {{replicas: 2}}")
    write(tmp_path, {"web.yaml": WORKLOAD.replace("periodSeconds: 0.5", "periodSeconds: often")})
    (problem,) = problems_at(tmp_path, environment="prod")
    assert (problem.file, problem.line) == ("web.yaml", WORKLOAD[: WORKLOAD.index("periodSeconds")].count("\n") + 1)


def test_an_object_is_added_changed_and_removed(tmp_path):
    guard = "apiVersion: reconciler/v1\nkind: Guard\nmetadata: {name: limits}\nspec: {deny: [workload/web]}\n"
    gone = "apiVersion: reconciler/v1\nkind: DNSPolicy\nmetadata: {name: app}\nspec: null\n"
    environment(tmp_path, f"{guard}---\n{gone}---\n{HEAD}spec: {{replicas: 7}}")
    base, prod = load_path(tmp_path), load_path(tmp_path, environment="prod")
    assert [workload.replicas for workload in (*base.workloads, *prod.workloads)] == [3, 7]
    assert (len(base.policies), len(prod.policies)) == (1, 0)
    assert (base.guard.deny, prod.guard.deny) == (frozenset(), frozenset({"workload/web"}))


def test_an_environment_names_its_instance_as_it_likes(tmp_path):
    environment(
        tmp_path, "apiVersion: reconciler/v1\nkind: Instance\nmetadata: {name: of-prod}\nspec: {id: demo-prod}\n"
    )
    assert load_path(tmp_path, environment="prod").instance.id == "demo-prod"
    assert load_path(tmp_path).instance.id == "demo"


def test_values_of_anchors_and_merge_keys_are_changed_in_one_place_only(tmp_path):
    text = f"{HEAD}spec:\n  drain: &d {{min: 1s, max: 2s}}\n  restarts: {{backoff: *d}}\n  other: {{<<: *d, max: 9s}}\n"
    base = document(text)
    before = copy.deepcopy(base.value)
    both, _ = merged(base, document(f"{HEAD}spec: {{drain: {{max: 5s}}, other: {{min: 7s}}}}", "over.yaml"))
    spec: Any = both.value
    assert spec["spec"] == {
        "drain": {"min": "1s", "max": "5s"},
        "restarts": {"backoff": {"min": "1s", "max": "2s"}},
        "other": {"min": "7s", "max": "9s"},
    }
    assert base.value == before
    assert str(both.origin(("spec", "drain", "min"))) == "base.yaml:5:19"
    assert str(both.origin(("spec", "drain", "max"))) == "over.yaml:4:21"
    assert str(both.origin(("spec", "other", "max"))).startswith("base.yaml:7:")


# --- laws ------------------------------------------------------------------------------------------------------------

NAMES = st.sampled_from(["a", "b", "c"])
TEXTS = st.sampled_from(["x", "y", "no", "1"])


def items(item: st.SearchStrategy[dict[str, Any]], key: str) -> st.SearchStrategy[list[dict[str, Any]]]:
    return st.lists(item, max_size=3, unique_by=lambda each: each[key])


def specs(*, removes: bool) -> st.SearchStrategy[dict[str, Any]]:
    def optional(**fields: st.SearchStrategy[Any]) -> dict[str, st.SearchStrategy[Any]]:
        return {name: (st.none() | value) if removes else value for name, value in fields.items()}

    def named(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
        change = st.fixed_dictionaries({"name": NAMES}, optional=optional(**fields))
        gone = st.fixed_dictionaries({"name": NAMES, "$patch": st.just("delete")})
        return change | gone if removes else change

    container = named(image=TEXTS, args=st.lists(TEXTS, max_size=2), env=items(named(value=TEXTS), "name"))
    inner = st.fixed_dictionaries(
        {}, optional=optional(containers=items(container, "name"), networks=st.lists(NAMES, max_size=2))
    )
    labels = st.dictionaries(NAMES, st.none() | TEXTS if removes else TEXTS, max_size=3)
    template = st.fixed_dictionaries(
        {"spec": inner}, optional=optional(metadata=st.fixed_dictionaries({"labels": labels}))
    )
    return st.fixed_dictionaries(
        {}, optional=optional(replicas=st.integers(0, 9), template=template, drain=st.dictionaries(NAMES, TEXTS))
    )


def workload(spec: Any, file: str) -> Document:
    value = {"apiVersion": "reconciler/v1", "kind": "Workload", "metadata": {"name": "web"}, "spec": spec}
    return document(json.dumps(value, indent=1), file)


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Any:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    if not inner or not value:
        yield path, value
    for key, each in inner:
        yield from leaves(each, (*path, key))


@given(specs(removes=False))
def test_a_document_that_says_nothing_changes_nothing(spec):
    base = workload(spec, "base")
    both, problems = merged(base, document(HEAD, "over"))
    assert (both.value, problems) == (base.value, [])


@given(specs(removes=False), specs(removes=True))
def test_merging_twice_is_merging_once(spec, change):
    once, _ = merged(workload(spec, "base"), workload(change, "over"))
    twice, _ = merged(once, workload(change, "over"))
    assert twice.value == once.value


@given(specs(removes=False), specs(removes=False), specs(removes=False))
def test_changes_without_removals_may_be_merged_in_any_grouping(spec, one, two):
    base, first, second = workload(spec, "base"), workload(one, "one"), workload(two, "two")
    assert merged(merged(base, first)[0], second)[0].value == merged(base, merged(first, second)[0])[0].value


@given(specs(removes=False), specs(removes=True))
def test_every_value_stands_where_its_origin_says(spec, change):
    texts = {"base": workload(spec, "base"), "over": workload(change, "over")}
    before = copy.deepcopy([each.value for each in texts.values()])
    both, _ = merged(texts["base"], texts["over"])
    assert isinstance(both, MergedDocument)
    for path, value in leaves(both.value):
        where = both.origin(path)
        line = texts[where.file].text.text.split("\n")[where.line - 1][where.column - 1 :]
        shown = json.dumps(value)
        # An empty mapping or list may be what removals left over.
        assert line.startswith(shown) or shown in ("{}", "[]"), (path, where)
    assert [each.value for each in texts.values()] == before
    assert "$patch" not in json.dumps(both.value)


@given(st.permutations(["a", "b", "c"]), st.permutations(["b", "c", "d"]))
def test_the_order_of_documents_of_an_environment_does_not_matter(base, overlay):
    def named(name: str, replicas: int) -> Document:
        return document(HEAD.replace("web", name) + f"spec: {{replicas: {replicas}}}", f"{name}{replicas}")

    result, problems = overlaid([named(name, 1) for name in base], [named(name, 2) for name in overlay])
    values: Any = [each.value for each in result]
    assert problems == []
    assert {value["metadata"]["name"]: value["spec"]["replicas"] for value in values} == {
        "a": 1,
        "b": 2,
        "c": 2,
        "d": 2,
    }


def test_the_policy_of_a_target_is_changed_by_its_name(tmp_path):
    head = POLICY.partition("spec:")[0]
    environment(tmp_path, f"{head}spec: {{routing: weighted, targets: [{{name: main, weight: 7}}]}}\n")
    (policy,) = load_path(tmp_path, environment="prod").policies
    assert [(target.name, target.weight) for target in policy.targets] == [("main", 7)]


def test_a_small_environment_costs_little_beside_reading_a_large_base():
    text = "---\n".join(f"{HEAD.replace('web', f'w{number}')}spec: {{replicas: 1}}\n" for number in range(5_000))
    begin = process_time()
    base, _ = read_file("base.yaml", text.encode())
    read = process_time()
    result, problems = overlaid(base, [document(HEAD.replace("web", "w77") + "spec: {replicas: 2}", "over.yaml")])
    merging = process_time() - read
    assert (len(result), problems) == (5_000, [])
    assert merging < 0.2 * (read - begin)
    assert all(one is other for one, other in zip(result, base, strict=True) if one.value is other.value)
