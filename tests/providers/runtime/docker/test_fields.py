"""Every field of a pod template has the effect on the engine that its description says."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from manifests.values.desired import Port
from manifests.values.pod import Live, Mount, Ulimit, VolumeKind
from providers.errors import Rejected
from tests.providers.runtime.docker.bench import Bench
from tests.providers.runtime.docker.engine import container, template

pytestmark = pytest.mark.server("dockerd")


LOOK = (
    "echo args=$0,$*; echo dir=$(pwd); echo user=$(id -u):$(id -g); echo mode=$MODE; echo files=$(ulimit -Sn):$(ulimit -Hn); "
    "echo first=$(cat /proc/1/comm); touch /probe 2>/dev/null && echo root=writable || echo root=read-only; "
    "touch /bound/x 2>/dev/null && echo bound=writable || echo bound=read-only; "
    "cat /proc/1/status | while read a b; do [ $a = CapBnd: ] && echo caps=$b; [ $a = NoNewPrivs: ] && echo escalation=$b; done; touch /mem/x && echo mem=writable; "
    "exec sleep 300"
)


def test_a_container_runs_as_its_manifest_says(bench: Bench, tmp_path: Path) -> None:
    bound = tmp_path / "bound"
    bound.mkdir()
    made = container(
        "web",
        "/bin/sh", "-c", LOOK, "zero", "one two", "$HOME",
        ports=(Port("http", 8080),),
        mounts=(
            Mount(VolumeKind.BIND, str(bound), "/bound", read_only=True),
            Mount(VolumeKind.TMPFS, "", "/mem", size=1 << 20),
        ),
        user="1234:5678",
        cap_drop=("ALL",),
        cap_add=("NET_BIND_SERVICE",),
        read_only_root=True,
        ulimits=(Ulimit("nofile", 100, 200),),
        init=True,
        stop_signal="SIGKILL",
        log_driver="json-file",
        log_options=(("max-size", "1m"),),
        host_config='{"ShmSize": 1048576, "securityopt": ["no-new-privileges=false"]}',
        no_new_privileges=True,
    )  # fmt: skip
    made = replace(made, env=(("MODE", "a b"),), working_dir="/data")
    live = (Live("", 250, 32 << 20, "unless-stopped"),)
    fact = bench.run(template(made, live=live))
    bench.logged(fact.name, "mem=writable")
    said = bench.runtime.logs(fact.name, 50)
    assert {
        "args=zero,one two $HOME", "dir=/data", "user=1234:5678", "mode=a b", "files=100:200", "root=read-only",
        "bound=read-only", "caps=0000000000000400", "escalation=1",
    } <= set(said)  # fmt: skip
    assert any(line in said for line in ("first=docker-init", "first=tini", "first=init"))
    inspection = bench.api.inspect(fact.name)
    host = inspection["HostConfig"]
    assert (host["CpuQuota"], host["CpuPeriod"], host["Memory"], host["ShmSize"]) == (
        25_000,
        100_000,
        32 << 20,
        1 << 20,
    )
    assert host["RestartPolicy"]["Name"] == "unless-stopped"
    assert host["LogConfig"] == {"Type": "json-file", "Config": {"max-size": "1m"}}
    assert inspection["Config"]["StopSignal"] == "SIGKILL"
    assert inspection["Config"]["Labels"]["app"] == "web"
    assert fact.live == live


def test_without_a_command_the_image_decides_what_runs(bench: Bench) -> None:
    bench.api.import_image(
        "reconciler-test/said:1", image_with_command(), 'ENTRYPOINT ["/bin/echo", "image"]', 'CMD ["default"]'
    )
    plain = replace(container(image="reconciler-test/said:1"), argv=())
    bench.logged(bench.run(template(plain)).name, "image default")
    with_args = replace(container(image="reconciler-test/said:1", args=("given",)), argv=())
    bench.logged(bench.run(template(with_args), ordinal=1).name, "image given")
    bench.api.link.delete("/images/reconciler-test/said:1", "image", force="1")


@pytest.mark.parametrize(
    ("user", "cause"),
    [
        ("", "is root"),
        ("0", "is root"),
        ("0:5", "is root"),
        ("web", "'web', a name that may be root"),
        ("1000", ""),
        ("12:34", ""),
    ],
)
def test_a_container_that_must_not_be_root_needs_a_user(bench: Bench, user: str, cause: str) -> None:
    image = f"reconciler-test/user-{user.replace(':', '-') or 'none'}:1"
    bench.api.import_image(image, image_with_command(), *([f"USER {user}"] if user else []))
    made = template(container("web", "/bin/sleep", "300", image=image, run_as_non_root=True))
    if not cause:
        assert bench.api.inspect(bench.run(made).name)["Config"]["User"] == user
        return
    with pytest.raises(Rejected, match=cause):
        bench.create(made)
    assert bench.api.names(f"reconciler.instance={bench.instance}") == []
    named = template(container("web", "/bin/sleep", "300", image=image, run_as_non_root=True, user="1000"))
    assert bench.api.inspect(bench.run(named).name)["State"]["Running"]


def image_with_command() -> bytes:
    from tests.providers.runtime.docker.engine import image_tar  # noqa: PLC0415

    return image_tar()


def test_limits_and_restart_policy_change_in_place(bench: Bench) -> None:
    fact = bench.run(template(live=(Live("", 500, 64 << 20, "unless-stopped"),)))
    for wanted in (Live("", 250, 32 << 20, "no"), Live("", 0, 0, "no"), Live("", 1000, 128 << 20, "unless-stopped")):
        after = bench.update(fact, wanted)
        assert after.live == (wanted,)
        assert after.generation == fact.generation
        assert bench.looked(fact.name).live == (wanted,)


def test_the_next_look_has_a_change_by_another_writer(bench: Bench) -> None:
    fact = bench.run(template(live=(Live("", 0, 64 << 20, "no"),)))
    assert bench.looked(fact.name).live == fact.live
    bench.api.link.post(f"/containers/{fact.name}/update", fact.name, {"Memory": 48 << 20, "MemorySwap": 48 << 20})
    assert bench.looked(fact.name).live == (Live("", 0, 48 << 20, "no"),)


def test_the_state_file_is_private(bench: Bench) -> None:
    bench.stop(bench.run())
    file = bench.state_dir / "docker" / "local.stops.json"
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert len(json.loads(file.read_text())) == 1


def test_the_check_names_what_the_node_lacks(bench: Bench) -> None:
    mount = Mount(VolumeKind.BIND, "/no/such/directory", "/data")
    problems = bench.runtime.check([template(container("web", mounts=(mount,)))])
    assert [line for line in problems if "/no/such/directory" in line]
    assert bench.runtime.check([template()]) == ()
