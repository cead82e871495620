"""The value of a valid tree: defaults, references, canonical order."""

import random
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from manifests.problems import Code, Where
from manifests.values.desired import SECOND, Desired, Probe, ProbeKind, Role
from manifests.values.dns import Publish
from tests.manifests.trees import (
    GOOD,
    GUARD,
    INSTANCE,
    POLICY,
    PROVIDERS,
    SERVICE,
    WORKLOAD,
    load_files,
    load_path,
    problems_at,
    problems_of,
    write,
)

NOWHERE = Where("", 0, 0)


def bare(value: Desired) -> Desired:
    """The value without what depends on where things are written."""
    return replace(
        value,
        revision="",
        root="",
        source="",
        providers=tuple(replace(provider, where=NOWHERE) for provider in value.providers),
        workloads=tuple(replace(workload, where=NOWHERE) for workload in value.workloads),
        services=tuple(replace(service, where=NOWHERE) for service in value.services),
        policies=tuple(replace(policy, where=NOWHERE) for policy in value.policies),
    )


def revision_of(root: Path, workload: str) -> str:
    return load_files(root, GOOD | {"web.yaml": workload}).workloads[0].template.revision


def test_a_tree_becomes_one_value_with_every_reference_resolved(tmp_path: Path) -> None:
    value = load_files(tmp_path, GOOD | {"guard.yaml": GUARD})

    assert value.instance.id == "demo"
    assert not value.instance.prune
    assert value.instance.look_dns == 30 * SECOND
    assert value.guard.deny == {"workload/web"}
    assert value.guard.mass_change.share == 30
    assert [(provider.key, provider.role) for provider in value.providers] == [
        ("provider/edge", Role.ENDPOINTS),
        ("provider/here", Role.RUNTIME),
        ("provider/zones", Role.DNS),
    ]
    assert value.providers[2].settings == {"path": "example.zone"}
    workload = value.workloads[0]
    assert workload.key == "workload/web"
    assert workload.nodes == ("here",)
    assert workload.replicas == 3
    assert workload.max_unavailable == 1
    assert workload.restarts.backoff.maximum == 300 * SECOND
    assert str(workload.where) == "web.yaml:1:1"
    container = workload.template.container
    assert container.argv == ("python3", "server.py", "--verbose")
    assert container.env == (("MODE", "production"),)
    assert container.liveness == Probe(ProbeKind.HTTP, 8080, "/live")
    assert container.readiness == Probe(ProbeKind.TCP, 8080, period=SECOND // 2)
    assert container.startup is None
    service = value.services[0]
    assert [(backend.workload, backend.port) for backend in service.backends] == [("workload/web", 8080)]
    assert service.balancers[0].addresses == ("203.0.113.10",)
    assert value.services_of == {"workload/web": (("service/web", 8080),)}
    policy = value.policies[0]
    assert (policy.host, policy.zone, policy.provider, policy.ttl) == ("app.example.com.", "example.com.", "zones", 60)
    assert policy.targets[0].publish is Publish.BALANCER
    assert policy.targets[0].service == "service/web"


def test_a_directory_is_a_complete_set_and_a_single_file_is_not(tmp_path: Path) -> None:
    whole = load_files(tmp_path, GOOD)
    joined = "\n---\n".join(str(text) for text in GOOD.values())
    single = load_path(write(tmp_path / "other", {"all.yaml": joined}) / "all.yaml")

    assert whole.complete
    assert not single.complete
    assert single.root == str(tmp_path / "other")
    assert bare(single) == replace(bare(whole), complete=False)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32))
def test_neither_files_nor_documents_nor_keys_have_an_order(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    yaml = YAML(typ="safe")
    documents = [document for text in [*GOOD.values(), GUARD] for document in yaml.load_all(str(text))]
    chance.shuffle(documents)
    files: dict[str, str | bytes] = {}
    for number, document in enumerate(documents):
        name = f"{chance.randrange(3)}/{chance.randrange(3)}.yaml"
        files[name] = f"{files.get(name, '')}---\n{shuffled(document, chance)}\n# {number}\n"
    root = tmp_path / str(seed)

    assert repr(bare(load_files(root, files))) == repr(
        bare(load_files(tmp_path / "good", GOOD | {"guard.yaml": GUARD}))
    )


def shuffled(value: object, chance: random.Random) -> str:
    """The value in flow style, with keys in any order and texts in any quotes."""
    if isinstance(value, dict):
        keys = list(value)
        chance.shuffle(keys)
        return "{" + ", ".join(f"{shuffled(key, chance)}: {shuffled(value[key], chance)}" for key in keys) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(shuffled(item, chance) for item in value) + "]"
    return chance.choice([f"'{value}'", f'"{value}"', value]) if isinstance(value, str) else str(value).lower()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("path: /live", "path: /other"),
        ("            periodSeconds: 0.5\n", ""),
        ("replicas: 3", "replicas: 4"),
        ("    spec:\n", "    spec:\n      terminationGracePeriodSeconds: 5\n"),
        ("replicas: 3", "suspend: true"),
        ("command: [python3, server.py]", "command: ['python3', \"server.py\"]"),
        ("{name: MODE, value: production}", "{value: production, name: MODE}"),
        ("{name: MODE, value: production}", "name: MODE\n              value: production"),
    ],
)
def test_changes_on_running_containers_keep_the_revision(old: str, new: str, tmp_path: Path) -> None:
    assert old in WORKLOAD
    assert revision_of(tmp_path, WORKLOAD.replace(old, new)) == revision_of(tmp_path, WORKLOAD)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("server.py", "server2.py"),
        ("--verbose", "--quiet"),
        ("value: production", "value: test"),
        ("name: MODE", "name: MOD"),
        ("{app: web}", "{app: web, tier: front}"),
        (
            "- {name: http, containerPort: 8080}",
            "- {name: http, containerPort: 8080}\n            - {containerPort: 9090}",
        ),
        ("          args:", "          workingDir: app\n          args:"),
        ("        - name: app", "        - name: main"),
    ],
)
def test_fields_that_need_a_new_container_change_the_revision(old: str, new: str, tmp_path: Path) -> None:
    assert old in WORKLOAD
    assert revision_of(tmp_path, WORKLOAD.replace(old, new)) != revision_of(tmp_path, WORKLOAD)


def test_the_revision_of_a_template_never_changes_with_the_program(tmp_path: Path) -> None:
    """A different value would replace every container at an upgrade: raise the hash version instead."""
    template = load_files(tmp_path, GOOD).workloads[0].template

    assert (template.hash_version, template.revision) == (1, "72d1027873bcdabb")


def test_zero_in_a_probe_means_the_default_as_in_kubernetes(tmp_path: Path) -> None:
    zeros = "port: 8080}\n            periodSeconds: 0\n            timeoutSeconds: 0\n            failureThreshold: 0\n            successThreshold: 0\n"
    text = WORKLOAD.replace("port: 8080}\n            periodSeconds: 0.5\n", zeros)

    value = load_files(tmp_path, GOOD | {"web.yaml": text})

    assert value.workloads[0].template.container.readiness == Probe(ProbeKind.TCP, 8080)


def test_a_service_without_balancer_addresses_publishes_its_endpoints(tmp_path: Path) -> None:
    value = load_files(tmp_path, GOOD | {"service.yml": SERVICE.replace(", addresses: [203.0.113.10]", "")})

    assert value.policies[0].targets[0].publish is Publish.ENDPOINTS


def test_a_target_may_be_fixed_addresses_in_any_order(tmp_path: Path) -> None:
    policy = POLICY.replace("service: {name: web}", "addresses: [203.0.113.9, '2001:DB8::1']")

    target = load_files(tmp_path, GOOD | {"dns.yaml": policy}).policies[0].targets[0]

    assert (target.publish, target.addresses) == (Publish.ADDRESSES, ("2001:db8::1", "203.0.113.9"))


def test_local_documents_win_over_those_of_the_tree(tmp_path: Path) -> None:
    local = (
        INSTANCE.replace("this", "mine").replace("demo", "local")
        + "---\n"
        + PROVIDERS
        + "---\n"
        + WORKLOAD.replace("replicas: 3", "replicas: 9")
    )
    write(tmp_path, {"local.yaml": local})
    root = write(
        tmp_path / "tree", {name: GOOD[name] for name in GOOD if name not in ("instance.yaml", "providers.yaml")}
    )

    value = load_path(root, instance_file=tmp_path / "local.yaml")

    assert value.instance.id == "local"
    assert value.workloads[0].replicas == 9
    assert value.workloads[0].where.file == str(tmp_path / "local.yaml")
    before = value.revision
    write(tmp_path, {"local.yaml": local.replace("replicas: 9", "replicas: 8")})
    assert load_path(root, instance_file=tmp_path / "local.yaml").revision != before


def test_a_missing_local_file_is_a_problem(tmp_path: Path) -> None:
    problems = problems_at(write(tmp_path, GOOD), instance_file=tmp_path / "no.yaml")

    assert Code.UNREADABLE_FILE in [problem.code for problem in problems]


@pytest.mark.parametrize(("kind", "text"), [("Instance", INSTANCE), ("Guard", GUARD)])
def test_a_tree_has_one_instance_and_one_guard(kind: str, text: str, tmp_path: Path) -> None:
    name = "this" if kind == "Instance" else "limits"
    problems = problems_of(
        tmp_path,
        GOOD | {"a.yaml": text.replace(name, "one"), "instance.yaml": INSTANCE, "z.yaml": text.replace(name, "two")},
    )

    assert {problem.code for problem in problems} == {Code.DUPLICATE_OBJECT}


def test_a_probe_needs_a_declared_port(tmp_path: Path) -> None:
    text = WORKLOAD.replace("port: http}", "port: htp}").replace("{port: 8080}", "{port: 8081}")

    problems = problems_of(tmp_path, GOOD | {"web.yaml": text})

    assert [(problem.code, problem.path.rpartition("containers[0].")[2], problem.hint) for problem in problems] == [
        (Code.UNKNOWN_PORT, "livenessProbe.httpGet.port", "did you mean 'http'?"),
        (Code.UNKNOWN_PORT, "readinessProbe.tcpSocket.port", "declared ports: 8080"),
    ]


def test_the_settings_of_a_provider_are_checked_by_its_type(tmp_path: Path) -> None:
    text = PROVIDERS.replace("{path: pools.json}", "{pth: pools.json, mode: 3}")

    problems = problems_of(tmp_path, GOOD | {"providers.yaml": text})

    assert [(problem.code, problem.path) for problem in problems] == [
        (Code.MISSING_FIELD, "spec.settings.path"),
        (Code.UNKNOWN_FIELD, "spec.settings.pth"),
        (Code.WRONG_TYPE, "spec.settings.mode"),
    ]
    assert problems[1].hint == "did you mean 'path'?"


def test_one_mistake_is_reported_once_and_not_for_each_reference_to_it(tmp_path: Path) -> None:
    files = GOOD | {
        "providers.yaml": PROVIDERS.replace("type: file", "type: fil"),
        "web.yaml": WORKLOAD.replace("replicas: 3", "replicas: three"),
    }

    problems = problems_of(tmp_path, files)

    assert [problem.code for problem in problems] == [Code.UNKNOWN_TYPE, Code.WRONG_TYPE]


def test_no_name_is_unknown_while_documents_may_be_missing(tmp_path: Path) -> None:
    problems = problems_of(tmp_path, GOOD | {"providers.yaml": "a: [", "instance.yaml": "b: ["})

    assert [problem.code for problem in problems] == [Code.YAML_SYNTAX, Code.YAML_SYNTAX]


def test_a_missing_default_provider_is_reported_with_its_role(tmp_path: Path) -> None:
    runtime_only = PROVIDERS.partition("---")[0]
    problems = problems_of(
        tmp_path, GOOD | {"providers.yaml": runtime_only, "service.yml": SERVICE.partition("  balancers")[0]}
    )

    assert [(problem.code, problem.hint) for problem in problems] == [
        (Code.NO_DEFAULT, "add a Provider with the role dns")
    ]


def test_the_hint_for_a_missing_instance_is_a_document_that_works(tmp_path: Path) -> None:
    files = {name: text for name, text in GOOD.items() if name != "instance.yaml"}
    hint = problems_of(tmp_path, files)[0].hint

    value = load_files(tmp_path, files | {"instance.yaml": hint.partition("\n")[2]})

    assert value.instance.id == "my-host"
