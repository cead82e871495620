"""Workloads that ask for something of their node, for the tests of the policy and of examples/hardened."""

import json

import yaml

DIGEST = f"sha256:{'a' * 64}"
HARDENED = {
    "name": "web",
    "image": f"registry.example.com/shop/web@{DIGEST}",
    "securityContext": {
        "runAsUser": 1000,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    },
}
"""A container that asks for nothing."""


def workload(container: dict | None = None, volumes: list | None = None, more: list | None = None) -> str:
    main = {"name": "web", "image": "shop/web:1", **(container or {})}
    spec = {"containers": [main, *(more or ())], **({"volumes": volumes} if volumes else {})}
    return yaml.safe_dump(
        {
            "apiVersion": "reconciler/v1",
            "kind": "Workload",
            "metadata": {"name": "web"},
            "spec": {"template": {"metadata": {"labels": {"app": "web"}}, "spec": spec}},
        },
        sort_keys=False,
    )


def guard(policy: dict | str) -> str:
    text = policy if isinstance(policy, str) else json.dumps(policy)
    return f"apiVersion: reconciler/v1\nkind: Guard\nmetadata: {{name: limits}}\nspec:\n  policy: {text}\n"


def raw(**members: object) -> dict:
    return {"docker": {"hostConfig": members}}


def volume(path: str, *, read_only: bool = False) -> tuple[dict, list]:
    mounts = [{"name": "data", "mountPath": "/data", "readOnly": read_only}]
    return {"volumeMounts": mounts}, [{"name": "data", "hostPath": {"path": path}}]


BIND = {"Type": "bind", "Source": "/srv/data", "Target": "/data"}

PRIVILEGES: dict[str, tuple[dict, dict, str]] = {
    # what is asked for: (fields of the container, the one field of `allow` that allows it, a part of the message)
    "privileged": (raw(Privileged=True), {"privileged": True}, "privileged"),
    "privileged in lower case": (raw(privileged=True), {"privileged": True}, "privileged"),
    "pid": (raw(PidMode="host"), {"hostNamespaces": ["pid"]}, "host pid namespace"),
    "ipc": (raw(IpcMode="host"), {"hostNamespaces": ["ipc"]}, "host ipc namespace"),
    "uts": (raw(UTSMode="host"), {"hostNamespaces": ["uts"]}, "host uts namespace"),
    "uts in another case": (raw(utsmode="host"), {"hostNamespaces": ["uts"]}, "host uts namespace"),
    "userns": (raw(UsernsMode="host"), {"hostNamespaces": ["userns"]}, "host userns namespace"),
    "cgroup": (raw(CgroupnsMode="host"), {"hostNamespaces": ["cgroup"]}, "host cgroup namespace"),
    "device": (
        raw(Devices=[{"PathOnHost": "/dev/kmsg", "PathInContainer": "/dev/kmsg", "CgroupPermissions": "r"}]),
        {"devices": ["/dev/kmsg"]},
        "device /dev/kmsg",
    ),
    "device by a detour": (raw(Devices=[{"pathonhost": "/dev/null/../kmsg"}]), {"devices": ["/dev/kmsg"]}, "device /dev/kmsg"),
    "capability": (
        {"securityContext": {"capabilities": {"add": ["NET_ADMIN"]}}},
        {"capabilities": ["NET_ADMIN"]},
        "capability NET_ADMIN",
    ),
    "all capabilities": ({"securityContext": {"capabilities": {"add": ["ALL"]}}}, {"capabilities": ["ALL"]}, "capability ALL"),
    "raw capability": (raw(CapAdd=["CAP_SYS_ADMIN"]), {"capabilities": ["SYS_ADMIN"]}, "capability SYS_ADMIN"),
    "raw capability in lower case": (raw(capadd=["sys_admin"]), {"capabilities": ["SYS_ADMIN"]}, "capability SYS_ADMIN"),
    "host port": ({"ports": [{"containerPort": 80, "hostPort": 8080}]}, {"hostPorts": [{"min": 8080}]}, "host port 8080/TCP"),
    "bind": (raw(Binds=["/srv/data:/data"]), {"hostPaths": [{"pathPrefix": "/srv"}]}, "host path /srv/data read-write"),
    "bind read-only": (raw(Binds=["/srv/data:/data:ro"]), {"hostPaths": [{"pathPrefix": "/srv", "readOnly": True}]}, "read-only"),
    "mount": (raw(Mounts=[BIND]), {"hostPaths": [{"pathPrefix": "/srv"}]}, "host path /srv/data"),
    "mount in another case": (raw(mountS=[{"SOURCE": "/srv/data", "type": "bind"}]), {"hostPaths": [{"pathPrefix": "/srv"}]}, "/srv/data"),
    "seccomp": (raw(SecurityOpt=["seccomp=unconfined"]), {"securityOpt": ["seccomp=unconfined"]}, "seccomp=unconfined"),
    "own seccomp profile": (raw(SecurityOpt=['seccomp={"defaultAction": "SCMP_ACT_ALLOW"}']), {"securityOpt": ["seccomp"]}, "seccomp="),
    "apparmor": (raw(SecurityOpt=["apparmor=unconfined"]), {"securityOpt": ["apparmor=unconfined"]}, "apparmor=unconfined"),
    "apparmor with a colon": (raw(SecurityOpt=["apparmor:unconfined"]), {"securityOpt": ["apparmor:unconfined"]}, "apparmor"),
    "selinux": (raw(SecurityOpt=["label=disable"]), {"securityOpt": ["label=disable"]}, "label=disable"),
    "selinux type": (raw(SecurityOpt=["label=type:spc_t"]), {"securityOpt": ["label"]}, "label=type:spc_t"),
    "unknown option": (raw(SecurityOpt=["systempaths=unconfined"]), {"securityOpt": ["systempaths"]}, "systempaths"),
    "masked paths": (raw(MaskedPaths=[]), {"hostConfig": ["MaskedPaths"]}, "hostConfig MaskedPaths"),
    "read-only paths": (raw(ReadonlyPaths=[]), {"hostConfig": ["ReadonlyPaths"]}, "hostConfig ReadonlyPaths"),
    "masked paths by a long s": (raw(MaſkedPaths=[]), {"hostConfig": ["MaskedPaths"]}, "hostConfig MaskedPaths"),
    "sysctl": (raw(Sysctls={"net.core.somaxconn": "1"}), {"sysctls": ["net.core.*"]}, "sysctl net.core.somaxconn"),
    "logging driver": ({"logging": {"driver": "syslog"}}, {"logDrivers": ["syslog"]}, "log driver syslog"),
    "raw logging driver": (raw(LogConfig={"type": "gelf"}), {"logDrivers": ["gelf"]}, "log driver gelf"),
    "log file": (
        {"logging": {"driver": "json-file", "options": {"path": "/etc/cron.d/x"}}},
        {"hostPaths": [{"pathPrefix": "/etc/cron.d"}]},
        "host path /etc/cron.d/x read-write at (the log)",
    ),
    "raw log file": (
        raw(LogConfig={"Type": "k8s-file", "config": {"PATH": "/etc/cron.d/x"}}),
        {"hostPaths": [{"pathPrefix": "/etc/cron.d"}]},
        "host path /etc/cron.d/x",
    ),
    "shared propagation": (
        raw(Mounts=[{**BIND, "BindOptions": {"Propagation": "rshared"}}]),
        {"hostPaths": [{"pathPrefix": "/srv"}], "hostConfig": ["Mounts"]},
        "hostConfig Mounts",
    ),
    "shared bind": (
        raw(Binds=["/srv/data:/data:ro,rshared"]),
        {"hostPaths": [{"pathPrefix": "/srv"}], "hostConfig": ["Binds"]},
        "hostConfig Binds",
    ),
    "volume driver with a device": (
        raw(Mounts=[{"Type": "volume", "Target": "/x", "VolumeOptions": {"DriverConfig": {"Options": {"device": "/"}}}}]),
        {"hostConfig": ["Mounts"]},
        "hostConfig Mounts",
    ),
    "volume driver behind a second key": (
        raw(Mounts=[{"Type": "volume", "VolumeOptions": {"DriverConfig": {"Name": "x"}}, "volumeoptions": {}}]),
        {"hostConfig": ["Mounts"]},
        "hostConfig Mounts",
    ),
    "groups of the engine": (raw(GroupAdd=["keep-groups"]), {"hostConfig": ["GroupAdd"]}, "hostConfig GroupAdd"),
    **{
        f"raw {name}": (raw(**{name: value}), {"hostConfig": [name]}, f"hostConfig {name}")
        for name, value in {
            "Annotations": {"run.oci.x": "y"}, "Cgroup": "container:x", "CgroupParent": "/system.slice", "CpuRealtimeRuntime": 9000,
            "DeviceCgroupRules": ["c 1:3 rwm"], "DeviceRequests": [{"Driver": "nvidia"}], "Links": ["db:db"], "OomKillDisable": True,
            "OomScoreAdj": -1000, "PublishAllPorts": True, "Runtime": "other", "VolumeDriver": "x", "VolumesFrom": ["db"],
            "InventedLater": True,
        }.items()
    },
}  # fmt: skip
