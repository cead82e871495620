"""What manifests say of containers of somebody else, and of the addresses of endpoints: values, and what is said of wrong ones."""

from pathlib import Path

import pytest

from manifests.problems import Code
from manifests.values.desired import AddressFrom, Adopt
from tests.manifests.trees import GOOD, GUARD, INSTANCE, PROVIDERS, SERVICE, load_files, problems_of

ENGINE = PROVIDERS.replace("type: process", "type: engine")

WEB = """\
apiVersion: reconciler/v1
kind: Workload
metadata: {name: web}
spec:
  ADOPT
  template:
    metadata: {labels: {app: web}}
    spec:
      networks: [edge, back]
      containers:
        - name: app
          image: shop/web:1
          ports: [{name: http, containerPort: 8080PORT}]
"""


def tree(adopt: str = "replicas: 1", port: str = "", address: str = "") -> dict[str, str | bytes]:
    web = WEB.replace("ADOPT", adopt).replace("PORT", port)
    service = SERVICE.replace("  port: http\n", f"  port: http\n  address: {address}\n") if address else SERVICE
    return {**GOOD, "providers.yaml": ENGINE, "web.yaml": web, "service.yml": service}


def test_names_and_labels_become_what_is_adopted(tmp_path: Path):
    given = "adopt: {names: [Shop_web.1, web-2], labels: {com.docker.compose.service: web}, replace: true}"
    (workload,) = load_files(tmp_path, tree(given)).workloads
    assert workload.adopt == Adopt(("Shop_web.1", "web-2"), (("com.docker.compose.service", "web"),), True)


def test_adopting_changes_no_revision(tmp_path: Path):
    (without,) = load_files(tmp_path / "a", tree()).workloads
    (adopting,) = load_files(tmp_path / "b", tree("adopt: {names: [web-1]}")).workloads
    assert without.template.revision == adopting.template.revision


@pytest.mark.parametrize(
    ("given", "code", "told"),
    [
        ("adopt: {}", Code.BAD_VALUE, "selects no container"),
        ("adopt: {replace: true}", Code.BAD_VALUE, "selects no container"),
        ("adopt: {names: ['bad name']}", Code.BAD_VALUE, "'bad name' is not the name of a container"),
        ("adopt: {names: [web-1, web-1]}", Code.BAD_VALUE, "twice"),
        ("adopt: {label: {a: b}}", Code.UNKNOWN_FIELD, "cannot have a field 'label'"),
    ],
)
def test_an_adopt_that_means_nobody_is_refused(tmp_path: Path, given, code, told):
    problems = problems_of(tmp_path, tree(given))
    assert any(problem.code is code and told in problem.message for problem in problems), problems


def test_only_runtimes_with_containers_of_others_adopt(tmp_path: Path):
    files = {**GOOD, "web.yaml": str(GOOD["web.yaml"]).replace("  replicas: 3\n", "  adopt: {names: [web-1]}\n")}
    (problem,) = problems_of(tmp_path, files)
    assert (problem.code, problem.path) == (Code.UNSUPPORTED_FIELD, "spec.adopt")


def test_a_template_with_several_containers_adopts_nobody(tmp_path: Path):
    files = tree("adopt: {names: [web-1]}")
    files["web.yaml"] = f"{files['web.yaml']}        - {{name: log, image: log}}\n"
    assert [problem.code for problem in problems_of(tmp_path, files)] == [Code.CONFLICT]


# --- addresses of endpoints -----------------------------------------------------------------------------------------


def test_endpoints_are_at_the_containers_own_addresses_unless_told_otherwise(tmp_path: Path):
    (service,) = load_files(tmp_path, tree()).services
    assert (service.address_from, service.network) == (AddressFrom.CONTAINER, "")


def test_a_network_and_the_host_are_told_apart(tmp_path: Path):
    (service,) = load_files(tmp_path / "a", tree(address="{from: container, network: back}")).services
    assert (service.address_from, service.network) == (AddressFrom.CONTAINER, "back")
    (service,) = load_files(tmp_path / "b", tree(port=", hostPort: 80", address="{from: host}")).services
    assert service.address_from is AddressFrom.HOST


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("{from: host}", "port http of workload/web is not published on its host"),
        ("{from: container, network: other}", "workload/web is not in network 'other'"),
        ("{from: host, network: edge}", "network does nothing with from: host"),
        ("{from: somewhere}", "expected one of container, host"),
    ],
)
def test_an_address_at_which_nobody_can_be_reached_is_refused(tmp_path: Path, address, told):
    problems = problems_of(tmp_path, tree(address=address))
    assert any(told in problem.message for problem in problems), problems


# --- labels ---------------------------------------------------------------------------------------------------------


def test_labels_ask_for_restarts_only_where_the_instance_says_so(tmp_path: Path):
    assert not load_files(tmp_path / "a", GOOD).instance.enhanced_liveness
    told = INSTANCE.replace("spec: {", "spec: {enhancedLiveness: true, ")
    assert load_files(tmp_path / "b", {**GOOD, "instance.yaml": told}).instance.enhanced_liveness


@pytest.mark.parametrize("key", ["container/local/shop-web", "container/local/Shop_web.1/0"])
def test_the_guard_may_deny_containers_that_no_manifest_names(tmp_path: Path, key: str):
    guard = GUARD.replace("workload/web", key)
    assert load_files(tmp_path, {**GOOD, "guard.yaml": guard}).guard.deny == {key}


def test_a_key_of_a_container_without_its_node_is_none(tmp_path: Path):
    guard = GUARD.replace("workload/web", "container/Shop_web")
    assert any(
        "is not the key of an object" in problem.message
        for problem in problems_of(tmp_path, {**GOOD, "guard.yaml": guard})
    )
