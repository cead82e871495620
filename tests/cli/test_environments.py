"""Environments on the command line: each is an instance of its own, and no run gets the state of another one."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from manifests.load import Sources, read_sources
from manifests.problems import Code, ManifestErrors
from manifests.source.directory import SourceFile
from reconciler import tree as trees
from reconciler.intent import Intent
from reconciler.shell.clock import SystemClock
from reconciler.shell.store.database_file import FILE
from reconciler.start import StartManifests, archive_of, source_of, start_manifests
from tests.cli.test_approve import call
from tests.cli.test_saved_plan import INSTANCE, RECORD, ZONE

CHANGE = RECORD.partition("spec:")[0].replace("NAME", "www")


def of_environment(name: str, value: str) -> str:
    instance = f"apiVersion: reconciler/v1\nkind: Instance\nmetadata: {{name: here}}\nspec: {{id: {name}}}\n"
    zones = f"apiVersion: reconciler/v1\nkind: Provider\nmetadata: {{name: zone}}\nspec: {{settings: {{directory: DIRECTORY/{name}}}}}\n"
    return f"{instance}---\n{zones}---\n{CHANGE}spec: {{values: [{value}]}}\n"


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A base, and the environments `prod` and `staging`, each with a zone file."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    tree = tmp_path / "tree"
    for name, value in (("", "192.0.2.9"), ("prod", "192.0.2.1"), ("staging", "192.0.2.2")):
        (tmp_path / "zones" / name).mkdir(parents=True, exist_ok=True)
        (tmp_path / "zones" / name / "a.test.zone").write_text(ZONE)
        if name:
            (tree / "environments" / name).mkdir(parents=True)
            text = of_environment(name, value).replace("DIRECTORY", str(tmp_path / "zones"))
            (tree / "environments" / name / "all.yaml").write_text(text)
    (tree / "here.yaml").write_text(INSTANCE.replace("DIRECTORY", str(tmp_path / "zones")))
    (tree / "www.yaml").write_text(RECORD.replace("NAME", "www").replace("VALUE", "192.0.2.9"))
    return tmp_path


def published(world: Path) -> dict[str, bool]:
    """Which of the three values is in which zone."""
    zones = {name: (world / "zones" / name / "a.test.zone").read_text() for name in ("", "prod", "staging")}
    return {
        name: value in zones[name]
        for name, value in (("", "192.0.2.9"), ("prod", "192.0.2.1"), ("staging", "192.0.2.2"))
    }


def rename_instance(world: Path, name: str, instance: str) -> None:
    file = world / "tree" / "environments" / name / "all.yaml"
    file.write_text(file.read_text().replace(f"id: {name}", f"id: {instance}"))


def test_two_environments_run_beside_each_other(world):
    for name in ("prod", "staging"):
        assert call(world, "--once", "tree", "--env", name, "--timeout", "10s")[0] == 0
    assert published(world) == {"": False, "prod": True, "staging": True}
    assert sorted(path.parent.name for path in (world / "state" / "reconciler").glob(f"*/{FILE}")) == [
        "prod",
        "staging",
    ]
    code, output = call(world, "status", "tree", "--env", "prod", "-o", "json")
    document = json.loads(output)
    assert (code, document["instance"]) == (0, "prod")
    assert document["manifests"]["in_force"]["source"].endswith("?env=prod")
    code, output = call(world, "plan", "tree", "--env", "prod", "--detailed-exitcode")
    assert code == 0, output


@pytest.mark.parametrize("words", [["--env", "staging"], []])
@pytest.mark.parametrize("command", [["--once"], ["plan"], ["apply", "--yes"], ["--dry-run"]])
def test_an_environment_with_the_id_of_another_one_is_refused(world, words, command):
    assert call(world, "--once", "tree", "--env", "prod", "--timeout", "10s")[0] == 0
    rename_instance(world, "staging", "prod")
    here = world / "tree" / "here.yaml"
    here.write_text(here.read_text().replace("id: saving", "id: prod"))
    code, output = call(world, *command, "tree", *words)
    assert code == 3
    assert "instance 'prod' runs environment 'prod', and this run reads" in output
    assert "--env prod" in output
    assert published(world) == {"": False, "prod": True, "staging": False}


def test_another_state_directory_does_not_hide_the_other_environment(world):
    assert call(world, "--once", "tree", "--env", "prod", "--timeout", "10s", "--state-dir", "elsewhere")[0] == 0
    rename_instance(world, "staging", "prod")
    code, output = call(world, "--once", "tree", "--env", "staging", "--timeout", "10s")
    assert (code, "wrong-environment" in output) == (3, True)
    assert published(world)["staging"] is False


def test_an_operator_may_give_an_instance_to_another_environment(world):
    assert call(world, "--once", "tree", "--timeout", "10s")[0] == 0
    rename_instance(world, "prod", "saving")
    assert call(world, "--once", "tree", "--env", "prod", "--timeout", "10s")[0] == 3
    assert call(world, "--once", "tree", "--env", "prod", "--take-over", "--timeout", "10s")[0] == 0
    assert published(world)["prod"] is True
    assert call(world, "--once", "tree", "--env", "prod", "--timeout", "10s")[0] == 0, (
        "from then on it is this environment"
    )


def test_broken_manifests_never_lead_to_the_state_of_another_environment(world):
    assert call(world, "--once", "tree", "--env", "prod", "--timeout", "10s")[0] == 0
    (world / "tree" / "broken.yaml").write_text("a: [")
    for name, found in (("prod", "prod"), ("staging", None)):
        location = trees.Location(world / "tree", environment=name)
        if found is not None:
            assert start_manifests(location, SystemClock(), stored=True).desired.instance.id == found
            continue
        with pytest.raises(ManifestErrors):
            start_manifests(location, SystemClock(), stored=True)
        state = trees.state_dir("prod")
        with pytest.raises(ManifestErrors, match="runs environment 'prod'"):
            start_manifests(replace(location, state=state), SystemClock(), stored=True)
        assert call(world, "status", "tree", "--env", name)[0] == 3
    assert call(world, "status", "tree", "--env", "prod")[0] == 0


def test_a_running_process_keeps_its_environment(world):
    location, clock = trees.Location(world / "tree", environment="prod"), SystemClock()
    sources = location.read()
    start = StartManifests(trees.resolve(sources), sources)
    state = world / "state" / "reconciler" / "prod"
    state.mkdir(parents=True, mode=0o700)
    archive = archive_of(location, state, start, clock)
    assert archive.in_force(sources) == ""
    following = source_of(replace(location, environment="staging"), Intent(), start, state, archive, clock, follow=True)
    desired, messages = following.reread()
    assert desired is None
    assert "changed from 'prod' to 'staging'" in "\n".join(messages)


# --- trees of before ---------------------------------------------------------------------------------------------------


def of_before(world: Path) -> trees.Location:
    """A location whose manifests in force were read when `environments/` was a directory like any other."""
    location, clock = trees.Location(world / "tree"), SystemClock()
    sources = location.read()
    more = SourceFile(
        "environments/prod/api.yaml", RECORD.replace("NAME", "api").replace("VALUE", "192.0.2.8").encode()
    )
    tree = replace(sources.tree, files=(*sources.tree.files, more))
    before = Sources(replace(tree, revision=tree.digest()))
    state = world / "state" / "reconciler" / "saving"
    state.mkdir(parents=True, mode=0o700)
    archive = archive_of(location, state, StartManifests(trees.resolve(before), before), clock)
    assert archive.in_force(before) == ""
    return location


def test_objects_that_were_read_from_there_do_not_vanish(world):
    location = of_before(world)
    with pytest.raises(ManifestErrors) as raised:
        start_manifests(location, SystemClock(), stored=False)
    (problem,) = raised.value.problems
    assert (problem.code, problem.file) == (Code.WRONG_ENVIRONMENT, "environments/prod/api.yaml")
    assert call(world, "plan", "tree")[0] == 3
    start = start_manifests(location, SystemClock(), stored=True)
    assert sorted(record.name for record in start.desired.records) == ["api", "www"], (
        "a daemon goes on with what it has"
    )
    following = source_of(
        location, Intent(), start, world / "state/reconciler/saving", archive_of(location, world / "state/reconciler/saving", start, SystemClock()), SystemClock(), follow=True
    )  # fmt: skip
    (world / "tree" / "www.yaml").write_text(RECORD.replace("NAME", "www").replace("VALUE", "192.0.2.7"))
    desired, messages = following.reread()
    assert (desired, "read only with --env" in "\n".join(messages)) == (None, True)
    (world / "tree" / "environments").rename(world / "tree" / "elsewhere")
    for file in (world / "tree" / "elsewhere").rglob("*.yaml"):
        file.unlink()
    desired, _ = following.reread()
    assert desired is not None, "the directory has another name, so this is a change like any other"


# --- validate and render -----------------------------------------------------------------------------------------------


def test_validate_checks_the_base_one_environment_or_all(world):
    file = world / "tree" / "environments" / "staging" / "all.yaml"
    file.write_text(file.read_text().replace("values:", "valeus:"))
    assert call(world, "validate", "tree")[0] == 0
    assert call(world, "validate", "tree", "--env", "prod")[0] == 0
    code, output = call(world, "validate", "tree", "--env", "staging")
    assert (code, "environments/staging/all.yaml:14:8: unknown-field" in output) == (3, True), output
    code, output = call(world, "validate", "tree", "--all-envs")
    assert code == 3
    assert output.index("environment prod:\nvalid:") < output.index(
        "environment staging:\nenvironments/staging/all.yaml:14:8"
    )
    code, output = call(world, "validate", "tree", "--all-envs", "-o", "json")
    document = json.loads(output)
    assert (code, document["exit_code"], document["valid"], document["errors"]) == (3, 3, False, 1)
    assert {name: result["valid"] for name, result in document["environments"].items()} == {
        "prod": True,
        "staging": False,
    }
    assert call(world, "validate", "tree", "--all-envs", "--env", "prod")[0] == 64
    assert call(world, "validate", "zones", "--all-envs")[0] == 64


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["validate", "tree", "--env", "prdo"], 3, "did you mean 'prod'?"),
        (["validate", "tree", "--env", ""], 64, "the name of the environment is empty"),
        (["validate", "tree", "--env", "../tree"], 64, "is not the name of an environment"),
        (["validate", "tree/www.yaml", "--env", "prod"], 3, "one file has no environment"),
        (["status", "--env", "prod"], 64, "--env needs PATH"),
        (["render", "tree", "--env", "prdo"], 3, "did you mean 'prod'?"),
        (["render"], 64, "PATH is missing"),
    ],
)
def test_a_wrong_environment_is_refused(world, words, code, said):
    done = call(world, *words)
    assert (done[0], said in done[1]) == (code, True), done


def test_render_shows_what_a_run_would_read(world):
    code, output = call(world, "render", "tree", "--env", "prod")
    assert code == 0
    assert f"  directory: {world}/zones/prod  # environments/prod/all.yaml:9" in output.replace(
        "    directory", "  directory"
    ), output
    (world / "again").mkdir()
    (world / "again" / "all.yaml").write_text(output)
    again, desired = read_sources(world / "again"), read_sources(world / "tree", environment="prod")
    assert trees.resolve(again).records[0].values == trees.resolve(desired).records[0].values == ("192.0.2.1",)
    document = json.loads(call(world, "render", "tree", "--env", "prod", "-o", "json")[1])
    assert (document["exit_code"], document["environment"]) == (0, "prod")
    (record,) = (item for item in document["objects"] if item["key"] == "record/www")
    assert record["manifest"]["spec"]["values"] == ["192.0.2.1"]
    assert record["origins"]["spec.values[0]"] == {"file": "environments/prod/all.yaml", "line": 14, "column": 17}
    assert record["origins"]["spec.host"]["file"] == "www.yaml"
    (world / "tree" / "www.yaml").write_text("a: [")
    code, output = call(world, "render", "tree", "--env", "prod")
    assert (code, "yaml-syntax" in output) == (3, True)
