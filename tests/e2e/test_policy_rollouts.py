"""Image policies that roll out without a commit, with the real program on a real engine, registry and repository."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from manifests.values.image_choice import ImageChoice
from reconciler.shell.store import image_choices
from tests.e2e.policy_world import PolicyHost
from tests.e2e.test_git_source import eventually
from tests.git.upstream import git
from tests.providers.runtime.docker.registry import RegistryServer

pytestmark = [pytest.mark.server("dockerd"), pytest.mark.server("docker-registry")]


@pytest.fixture
def host(engine: str, tmp_path: Path) -> Iterator[PolicyHost]:
    """A host whose manifest has version 1.0.0, which the registry has."""
    with RegistryServer(tmp_path / "registry", engine) as registry:
        made = PolicyHost(tmp_path, engine, registry)
        try:
            made.publish("1.0.0")
            made.write("1.0.0")
            yield made
        finally:
            made.close()


def wait(host: PolicyHost, commit: str) -> tuple[int, str]:
    code, out = host.here("wait", "--commit", commit, "--timeout", "30s", "-o", "json")
    return code, json.loads(out[out.index("{") :])["state"]


def test_a_newer_image_rolls_out_without_a_commit_and_says_its_origin(host: PolicyHost) -> None:
    host.publish("1.1.0")
    head = git("rev-parse", "HEAD", at=host.upstream.work)
    with host.daemon():
        eventually(lambda: host.serves("1.1.0"))
        assert host.choice()["origin"] == "image policy"
        assert wait(host, head) == (0, "applied")
        host.registry.stop()  # unknown: nothing changes
        code, plan = host.here("plan")
        assert (code, "containers[web].image" in plan) == (0, False), plan
        _, status = host.here("status")
        assert f"{host.image('1.1.0')} by its image policy (semver 1.x)" in status
        assert f"the manifest has {host.image('1.0.0')}" in status
        _, events = host.run("events", "--instance-id", host.id, "-o", "json")
    assert git("rev-parse", "main", at=host.upstream.bare) == head
    rows = json.loads(events[events.index("{") :])["events"]
    fields = [field for row in rows for field in row["fields"] if row["commit"] is None]
    assert {"field": "containers[web].image", "where": "image policy"} in fields, events[-3000:]


def test_an_image_that_is_never_ready_is_taken_back_and_not_tried_again(host: PolicyHost) -> None:
    head = git("rev-parse", "HEAD", at=host.upstream.work)
    host.publish("1.1.0", "-quiet")
    with host.killed():
        eventually(lambda: host.serves("1.0.0"))
        before = host.containers()
        eventually(lambda: host.stored().get("taken_back") and not host.stored()["image"])
        eventually(lambda: host.choice().get("taken_back"))
        assert host.containers().items() >= before.items(), "what served was never touched"
        assert wait(host, head) == (0, "applied")
    _, status = host.here("status")
    assert f"{host.image('1.1.0')} was taken back" in status
    assert host.stored()["taken_back"][0][0] == host.image("1.1.0")


def test_a_killed_daemon_goes_on_with_a_choice_that_was_held(host: PolicyHost) -> None:
    host.publish("1.1.0")
    host.allow("rollout", guard="suspendCommits: true")
    with host.killed():
        eventually(lambda: host.stored().get("image") == host.image("1.1.0"))
        eventually(lambda: any("suspends new commits" in hold["message"] for hold in host.status()["holds"]))
        assert host.serves("1.0.0"), "what holds new commits holds what a policy chose"
    host.allow("rollout")
    with host.daemon():
        eventually(lambda: host.serves("1.1.0"))
    assert host.stored()["image"] == host.image("1.1.0")


def test_an_image_that_an_operator_rolls_back_is_not_chosen_again(host: PolicyHost) -> None:
    host.publish("1.1.0")
    with host.daemon():
        eventually(lambda: host.serves("1.1.0"))
        assert host.here("rollback", "workload/web", "--reason", "too slow")[0] == 0
        eventually(lambda: host.serves("1.0.0") and not host.stored()["image"])
    assert host.stored()["taken_back"][0][0] == host.image("1.1.0")
    assert "too slow" in host.stored()["taken_back"][0][1]


def test_a_plan_shows_the_origin_and_a_saved_plan_is_about_the_choice(host: PolicyHost, tmp_path: Path) -> None:
    host.publish("1.1.0")
    assert host.here("--once")[0] == 0
    assert host.serves("1.0.0"), "a single run asks no registry"
    state, saved = host.home / "reconciler" / host.id, tmp_path / "saved.plan"
    choice = ImageChoice("workload/web", "web", host.image("1.0.0"), host.image("1.1.0"), "semver 1.x", "newer", 1)
    image_choices.save(state, [choice])
    change = f"containers[web].image: {host.image('1.0.0')}"
    code, text = host.here("plan", "--out", str(saved))
    assert code == 0, text
    line = next(line for line in text.splitlines() if change in line)
    assert line.endswith("by image policy"), line
    _, shown = host.here("plan", "-o", "json")
    assert '"where": "image policy"' in shown
    # Another choice: the saved plan is about manifests that are not there any more.
    image_choices.save(state, [replace(choice, image=host.image("1.2.0"))])
    code, stale = host.here("apply", "--plan", str(saved), "--yes")
    assert (code, "image policy of workload/web, container web changed" in stale) == (4, True), stale
    image_choices.save(state, [choice])
    code, applied = host.here("apply", "--plan", str(saved), "--yes")
    assert code == 0, applied
    assert host.serves("1.1.0")
