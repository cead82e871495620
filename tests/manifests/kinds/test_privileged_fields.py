"""Every field of a workload is known to be harmless to the node, or to be one that the policy of the Guard judges.

A new field of the models fails here until it has a place in one of the two tables.
"""

from collections.abc import Iterator
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import pytest
from docker.types import HostConfig
from pydantic import BaseModel

from manifests.kinds.pod import Capabilities, Container, PodTemplate, SecurityContext
from manifests.kinds.probe import Probe
from manifests.kinds.workload import WorkloadSpec
from manifests.values.pod import HOST_CONFIG_MANAGED
from manifests.values.privileges import HARMLESS, JUDGED, NAMESPACES, RAW, Field, member_name, privileges_of
from tests.manifests.privileged import volume, workload
from tests.manifests.trees import ENGINE_PROVIDERS, INSTANCE, load_files

CONTAINER = "template.spec.containers[]"

GIVES: dict[str, tuple[Field, dict, list]] = {
    # field: (what judges it, a container that has a privilege by it, its volumes)
    f"{CONTAINER}.docker.hostConfig": (Field.PRIVILEGED, {"docker": {"hostConfig": {"Privileged": True}}}, []),
    f"{CONTAINER}.securityContext.capabilities.add": (
        Field.CAPABILITIES, {"securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}}, [],
    ),
    f"{CONTAINER}.securityContext.runAsUser": (Field.RUN_AS_ROOT, {"securityContext": {"runAsUser": 0}}, []),
    f"{CONTAINER}.ports[].hostPort": (Field.HOST_PORTS, {"ports": [{"containerPort": 80, "hostPort": 80}]}, []),
    f"{CONTAINER}.ports[].hostIP": (
        Field.HOST_PORTS, {"ports": [{"containerPort": 80, "hostPort": 80, "hostIP": "192.0.2.1"}]}, [],
    ),
    f"{CONTAINER}.logging.options": (Field.HOST_PATHS, {"logging": {"driver": "local", "options": {"path": "/srv/x"}}}, []),
    f"{CONTAINER}.logging.driver": (Field.LOG_DRIVERS, {"logging": {"driver": "syslog"}}, []),
    "template.spec.volumes[].hostPath.path": (Field.HOST_PATHS, *volume("/srv")),
    f"{CONTAINER}.volumeMounts[].readOnly": (Field.HOST_PATHS, *volume("/srv", read_only=True)),
}  # fmt: skip
"""Fields by which a container gets something of its node."""

OTHERWISE = {
    "nodes": "names runtimes that are declared",
    "adopt.names": "takes over containers as they run; what replaces them is made from the template",
    "adopt.labels": "as adopt.names",
    "adopt.replace": "as adopt.names",
    f"{CONTAINER}.image": "images of the policy",
    "imagePolicies[].container": "what it finds is written into the manifest, where the policy judges it; registries are those of the Instance",
    "imagePolicies[].semver": "as imagePolicies[].container",
    "imagePolicies[].newest.pattern": "as imagePolicies[].container",
    "imagePolicies[].newest.order": "as imagePolicies[].container",
    "imagePolicies[].digest.tag": "as imagePolicies[].container",
    "imagePolicies[].interval": "as imagePolicies[].container",
    f"{CONTAINER}.command": "runs in the container; for local processes allowProcess of the Instance decides",
    f"{CONTAINER}.args": "as command",
    f"{CONTAINER}.workingDir": "inside the container, or below the manifests",
    f"{CONTAINER}.env[].valueFrom.secret.env": "secrets of the Instance",
    f"{CONTAINER}.env[].valueFrom.secret.file": "secrets of the Instance",
    f"{CONTAINER}.env[].valueFrom.secret.command": "secrets and secretCommands of the Instance",
    f"{CONTAINER}.env[].valueFrom.secret.credential": "secrets of the Instance",
    f"{CONTAINER}.env[].valueFrom.secret.sops.file": "secrets and decryption of the Instance",
    f"{CONTAINER}.env[].valueFrom.secret.sops.key": "secrets and decryption of the Instance",
    f"{CONTAINER}.env[].valueFrom.secret.age.file": "secrets and decryption of the Instance",
    f"{CONTAINER}.env[].valueFrom.secret.age.identity": "secrets and decryption of the Instance",
    "template.spec.networks": "networks of the engine; host and none are refused",
    f"{CONTAINER}.envFile[].path": "a file of the tree, below the manifests",
    "template.spec.volumes[].files.from": "a file or directory of the tree, below the manifests; links are refused",
    "template.spec.volumes[].named": "a volume of the engine, whose driver the manifest cannot choose",
}
"""Fields that another rule judges."""

PLAIN = (
    "replicas", "minReadySeconds", "suspend", "runtimeRestart", "onSecretChange", "drift.", "availability.", "restarts.", "rollout.", "drain.", "push.",
    "template.metadata.labels", "template.spec.terminationGracePeriodSeconds", f"{CONTAINER}.name", f"{CONTAINER}.imagePullPolicy",
    f"{CONTAINER}.env[].name", f"{CONTAINER}.env[].value", f"{CONTAINER}.ports[].name", f"{CONTAINER}.ports[].containerPort",
    f"{CONTAINER}.ports[].protocol", f"{CONTAINER}.volumeMounts[].name", f"{CONTAINER}.volumeMounts[].mountPath", f"{CONTAINER}.resources.",
    f"{CONTAINER}.securityContext.runAsGroup", f"{CONTAINER}.securityContext.runAsNonRoot", f"{CONTAINER}.securityContext.capabilities.drop",
    f"{CONTAINER}.securityContext.readOnlyRootFilesystem", f"{CONTAINER}.securityContext.allowPrivilegeEscalation",
    f"{CONTAINER}.ulimits[].", f"{CONTAINER}.init", f"{CONTAINER}.stopSignal", f"{CONTAINER}.dependsOn", f"{CONTAINER}.livenessProbe",
    f"{CONTAINER}.readinessProbe", f"{CONTAINER}.startupProbe", "template.spec.volumes[].name", "template.spec.volumes[].tmpfs.sizeLimit",
    "template.spec.volumes[].accessMode", f"{CONTAINER}.envFile[].required", "template.spec.volumes[].files.items[].",
    "template.spec.volumes[].files.mode", "template.spec.volumes[].files.onChange", "template.spec.volumes[].files.signal",
    "template.spec.volumes[].files.allowCiphertext",
)  # fmt: skip
"""Fields, and beginnings of fields that end in a dot, that only concern the container itself or when it is replaced.

Probes connect to the container's own address; the commands that they run are judged by `execCommands`.
"""


def leaves(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    for name, info in model.model_fields.items():
        path = f"{prefix}{info.alias or name}"
        inner, many = _model(info.annotation)
        if inner is None or issubclass(inner, Probe):
            yield path
        else:
            yield from leaves(inner, f"{path}{'[]' if many else ''}.")


def _model(annotation: Any) -> tuple[type[BaseModel] | None, bool]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation, False
    if get_origin(annotation) not in (Annotated, Union, UnionType, tuple):
        return None, False
    found = [_model(argument) for argument in get_args(annotation)]
    inner = next((model for model, _ in found if model is not None), None)
    return inner, get_origin(annotation) is tuple or any(many for _, many in found)


def is_plain(path: str) -> bool:
    return any(path == name or (name.endswith(".") and path.startswith(name)) for name in PLAIN)


def test_every_field_of_a_workload_is_in_exactly_one_table():
    fields = list(leaves(WorkloadSpec))
    assert len(fields) > 80
    for path in fields:
        assert [path in GIVES, path in OTHERWISE, is_plain(path)].count(True) == 1, path
    assert {*GIVES, *OTHERWISE} <= {*fields}
    assert all(any(path == name or path.startswith(name) for path in fields) for name in PLAIN)


def test_a_field_in_no_table_is_found():
    class MoreRights(SecurityContext):
        privileged: bool = False

    class More(Container):
        security_context: MoreRights = MoreRights(capabilities=Capabilities())

    (new,) = [path for path in leaves(More, f"{CONTAINER}.") if path not in GIVES | OTHERWISE and not is_plain(path)]
    assert new == f"{CONTAINER}.securityContext.privileged"
    assert PodTemplate.model_fields


@pytest.mark.parametrize("path", GIVES)
def test_a_field_that_gives_something_leads_to_its_privilege(tmp_path: Path, path: str) -> None:
    field, container, volumes = GIVES[path]
    files = {"i.yaml": INSTANCE, "p.yaml": ENGINE_PROVIDERS, "w.yaml": workload(container, volumes)}
    template = load_files(tmp_path, files).workloads[0].template
    (privilege,) = privileges_of(template)
    assert privilege.field is field
    assert privileges_of(load_files(tmp_path, {**files, "w.yaml": workload()}).workloads[0].template) == ()


def test_each_member_of_the_engines_api_has_one_place():
    known = [*HARMLESS, *JUDGED, *RAW, *HOST_CONFIG_MANAGED]
    assert len(known) == len(set(known)) == len({name.casefold() for name in known})
    assert NAMESPACES.keys() <= JUDGED.keys()
    # What the engine's own client can set. `VolumeDriver` and the like are members of the body of old versions of the API.
    every = {
        "cpu_rt_period": 1,
        "cpu_rt_runtime": 1,
        "cpu_count": 1,
        "cpu_percent": 1,
        "nano_cpus": 1,
        "cgroupns": "private",
    }
    made = HostConfig(
        version="1.41", privileged=True, pid_mode="host", ipc_mode="host", uts_mode="host", userns_mode="host", **every
    )
    assert {member_name(name) for name in made} <= {*known}
