"""The policy of the Guard: what each level forbids, what each field allows, and that nothing else is allowed with it."""

import json
from pathlib import Path

import pytest

from manifests.kinds.validate import validate
from manifests.load import load_tree, read_sources, resolve_sources
from manifests.problems import Code, ManifestErrors, Problem
from manifests.resolve.policy import policy_of
from manifests.values.policy import Allowed, PodPolicy, PodSecurity, Policy
from manifests.yaml.read import read_file
from providers import registry
from tests.manifests.privileged import DIGEST, HARDENED, PRIVILEGES, guard, raw, volume, workload
from tests.manifests.trees import (
    ENGINE_PROVIDERS,
    INSTANCE,
    POLICY,
    RECORD,
    RECORD_LIST,
    known_types,
    load_path,
    problems_at,
    settings_model,
    template_support,
    write,
)


def judged(root: Path, policy: dict, text: str, **files: str) -> list[Problem]:
    """The problems of a tree with one workload under a policy."""
    tree = {
        "instance.yaml": INSTANCE,
        "providers.yaml": ENGINE_PROVIDERS,
        "web.yaml": text,
        "guard.yaml": guard(policy),
    }
    return [problem for problem in problems_at(write(root, {**tree, **files})) if not problem.is_warning]


@pytest.mark.parametrize("name", PRIVILEGES)
def test_baseline_refuses_a_privilege_and_one_field_allows_it(tmp_path: Path, name: str) -> None:
    container, allow, message = PRIVILEGES[name]
    found = judged(tmp_path / "refused", {"podSecurity": "baseline"}, workload(container))
    assert found
    assert {problem.code for problem in found} == {Code.POLICY_VIOLATION}
    assert any(message in problem.message for problem in found)
    for problem in found:
        assert problem.file == "web.yaml"
        assert problem.line > 0
        assert problem.path.startswith("spec.template.spec.containers[0].")
        assert "podSecurity: baseline" in problem.message
        assert "guard/limits (guard.yaml:1:1)" in problem.hint
    assert judged(tmp_path / "allowed", {"podSecurity": "baseline", "allow": allow}, workload(container)) == []
    assert judged(tmp_path / "privileged", {"podSecurity": "privileged"}, workload(container)) == []


@pytest.mark.parametrize("name", PRIVILEGES)
def test_what_allows_a_privilege_allows_no_other(tmp_path: Path, name: str) -> None:
    _, allow, _ = PRIVILEGES[name]
    for other, (container, needed, _) in PRIVILEGES.items():
        if all(needed[field] == allow.get(field) for field in needed) or needed.keys() & allow.keys():
            continue
        assert judged(tmp_path / other, {"podSecurity": "baseline", "allow": allow}, workload(container)), other


HARMLESS: dict[str, dict] = {
    "nothing": {},
    "false and null": raw(Privileged=False, PidMode="", CapAdd=None, Devices=[], Binds=None, MaskedPaths=None),
    "own namespaces": raw(IpcMode="private", CgroupnsMode="private", PidMode="private", UsernsMode="keep-id:uid=1"),
    "capabilities of the baseline": {"securityContext": {"capabilities": {"add": ["CHOWN", "NET_BIND_SERVICE"]}}},
    "safe options": raw(SecurityOpt=["no-new-privileges", "apparmor=mine", "label=level:s0:c1", "label=type:container_t", "seccomp=builtin"]),
    "safe sysctls": raw(Sysctls={"net.ipv4.tcp_syncookies": "1", "net.ipv4.ip_unprivileged_port_start": "0"}),
    "volumes of the engine": raw(Binds=["data:/data"], Mounts=[{"Type": "volume", "Source": "data", "Target": "/d"}, {"Type": "tmpfs"}]),
    "limits": raw(PidsLimit=100, ShmSize=1 << 20, CpuShares=10, Ulimits=[{"Name": "nofile", "Soft": 1, "Hard": 1}]),
    "local logs": {"logging": {"driver": "json-file"}},
    "root": {"securityContext": {"runAsUser": 0}},
}  # fmt: skip


@pytest.mark.parametrize("name", HARMLESS)
def test_baseline_allows_what_gives_nothing_of_the_node(tmp_path: Path, name: str) -> None:
    assert judged(tmp_path, {"podSecurity": "baseline"}, workload(HARMLESS[name])) == []


PATHS = [
    # (path of the mount, read-only, allowed host paths, engineAccess, whether it is allowed)
    ("/srv", False, [{"pathPrefix": "/srv"}], False, True),
    ("/srv/a/b", False, [{"pathPrefix": "/srv"}], False, True),
    ("/srv/a", False, [{"pathPrefix": "/srv/"}], False, True),
    ("/srvx", False, [{"pathPrefix": "/srv"}], False, False),
    ("/", False, [{"pathPrefix": "/srv"}], False, False),
    ("/srv", False, [{"pathPrefix": "/srv/a"}], False, False),
    ("/srv", False, [{"pathPrefix": "/srv", "readOnly": True}], False, False),
    ("/srv", True, [{"pathPrefix": "/srv", "readOnly": True}], False, True),
    ("/srv/a", False, [{"pathPrefix": "/srv", "readOnly": True}, {"pathPrefix": "/srv/a"}], False, True),
    ("/run/docker.sock", True, [{"pathPrefix": "/run"}], False, False),
    ("/var/run/docker.sock", False, [{"pathPrefix": "/"}], False, False),
    ("/var/run/docker.sock", False, [{"pathPrefix": "/run"}], True, True),
    ("/run/docker.sock", False, [{"pathPrefix": "/var/run/docker.sock"}], True, True),
    ("/run/docker.sock", False, [], True, False),
    ("/srv/engine/docker.sock", False, [{"pathPrefix": "/srv"}], False, False),
    ("/run", False, [{"pathPrefix": "/run"}], False, False),
    ("/var", True, [{"pathPrefix": "/var"}], False, False),
    ("/var/lib/docker/volumes/x", False, [{"pathPrefix": "/var/lib"}], False, False),
    ("/run/user", False, [{"pathPrefix": "/run"}], False, False),
    ("/run/web", False, [{"pathPrefix": "/run"}], False, True),
    ("/", True, [{"pathPrefix": "/"}], False, False),
    ("/", True, [{"pathPrefix": "/"}], True, True),
    ("/proc/1/cwd", True, [{"pathPrefix": "/proc"}], False, False),
    ("/proc/self/cwd", True, [{"pathPrefix": "/proc"}], False, False),
    ("/proc", True, [{"pathPrefix": "/proc", "readOnly": True}], False, True),
]


@pytest.mark.parametrize(("path", "read_only", "prefixes", "engine", "allowed"), PATHS)
@pytest.mark.parametrize("form", ["volume", "Binds", "Mounts"])
def test_host_paths_end_at_a_boundary_and_never_at_the_engine(
    tmp_path: Path, path: str, read_only: bool, prefixes: list, engine: bool, allowed: bool, form: str
) -> None:
    container, volumes = volume(path, read_only=read_only)
    if form == "Binds":
        container, volumes = raw(Binds=[f"{path}:/data{':ro' if read_only else ''}"]), []
    elif form == "Mounts":
        container, volumes = (
            raw(Mounts=[{"Type": "bind", "Source": path, "Target": "/data", "ReadOnly": read_only}]),
            [],
        )
    policy = {"podSecurity": "baseline", "allow": {"hostPaths": prefixes, "engineAccess": engine}}
    found = judged(tmp_path, policy, workload(container, volumes))
    assert (found == []) == allowed
    if found and form == "volume":
        assert {problem.path for problem in found} == {"spec.template.spec.volumes[0].hostPath.path"}


@pytest.mark.parametrize("path", ["/srv/../etc", "/etc/./x", "//etc"])
def test_a_raw_mount_cannot_leave_its_prefix_by_its_spelling(tmp_path: Path, path: str) -> None:
    allow = {"hostPaths": [{"pathPrefix": "/srv"}]}
    assert judged(tmp_path, {"podSecurity": "baseline", "allow": allow}, workload(raw(Binds=[f"{path}:/x"])))


def test_the_socket_that_a_provider_names_is_the_engine_too(tmp_path: Path) -> None:
    root = write(
        tmp_path,
        {
            "instance.yaml": INSTANCE,
            "local.yaml": "apiVersion: reconciler/v1\nkind: Provider\nmetadata: {name: local}\n"
            "spec: {type: docker, settings: {socket: /srv/engine/api}}\n",
            "web.yaml": workload(*volume("/srv/engine")),
            "guard.yaml": guard({"podSecurity": "baseline", "allow": {"hostPaths": [{"pathPrefix": "/srv"}]}}),
        },
    )
    with pytest.raises(ManifestErrors, match="access to the engine"):
        load_tree(root, settings_model=registry.settings_model, known_types=registry.known_types)


PORTS = [
    ({"hostPort": 80}, [{"min": 80}], True),
    ({"hostPort": 81}, [{"min": 80}], False),
    ({"hostPort": 85}, [{"min": 80, "max": 90}], True),
    ({"hostPort": 90}, [{"min": 80, "max": 90}], True),
    ({"hostPort": 91}, [{"min": 80, "max": 90}], False),
    ({"hostPort": 80, "hostIP": "127.0.0.1"}, [{"min": 80, "hostIPs": ["127.0.0.1"]}], True),
    ({"hostPort": 80, "hostIP": "192.0.2.1"}, [{"min": 80, "hostIPs": ["127.0.0.1"]}], False),
    ({"hostPort": 80}, [{"min": 80, "hostIPs": ["127.0.0.1"]}], False),
    ({"hostPort": 80, "hostIP": "0.0.0.0"}, [{"min": 80, "hostIPs": ["127.0.0.1"]}], False),
    ({"hostPort": 80, "hostIP": "::1"}, [{"min": 80, "hostIPs": ["0:0:0:0:0:0:0:1"]}], True),
]


@pytest.mark.parametrize(("port", "rules", "allowed"), PORTS)
def test_host_ports_are_allowed_by_range_and_address(tmp_path: Path, port: dict, rules: list, allowed: bool) -> None:
    text = workload({"ports": [{"containerPort": 8080, **port}]})
    found = judged(tmp_path, {"podSecurity": "baseline", "allow": {"hostPorts": rules}}, text)
    assert (found == []) == allowed
    assert all(problem.path.endswith("containers[0].ports[0].hostPort") for problem in found)


def without(*path: str, **changes: object) -> dict:
    """The hardened container without one of its fields, or with another value of it."""
    changed = json.loads(json.dumps(HARDENED))
    inner = changed
    for part in path[:-1]:
        inner = inner[part]
    inner.pop(path[-1], None)
    inner.update(changes)
    return changed


RESTRICTED = {
    "an added capability of the baseline": (
        without("securityContext", "capabilities", capabilities={"drop": ["ALL"], "add": ["CHOWN"]}), "capability CHOWN",
    ),
    "no dropped capabilities": (without("securityContext", "capabilities"), "all capabilities to be dropped"),
    "one dropped capability": (without("securityContext", "capabilities", capabilities={"drop": ["CHOWN"]}), "to be dropped"),
    "capabilities kept by HostConfig": ({**HARDENED, **raw(capdrop=[])}, "to be dropped"),
    "escalation": (without("securityContext", "allowPrivilegeEscalation"), "allowPrivilegeEscalation: false"),
    "no user": (without("securityContext", "runAsUser"), "needs runAsUser other than 0, or runAsNonRoot: true"),
    "root": (without("securityContext", "runAsUser", runAsUser=0), "runs as root"),
    "privileged": ({**HARDENED, **raw(Privileged=True)}, "privileged"),
}  # fmt: skip


@pytest.mark.parametrize("name", RESTRICTED)
def test_restricted_asks_for_less_than_the_default(tmp_path: Path, name: str) -> None:
    container, message = RESTRICTED[name]
    assert judged(tmp_path / "hardened", {"podSecurity": "restricted"}, workload(HARDENED)) == []
    (problem,) = judged(tmp_path / "refused", {"podSecurity": "restricted"}, workload(container))
    assert message in problem.message
    assert "podSecurity: restricted" in problem.message
    assert problem.line > 0
    sidecar = workload(HARDENED, more=[{**container, "name": "side"}])
    (problem,) = judged(tmp_path / "sidecar", {"podSecurity": "restricted"}, sidecar)
    assert "container 'side'" in problem.message
    assert problem.path.startswith("spec.template.spec.containers[1]")


def test_no_new_privileges_of_host_config_satisfies_restricted(tmp_path: Path) -> None:
    container = without("securityContext", "allowPrivilegeEscalation")
    good = {**container, **raw(SecurityOpt=["no-new-privileges"])}
    assert judged(tmp_path / "good", {"podSecurity": "restricted"}, workload(good)) == []
    bad = {**container, **raw(SecurityOpt=["no-new-privileges", "no-new-privileges=false"])}
    assert judged(tmp_path / "bad", {"podSecurity": "restricted"}, workload(bad))


@pytest.mark.parametrize(
    ("policy", "user", "allowed"),
    [
        ({"runAsNonRoot": True}, 1000, True),
        ({"runAsNonRoot": True}, 0, False),
        ({"runAsNonRoot": True}, None, False),
        ({"runAsNonRoot": True, "allow": {"runAsRoot": True}}, 0, True),
        ({"runAsNonRoot": True, "exceptions": [{"workloads": ["web"], "runAsNonRoot": False}]}, None, True),
        ({"runAsNonRoot": True, "exceptions": [{"workloads": ["web"], "allow": {"runAsRoot": True}}]}, None, True),
        ({"runAsNonRoot": True, "exceptions": [{"workloads": ["db"], "runAsNonRoot": False}]}, None, False),
        ({"podSecurity": "baseline"}, None, True),
    ],
)
def test_run_as_non_root_needs_a_known_user(tmp_path: Path, policy: dict, user: int | None, allowed: bool) -> None:
    container = {} if user is None else {"securityContext": {"runAsUser": user}}
    found = judged(tmp_path, policy, workload(container))
    assert (found == []) == allowed
    by_runtime = {"securityContext": {"runAsNonRoot": True}}
    assert judged(tmp_path / "by the runtime", policy, workload(by_runtime)) == []
    assert all("runAsNonRoot" in problem.message for problem in found)


def test_root_contradicts_run_as_non_root(tmp_path: Path) -> None:
    (problem,) = judged(tmp_path, {}, workload({"securityContext": {"runAsNonRoot": True, "runAsUser": 0}}))
    assert (problem.code, problem.path[-9:]) == (Code.BAD_VALUE, "runAsUser")


def test_an_exception_counts_for_its_workloads_and_adds(tmp_path: Path) -> None:
    policy = {
        "podSecurity": "baseline",
        "allow": {"capabilities": ["NET_ADMIN"]},
        "exceptions": [{"workloads": ["web"], "allow": {"hostNamespaces": ["pid"]}}],
    }
    both = {**raw(PidMode="host"), "securityContext": {"capabilities": {"add": ["NET_ADMIN"]}}}
    assert judged(tmp_path / "web", policy, workload(both)) == []
    (problem,) = judged(tmp_path / "other", policy, workload(both).replace("name: web\nspec", "name: other\nspec"))
    assert "host pid namespace" in problem.message
    lowered = {"podSecurity": "restricted", "exceptions": [{"workloads": ["web"], "podSecurity": "privileged"}]}
    assert judged(tmp_path / "lowered", lowered, workload(raw(Privileged=True))) == []


def test_a_namespace_of_another_container_is_never_the_nodes(tmp_path: Path) -> None:
    policy = {"podSecurity": "baseline", "allow": {"hostNamespaces": ["pid"]}}
    (problem,) = judged(tmp_path, policy, workload(raw(PidMode="container:db")))
    assert "pid namespace of container:db" in problem.message
    assert "podSecurity: privileged" in problem.hint


IMAGES = [
    ({"registries": ["registry.example.com/shop"]}, "registry.example.com/shop/web:1", True),
    ({"registries": ["registry.example.com/shop"]}, "registry.example.com/shop", True),
    ({"registries": ["registry.example.com/shop/"]}, "registry.example.com/shop/web:1", True),
    ({"registries": ["registry.example.com/shop"]}, "registry.example.com/shopx/web:1", False),
    ({"registries": ["registry.example.com"]}, "registry.example.com.evil.test/web:1", False),
    ({"registries": ["registry.example.com"]}, "registry.example.com:5000/web:1", False),
    ({"registries": ["registry.example.com"]}, "registry.example.com/any/web:1", True),
    ({"registries": ["registry.example.com"]}, "nginx:1", False),
    ({"registries": ["docker.io/library"]}, "nginx:1", True),
    ({"registries": ["docker.io/library"]}, "index.docker.io/nginx:1", True),
    ({"registries": ["docker.io/library"]}, "shop/web:1", False),
    ({"registries": []}, "nginx:1", False),
    ({"requireDigest": True}, "nginx:1", False),
    ({"requireDigest": True}, f"nginx@{DIGEST}", True),
    ({"requireDigest": True}, f"nginx:1@{DIGEST}", True),
    ({"forbidTags": ["latest"]}, "nginx", False),
    ({"forbidTags": ["latest"]}, "nginx:latest", False),
    ({"forbidTags": ["latest"]}, "nginx:1", True),
    ({"forbidTags": ["latest"]}, f"nginx:latest@{DIGEST}", True),
    ({"forbidTags": ["latest"]}, "localhost:5000/nginx", False),
]


@pytest.mark.parametrize(("images", "image", "allowed"), IMAGES)
def test_images_are_judged_by_their_whole_names(tmp_path: Path, images: dict, image: str, allowed: bool) -> None:
    found = judged(tmp_path, {"images": images}, workload({"image": image}))
    assert (found == []) == allowed
    assert all(problem.path == "spec.template.spec.containers[0].image" for problem in found)


NAMES = [
    ({"names": ["app.example.com"]}, "app.example.com", True),
    ({"names": ["APP.Example.com."]}, "app.example.com", True),
    ({"names": ["app.example.com"]}, "other.example.com", False),
    ({"names": ["app.example.com"]}, "x.app.example.com", False),
    ({"names": ["*.example.com"]}, "app.example.com", True),
    ({"names": ["*.example.com"]}, "a.b.example.com", True),
    ({"names": ["*.example.com"]}, "*.example.com", True),
    ({"names": ["*.example.com"]}, "example.com", False),
    ({"names": ["*.apps.example.com"]}, "fooapps.example.com", False),
    ({"names": ["*.apps.example.com"]}, "*.example.com", False),
    ({"names": []}, "app.example.com", False),
    ({"zones": ["example.com"]}, "app.example.com", True),
    ({"zones": ["example.org"]}, "app.example.com", False),
    ({"zones": ["sub.example.com"]}, "app.example.com", False),
    ({"zones": []}, "app.example.com", False),
]


@pytest.mark.parametrize(("dns", "name", "allowed"), NAMES)
@pytest.mark.parametrize("kind", ["DNSPolicy", "Record", "RecordList"])
def test_names_and_zones_are_exact(tmp_path: Path, dns: dict, name: str, allowed: bool, kind: str) -> None:
    policy = POLICY.replace("app.example.com", f'"{name}"').replace("service: {name: web}", "addresses: [203.0.113.1]")
    record = RECORD.replace("host: example.com", f'host: "{name}"')
    listed = RECORD_LIST[: RECORD_LIST.index("    a.example")] + f'    "{name}": {{A: 192.0.2.1}}\n'
    text = {"DNSPolicy": policy, "Record": record, "RecordList": listed}[kind]
    found = judged(tmp_path, {"dns": dns}, workload(), **{"dns.yaml": text})
    assert (found == []) == allowed
    for problem in found:
        assert (problem.code, problem.file) == (Code.POLICY_VIOLATION, "dns.yaml")
        assert problem.line > 1


def test_provider_types_are_a_list_of_what_may_be_declared(tmp_path: Path) -> None:
    assert judged(tmp_path / "all", {"providerTypes": ["engine", "file", "zonefile"]}, workload()) == []
    (problem,) = judged(tmp_path / "two", {"providerTypes": ["engine", "zonefile"]}, workload())
    assert problem.message == "provider/edge: the policy does not allow providers of type 'file'"
    assert problem.path == "spec.type"


BAD = [
    ({"podSecurity": "strict"}, "podSecurity"),
    ({"allow": {"hostNamespaces": ["network"]}}, "hostNamespaces"),
    ({"allow": {"hostConfig": ["Privileged"]}}, "use privileged of this section"),
    ({"allow": {"hostConfig": ["pidmode"]}}, "use hostNamespaces of this section"),
    ({"allow": {"hostConfig": ["ShmSize"]}}, "always allowed"),
    ({"allow": {"hostConfig": ["NetworkMode"]}}, "never be set"),
    ({"allow": {"hostPaths": [{"pathPrefix": "/srv/../etc"}]}}, "absolute path"),
    ({"allow": {"hostPorts": [{"min": 90, "max": 80}]}}, "below min"),
    ({"allow": {"sysctls": ["net.*.x"]}}, "kernel parameter"),
    ({"images": {"registries": ["shop/web"]}}, "begin with a registry"),
    ({"images": {"registries": ["registry.example.com/shop:1"]}}, "begin with a registry"),
    ({"exceptions": [{"workloads": []}]}, "workloads"),
    ({"exceptions": [{"workloads": ["a"]}, {"workloads": ["b", "a"]}]}, "two exceptions"),
    ({"dns": {"zones": ["*.example.com"]}}, "wildcard"),
]


@pytest.mark.parametrize(("policy", "message"), BAD)
def test_a_policy_that_means_nothing_is_refused(tmp_path: Path, policy: dict, message: str) -> None:
    found = judged(tmp_path, policy, workload())
    assert len(found) == 1, found
    assert message in f"{found[0].path} {found[0].message} {found[0].hint}"
    assert found[0].file == "guard.yaml"


@pytest.mark.parametrize(
    "member", ["networkMode", "NETWORKMODE", "portbindings", "Re\u017ftartPolicy", "Networ\u212aMode"]
)
def test_a_managed_member_is_refused_in_every_spelling(tmp_path: Path, member: str) -> None:
    (problem,) = judged(tmp_path, {}, workload(raw(**{member: "host"})))
    assert problem.code is Code.BAD_VALUE
    assert "cannot be set in hostConfig" in problem.message


# --- local documents ------------------------------------------------------------------------------------------------------------


def locally(base: Path, container: dict, local: str) -> tuple[Path, Path]:
    root = write(base / "tree", {"web.yaml": workload(container)})
    outside = base / "local.yaml"
    outside.write_text(f"{INSTANCE}---\n{ENGINE_PROVIDERS}{local}")
    return root, outside


def test_with_local_documents_the_default_is_baseline(tmp_path: Path) -> None:
    root, local = locally(tmp_path, raw(Privileged=True), "")
    (problem,) = problems_at(root, instance_file=local)
    assert problem.code is Code.POLICY_VIOLATION
    assert "podSecurity: baseline (the default with local documents)" in problem.message
    assert "in a Guard (none is declared)" in problem.hint
    (root / "all.yaml").write_text(local.read_text())
    assert problems_at(root) == ()


@pytest.mark.parametrize("policy", [{"podSecurity": "privileged"}, {"allow": {"privileged": True}}])
def test_the_local_guard_may_allow_more_than_its_default(tmp_path: Path, policy: dict) -> None:
    root, local = locally(tmp_path, raw(Privileged=True), f"---\n{guard(policy)}")
    assert problems_at(root, instance_file=local) == ()


def test_a_guard_of_the_tree_cannot_loosen_the_default(tmp_path: Path) -> None:
    root, local = locally(tmp_path, raw(Privileged=True), "")
    (root / "guard.yaml").write_text(guard({"podSecurity": "privileged"}))
    assert {problem.file for problem in problems_at(root, instance_file=local)} & {"web.yaml", "guard.yaml"}


def test_without_a_policy_nothing_is_forbidden(tmp_path: Path) -> None:
    for number, (container, _, _) in enumerate(PRIVILEGES.values()):
        files = {"instance.yaml": INSTANCE, "providers.yaml": ENGINE_PROVIDERS, "web.yaml": workload(container)}
        assert load_path(write(tmp_path / str(number), files)).workloads[0].forbidden == ""


def test_what_was_in_force_before_is_marked_and_kept(tmp_path: Path) -> None:
    files = {
        "web.yaml": workload(raw(Privileged=True)),
        "more.yaml": workload().replace("name: web\nspec", "name: more\nspec"),
    }
    root = write(tmp_path / "tree", {**files, "mail.yaml": RECORD})
    (tmp_path / "local.yaml").write_text(f"{INSTANCE}---\n{ENGINE_PROVIDERS}---\n{guard({'dns': {'names': []}})}")
    sources = read_sources(root, tmp_path / "local.yaml")
    types = {"settings_model": settings_model, "known_types": known_types, "template_support": template_support}
    with pytest.raises(ManifestErrors) as raised:
        resolve_sources(sources, **types)
    assert {problem.file for problem in raised.value.problems} == {"web.yaml", "mail.yaml"}
    kept = resolve_sources(sources, **types, enforce=False).desired
    assert [(item.name, bool(item.forbidden)) for item in kept.workloads] == [("more", False), ("web", True)]
    assert [record.name for record in kept.records] == ["mail"]
    assert kept.workloads[1].forbidden.startswith("container 'web': podSecurity: baseline")


@pytest.mark.parametrize("name", PRIVILEGES)
def test_the_policy_refuses_a_template_as_it_refuses_a_manifest(tmp_path: Path, name: str) -> None:
    container, allow, message = PRIVILEGES[name]
    files = {"instance.yaml": INSTANCE, "providers.yaml": ENGINE_PROVIDERS, "web.yaml": workload(container)}
    template = load_path(write(tmp_path, files)).workloads[0].template
    refused, allowed = (Policy(PodPolicy(PodSecurity.BASELINE, allowed=item)) for item in (Allowed(), resolved(allow)))
    assert message in refused.refusal("web", template, ()) or "host path" in refused.refusal("web", template, ())
    assert allowed.refusal("web", template, ()) == ""


def resolved(allow: dict) -> Allowed:
    (document,), _ = read_file("guard.yaml", guard({"allow": allow}).encode())
    declared, problems = validate(document)
    assert problems == []
    return policy_of(declared, local=False).pods.allowed
