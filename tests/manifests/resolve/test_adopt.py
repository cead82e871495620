"""Adoption of foreign containers."""

from pathlib import Path

import pytest

from manifests.problems import Code
from manifests.values.desired import Adopt
from tests.manifests.trees import GOOD, load_files, networked, problems_of


def test_names_and_labels_become_what_is_adopted(tmp_path: Path):
    given = "adopt: {names: [Shop_web.1, web-2], labels: {com.docker.compose.service: web}, replace: true}"
    (workload,) = load_files(tmp_path, networked(given)).workloads
    assert workload.adopt == Adopt(("Shop_web.1", "web-2"), (("com.docker.compose.service", "web"),), True)


def test_adopting_changes_no_revision(tmp_path: Path):
    (without,) = load_files(tmp_path / "a", networked()).workloads
    (adopting,) = load_files(tmp_path / "b", networked("adopt: {names: [web-1]}")).workloads
    assert without.template.revision == adopting.template.revision


@pytest.mark.parametrize(
    ("given", "code", "message"),
    [
        ("adopt: {}", Code.BAD_VALUE, "selects no container"),
        ("adopt: {replace: true}", Code.BAD_VALUE, "selects no container"),
        ("adopt: {names: ['bad name']}", Code.BAD_VALUE, "'bad name' is not the name of a container"),
        ("adopt: {names: [web-1, web-1]}", Code.BAD_VALUE, "twice"),
        ("adopt: {label: {a: b}}", Code.UNKNOWN_FIELD, "cannot have a field 'label'"),
    ],
)
def test_an_adopt_that_selects_no_container_is_refused(tmp_path: Path, given, code, message):
    problems = problems_of(tmp_path, networked(given))
    assert any(problem.code is code and message in problem.message for problem in problems), problems


def test_only_runtimes_with_foreign_containers_can_adopt(tmp_path: Path):
    files = {**GOOD, "web.yaml": str(GOOD["web.yaml"]).replace("  replicas: 3\n", "  adopt: {names: [web-1]}\n")}
    (problem,) = problems_of(tmp_path, files)
    assert (problem.code, problem.path) == (Code.UNSUPPORTED_FIELD, "spec.adopt")


def test_a_template_with_several_containers_cannot_adopt(tmp_path: Path):
    files = networked("adopt: {names: [web-1]}")
    files["web.yaml"] = f"{files['web.yaml']}        - {{name: log, image: log}}\n"
    assert [problem.code for problem in problems_of(tmp_path, files)] == [Code.CONFLICT]
