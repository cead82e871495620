"""The workflows of examples/gitops do what they say: a small runner takes their steps from the files and runs them in order.

The host, the repository and its transports are real; the forge is a server on loopback that speaks its API, and `sudo` is a stand-in that
checks its words and passes nothing of the job's environment on. What a forge itself decides (which workflow it starts, with which token)
is not shown here.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from ruamel.yaml import YAML

from manifests.values.notices import ForgeType
from tests.e2e.test_git_source import PATIENCE, ROOT, SENTINEL, SERVE, WEB, Host, eventually, sshd
from tests.forge.fake_forge import PROJECT, TOKEN, Repository, serving
from tests.git.upstream import CERTIFICATE, git, served

EXAMPLE = ROOT / "examples/gitops"
WORKFLOWS = sorted(EXAMPLE.glob(".*/workflows/*.yaml"))
RECONCILE = Path(sys.executable).with_name("reconcile")
DIALECTS = {".github": ForgeType.GITHUB, ".forgejo": ForgeType.GITEA}
NUMBER = 7

SUDO = """\
#!/bin/sh
# Stands in for sudo: only the one command of reconcile-ci.sudoers, as the one user, with none of the job's variables.
[ "$1 $2 $3 $4 $5" = "-n -H -u reconcile /usr/local/bin/reconcile-ci" ] || { echo "sudo: a password is required" >&2; exit 1; }
shift 5
exec env -i PATH=/usr/bin:/bin XDG_STATE_HOME=%s %s "$@"
"""
PRIVATE = re.compile(r"\$\{\{\s*(.+?)\s*\}\}")


def workflow(file: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = YAML(typ="safe", pure=True).load(file)
    return loaded


class Ended(NamedTuple):
    """How a job ended: whether every step succeeded, and what they printed."""

    succeeded: bool
    out: str


class Runner:
    """Runs jobs of workflows on the host, as the user of a runner would. A key or expression that it does not know fails the test."""

    def __init__(self, host: Host, address: str) -> None:
        self.host, self.base = host, host.base / "runner"
        (self.base / "bin").mkdir(parents=True)
        script = (EXAMPLE / "host/reconcile-ci").read_text()
        for name, value in (("reconcile", RECONCILE), ("documents", host.local), ("repository", address)):
            script, count = re.subn(rf"(?m)^{name}=.+$", f"{name}='{value}'", script)
            assert count == 1, name
        self.script = self._program("reconcile-ci", script)
        self._program("sudo", SUDO % (host.home, self.script))

    def _program(self, name: str, text: str) -> Path:
        file = self.base / "bin" / name
        file.write_text(text)
        file.chmod(0o755)
        return file

    def run(self, file: Path, github: dict[str, Any], server: str = "") -> Ended:
        """Run the only job of a workflow for an event."""
        content = workflow(file)
        (job,) = content["jobs"].values()
        assert set(job) <= {"runs-on", "timeout-minutes", "permissions", "env", "steps"}, set(job)
        temporary = self.base / "temporary"
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        env = {
            "PATH": f"{self.base / 'bin'}:/usr/bin:/bin",
            "HOME": str(self.base),
            "RUNNER_TEMP": str(temporary),
            "GITHUB_SERVER_URL": server,
            "GITHUB_REPOSITORY": PROJECT,
            **self._filled(content.get("env", {}), github),
            **self._filled(job.get("env", {}), github),
        }
        succeeded, out = True, ""
        for step in job["steps"]:
            assert set(step) <= {"name", "if", "env", "run"}, set(step)
            assert step.get("if", "always()") == "always()"
            if not succeeded and "if" not in step:
                continue
            lines = temporary / "step.sh"
            lines.write_text(step["run"].replace("/opt/reconciler/bin/reconcile", str(RECONCILE)))
            done = subprocess.run(
                ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(lines)],
                cwd=temporary, env={**env, **self._filled(step.get("env", {}), github)},
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=PATIENCE, check=False,
            )  # fmt: skip
            succeeded, out = (
                succeeded and done.returncode == 0,
                f"{out}{done.stdout}[{step['name']}: {done.returncode}]\n",
            )
        return Ended(succeeded, out)

    @staticmethod
    def _filled(env: dict[str, Any], github: dict[str, Any]) -> dict[str, str]:
        def value(match: re.Match[str]) -> str:
            found: Any = {"github": github}
            for part in match[1].split("."):
                found = found[part]
            return str(found)

        return {name: PRIVATE.sub(value, str(text)) for name, text in env.items()}

    def ci(self, *words: str) -> tuple[int, str]:
        done = subprocess.run(
            [str(self.script), *words], env={"PATH": "/usr/bin:/bin", "XDG_STATE_HOME": str(self.host.home)},
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE, check=False,
        )  # fmt: skip
        return done.returncode, done.stdout + done.stderr


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    made = Host(tmp_path)
    yield made
    made.run("destroy", "--instance-id", made.id, "--yes")


@pytest.fixture
def runner(host: Host) -> Runner:
    return Runner(host, f"{host.upstream.url}//set")


@pytest.fixture(params=[pytest.param(name, id=name.strip(".")) for name in DIALECTS])
def place(request: pytest.FixtureRequest) -> Path:
    return EXAMPLE / request.param / "workflows"


def event(commit: str) -> dict[str, Any]:
    """What a forge says of a pull request from a fork, with texts that its author chose."""
    hostile = '$(touch owned)`touch owned`"; touch owned; #${{ github.token }}'
    pull = {"head": {"sha": commit, "ref": hostile}, "number": NUMBER, "title": hostile, "body": hostile}
    return {"event": {"pull_request": pull, "number": NUMBER}, "token": TOKEN, "head_ref": hostile}


def from_fork(host: Host, files: dict[str, str | None]) -> str:
    """A commit that only the ref of a pull request names, as forges keep those of forks."""
    base = git("rev-parse", "HEAD", at=host.upstream.work)
    for name, content in files.items():
        path = host.upstream.work / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink() if content is None else path.write_text(content)
    git("add", "-A", at=host.upstream.work)
    git("commit", "-q", "-m", "from a fork", at=host.upstream.work)
    commit = git("rev-parse", "HEAD", at=host.upstream.work)
    host.upstream.push(f"HEAD:refs/pull/{NUMBER}/head")
    git("reset", "-q", "--hard", base, at=host.upstream.work)
    return commit


def comments(repository: Repository) -> list[str]:
    return [comment["body"] for comment in repository.comments.get(NUMBER, [])]


# --- what the files say ----------------------------------------------------------------------------------------------


def test_there_are_workflows_for_both_kinds_of_forges():
    names = {str(file.relative_to(EXAMPLE)) for file in WORKFLOWS}
    assert names == {
        f"{place}/workflows/{name}.yaml" for place in DIALECTS for name in ("apply", "drift", "plan", "wait")
    }


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: f"{file.parts[-3]}-{file.stem}")
def test_a_workflow_gives_no_right_that_it_does_not_need(file: Path):
    content, text = workflow(file), file.read_text()
    assert content["permissions"] == {}
    assert content["defaults"] == {"run": {"shell": "bash"}}
    assert "secrets." not in text
    for job in content["jobs"].values():
        assert job["timeout-minutes"] <= 30
        for step in job["steps"]:
            assert "${{" not in step["run"]  # a text of an event would be a part of the command
            assert re.fullmatch(r"[^@]+@[0-9a-f]{40}", step.get("uses", f"x@{'0' * 40}"))
    if "pull_request_target" in content["on"]:
        steps = [step for job in content["jobs"].values() for step in job["steps"]]
        assert not [step for step in steps if "uses" in step]  # nothing is checked out beside a token that may write
        assert [job["permissions"] for job in content["jobs"].values()] == [{"pull-requests": "write"}]
        assert [step["name"] for step in steps if "FORGE_TOKEN" in step.get("env", {})] == ["Comment"]
        assert not any("reconcile-ci" in step["run"] for step in steps if "env" in step)
    else:
        assert "pull_request" not in content["on"]  # a fork could change such a workflow, and run it on the host
        assert "token" not in text


@pytest.mark.parametrize("name", ["plan", "apply", "drift", "wait"])
def test_both_kinds_of_forges_run_the_same_steps(name: str):
    jobs = [workflow(EXAMPLE / place / "workflows" / f"{name}.yaml")["jobs"] for place in DIALECTS]
    texts = [
        json.dumps([job["steps"] for job in found.values()]).replace("--forge github", "--forge gitea")
        for found in jobs
    ]
    assert texts[0] == texts[1]


def test_sudo_gives_the_runner_one_command_without_its_variables():
    rules = [
        line for line in (EXAMPLE / "host/reconcile-ci.sudoers").read_text().splitlines() if not line.startswith("#")
    ]
    assert rules == [
        "Defaults:ci env_reset, !setenv",
        "ci ALL=(reconcile) NOPASSWD: /usr/local/bin/reconcile-ci",
    ]


# --- what they do ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        (), ("plan",), ("plan", ""), ("plan", "main"), ("plan", "a" * 39), ("plan", "A" * 40), ("plan", f"{'a' * 40}\n{'b' * 23}"),
        ("plan", "--instance=/tmp/x"), ("plan", "a" * 40, "--once"), ("apply", "HEAD"),
        ("wait", "HEAD"), ("drift", "--prune"), ("--once",),
        ("apply",), ("plan 2",), ("destroy", "a" * 40), ("plan", f"{'a' * 39}*"), ("plan", "$(touch owned)"), ("plan", "é" * 20),
    ],
)  # fmt: skip
def test_a_job_gets_nothing_but_these_four_commands(runner: Runner, words: tuple[str, ...]):
    code, out = runner.ci(*words)
    assert (code, out.startswith("reconcile-ci: ")) == (64, True)
    assert not runner.host.home.exists()


def test_a_pull_request_of_a_fork_is_commented_and_runs_nothing(place: Path, runner: Runner, host: Host):
    assert host.here("--once")[0] == 0
    marker = host.base / "ran"
    stranger = (WEB % "two").replace('"two"', f'"two", "{marker}"')
    commit = from_fork(
        host,
        {
            "set/web.yaml": f"{stranger}          livenessProbe: {{exec: {{command: [touch, '{marker}']}}}}\n",
            ".gitattributes": "* filter=evil\n",
            "set/.reconcile-ci": "x",
        },
    )
    with serving(DIALECTS[place.parent.name]) as repository:
        ended = runner.run(place / "plan.yaml", event(commit), repository.url)
        assert ended.succeeded, ended.out
        (comment,) = comments(repository)
        assert comment.startswith(f"<!-- reconcile plan of instance {host.id} -->\n")
        assert f"at commit {commit}" in comment
        assert "`~ containers[web].command (forces a new container)`" in comment
        assert str(marker) not in comment  # names, no values

        # The next push is invalid: the job fails, and the comment says why in place of the plan that does not hold any more.
        wrong = from_fork(host, {"set/web.yaml": f"{WEB % 'two'}colour: red\n"})
        ended = runner.run(place / "plan.yaml", event(wrong), repository.url)
        assert not ended.succeeded
        (comment,) = comments(repository)
        assert "No plan for" in comment
        assert "web.yaml:13:1: unknown-field" in comment
        assert wrong in comment
        assert {row[2].get("authorization", "")[-len(TOKEN) :] for row in repository.seen} == {TOKEN}
    assert TOKEN not in ended.out
    assert not marker.exists()
    assert not list(runner.base.rglob("owned"))
    assert host.running() == ["one"]


def test_a_commit_number_that_is_none_is_no_command(place: Path, runner: Runner, host: Host):
    with serving(DIALECTS[place.parent.name]) as repository:
        ended = runner.run(place / "plan.yaml", event("$(touch owned); touch owned"), repository.url)
        assert not ended.succeeded
        assert comments(repository) == []
    assert "not a whole commit number" in ended.out or "other characters" in ended.out
    assert not list(runner.base.rglob("owned"))


@pytest.mark.parametrize("transport", ["https", pytest.param("ssh", marks=pytest.mark.server("sshd"))])
def test_a_plan_is_made_over_the_transports_of_forges(host: Host, transport: str):
    commit = from_fork(host, {"set/web.yaml": WEB % "two"})
    with ExitStack() as stack:
        if transport == "https":
            token = host.base / "token"
            token.write_text(SENTINEL)
            token.chmod(0o600)
            address = f"{stack.enter_context(served(host.base, SENTINEL)).url}//set"
            host.declare(f"url: '{address}?ref=main', token: {{file: {token}}}, caFile: {CERTIFICATE}")
        else:
            port, key, known = stack.enter_context(sshd(host.base))
            user = subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip()
            address = f"git+ssh://{user}@127.0.0.1:{port}{host.upstream.bare}//set"
            host.declare(f"url: '{address}?ref=main', sshKey: {{file: {key}}}, knownHosts: {known}")
        runner = Runner(host, address)
        repository = stack.enter_context(serving(ForgeType.GITEA))
        ended = runner.run(EXAMPLE / ".forgejo/workflows/plan.yaml", event(commit), repository.url)
        assert ended.succeeded, ended.out
        (comment,) = comments(repository)
        assert "create" in comment
        assert SENTINEL not in ended.out + comment


@pytest.mark.server("ssh-keygen")
def test_a_commit_without_the_signature_of_the_policy_has_no_plan(runner: Runner, host: Host):
    key = host.base / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    host.declare(f"url: '{host.upstream.url}//set?ref=main', verify: {{mode: head, keys: [{{ssh: {key}.pub}}]}}")
    commit = from_fork(host, {"set/web.yaml": WEB % "two"})
    with serving(ForgeType.GITHUB) as repository:
        ended = runner.run(EXAMPLE / ".github/workflows/plan.yaml", event(commit), repository.url)
        assert not ended.succeeded
        (comment,) = comments(repository)
    assert comment.startswith(f"<!-- reconcile plan of instance {host.id} -->\n### No plan for")
    assert "source-unverified" in comment
    assert commit[:12] in comment
    assert "(exit 8)" in comment


def test_a_push_is_applied_and_a_broken_one_changes_nothing(place: Path, runner: Runner, host: Host):
    first = git("rev-parse", "HEAD", at=host.upstream.work)
    ended = runner.run(place / "apply.yaml", {"sha": first})
    assert ended.succeeded, ended.out
    assert host.running() == ["one"]
    second = host.upstream.commit({"set/web.yaml": WEB % "two"})
    assert runner.run(place / "apply.yaml", {"sha": second}).succeeded
    assert host.running() == ["two"]
    # A job of an older commit that is run again does not go back.
    ended = runner.run(place / "apply.yaml", {"sha": first})
    assert ended.succeeded, ended.out
    assert "not the newest one any more" in ended.out
    assert host.running() == ["two"]
    broken = host.upstream.commit({"set/web.yaml": "kind: [\n"})
    ended = runner.run(place / "apply.yaml", {"sha": broken})
    assert not ended.succeeded
    assert "Apply: 3" in ended.out
    assert host.running() == ["two"]


def test_a_pipeline_waits_for_the_daemon(place: Path, runner: Runner, host: Host):
    with host.daemon():
        first = git("rev-parse", "HEAD", at=host.upstream.work)
        eventually(lambda: host.running() == ["one"])
        ended = runner.run(place / "wait.yaml", {"sha": first})
        assert ended.succeeded, ended.out
        broken = host.upstream.commit({"set/web.yaml": "kind: [\n"})
        ended = runner.run(place / "wait.yaml", {"sha": broken})
        assert not ended.succeeded
        assert "Wait: 8" in ended.out
        assert host.running() == ["one"]


def test_drift_fails_the_job_and_is_listed(place: Path, runner: Runner, host: Host):
    local = host.local / "host.yaml"
    local.write_text(
        f"{local.read_text()}---\napiVersion: reconciler/v1\nkind: Provider\nmetadata: {{name: pool}}\nspec: {{type: file}}\n"
    )
    web = (WEB % "one").replace("  template:\n    spec:", "  template:\n    metadata: {labels: {app: web}}\n    spec:")
    service = (
        "---\napiVersion: reconciler/v1\nkind: Service\nmetadata: {name: web}\n"
        "spec: {selector: {app: web}, port: http, balancers: [{provider: pool, pool: web}]}\n"
    )
    ports = "          ports: [{name: http, containerPort: 8080}]\n"
    commit = host.upstream.commit({"set/web.yaml": f"{web}{ports}{service}", "set/app/serve.py": SERVE})
    assert runner.run(place / "apply.yaml", {"sha": commit}).succeeded
    ended = runner.run(place / "drift.yaml", {})
    assert ended.succeeded, ended.out
    assert "no drift" in ended.out
    pool = host.home / "reconciler" / host.id / "pools/web.json"
    pool.write_text(re.sub(r'"weight": *100', '"weight": 37', pool.read_text()))
    ended = runner.run(place / "drift.yaml", {})
    assert not ended.succeeded
    assert "Drift: 2" in ended.out
    assert "37" in ended.out


def test_the_runner_fails_for_what_it_does_not_know(runner: Runner, tmp_path: Path):
    """Else a step that only a forge can run would count as shown."""
    file = tmp_path / "w.yaml"
    for step in ("{name: x, uses: actions/checkout@v4}", "{name: x, run: 'true', if: 'success()'}"):
        file.write_text(f"jobs: {{a: {{runs-on: x, steps: [{step}]}}}}\n")
        with pytest.raises(AssertionError):
            runner.run(file, {})
    file.write_text("jobs: {a: {runs-on: x, env: {A: '${{ secrets.X }}'}, steps: [{name: x, run: 'true'}]}}\n")
    with pytest.raises(KeyError):
        runner.run(file, {})
    assert os.access(RECONCILE, os.X_OK)
