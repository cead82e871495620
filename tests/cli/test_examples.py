"""Every directory below examples/ that holds manifests is valid and can be planned, whatever runs on this machine."""

import shutil
from pathlib import Path
from uuid import uuid4

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted(
    {file.parent for file in (ROOT / "examples").rglob("*.yaml") if "apiVersion: reconciler/" in file.read_text()}
)

CONFINED = sorted(local.parent for local in (ROOT / "examples").glob("*/local"))
"""Examples whose local documents stand beside the manifests of a repository."""
EXAMPLES = [example for example in EXAMPLES if example.parent not in CONFINED and example.parent.name != "environments"]

CONFINED = sorted(local.parent for local in (ROOT / "examples").glob("*/local"))
"""Examples whose local documents stand beside the manifests of a repository."""
EXAMPLES = [example for example in EXAMPLES if example.parent not in CONFINED]


def test_there_are_examples():
    assert {"quickstart", "edge"} <= {path.name for path in EXAMPLES}
    assert "confined" in {path.name for path in CONFINED}


@pytest.mark.parametrize("example", CONFINED, ids=lambda path: path.name)
def test_an_example_with_local_documents_is_valid_beside_them_only(example: Path, tmp_path: Path, reconcile):
    manifests, local = tmp_path / "manifests", tmp_path / "local"
    shutil.copytree(example / "manifests", manifests)
    shutil.copytree(example / "local", local)
    for copied in (local, *local.rglob("*")):
        copied.chmod(0o700 if copied.is_dir() else 0o600)  # a checkout may be writable by its group

    valid = reconcile("validate", manifests, "--instance", local)
    assert valid.code == 0, valid.out + valid.err
    assert reconcile("validate", manifests).code == 3
    planned = reconcile("plan", manifests, "--instance", local, "--untrusted")
    assert planned.code in (0, 6), planned.out + planned.err  # 6: a server of the local documents does not run here
    if not (ROOT / ".git").exists():
        return
    # In the repository itself, an author who can merge could change them.
    refused = reconcile("validate", example / "manifests", "--instance", example / "local")
    assert refused.code == 3
    assert "unsafe-local" in refused.out


def test_each_environment_of_the_example_is_valid_and_shown(reconcile):
    example = ROOT / "examples" / "environments"
    done = reconcile("validate", example, "--all-envs")
    assert done.code == 0, done.out
    shown = reconcile("render", example, "--env", "prod").out
    assert "value: warning  # environments/prod/web.yaml:11" in shown
    assert "TRACE" not in shown


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_an_example_is_valid_and_planned(example: Path, tmp_path: Path, reconcile):
    copy = tmp_path / "manifests"
    shutil.copytree(example, copy)
    (instance,) = [file for file in copy.glob("*.yaml") if "kind: Instance" in file.read_text()]
    text = instance.read_text()
    # An installation that never ran: what a demo on this machine has made is not its own.
    instance.write_text(text.replace(f"\n  id: {example.name}\n", f"\n  id: t{uuid4().hex[:8]}\n"))
    assert instance.read_text() != text

    valid = reconcile("validate", copy)
    assert valid.code == 0, valid.out + valid.err

    planned = reconcile("plan", copy, "-o", "json")
    assert planned.code in (0, 6), planned.out + planned.err  # 6: a server that it names does not run here
    plan = planned.document
    created = {step["object"] for step in plan["steps"] if step["kind"] == "CreateContainer"}
    unseen = [hold for hold in plan["holds"] if hold["rule"] == "RuntimeUnknown"]
    runs = any("kind: Workload" in file.read_text() for file in copy.glob("*.yaml"))
    assert len(created) == (3 if runs else 0) or unseen, plan
    assert (planned.code == 6) == any(hold["rule"].endswith("Unknown") for hold in plan["holds"]), plan
