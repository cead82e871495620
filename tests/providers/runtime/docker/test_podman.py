"""What is different on Podman: the processes that exec probes leave, the init process, network namespaces, rootless services."""

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from manifests.values.desired import SECOND, Probe, ProbeKind, Template
from providers.errors import ProviderError
from providers.runtime.docker import podman as rules
from providers.runtime.docker.client import hint
from providers.testing.checks import wait_until
from tests.providers.runtime.docker.bench import Bench
from tests.providers.runtime.docker.engine import answers, container, ensure_podman, podman_home, template

EXEC = Probe(ProbeKind.EXEC, command=("/bin/true",), period=5 * SECOND)


def probed(*probes: Probe) -> Template:
    liveness, readiness = (*probes, None, None)[:2]
    return template(replace(container(), liveness=liveness, readiness=readiness))


# --- the rules ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("conf", "probes", "number"),
    [
        ({}, [EXEC], "about 120 for each replica with container web"),
        ({}, [EXEC, replace(EXEC, period=10 * SECOND)], "about 180 for each replica"),
        ({"engine": {"exit_command_delay": 60}}, [EXEC], "for 60 s: about 24 for each replica"),
        ({"engine": {"exit_command_delay": 10}}, [EXEC], ""),
        ({}, [Probe(ProbeKind.TCP, port=80)], ""),
        ({}, [], ""),
    ],
)
def test_the_cost_of_exec_probes_is_a_number(conf, probes, number):
    lines = list(rules.warnings(conf, "local", [probed(*probes)]))
    assert len(lines) == (1 if number else 0)
    if number:
        assert number in lines[0]
        assert "exit_command_delay = 10" in lines[0]


def test_a_missing_init_process_is_reported_before_a_container_needs_it(tmp_path):
    there = tmp_path / "catatonit"
    there.write_text("")
    there.chmod(0o755)
    wanted = [template(container(init=True))]
    (line,) = rules.problems({"containers": {"init_path": "/nonexistent/catatonit"}}, "local", wanted)
    assert "catatonit is missing, and container web has init; install the package catatonit" in line
    assert not list(rules.problems({"containers": {"init_path": str(there)}}, "local", wanted))
    assert not list(rules.problems({"engine": {"helper_binaries_dir": [str(tmp_path)]}}, "local", wanted))
    assert not list(rules.problems({"containers": {"init_path": "/nonexistent"}}, "local", [template()]))


def test_settings_are_those_of_the_services_own_environment(tmp_path):
    (tmp_path / "c.conf").write_text("[engine]\nexit_command_delay = 7\n")
    (tmp_path / "o.conf").write_text("[engine]\nexit_command_delay = 8\n[containers]\ninit = true\n")
    environment = {"CONTAINERS_CONF": str(tmp_path / "c.conf"), "CONTAINERS_CONF_OVERRIDE": str(tmp_path / "o.conf")}
    with subprocess.Popen(["sleep", "60"], env={**os.environ, **environment}) as process:
        try:
            wait_until(lambda: b"sleep" in Path(f"/proc/{process.pid}/cmdline").read_bytes(), "it runs")
            assert rules.settings(process.pid) == {"engine": {"exit_command_delay": 8}, "containers": {"init": True}}
        finally:
            process.kill()
    (tmp_path / "c.conf").write_text("no TOML [")
    assert isinstance(rules.settings(0), dict)


@pytest.mark.parametrize(
    ("cause", "said"),
    [
        ("creating network namespace for container 1a: failed to bind mount ns at /run/netns/netns-1: no such file or directory", "/run/netns"),
        ("error joining network namespace for container 1a: error retrieving network namespace at /run/netns/netns-1: failed to Statfs: no such file or directory", "/run/netns"),
        ("container create: container-init binary not found on the host: stat /usr/libexec/podman/catatonit: no such file or directory", "catatonit"),
        ('exec: "/serve": stat /serve: no such file or directory', "the image has no such file"),
    ],
)  # fmt: skip
def test_a_missing_file_of_the_node_is_not_reported_as_one_of_the_image(cause, said):
    assert said in hint(cause)


# --- on a real service ----------------------------------------------------------------------------------------------


@contextmanager
def service(state: Path, **settings: str) -> Iterator[Bench]:
    """A bench on a Podman service with settings of its own."""
    with podman_home() as home:
        bench = Bench(ensure_podman(home, **settings), state)
        try:
            yield bench
        finally:
            bench.close()


def monitors(container_id: str) -> int:
    """The processes that watch a container or a command in it."""
    count = 0
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            count += words[0].endswith(b"conmon") and container_id.encode() in words
    return count


@pytest.mark.server("podman")
def test_the_advised_delay_ends_what_exec_probes_leave(tmp_path: Path) -> None:
    with service(tmp_path, engine=f"exit_command_delay = {rules.ADVISED_DELAY}") as bench:
        assert bench.runtime.warnings([probed(EXEC)]) == ()
        fact = bench.run(probed(EXEC))
        alone = monitors(fact.id)
        target = bench.runtime.exec_target(fact.name, ("/bin/sh", "-c", "exit 3"))
        began = time.monotonic()
        codes = [subprocess.run(target.argv, capture_output=True, timeout=60, check=False).returncode for _ in range(3)]
        assert codes == [3, 3, 3]
        if time.monotonic() - began < rules.ADVISED_DELAY:
            assert monitors(fact.id) == alone + 6
        wait_until(lambda: monitors(fact.id) == alone, "the monitors have ended")


@pytest.mark.server("podman")
def test_doctor_warns_of_what_exec_probes_leave_by_default(podman_socket: str, tmp_path: Path) -> None:
    bench = Bench(podman_socket, tmp_path)
    try:
        (line,) = bench.runtime.warnings([probed(EXEC)])
        assert "two conmon processes of each exec probe for 300 s" in line
        assert bench.runtime.check([probed(EXEC)]) == ()
    finally:
        bench.close()


@pytest.mark.server("podman")
def test_a_missing_init_process_is_reported_by_doctor_and_by_the_creation(tmp_path: Path) -> None:
    wanted = template(container(init=True))
    with service(tmp_path, containers='init_path = "/nonexistent/catatonit"') as bench:
        (problem,) = bench.runtime.check([wanted])
        assert "catatonit is missing" in problem
        with pytest.raises(ProviderError, match="container-init binary not found") as caught:
            bench.create(wanted)
        assert "install the package catatonit" in caught.value.next_step


@pytest.mark.server("podman")
@pytest.mark.parametrize("spoil", ["touch /run/netns", "mkdir /run/netns && mount -t tmpfs -o ro tmpfs /run/netns"])
def test_a_node_without_a_directory_for_network_namespaces_is_reported(spoil: str, tmp_path: Path) -> None:
    with service(tmp_path, run_first=spoil) as bench:
        fact = bench.create()
        with pytest.raises(ProviderError, match="network namespace") as caught:
            bench.start(fact)
        assert "mkdir -p /run/netns" in caught.value.next_step


@pytest.fixture
def rootless() -> Iterator[Callable[[], str]]:
    """The socket of a Podman service of an ordinary user."""
    if os.geteuid():
        pytest.skip("needs root, to become another user")
    home = Path(tempfile.mkdtemp(prefix="rl-", dir="/tmp"))
    (home / "run").mkdir(mode=0o700)
    for path in (home, home / "run"):
        os.chown(path, 70124, 70124)
    store = ["--storage-driver", "vfs", "--cgroup-manager", "cgroupfs", "--root", f"{home}/s", "--runroot", f"{home}/r"]
    argv = ["setpriv", "--reuid=70124", "--regid=70124", "--clear-groups", "podman", *store, "system", "service"]
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "XDG_RUNTIME_DIR": f"{home}/run"}
    with (home / "log").open("wb") as log:
        process = subprocess.Popen(
            [*argv, "--time=120", f"unix://{home}/podman.sock"], cwd=home, env=environment, stdout=log, stderr=log
        )

        def socket() -> str:
            path = str(home / "podman.sock")
            wait_until(lambda: answers(path) or process.poll() is not None, "it answers")
            assert process.poll() is None, (home / "log").read_text()
            return path

        try:
            yield socket
        finally:
            process.kill()
            process.wait()
    shutil.rmtree(home, ignore_errors=True)


@pytest.mark.server("podman")
@pytest.mark.server("setpriv")
def test_doctor_refuses_a_rootless_service(rootless: Callable[[], str], tmp_path: Path) -> None:
    bench = Bench(rootless(), tmp_path)
    try:
        assert "Podman runs rootless" in " ".join(bench.runtime.check([template()]))
    finally:
        bench.close()
