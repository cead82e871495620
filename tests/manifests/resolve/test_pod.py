"""The fields of a pod template: their values, and the messages for bad ones."""

from pathlib import Path

import pytest

from manifests.values.desired import Port, Template
from manifests.values.image_ref import parse_image
from manifests.values.pod import Engine, Live, Mount, PullPolicy, Ulimit, VolumeKind
from manifests.values.secret_sources import SecretSource
from tests.manifests.trees import ENGINE_PROVIDERS, GOOD, load_files, problems_of

POD = """\
apiVersion: reconciler/v1
kind: Workload
metadata: {name: web}
spec:
  runtimeRestart: "no"
  template:
    metadata: {labels: {app: web}}
    spec:
      networks: [edge, back]
      volumes:
        - {name: data, named: web-data}
        - {name: conf, hostPath: {path: /srv/conf/}}
        - {name: scratch, tmpfs: {sizeLimit: 64Mi}}
      containers:
        - name: app
          image: registry.example.com:5000/team/app:1.2
          imagePullPolicy: Always
          args: [serve]
          workingDir: /srv
          env:
            - {name: MODE, value: "on"}
            - {name: TOKEN, valueFrom: {secret: {env: APP_TOKEN}}}
            - {name: KEY, valueFrom: {secret: {file: /run/secrets/key}}}
          ports:
            - {name: http, containerPort: 8080, hostPort: 80, hostIP: 127.0.0.1}
            - {containerPort: 53, protocol: UDP}
          volumeMounts:
            - {name: data, mountPath: /data}
            - {name: conf, mountPath: /etc/app, readOnly: true}
            - {name: scratch, mountPath: /tmp}
          resources: {limits: {cpu: 1.5, memory: 512Mi}}
          securityContext:
            runAsUser: 1000
            runAsGroup: 1001
            readOnlyRootFilesystem: true
            capabilities: {add: [CAP_NET_BIND_SERVICE], drop: [ALL]}
          ulimits: [{name: nofile, soft: 1024, hard: 4096}]
          init: true
          stopSignal: SIGQUIT
          logging: {driver: json-file, options: {max-size: 10m}}
          docker: {hostConfig: {ShmSize: 1000}}
          readinessProbe: {httpGet: {port: admin}}
        - name: proxy
          image: envoy
          dependsOn: [log]
          ports: [{name: admin, containerPort: 9901}]
        - name: log
          image: fluentbit@sha256:0000000000000000000000000000000000000000000000000000000000000000
          command: [/bin/log, -v]
          resources: {limits: {cpu: 100m}}
"""


def tree(text: str = POD) -> dict[str, str | bytes]:
    return GOOD | {"providers.yaml": ENGINE_PROVIDERS, "web.yaml": text}


def loaded(root: Path, text: str = POD) -> Template:
    return load_files(root, tree(text)).workloads[0].template


def test_every_field_of_a_pod_is_resolved(tmp_path: Path) -> None:
    template = loaded(tmp_path)
    assert template.container.engine == Engine(
        image="registry.example.com:5000/team/app:1.2",
        pull=PullPolicy.ALWAYS,
        args=("serve",),
        secret_env=(("TOKEN", SecretSource(env="APP_TOKEN")), ("KEY", SecretSource(file="/run/secrets/key"))),
        mounts=(
            Mount(VolumeKind.NAMED, "web-data", "/data"),
            Mount(VolumeKind.BIND, "/srv/conf", "/etc/app", read_only=True),
            Mount(VolumeKind.TMPFS, "", "/tmp", size=64 * 2**20),
        ),
        user="1000:1001",
        cap_add=("NET_BIND_SERVICE",),
        cap_drop=("ALL",),
        read_only_root=True,
        ulimits=(Ulimit("nofile", 1024, 4096),),
        init=True,
        stop_signal="SIGQUIT",
        log_driver="json-file",
        log_options=(("max-size", "10m"),),
        host_config='{"ShmSize": 1000}',
    )
    assert (template.container.argv, template.container.working_dir) == ((), "/srv")
    assert template.container.env == (("MODE", "on"),)
    assert template.networks == ("edge", "back")


def test_the_main_container_has_the_ports_of_the_whole_pod(tmp_path: Path) -> None:
    container = loaded(tmp_path).container
    assert container.ports == (
        Port("http", 8080, 80, "127.0.0.1"),
        Port("", 53, protocol="UDP"),
        Port("admin", 9901),
    )
    assert container.readiness is not None
    assert container.readiness.port == 9901


def test_containers_start_after_those_they_depend_on(tmp_path: Path) -> None:
    assert [sidecar.name for sidecar in loaded(tmp_path).sidecars] == ["log", "proxy"]
    assert loaded(tmp_path).sidecars[0].argv == ("/bin/log", "-v")


def test_only_the_main_container_is_restarted_by_the_engine(tmp_path: Path) -> None:
    assert loaded(tmp_path).live == (
        Live("", 1500, 512 * 2**20, "no"),
        Live("log", 100, 0, "no"),
        Live("proxy", 0, 0, "no"),
    )
    text = POD.replace('  runtimeRestart: "no"\n', "")
    assert [live.restart for live in loaded(tmp_path, text).live] == ["unless-stopped", "no", "no"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("cpu: 1.5, memory: 512Mi", "cpu: 2"),
        ("imagePullPolicy: Always", "imagePullPolicy: Never"),
        ('runtimeRestart: "no"', "runtimeRestart: unless-stopped"),
        ("readinessProbe: {httpGet: {port: admin}}", "livenessProbe: {tcpSocket: {port: http}}"),
    ],
)
def test_fields_that_change_in_place_keep_the_revision(tmp_path: Path, old: str, new: str) -> None:
    assert POD.count(old) == 1
    assert loaded(tmp_path, POD.replace(old, new)).revision == loaded(tmp_path, POD).revision


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("app:1.2", "app:1.3"),
        ("env: APP_TOKEN", "env: OTHER_TOKEN"),
        ("ShmSize: 1000", "ShmSize: 1001"),
        ("readOnly: true", "readOnly: false"),
        ("networks: [edge, back]", "networks: [edge]"),
        ("dependsOn: [log]", "dependsOn: []"),
        ("stopSignal: SIGQUIT", "stopSignal: SIGTERM"),
    ],
)
def test_fields_that_need_a_new_container_change_the_revision(tmp_path: Path, old: str, new: str) -> None:
    assert POD.count(old) == 1
    assert loaded(tmp_path, POD.replace(old, new)).revision != loaded(tmp_path, POD).revision


BAD = [
    ("image: envoy", "image: 'envoy:'", "the tag must have"),
    ("image: envoy", "image: Envoy", "lower case"),
    ("image: envoy", "init: true", "need the field 'image'"),
    ("args: [serve]", "args: [serve]\n          privileged: true", "add the capabilities"),
    ('value: "on"}', 'value: "on", valueFrom: {secret: {env: X}}}', "exactly one of value and valueFrom"),
    ("secret: {env: APP_TOKEN}", "secret: {}", "exactly one of env, file"),
    ("file: /run/secrets/key", "file: run/key", "is not an absolute path"),
    ("workingDir: /srv", "workingDir: srv", "do not support 'workingDir (relative)'"),
    ("hostPort: 80, hostIP: 127.0.0.1", "hostIP: 127.0.0.1", "does nothing without hostPort"),
    ("hostIP: 127.0.0.1", "hostIP: example.com", "is not an IP address"),
    ("networks: [edge, back]", "networks: [host]", "publish a hostPort instead"),
    ("networks: [edge, back]", "networks: ['-x']", "is not the name of a network"),
    ("{name: data, named: web-data}", "{name: data}", "exactly one of named, hostPath, tmpfs and files"),
    ("tmpfs: {", "accessMode: ReadWriteOncePod, tmpfs: {", "each container has its own"),
    ("{name: data, mountPath: /data}", "{name: date, mountPath: /data}", "has no volume 'date'"),
    ("            - {name: data, mountPath: /data}\n", "", "no container mounts volume 'data'"),
    ("mountPath: /data", "mountPath: /tmp", "in the list twice"),
    ("mountPath: /data", "mountPath: /a/../data", "is not an absolute path"),
    ("memory: 512Mi", "memory: 512", "must be at least 6Mi"),
    ("memory: 512Mi", "memory: 0.5Gi", "is not an amount of memory"),
    ("cpu: 1.5", "cpu: 1.5m", "is not an amount of CPU"),
    ("cpu: 100m", "cpu: 1m", "must be between 10m"),
    ("limits: {cpu: 100m}", "requests: {cpu: 100m}", "only limits are supported"),
    ("            runAsUser: 1000\n", "", "runAsGroup needs runAsUser"),
    ("CAP_NET_BIND_SERVICE", "net_admin", "is not a capability"),
    ("soft: 1024", "soft: 8192", "above hard"),
    ("stopSignal: SIGQUIT", "stopSignal: QUIT", "is not the name of a signal"),
    ("ShmSize: 1000", "NetworkMode: host", "write networks in the spec of the pod"),
    ("dependsOn: [log]", "dependsOn: [lok]", "has no container 'lok'"),
    ("dependsOn: [log]", "dependsOn: [proxy]", "in a cycle: proxy"),
    ("args: [serve]", "args: [serve]\n          dependsOn: [log]", "starts before the others"),
    ("image: envoy", "image: envoy\n          livenessProbe: {exec: {command: [x]}}", "move it to the first container"),
    ("containerPort: 9901", "containerPort: 8080", "has the same port"),
    ("name: admin, containerPort", "name: http, containerPort", "has a port with this name"),
    ("- name: log", "- name: proxy", "in the list twice"),
    ("labels: {app: web}", "labels: {app: web, reconciler.instance: x}", "are reserved for the owner mark"),
    ('runtimeRestart: "no"', "replicas: 2", "cannot all publish port 80"),
    ('runtimeRestart: "no"', "runtimeRestart: always", "expected one of unless-stopped, no"),
]


@pytest.mark.parametrize(("old", "new", "text"), BAD, ids=[text for _, _, text in BAD])
def test_a_bad_field_is_reported_with_its_place_and_a_next_step(tmp_path: Path, old: str, new: str, text: str) -> None:
    assert POD.count(old) == 1
    problems = problems_of(tmp_path, tree(POD.replace(old, new)))
    matching = [problem for problem in problems if text in f"{problem.message}\n{problem.hint}"]
    assert matching, problems
    assert all(problem.line > 0 and problem.file == "web.yaml" for problem in matching)


def test_a_runtime_without_images_refuses_the_fields_of_engines(tmp_path: Path) -> None:
    problems = problems_of(tmp_path, GOOD | {"web.yaml": POD})
    refused = {problem.message.rpartition("do not support ")[2].strip("'") for problem in problems}
    assert {"image", "networks", "volumes", "resources", "containers", "runtimeRestart", "env.valueFrom"} <= refused
    assert any("need the field 'command'" in problem.message for problem in problems)


@pytest.mark.parametrize(
    ("text", "full"),
    [
        ("nginx", "docker.io/library/nginx:latest"),
        ("nginx:1.27", "docker.io/library/nginx:1.27"),
        ("index.docker.io/nginx", "docker.io/library/nginx:latest"),
        ("team/app", "docker.io/team/app:latest"),
        ("localhost/app", "localhost/app:latest"),
        ("localhost:5000/a/b__c:x", "localhost:5000/a/b__c:x"),
        ("[::1]:5000/app", "[::1]:5000/app:latest"),
        ("quay.io/a/b:t@sha256:" + "a" * 64, "quay.io/a/b@sha256:" + "a" * 64),
    ],
)
def test_an_image_reference_has_one_full_name(text: str, full: str) -> None:
    assert str(parse_image(text)) == full


@pytest.mark.parametrize(
    "text",
    [
        "",
        ":tag",
        "a:",
        "a/",
        "/a",
        "A/b c",
        "a@sha256:abc",
        "a//b",
        "a:-x",
        "a@md5:" + "a" * 32,
        "http://x/y",
        "a/" * 130,
    ],
)
def test_a_bad_image_reference_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        parse_image(text)
