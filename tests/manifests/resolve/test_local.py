"""What the tree may reach beside local documents: kinds, secrets and processes that only an operator's document may name."""

from pathlib import Path

import pytest

from manifests.kinds import KINDS
from manifests.problems import Code, Problem
from manifests.resolve.local import TREE_KINDS, WITH_SECRETS
from manifests.values.desired import Desired
from tests.manifests.trees import (
    ENGINE_PROVIDERS,
    GUARD,
    HEALTH_CHECK,
    INSTANCE,
    POLICY,
    PROVIDERS,
    RECORD,
    RECORD_LIST,
    SERVICE,
    WORKLOAD,
    load_path,
    problems_at,
    write,
)

TREE: dict[str, str | bytes] = {
    "web.yaml": WORKLOAD,
    "service.yml": SERVICE,
    "dns.yaml": POLICY,
    "list.yaml": RECORD_LIST,
    "mx.yaml": RECORD.replace("host: example.com", "host: mx.example.com"),
}
"""A tree that says nothing about this host."""

ENGINE = WORKLOAD.replace("- name: app", "- name: app\n          image: shop/web:1")
SECRET = ENGINE.replace(
    "- {name: MODE, value: production}", "- {name: KEY, valueFrom: {secret: {env: CI_DEPLOY_TOKEN}}}"
)
PROBE_SECRET = ENGINE.replace(
    "httpGet: {path: /live, port: http}",
    "httpGet: {port: http, httpHeaders: [{name: X-Probe, valueFrom: {secret: {file: /run/token}}}]}",
)


def instance(more: str = "") -> str:
    return INSTANCE.replace("{id: demo}", f"{{id: demo{more}}}")


def problems(
    base: Path, tree: dict[str, str | bytes], local: str = instance(), engine: bool = True
) -> tuple[Problem, ...]:
    write(base, {"local.yaml": f"{local}---\n{ENGINE_PROVIDERS if engine else PROVIDERS}"})
    return problems_at(write(base / "tree", tree), instance_file=base / "local.yaml")


def loaded(base: Path, tree: dict[str, str | bytes], local: str = instance(), engine: bool = True) -> Desired:
    write(base, {"local.yaml": f"{local}---\n{ENGINE_PROVIDERS if engine else PROVIDERS}"})
    return load_path(write(base / "tree", tree), instance_file=base / "local.yaml")


def engine_tree(**files: str) -> dict[str, str | bytes]:
    return {**TREE, "web.yaml": ENGINE, **{f"{name}.yaml": text for name, text in files.items()}}


def test_a_tree_may_declare_all_that_says_nothing_about_the_host(tmp_path: Path) -> None:
    value = loaded(tmp_path, engine_tree(check=HEALTH_CHECK.partition("  additionalHeaders")[0]))

    assert (value.instance.id, value.workloads[0].nodes) == ("demo", ("here",))
    assert [provider.local for provider in value.providers] == [True, True, True]
    assert (
        load_path(write(tmp_path / "all", TREE | {"here.yaml": f"{INSTANCE}---\n{PROVIDERS}"})).providers[0].local
        is False
    )


@pytest.mark.filterwarnings("ignore::pydantic.json_schema.PydanticJsonSchemaWarning")  # defaults do not matter here
def test_every_kind_of_the_tree_that_can_name_a_secret_is_checked() -> None:
    schemas = {kind: KINDS[kind].model_json_schema() for kind in TREE_KINDS}

    assert {kind for kind, schema in schemas.items() if "SecretReference" in schema["$defs"]} == set(WITH_SECRETS)


SMUGGLED = {
    "a second document": f"{POLICY.replace('app', 'other')}---\n{PROVIDERS.partition('---')[0].replace('here', 'new')}",
    "JSON": '{"apiVersion": "reconciler/v1", "kind": "Provider", "metadata": {"name": "new"}, "spec": {"type": "process"}}',
    "an anchor": "apiVersion: &v reconciler/v1\nkind: &k Provider\nmetadata: {name: new}\nspec: {type: process}\n",
    "a merge": "<<: {kind: Provider}\napiVersion: reconciler/v1\nmetadata: {name: new}\nspec: {type: process}\n",
    "an escape": 'apiVersion: reconciler/v1\n"\\u006bind": "Provide\\u0072"\nmetadata: {name: new}\nspec: {type: process}\n',
    "the name of a local one": PROVIDERS.partition("---")[0],
    "a broken one": "apiVersion: reconciler/v1\nkind: Provider\nmetadata: {name: new}\nspec: {tipe: process}\n",
    "a Guard": GUARD,
    "an Instance": INSTANCE.replace("demo", "other"),
}


@pytest.mark.parametrize("text", SMUGGLED.values(), ids=SMUGGLED)
def test_whatever_the_spelling_the_tree_declares_no_local_kind(text: str, tmp_path: Path) -> None:
    name = "more.json" if text.startswith("{") else "more.yaml"
    found = problems(tmp_path, engine_tree() | {name: text})

    moved = [problem for problem in found if problem.code is Code.LOCAL_ONLY]
    assert [(problem.file, problem.line > 0) for problem in moved] == [(name, True)]
    assert "--instance" in moved[0].hint


def test_a_provider_of_the_tree_is_one_problem_not_one_per_reference(tmp_path: Path) -> None:
    write(tmp_path, {"local.yaml": instance()})
    tree = write(tmp_path / "tree", engine_tree(providers=ENGINE_PROVIDERS))

    found = problems_at(tree, instance_file=tmp_path / "local.yaml")

    assert [(problem.code, problem.path) for problem in found] == [(Code.LOCAL_ONLY, "kind")] * 3


def test_the_missing_instance_is_to_be_local(tmp_path: Path) -> None:
    write(tmp_path, {"local.yaml": ENGINE_PROVIDERS})
    (found,) = problems_at(write(tmp_path / "tree", engine_tree()), instance_file=tmp_path / "local.yaml")

    assert found.code is Code.NO_INSTANCE
    assert "--instance" in found.hint


# --- processes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("nodes", ["", "nodes: [here]\n  "])
def test_only_named_workloads_of_the_tree_run_programs_on_the_host(nodes: str, tmp_path: Path) -> None:
    tree = TREE | {"web.yaml": WORKLOAD.replace("replicas: 3", f"{nodes}replicas: 3")}
    (found,) = problems(tmp_path, tree, engine=False)

    assert (found.code, found.file) == (Code.PROCESS_NOT_ALLOWED, "web.yaml")
    assert "spec: {allowProcess: [web]}" in found.hint
    assert loaded(tmp_path / "b", tree, instance(", allowProcess: [web]"), engine=False).workloads[0].name == "web"
    (again,) = problems(tmp_path / "c", tree, instance(", allowProcess: [other]"), engine=False)
    assert again.message == found.message


def test_a_local_workload_needs_no_permission(tmp_path: Path) -> None:
    tree = {name: text for name, text in TREE.items() if name != "web.yaml"}
    own = WORKLOAD.replace("{name: MODE, value: production}", "{name: MODE, value: own}")

    assert loaded(tmp_path, TREE, f"{instance()}---\n{own}", engine=False).workloads[0].template.container.env == (
        ("MODE", "own"),
    )
    assert loaded(tmp_path / "b", tree, f"{instance()}---\n{own}", engine=False).workloads[0].name == "web"


# --- secrets ---------------------------------------------------------------------------------------------------------


def test_a_secret_of_a_container_needs_a_rule_for_this_workload(tmp_path: Path) -> None:
    tree = engine_tree(web=SECRET)
    (found,) = problems(tmp_path, tree)

    assert (found.code, found.file) == (Code.SECRET_NOT_ALLOWED, "web.yaml")
    assert found.line == SECRET[: SECRET.index("CI_DEPLOY_TOKEN")].count("\n") + 1
    assert "- {env: CI_DEPLOY_TOKEN, workload: web}" in found.hint
    assert str(tmp_path / "local.yaml") in found.hint
    allowed = instance(", secrets: [{env: CI_DEPLOY_TOKEN, workload: web}]")
    assert loaded(tmp_path / "b", tree, allowed).workloads[0].template.container.engine.secret_env


@pytest.mark.parametrize(
    "rule",
    [
        "{env: CI_DEPLOY_TOKEN, workload: other}",
        "{env: CI_DEPLOY, workload: web}",
        "{file: /CI_DEPLOY_TOKEN, workload: web}",
        "{env: CI_DEPLOY_TOKEN, workload: web, header: KEY}",
        "{env: CI_DEPLOY_TOKEN, header: KEY, destination: {host: app.example.com}}",
    ],
)
def test_a_rule_for_another_place_does_not_help(rule: str, tmp_path: Path) -> None:
    found = problems(tmp_path, engine_tree(web=SECRET), instance(f", secrets: [{rule}]"))

    assert [problem.code for problem in found] == [Code.SECRET_NOT_ALLOWED]


def test_a_sidecar_and_each_probe_need_their_rules_too(tmp_path: Path) -> None:
    sidecar = "        - {name: b, image: x, env: [{name: K, valueFrom: {secret: {file: /run/key}}}]}\n"
    (of_sidecar,) = problems(tmp_path, engine_tree(web=ENGINE + sidecar))
    (of_probe,) = problems(tmp_path / "b", engine_tree(web=PROBE_SECRET))

    assert "- {file: /run/key, workload: web}" in of_sidecar.hint
    assert "- {file: /run/token, workload: web, header: X-Probe}" in of_probe.hint
    own_header = instance(", secrets: [{file: /run/token, workload: web, header: x-probe}]")
    assert loaded(tmp_path / "c", engine_tree(web=PROBE_SECRET), own_header).workloads
    of_variables = instance(", secrets: [{file: /run/token, workload: web}]")
    assert problems(tmp_path / "d", engine_tree(web=PROBE_SECRET), of_variables)


CHECKED = (
    POLICY.replace("service: {name: web}", "addresses: [203.0.113.9]")
    + "  healthCheck:\n    additionalHeaders: [{name: X-Key, valueFrom: {secret: {env: CHECK}}}]\n"
)
BY_HOST = "{env: CHECK, header: X-Key, destination: {host: app.example.com}}"
BY_ADDRESS = (
    "{env: CHECK, header: X-Key, destination: {address: 203.0.113.9, host: app.example.com, port: 80, protocol: HTTP}}"
)
PLAIN = CHECKED.replace("  healthCheck:\n", "  healthCheck:\n    protocol: HTTP\n    port: 80\n")


def check_problems(base: Path, policy: str, rule: str) -> list[str]:
    found = problems(base, engine_tree(dns=policy), instance(f", secrets: [{rule}]"))
    assert {problem.code for problem in found} <= {Code.SECRET_NOT_ALLOWED}
    return [problem.hint for problem in found]


def test_a_verified_host_may_be_at_any_address(tmp_path: Path) -> None:
    assert check_problems(tmp_path, CHECKED, BY_HOST) == []
    moved = CHECKED.replace("203.0.113.9", "198.51.100.66")
    assert check_problems(tmp_path / "b", moved, BY_HOST) == []
    served = CHECKED.replace("addresses: [203.0.113.9]", "service: {name: web}")
    assert check_problems(tmp_path / "c", served, BY_HOST) == []


AWAY = {
    "another host": ("  healthCheck:\n", "  healthCheck:\n    host: evil.example.net\n"),
    "another port": ("  healthCheck:\n", "  healthCheck:\n    port: 8443\n"),
    "no certificate": ("  healthCheck:\n", "  healthCheck:\n    allowInsecureCertificates: true\n"),
    "plain HTTP": ("  healthCheck:\n", "  healthCheck:\n    protocol: HTTP\n    port: 443\n"),
    "another header": ("X-Key", "Authorization"),
    "another secret": ("env: CHECK", "env: CI_DEPLOY_TOKEN"),
    "a Host header": ("[{name: X-Key", "[{name: host, value: evil.example.net}, {name: X-Key"),
}


@pytest.mark.parametrize("change", AWAY.values(), ids=AWAY)
def test_a_header_with_a_secret_goes_nowhere_else(change: tuple[str, str], tmp_path: Path) -> None:
    (hint,) = check_problems(tmp_path, CHECKED.replace(*change), BY_HOST)

    assert hint


@pytest.mark.parametrize("other", ["198.51.100.66", "203.0.113.9, 198.51.100.66"])
def test_plain_http_is_bound_to_each_address(other: str, tmp_path: Path) -> None:
    assert check_problems(tmp_path, PLAIN, BY_ADDRESS) == []
    (hint,) = check_problems(tmp_path / "b", PLAIN.replace("203.0.113.9", other), BY_ADDRESS)

    assert "address: 198.51.100.66, host: app.example.com, port: 80, protocol: HTTP" in hint
    (hint,) = check_problems(
        tmp_path / "c", PLAIN.replace("addresses: [203.0.113.9]", "service: {name: web}"), BY_ADDRESS
    )
    assert "not fixed" in hint


def test_the_rule_that_a_problem_names_is_the_one_that_helps(tmp_path: Path) -> None:
    policies = [CHECKED, PLAIN, *(CHECKED.replace(*change) for name, change in AWAY.items() if name != "a Host header")]
    for number, policy in enumerate(policies):
        (hint,) = check_problems(tmp_path / str(number), policy, "{env: UNUSED, workload: w}")
        rule = hint.rpartition("- ")[2]
        assert check_problems(tmp_path / f"again-{number}", policy, rule) == [], rule


def test_a_health_check_sends_its_secret_to_the_named_server_only(tmp_path: Path) -> None:
    rule = "{env: CHECK_TOKEN, header: authorization, destination: {host: backup.example.net}}"
    tree = engine_tree(check=HEALTH_CHECK)

    assert loaded(tmp_path, tree, instance(f", secrets: [{rule}]")).checks
    evil = engine_tree(check=HEALTH_CHECK.replace("address: backup.example.net", "address: evil.example.net"))
    (found,) = problems(tmp_path / "b", evil, instance(f", secrets: [{rule}]"))
    assert found.code is Code.SECRET_NOT_ALLOWED


@pytest.mark.parametrize("address", ["backup.example.net", "192.0.2.9", "'2001:db8::9'"])
@pytest.mark.parametrize(
    "more",
    [
        "",
        "  port: 8443\n",
        "  host: www.example.net\n",
        "  protocol: HTTP\n  port: 80\n",
        "  protocol: HTTP\n  host: www.example.net\n",
        "  allowInsecureCertificates: true\n",
    ],
)
def test_each_health_check_has_a_rule_that_is_for_it_alone(more: str, address: str, tmp_path: Path) -> None:
    check = HEALTH_CHECK.replace("address: backup.example.net", f"address: {address}") + more
    (found,) = problems(tmp_path, engine_tree(check=check))
    rule = found.hint.rpartition("- ")[2]

    assert loaded(tmp_path / "b", engine_tree(check=check), instance(f", secrets: [{rule}]")).checks
    for number, other in enumerate(("address: 198.51.100.66", "address: evil.example.net")):
        evil = check.replace(f"address: {address}", f"{other}\n  host: evil.example.net")
        evil = evil.replace("  host: www.example.net\n", "")
        assert problems(tmp_path / f"c{number}", engine_tree(check=evil), instance(f", secrets: [{rule}]"))


def test_rules_in_the_tree_are_refused_since_its_authors_could_change_them(tmp_path: Path) -> None:
    text = instance(", allowProcess: [web], secrets: [{env: A, workload: web}]")

    found = problems_at(write(tmp_path, TREE | {"here.yaml": f"{text}---\n{PROVIDERS}"}))

    assert [(problem.code, problem.path) for problem in found] == [
        (Code.LOCAL_ONLY, "spec.allowProcess"),
        (Code.LOCAL_ONLY, "spec.secrets"),
    ]


@pytest.mark.parametrize(
    ("rule", "cause"),
    [
        ("{env: A}", "exactly one of workload and destination"),
        ("{env: A, workload: w, header: X, destination: {host: a.test}}", "exactly one of workload and destination"),
        ("{workload: w}", "exactly one of env, file"),
        ("{env: A, destination: {host: a.test}}", "needs the header"),
        ("{env: A, header: X, destination: {port: 80}}", "needs host or address"),
        ("{env: A, header: X, destination: {host: a.test, protocol: HTTP}}", "any server could answer"),
        (
            "{env: A, header: X, destination: {host: a.test, allowInsecureCertificates: true}}",
            "any server could answer",
        ),
    ],
)
def test_a_rule_that_binds_nothing_is_refused(rule: str, cause: str, tmp_path: Path) -> None:
    found = problems(tmp_path, engine_tree(), instance(f", secrets: [{rule}]"))

    assert any(cause in problem.message and problem.file.endswith("local.yaml") for problem in found)
