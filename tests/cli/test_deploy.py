"""`reconcile deploy`: the edit of the file, refusals, and the JSON result."""

import subprocess
from datetime import UTC, datetime

import pytest

from manifests.types.moments import parse_moment
from reconciler.shell.clock import SystemClock

FILE = """\
# The shop. Ask Ada before you change the port.
apiVersion: reconciler/v1
kind: Workload
metadata: {name: shop}
spec:
  replicas: 2   # one per zone
  nodes: [engine]
  template:
    metadata: {labels: {app: shop}}
    spec:
      containers:
        - name: shop
          image: registry.test:5000/shop:1.4   # the release job writes this
        - {name: log, image: "log:2"}
  rollout:
    # not during the day
    activateAt: "2030-01-31T22:00:00+01:00"
"""
ENGINE = """\
---
apiVersion: reconciler/v1
kind: Provider
metadata: {name: engine}
spec: {type: docker}
"""


@pytest.fixture
def shop(tree):
    """The shop beside the small tree; its file."""
    (tree / "engine.yaml").write_text(ENGINE)
    web = (tree / "all.yaml").read_text().replace("  replicas: 2\n", "  replicas: 2\n  nodes: [local]\n")
    (tree / "all.yaml").write_text(web)
    file = tree / "shop.yaml"
    file.write_text(FILE)
    return file


def deploy(reconcile, shop, *words):
    return reconcile("deploy", "workload/shop", shop.parent, "--container", "shop", *words)


def test_only_the_image_changes_and_the_answer_names_revision_and_time(shop, reconcile):
    shop.chmod(0o640)
    done = deploy(reconcile, shop, "--image", "registry.test:5000/shop:1.5", "-o", "json")
    assert done.code == 0, done.err
    assert shop.read_text() == FILE.replace("shop:1.4", "shop:1.5")
    assert shop.stat().st_mode & 0o777 == 0o640
    document = done.document
    assert document["success"] is True
    assert document["activation_time"] == "2030-01-31T21:00:00Z"
    assert len(document["revision"]) == 16
    assert document["message"] == "activated at 2030-01-31T21:00:00Z at the earliest"
    assert (document["changed"], document["next_step"]) == (True, None)
    assert [file.name for file in shop.parent.iterdir() if file.name.startswith(".")] == []


def test_the_same_image_again_changes_nothing_and_says_so(shop, reconcile):
    before = shop.stat()
    done = deploy(reconcile, shop, "--image", "registry.test:5000/shop:1.4")
    assert done.code == 0
    assert "is already up to date" in done.out
    assert (shop.stat().st_ino, shop.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_only_another_time_keeps_the_revision(shop, reconcile):
    words = ("--image", "registry.test:5000/shop:1.4", "-o", "json")
    first = deploy(reconcile, shop, *words).document
    later = deploy(reconcile, shop, *words, "--activate-at", "2031-01-01T00:00:00Z").document
    assert later["revision"] == first["revision"]
    assert later["activation_time"] == "2031-01-01T00:00:00Z"
    assert shop.read_text() == FILE.replace("2030-01-31T22:00:00+01:00", "2031-01-01T00:00:00Z")


def test_a_delay_takes_the_place_of_a_time(shop, reconcile):
    began = SystemClock().now().wall
    done = deploy(reconcile, shop, "--image", "registry.test:5000/shop:1.5", "--activate-in", "90s", "-o", "json")
    assert done.code == 0, done.err
    expected = FILE.replace("shop:1.4", "shop:1.5").replace(
        'activateAt: "2030-01-31T22:00:00+01:00"', 'activationDelay: "1m30s"'
    )
    assert shop.read_text() == expected
    ahead = parse_moment(done.document["activation_time"]) - began
    assert 85 * 10**9 <= ahead <= 120 * 10**9
    back = deploy(
        reconcile, shop, "--image", "registry.test:5000/shop:1.4", "--activate-at", "2030-01-31T22:00:00+01:00"
    )
    assert back.code == 0
    assert shop.read_text() == FILE


def test_a_time_is_added_where_there_was_none(shop, reconcile):
    shop.write_text(FILE[: FILE.index("  rollout:")])
    done = deploy(reconcile, shop, "--image", "registry.test:5000/shop:1.4", "--activate-in", "30s")
    assert done.code == 0, done.err
    assert shop.read_text() == FILE[: FILE.index("  rollout:")] + '  rollout:\n    activationDelay: "30s"\n'


def test_a_time_that_has_passed_is_refused_unless_it_means_now(shop, reconcile):
    past = datetime(2020, 1, 1, tzinfo=UTC).isoformat()
    words = ["--image", "registry.test:5000/shop:1.5", "--activate-at", past]
    refused = deploy(reconcile, shop, *words)
    assert refused.code == 64
    assert f"--activate-at: {past} has passed" in refused.err
    assert "--now" in refused.err
    assert shop.read_text() == FILE
    done = deploy(reconcile, shop, *words, "--now")
    assert done.code == 0, done.err
    assert "as soon as its replicas are healthy: 2020-01-01T00:00:00Z has passed" in done.out


def test_a_time_in_the_manifest_that_has_passed_stays_due(shop, reconcile):
    shop.write_text(FILE.replace("2030-01-31T22:00:00+01:00", "2020-01-01T00:00:00Z"))
    done = deploy(reconcile, shop, "--image", "registry.test:5000/shop:1.5")
    assert done.code == 0, done.err
    assert "as soon as its replicas are healthy: 2020-01-01T00:00:00Z has passed" in done.out


def test_now_without_a_time_is_refused(shop, reconcile):
    done = deploy(reconcile, shop, "--image", "registry.test:5000/shop:1.5", "--now")
    assert done.code == 64
    assert "leave out --now" in done.err


def test_without_an_activation_time_replicas_are_replaced_in_turn(shop, reconcile):
    shop.write_text(FILE[: FILE.index("  rollout:")])
    done = deploy(reconcile, shop, "--image", "registry.test:5000/shop:1.5", "-o", "json")
    assert done.document["activation_time"] is None
    assert done.document["message"] == "replicas are replaced with strategy rolling"


def test_a_file_behind_a_link_is_written_and_the_link_stays(shop, reconcile):
    real = shop.parent / "real"
    real.mkdir()
    shop.rename(real / "shop.yml.txt")
    shop.symlink_to("real/shop.yml.txt")
    done = deploy(reconcile, shop, "--image", "registry.test:5000/shop:1.5")
    assert done.code == 0, done.err
    assert shop.is_symlink()
    assert shop.read_text() == FILE.replace("shop:1.4", "shop:1.5")


def test_without_a_path_the_current_directory_is_used(shop, reconcile, monkeypatch):
    monkeypatch.chdir(shop.parent)
    done = reconcile("deploy", "workload/shop", "--image", "log:3", "--container", "log")
    assert done.code == 0, done.err
    assert shop.read_text() == FILE.replace('"log:2"', '"log:3"')


def test_in_a_git_work_tree_the_next_step_is_a_commit(shop, reconcile):
    subprocess.run(["git", "init", "-q", shop.parent], check=True, timeout=60)
    done = deploy(reconcile, shop, "--image", "registry.test:5000/shop:1.5")
    assert "next step: git add shop.yaml && git commit" in done.out


# --- refused ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("workload/shop", "--image", "x:1"), "add --container with one of: shop, log"),
        (("workload/shop", "--image", "x:1", "--container", "db"), "has no container 'db'"),
        (("workload/shpo", "--image", "x:1"), "workload/shop"),
        (("workload/web", "--image", "x:1"), "has no image"),
        (("service/web", "--image", "x:1"), "is not a workload"),
        (("workload/shop", "--image", "X Y"), "--image 'X Y'"),
        (("workload/shop", "--image", "x:1", "--activate-at", "tomorrow"), "RFC 3339"),
        (("workload/shop", "--image", "x:1", "--activate-at", "2030-01-31T22:00:00"), "offset"),
        (
            ("workload/shop", "--image", "x:1", "--activate-at", "2030-01-31T22:00:00Z", "--activate-in", "1s"),
            "give one of them",
        ),
    ],
)
def test_a_usage_error_of_deploy_writes_nothing_and_has_a_hint(words, said, shop, reconcile):
    key, *rest = words
    done = reconcile("deploy", key, shop.parent, *rest)
    assert done.code == 64
    assert said in done.err
    assert shop.read_text() == FILE


def test_a_file_that_cannot_be_edited_cleanly_needs_manual_action(shop, reconcile):
    text = FILE.replace("image: registry.test:5000/shop:1.4", "image: &shop registry.test:5000/shop:1.4")
    shop.write_text(text)
    done = deploy(reconcile, shop, "--image", "x:1", "-o", "json")
    assert done.code == 7
    assert done.document["success"] is False
    assert "has an anchor" in done.document["message"]
    assert "spec.template.spec.containers[0].image" in done.document["message"]
    assert shop.read_text() == text


def test_an_edit_that_would_make_the_manifests_invalid_is_not_written(shop, reconcile):
    text = FILE.replace('activateAt: "2030-01-31T22:00:00+01:00"', "strategy: rolling")
    shop.write_text(text)
    done = deploy(reconcile, shop, "--image", "x:1", "--activate-in", "30s")
    assert done.code == 3
    assert "strategy" in done.err
    assert "the file is unchanged" in done.err
    assert shop.read_text() == text


def test_a_directory_that_cannot_be_written_is_reported_and_the_file_stays(shop, reconcile):
    (shop.parent / ".shop.yaml.new").mkdir()
    done = deploy(reconcile, shop, "--image", "x:1")
    assert done.code == 1
    assert "cannot write" in done.err
    assert shop.read_text() == FILE


def test_an_environment_gets_the_image_in_its_own_file(shop, reconcile):
    own = shop.parent / "environments" / "prod" / "shop.yaml"
    own.parent.mkdir(parents=True)
    head = "apiVersion: reconciler/v1\nkind: Workload\nmetadata: {name: shop}\n"
    own.write_text(f"{head}spec: {{replicas: 3}}\n")
    done = deploy(reconcile, shop, "--image", "shop:1.5", "--env", "prod")
    assert done.code == 7
    assert "the image of workload/shop is in shop.yaml, which all environments share" in done.err
    own.write_text(f"{head}spec: {{template: {{spec: {{containers: [{{name: shop, image: 'shop:1.3'}}]}}}}}}\n")
    assert reconcile("deploy", "workload/shop", shop.parent, "--image", "shop:1.5", "--env", "prod").code == 64
    done = deploy(reconcile, shop, "--image", "shop:1.5", "--env", "prod")
    assert done.code == 0, done.err
    assert "image: 'shop:1.5'" in own.read_text() or "image: shop:1.5" in own.read_text()
    assert shop.read_text() == FILE, "the other environments have the image that they had"
