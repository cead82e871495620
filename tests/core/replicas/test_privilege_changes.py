"""A plan lists the privileges of each workload that is created or changed, and marks the new ones against what runs."""

from dataclasses import replace

import pytest

from manifests.values.desired import Desired, Port, Provider, Role, Template
from manifests.values.pod import Engine, Mount, VolumeKind
from providers.actions import CreateContainer
from reconciler.core.forecast import forecast
from reconciler.core.model import value_json
from reconciler.core.model.revision import revision_key
from reconciler.core.plan_text import privilege_lines, to_json, to_text
from tests.builders import NOW, Scene
from tests.sim.manifest import NODE, Spec, shop

OLD, NEW = Spec(image="v1"), Spec(image="v2")
PRIVILEGED = Engine("shop/web:2", host_config='{"Privileged": true}')


def having(desired: Desired, engine: Engine, ports: tuple[Port, ...] = ()) -> Desired:
    (web,) = desired.workloads
    main = replace(web.template.container, engine=engine)
    main = replace(main, ports=(*main.ports, *ports))
    return replace(desired, workloads=(replace(web, template=replace(web.template, container=main)),))


def template(engine: Engine) -> Template:
    return having(shop(image="v1").desired(), engine).workloads[0].template


def running(engine: Engine | None) -> Scene:
    """v1 runs; its template is in the ledger unless `engine` is None."""
    scene = Scene(OLD)
    if engine is not None:
        text = value_json.write(template(engine))
        scene.ledger = replace(scene.ledger, templates={revision_key(OLD.key, OLD.revision): text})
    return scene


def lines(desired: Desired, scene: Scene) -> list[str]:
    text = to_text(forecast(desired, scene.observed(), NOW))
    return [
        line.removeprefix("privilege workload/web: ") for line in text.splitlines() if line.startswith("privilege ")
    ]


def test_all_privileges_of_a_new_workload_are_new():
    scene = Scene()
    scene.pools["web"] = []
    engine = Engine(
        "shop/web:2",
        cap_add=("NET_ADMIN",),
        user="0",
        mounts=(
            Mount(VolumeKind.BIND, "/srv", "/data", read_only=True),
            Mount(VolumeKind.BIND, "/var/run/docker.sock", "/docker"),
        ),
        log_driver="syslog",
        host_config='{"Privileged": true, "PidMode": "host", "Devices": [{"PathOnHost": "/dev/kmsg"}], "Runtime": "x"}',
    )
    desired = having(shop().desired(), engine, (Port("", 80, 8080), Port("", 53, 53, "192.0.2.1", "UDP")))
    assert lines(desired, scene) == [
        "+ main: capability NET_ADMIN (new)",
        "+ main: device /dev/kmsg (new)",
        "+ main: access to the engine and so to the whole node: /run/docker.sock at /docker (new)",
        "+ main: hostConfig Runtime (new)",
        "+ main: host pid namespace (new)",
        "+ main: host path /run/docker.sock read-write at /docker (new)",
        "+ main: host path /srv read-only at /data (new)",
        "+ main: host port 53/UDP on 192.0.2.1 (new)",
        "+ main: host port 8080/TCP on all addresses (new)",
        "+ main: log driver syslog (new)",
        "+ main: privileged (new)",
        "+ main: runs as root (new)",
    ]
    plan = forecast(desired, scene.observed(), NOW)
    assert to_text(plan).splitlines()[1].endswith(", 12 new privileges")
    rows = to_json(plan, NOW.steady)["privileges"]
    assert {row["change"] for row in rows} == {"new"}
    (path,) = [row for row in rows if row["value"] == "/srv"]
    assert path == {
        "object": "workload/web", "container": "main", "change": "new", "privilege": "hostPaths", "value": "/srv",
        "detail": "/data", "read_only": True, "text": "host path /srv read-only at /data",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (Engine("a"), PRIVILEGED, ["+ main: privileged (new)"]),
        (PRIVILEGED, PRIVILEGED, ["= main: privileged"]),
        (PRIVILEGED, Engine("a"), ["- main: privileged (removed)"]),
        (None, PRIVILEGED, ["? main: privileged (new, or had by a container whose template is not known)"]),
        (Engine("a"), Engine("a"), []),
        (
            Engine("a", mounts=(Mount(VolumeKind.BIND, "/srv", "/d", read_only=True),)),
            Engine("a", mounts=(Mount(VolumeKind.BIND, "/srv", "/d"),)),
            ["+ main: host path /srv read-write at /d (new)", "- main: host path /srv read-only at /d (removed)"],
        ),
        (Engine("a", cap_add=("SYS_TIME",)), Engine("a", host_config='{"capadd": ["CAP_SYS_TIME"]}'), ["= main: capability SYS_TIME"]),
    ],
)  # fmt: skip
def test_a_changed_workload_shows_each_privilege_beside_what_runs(before, after, expected):
    assert lines(having(shop(image="v2").desired(), after), running(before)) == expected


def test_a_lost_replica_gets_no_new_privilege():
    desired = having(shop(image="v1").desired(), PRIVILEGED)
    scene = Scene(OLD)
    assert lines(desired, scene) == []
    del scene.facts[0]
    assert lines(desired, scene) == ["= main: privileged"]


def test_what_an_unreadable_node_runs_is_not_known():
    scene = Scene(OLD)
    scene.unknown.add(NODE)
    (line,) = lines(having(shop(image="v1").desired(), PRIVILEGED), scene)
    assert line.startswith("? main: privileged")


def test_the_socket_of_a_declared_runtime_is_the_engine():
    scene = Scene()
    scene.pools["web"] = []
    engine = Engine("a", mounts=(Mount(VolumeKind.BIND, "/srv/engine", "/e"),))
    desired = having(shop().desired(), engine)
    provider = Provider("provider/x", "x", "docker", Role.RUNTIME, {"socket": "/srv/engine/api"})
    assert len(lines(desired, scene)) == 1
    assert len(lines(replace(desired, providers=(provider,)), scene)) == 2


def test_no_text_of_a_manifest_leaves_its_line():
    scene = Scene()
    scene.pools["web"] = []
    host_config = '{"Devices": [{"PathOnHost": "/dev/x\\n+ nothing\\u001b[2K\\u202e"}], "Privi\\nleged": 1}'
    plan = forecast(having(shop().desired(), Engine("a", host_config=host_config)), scene.observed(), NOW)
    shown = [line for line in to_text(plan).splitlines() if line.startswith("privilege ")]
    assert len(shown) == len(plan.privileges) == 2
    assert all(line.isprintable() for line in shown)
    assert any(isinstance(step.step.action, CreateContainer) for step in plan.steps)


def test_a_plan_for_strangers_names_what_only_running_containers_have():
    before = Engine("a", mounts=(Mount(VolumeKind.BIND, "/srv/private", "/d"),))
    plan = forecast(having(shop(image="v2").desired(), PRIVILEGED), running(before).observed(), NOW)
    assert privilege_lines(plan.privileges, names_only=True) == [
        "privilege workload/web: + main: privileged (new)",
        "privilege workload/web: - main: hostPaths (removed)",
    ]
