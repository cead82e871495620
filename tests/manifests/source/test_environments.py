"""The files of environments: which are read, what the revision covers, and what is refused."""

from pathlib import Path

import pytest

from manifests.load import read_sources
from manifests.problems import Code
from manifests.source.directory import read_tree
from manifests.values.source_identity import environment_of, same_set
from tests.manifests.trees import GOOD, RECORD, load_path, write

PROD = RECORD.replace("values: [10 mail.example.com]", "values: [10 prod.example.com]")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    more = {
        "environments/prod/web.yaml": PROD,
        "environments/prod/deep/x.yml": "",
        "environments/staging/web.yaml": PROD,
    }
    return write(tmp_path / "tree", {**GOOD, "mail.yaml": RECORD, **more})


def names(tree: Path, environment: str = "") -> list[str]:
    return [
        file.name for file in read_tree(tree, environment=environment).files if file.name.startswith("environments")
    ]


def test_only_the_chosen_environment_is_read(tree):
    assert names(tree) == []
    assert names(tree, "prod") == ["environments/prod/deep/x.yml", "environments/prod/web.yaml"]
    assert read_tree(tree).environments == ("prod", "staging")
    write(tree, {"sub/environments/a.yaml": ""})
    assert "sub/environments/a.yaml" in [file.name for file in read_tree(tree).files], "only the directory below PATH"


def test_the_revision_covers_the_environment_and_no_other_one(tree):
    base, prod, staging = (read_tree(tree, environment=name).revision for name in ("", "prod", "staging"))
    assert len({base, prod, staging}) == 3
    write(tree, {"environments/prod/web.yaml": PROD + "#"})
    assert read_tree(tree, environment="prod").revision != prod
    assert [read_tree(tree, environment=name).revision for name in ("", "staging")] == [base, staging]


def test_an_empty_environment_changes_nothing(tree):
    (tree / "environments/empty").mkdir()
    assert read_tree(tree, environment="empty").revision == read_tree(tree).revision
    assert load_path(tree, environment="empty").records == load_path(tree).records


def test_an_environment_is_a_set_of_its_own(tree):
    identities = [read_tree(tree, environment=name).identity for name in ("", "prod", "staging")]
    assert not any(same_set(one, other) for one in identities for other in identities if one is not other)
    assert [environment_of(identity) for identity in identities] == ["", "prod", "staging"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("prdo", ("there is no environment 'prdo'", "did you mean 'prod'?\nenvironments: prod, staging")),
        ("x", ("there is no environment 'x'", "environments: prod, staging")),
        ("../prod", ("there is no environment '../prod'", "did you mean 'prod'?\nenvironments: prod, staging")),
    ],
)
def test_an_unknown_environment_is_refused_with_the_known_ones(tree, name, said):
    problems = read_tree(tree, environment=name).problems
    assert [(problem.code, problem.message, problem.hint) for problem in problems] == [(Code.WRONG_ENVIRONMENT, *said)]


def test_a_tree_without_environments_and_a_file_have_none(tmp_path):
    write(tmp_path, GOOD)
    for path in (tmp_path, tmp_path / "web.yaml"):
        (problem,) = read_tree(path, environment="prod").problems
        assert problem.code is Code.WRONG_ENVIRONMENT


def test_a_link_is_no_environment(tree):
    (tree / "environments/alias").symlink_to("prod")
    assert read_tree(tree).problems == ()
    (problem,) = read_tree(tree, environment="alias").problems
    assert (problem.code, "is a link" in problem.message) == (Code.WRONG_ENVIRONMENT, True)
    (tree / "environments").rename(tree / "other")
    (tree / "environments").symlink_to("other")
    assert [problem.code for problem in read_tree(tree).problems] == [Code.WRONG_ENVIRONMENT]


def test_a_file_of_an_environment_may_not_lead_out_of_the_tree(tree, tmp_path):
    (tmp_path / "secret.yaml").write_text(RECORD)
    (tree / "environments/prod/out.yaml").symlink_to(tmp_path / "secret.yaml")
    assert [problem.code for problem in read_tree(tree, environment="prod").problems] == [Code.LINK_LEAVES_TREE]
    assert read_tree(tree, environment="staging").problems == ()


def test_a_file_in_no_environment_is_a_problem_and_other_files_are_none(tree):
    write(tree, {"environments/README.md": "#", "environments/prod.yaml": PROD})
    assert [problem.file for problem in read_tree(tree).problems] == ["environments/prod.yaml"]


def test_the_files_of_an_environment_may_mount_files_of_the_tree(tree):
    mount = (
        "apiVersion: reconciler/v1\nkind: Workload\nmetadata: {name: web}\n"
        "spec: {template: {spec: {volumes: [{name: conf, files: {from: environments/prod/conf}}]}}}\n"
    )
    write(tree, {"environments/prod/conf/app.yaml": "a: 1\n", "environments/prod/mount.yaml": mount})
    read = read_tree(tree, environment="prod")
    assert [item.path for item in read.sets] == ["environments/prod/conf"]
    assert "environments/prod/conf/app.yaml" not in [file.name for file in read.files]


def test_local_documents_say_the_environment_of_the_host(tree, tmp_path):
    local = tmp_path / "local" / "instance.yaml"
    text = "apiVersion: reconciler/v1\nkind: Instance\nmetadata: {name: this}\nspec: {id: a, source: {url: 'git+file:///r.git', env: prod}}\n"
    write(local.parent, {local.name: text})
    local.chmod(0o600)
    assert read_sources(tree, local).tree.environment == "prod"
    assert read_sources(tree, local, "prod").problems == ()
    (problem,) = read_sources(tree, local, "staging").problems
    assert (problem.code, problem.file) == (Code.WRONG_ENVIRONMENT, str(local))
    local.write_text(text.replace("prod", "staging"))
    assert read_sources(tree, local).tree.environment == "staging", "it is read again"
    local.write_text(text.replace("env: prod", "env: ../x"))
    assert read_sources(tree, local).tree.environment == ""
