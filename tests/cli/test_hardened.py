"""examples/hardened: its web service is valid, and everything that its README says is refused is refused, with its line and its rule."""

import shutil
from pathlib import Path

import pytest
import yaml

from manifests.problems import Code, ManifestErrors, Problem
from reconciler import tree
from tests.manifests.privileged import PRIVILEGES
from tests.manifests.trees import write

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "hardened"
WEB, SERVICE, NAME = yaml.safe_load_all((EXAMPLE / "manifests" / "web.yaml").read_text())


def merged(value: dict, changes: dict) -> dict:
    """A mapping with other values in it; None removes a key."""
    result = dict(value)
    for key, change in changes.items():
        inner = result.get(key)
        if change is None:
            result.pop(key, None)
        else:
            result[key] = merged(inner, change) if isinstance(inner, dict) and isinstance(change, dict) else change
    return result


def web(changes: dict, pod: dict | None = None) -> dict:
    spec = WEB["spec"]["template"]["spec"]
    container = merged(spec["containers"][0], changes)
    return merged(WEB, {"spec": {"template": {"spec": {**(pod or {}), "containers": [container]}}}})


def on_the_host(base: Path) -> Path:
    """The local document outside of any repository."""
    file = base / "host" / "host.yaml"
    file.parent.mkdir(mode=0o700, parents=True)
    shutil.copyfile(EXAMPLE / "local" / "host.yaml", file)
    file.chmod(0o600)
    return file


def problems(root: Path, *documents: dict) -> list[Problem]:
    text = yaml.safe_dump_all(documents, sort_keys=False)
    location = tree.Location(write(root / "manifests", {"web.yaml": text}), on_the_host(root))
    try:
        location.load()
    except ManifestErrors as errors:
        return [problem for problem in errors.problems if not problem.is_warning]
    return []


def volume(path: str) -> tuple[dict, dict]:
    mounts = [{"name": "scratch", "mountPath": "/tmp", "readOnly": True}]
    return {"volumeMounts": mounts}, {"volumes": [{"name": "scratch", "hostPath": {"path": path}}]}


REFUSED: dict[str, tuple[dict, dict, str]] = {
    **{name: (container, {}, "podSecurity: restricted") for name, (container, _, _) in PRIVILEGES.items()},
    "a host path": (*volume("/srv"), "host path /srv"),
    "the engine's socket": (*volume("/var/run/docker.sock"), "access to the engine"),
    "a capability of the baseline": ({"securityContext": {"capabilities": {"add": ["CHOWN"]}}}, {}, "capability CHOWN"),
    "all capabilities": ({"securityContext": {"capabilities": None}}, {}, "needs all capabilities to be dropped"),
    "escalation": ({"securityContext": {"allowPrivilegeEscalation": True}}, {}, "needs allowPrivilegeEscalation: false"),
    "the user of the image": ({"securityContext": {"runAsUser": None}}, {}, "needs runAsUser other than 0"),
    "root": ({"securityContext": {"runAsUser": 0}}, {}, "runs as root"),
    "another registry": ({"image": f"registry.example.com/shopx@sha256:{'0' * 64}"}, {}, "not below a registry"),
    "a short name": ({"image": f"nginx@sha256:{'0' * 64}"}, {}, "not below a registry"),
    "a tag": ({"image": "registry.example.com/shop/web:1"}, {}, "requireDigest: true"),
    "an exec probe": (
        {"livenessProbe": {"httpGet": None, "exec": {"command": ["sh"]}, "periodSeconds": 60}, "init": True},
        {},
        "the Guard does not allow the exec probe",
    ),
}  # fmt: skip


def test_the_web_service_satisfies_the_guard(tmp_path: Path) -> None:
    location = tree.Location(EXAMPLE / "manifests", on_the_host(tmp_path / "example"))
    assert [workload.name for workload in location.load().workloads] == ["web"]
    assert problems(tmp_path, WEB, SERVICE, NAME) == []


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_web_service_never_needs_is_refused(tmp_path: Path, name: str) -> None:
    container, pod, message = REFUSED[name]
    codes = (Code.POLICY_VIOLATION, Code.NOT_ALLOWED)
    found = [problem for problem in problems(tmp_path, web(container, pod), SERVICE, NAME) if problem.code in codes]
    assert any(message in problem.message for problem in found)
    assert all(problem.file == "web.yaml" and problem.line > 1 and problem.hint for problem in found)


@pytest.mark.parametrize("host", ["shop.example.com", "www.example.com", "www.shopx.example.com", "example.com"])
def test_a_name_outside_of_the_shop_is_refused(tmp_path: Path, host: str) -> None:
    (problem,) = problems(tmp_path, WEB, SERVICE, merged(NAME, {"spec": {"host": host}}))
    assert problem.code is Code.POLICY_VIOLATION
    assert problem.path == "spec.host"


def test_another_zone_is_refused(tmp_path: Path) -> None:
    found = problems(tmp_path, WEB, SERVICE, merged(NAME, {"spec": {"host": "a.example.org", "zone": "example.org"}}))
    assert [problem.path for problem in found] == ["spec.host", "spec.zone"]


def test_a_provider_of_another_type_is_refused(tmp_path: Path) -> None:
    provider = {
        "apiVersion": WEB["apiVersion"],
        "kind": "Provider",
        "metadata": {"name": "more"},
        "spec": {"type": "process"},
    }
    found = problems(tmp_path, merged(WEB, {"spec": {"nodes": ["local"]}}), SERVICE, NAME, provider)
    assert found
    assert all("provider" in problem.message.lower() for problem in found)
