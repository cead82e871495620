"""Every field of a pod template does on the engine what its description says."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from manifests.values.desired import Port
from manifests.values.pod import Live, Mount, SecretSource, Ulimit, VolumeKind
from providers.errors import Rejected
from providers.facts import ContainerState
from tests.free_ports import free_port
from tests.providers.runtime.docker.bench import Bench
from tests.providers.runtime.docker.engine import container, template

pytestmark = pytest.mark.server("dockerd")

LOOK = (
    "echo args=$0,$*; echo dir=$(pwd); echo user=$(id -u):$(id -g); echo mode=$MODE; echo files=$(ulimit -Sn):$(ulimit -Hn); "
    "echo first=$(cat /proc/1/comm); touch /probe 2>/dev/null && echo root=writable || echo root=read-only; "
    "touch /bound/x 2>/dev/null && echo bound=writable || echo bound=read-only; "
    "cat /proc/1/status | while read a b; do [ $a = CapBnd: ] && echo caps=$b; done; touch /mem/x && echo mem=writable; "
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
        host_config='{"ShmSize": 1048576}',
    )  # fmt: skip
    made = replace(made, env=(("MODE", "a b"),), working_dir="/data")
    live = (Live("", 250, 32 << 20, "unless-stopped"),)
    fact = bench.run(template(made, live=live))
    bench.logged(fact.name, "mem=writable")
    said = bench.runtime.logs(fact.name, 50)
    assert {
        "args=zero,one two $HOME", "dir=/data", "user=1234:5678", "mode=a b", "files=100:200", "root=read-only",
        "bound=read-only", "caps=0000000000000400",
    } <= set(said)  # fmt: skip
    assert any(line in said for line in ("first=docker-init", "first=tini", "first=init"))
    found = bench.api.inspect(fact.name)
    host = found["HostConfig"]
    assert (host["CpuQuota"], host["CpuPeriod"], host["Memory"], host["ShmSize"]) == (
        25_000,
        100_000,
        32 << 20,
        1 << 20,
    )
    assert host["RestartPolicy"]["Name"] == "unless-stopped"
    assert host["LogConfig"] == {"Type": "json-file", "Config": {"max-size": "1m"}}
    assert found["Config"]["StopSignal"] == "SIGKILL"
    assert found["Config"]["Labels"]["app"] == "web"
    assert fact.live == live


def test_a_secret_reaches_the_container_and_nothing_else(bench: Bench, tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("sentinel-of-this-test\n")
    file.chmod(0o600)
    made = container(
        "web",
        "/bin/sh",
        "-c",
        "echo got ${#TOKEN}; exec sleep 300",
        secret_env=(("TOKEN", SecretSource(file=str(file))),),
    )
    fact = bench.run(template(made))
    bench.logged(fact.name, "got 21")
    labels = bench.api.inspect(fact.name)["Config"]["Labels"]
    assert "sentinel" not in f"{fact} {labels} {made} {bench.runtime.logs(fact.name, 9)}"


def test_a_secret_that_is_not_there_is_refused_and_nothing_is_made(bench: Bench, tmp_path: Path) -> None:
    action = bench.creation(template(container(secret_env=(("A", SecretSource(file=str(tmp_path / "none"))),))))
    with pytest.raises(Rejected, match="does not exist"):
        bench.runtime.perform(action)
    assert bench.runtime.observe([action.name]) == ()


def test_networks_and_volumes_are_made_when_they_are_absent(bench: Bench) -> None:
    first, second = bench.network(), bench.network()
    volume = f"{bench.instance}-data"
    made = container("web", mounts=(Mount(VolumeKind.NAMED, volume, "/data"),), ports=(Port("http", 80),))
    fact = bench.run(template(made, networks=(first, second)))
    networks = bench.api.inspect(fact.name)["NetworkSettings"]["Networks"]
    assert set(networks) == {first, second}
    assert fact.address == networks[first]["IPAddress"]
    assert [(port.address, port.port) for port in fact.ports] == [(fact.address, 80)]
    bench.remove(bench.stop(fact))
    assert bench.api.link.get(f"/volumes/{volume}", volume)["Name"] == volume
    bench.api.link.delete(f"/volumes/{volume}", volume)


def test_a_network_that_a_kill_left_out_is_joined_at_the_start(bench: Bench) -> None:
    first, second = bench.network(), bench.network()
    fact = bench.create(template(networks=(first, second)))
    bench.api.link.post(f"/networks/{second}/disconnect", second, {"Container": fact.name, "Force": True})
    running = bench.start(fact)
    assert set(bench.api.inspect(running.name)["NetworkSettings"]["Networks"]) == {first, second}


def test_a_published_port_is_open_on_the_node(bench: Bench) -> None:
    port = free_port()
    made = container(
        "web", "/bin/httpd", "-f", "-p", "8080", "-h", "/bin", ports=(Port("http", 8080, port, "127.0.0.1"),)
    )
    fact = bench.run(template(made))
    ports = bench.api.inspect(fact.name)["NetworkSettings"]["Ports"]
    assert ports["8080/tcp"] == [{"HostIp": "127.0.0.1", "HostPort": str(port)}]


def test_without_a_command_the_image_says_what_runs(bench: Bench) -> None:
    bench.api.import_image(
        "reconciler-test/said:1", image_with_command(), 'ENTRYPOINT ["/bin/echo", "image"]', 'CMD ["default"]'
    )
    plain = replace(container(image="reconciler-test/said:1"), argv=())
    bench.logged(bench.run(template(plain)).name, "image default")
    with_args = replace(container(image="reconciler-test/said:1", args=("given",)), argv=())
    bench.logged(bench.run(template(with_args), ordinal=1).name, "image given")
    bench.api.link.delete("/images/reconciler-test/said:1", "image", force="1")


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


def test_a_change_of_somebody_else_is_seen_at_the_next_look(bench: Bench) -> None:
    fact = bench.run(template(live=(Live("", 0, 64 << 20, "no"),)))
    assert bench.looked(fact.name).live == fact.live
    bench.api.link.post(f"/containers/{fact.name}/update", fact.name, {"Memory": 48 << 20, "MemorySwap": 48 << 20})
    assert bench.looked(fact.name).live == (Live("", 0, 48 << 20, "no"),)


def test_the_restart_policy_is_off_while_it_is_stopped_and_back_when_it_runs(bench: Bench) -> None:
    fact = bench.run(template(restart="unless-stopped"))
    stopped = bench.stop(fact)
    assert bench.api.inspect(fact.name)["HostConfig"]["RestartPolicy"]["Name"] == "no"
    assert stopped.state is ContainerState.EXITED
    again = bench.start(stopped)
    assert again.live == (Live("", 0, 0, "unless-stopped"),)


def test_the_state_file_is_private(bench: Bench) -> None:
    bench.stop(bench.run())
    file = bench.state_dir / "docker" / "local.stops.json"
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert len(json.loads(file.read_text())) == 1


def test_the_doctor_names_what_is_missing(bench: Bench) -> None:
    mount = Mount(VolumeKind.BIND, "/no/such/directory", "/data")
    found = bench.runtime.check([template(container("web", mounts=(mount,)))])
    assert [line for line in found if "/no/such/directory" in line]
    assert bench.runtime.check([template()]) == ()
