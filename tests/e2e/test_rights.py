"""The daemon with exactly the rights of the units in examples/systemd: user, groups, capabilities, writable paths, system calls, address
families. Each test names the drop-ins that its providers need; with one less it must fail, so that no drop-in gives a right for nothing.
"""

import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path

import pytest

from tests.e2e.edge_world import World, podman_with_image, servers, until
from tests.e2e.quickstart_world import World as Quickstart
from tests.e2e.unit_rights import ROOT, USER, Rights, own, rights_of, settings

HAPROXY, PODMAN = USER + 1, USER + 2
"""Groups for the sockets that a test makes."""

PATIENCE = 120.0

pytestmark = [
    pytest.mark.server("setpriv"),
    pytest.mark.server("systemd-analyze"),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a process as another user"),
]


def words_of_the_unit(world_manifests: Path, local: Path) -> list[str]:
    """The arguments of ExecStart, with the paths of a test."""
    (line,) = settings()["ExecStart"]
    places = {"/srv/manifests": str(world_manifests), "/etc/reconciler": str(local)}
    return [places.get(word, word) for word in shlex.split(line)[1:]]


@contextmanager
def notified(path: Path) -> Iterator[socket.socket]:
    """The socket of a service manager."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as link:
        link.bind(str(path))
        path.chmod(0o666)
        link.settimeout(PATIENCE)
        yield link


def wait_until_ready(link: socket.socket) -> None:
    while b"READY=1" not in link.recv(4096).split(b"\n"):
        pass


def check_confined(pid: int, capabilities: int = 0, groups: str = "") -> None:
    """What the kernel says of the process: not root, no capability but these, no way to more."""
    found = rights_of(pid)
    assert found["Uid"] == found["Gid"] == " ".join([str(USER)] * 4)
    assert found["Groups"] == groups
    for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert int(found[name], 16) == capabilities, name
    assert (found["NoNewPrivs"], found["Seccomp"]) == ("1", "2")


def daemon(
    prefix: list[str], manifests: Path, local: Path, home: Path
) -> AbstractContextManager["subprocess.Popen[bytes]"]:
    """The unit's ExecStart with these rights; see `unit_process`."""
    return unit_process(prefix, words_of_the_unit(manifests, local), home)


@contextmanager
def unit_process(prefix: list[str], words: list[str], home: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """A daemon with these rights and arguments, from its first decision until SIGTERM ends it. Its log is beside its home."""
    environment = {"HOME": str(home), "PATH": os.environ["PATH"], "NOTIFY_SOCKET": str(home.parent / "notify")}
    log = home.parent / "daemon.log"
    with notified(home.parent / "notify") as link, log.open("wb") as out:
        process = subprocess.Popen(
            [*prefix, sys.executable, "-m", "reconciler", *words],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
        )
        try:
            wait_until_ready(link)
            yield process
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE) == 143
        except BaseException:
            print(log.read_text())
            raise
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
    assert "Traceback" not in log.read_text(), log.read_text()


def command(prefix: list[str], home: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    """One command of an operator, as `sudo -u reconcile -H reconcile ...` gives it."""
    return subprocess.run(
        [*prefix, sys.executable, "-m", "reconciler", *words],
        cwd=ROOT,
        env={"HOME": str(home), "PATH": os.environ["PATH"], "SUDO_USER": "ada"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


@contextmanager
def opened(path: str, group: int) -> Iterator[None]:
    """A socket for a group, and the way to it for every user, until the block ends."""
    file, before = Path(path), []
    for place in (file, *file.parents):
        status = place.stat()
        before.append((place, status))
        if place != file and not status.st_mode & 0o001:
            place.chmod(status.st_mode & 0o7777 | 0o011)
    os.chown(file, 0, group)
    file.chmod(0o660)
    try:
        yield
    finally:
        for place, status in before:
            if place.exists():
                os.chown(place, status.st_uid, status.st_gid)
                place.chmod(status.st_mode & 0o7777)


def give_way(world: World, home: Path) -> Path:
    """Let the unit's user read its manifests and its key, and HAProxy's group use its socket. Returns the local documents."""
    local = world.directory / "local"
    local.mkdir(mode=0o755)
    home.mkdir(mode=0o700)
    own(home)
    world.edit(f"{world.directory}/haproxy.state", f"{home}/haproxy.state")
    (world.manifests / "instance.yaml").rename(local / "instance.yaml")
    world.directory.chmod(0o755)
    own(world.directory / "update.key")
    configuration = world.directory / "haproxy.cfg"
    configuration.chmod(0o644)  # as Debian has it: `doctor` reads it
    text = configuration.read_text()
    assert "mode 600" in text
    text = text.replace("mode 600", f"mode 660 gid {HAPROXY}")
    configuration.write_text(text.replace(f"{world.directory}/haproxy.state", f"{home}/haproxy.state"))
    return local


@pytest.mark.server("haproxy")
@pytest.mark.server("named")
@pytest.mark.parametrize(
    "kind",
    [
        pytest.param("docker", marks=pytest.mark.server("dockerd")),
        pytest.param("podman", marks=pytest.mark.server("podman")),
    ],
)
def test_the_edge_example_runs_with_the_rights_of_its_units(kind, request):
    engine = (
        request.getfixturevalue("engine") if kind == "docker" else podman_with_image(request.getfixturevalue("podman"))
    )
    if kind == "docker":
        group = Path(engine).stat().st_gid
        if group == 0:
            pytest.skip("the socket of Docker belongs to the group root; start it with a group docker")
    else:
        group = PODMAN
    world = World(engine)
    home = world.directory / "home"
    try:
        servers.prepare(world.edge)
        local = give_way(world, home)
        servers.start_haproxy(world.edge)
        servers.start_named(world.edge)
        rights = Rights.of(
            kind, "haproxy", groups={kind: group, "haproxy": HAPROXY}, writable={"/var/lib/reconcile": home}
        )
        # Docker's socket has its group already.
        way = opened(engine, group) if kind == "podman" else nullcontext()
        where = (str(world.manifests), "--instance", str(local))
        with way:
            fewer = Rights.of(writable={"/var/lib/reconcile": home}).command(world.directory)
            checked = command(fewer, home, "doctor", *where)
            assert checked.returncode != 0
            assert checked.stdout.lower().count("permission denied") == 2, checked.stdout  # the engine and HAProxy
            prefix = rights.command(world.directory)
            checked = command(prefix, home, "doctor", *where)
            assert checked.returncode == 0, checked.stdout + checked.stderr
            with daemon(prefix, world.manifests, local, home) as process:
                check_confined(process.pid, groups=" ".join(map(str, sorted((group, HAPROXY)))))
                world.settle()
                victim = min(world.started_at())
                began, address = world.started_at()[victim], world.address(victim)
                world.ask(address, "/cgi-bin/break")
                until(lambda: world.started_at()[victim] != began, "it was restarted for its health")
                world.settle()
                asked = command(prefix, home, "suspend", "workload/web", "--reason", "a look", *where)
                assert asked.returncode == 0, asked.stdout + asked.stderr
                assert "in effect now" in asked.stdout
        assert (home / "haproxy.state").stat().st_uid == USER
    finally:
        world.close()


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that every user can reach. The directories of pytest are private."""
    made = Path(tempfile.mkdtemp(prefix="rights-", dir="/tmp"))  # short: paths of Unix sockets are
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


ATTEMPTS = """
import ctypes, errno, json, mmap, os, socket, sys

def attempt(act):
    try:
        act()
    except OSError as error:
        return errno.errorcode[error.errno]
    return "done"

def new_namespace():
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"none", b"/mnt", b"tmpfs", 0, None):
        raise OSError(ctypes.get_errno(), "mount")

home, outside = sys.argv[1:]
print(json.dumps({
    "write at home": attempt(lambda: open(home + "/file", "w").close()),
    "write outside": attempt(lambda: open(outside + "/file", "w").close()),
    "netlink": attempt(lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW).close()),
    "packets": attempt(lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW).close()),
    "mount": attempt(new_namespace),
    "become root": attempt(lambda: os.setuid(0)),
    "give away": attempt(lambda: os.chown(home + "/file", 0, 0)),
    "written code": attempt(lambda: mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC).close()),
}))
"""
"""A program that tries what the unit gives and what it does not give."""


def test_what_the_unit_does_not_give_is_refused(place):
    """The other tests say nothing if the rights are not really taken away."""
    home, outside = place / "home", place / "outside"
    home.mkdir()
    outside.mkdir()
    outside.chmod(0o777)
    own(home)
    prefix = Rights.of(writable={"/var/lib/reconcile": home}).command(place)
    done = subprocess.run(
        [*prefix, sys.executable, "-c", ATTEMPTS, str(home), str(outside)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "write at home": "done",
        "write outside": "EROFS",
        "netlink": "done",
        "packets": "EPERM",
        "mount": "EPERM",
        "become root": "EPERM",
        "give away": "EPERM",
        "written code": "EPERM",
    }
    assert (home / "file").stat().st_mode & 0o777 == 0o600  # UMask


@pytest.fixture
def quickstart(place: Path) -> Iterator[Quickstart]:
    """The quickstart, with its Instance and Providers as local documents, and the home of the unit's user."""
    world = Quickstart(place)
    world.home.mkdir(mode=0o700)
    local = place / "local"
    local.mkdir()
    (world.manifests / "instance.yaml").rename(local / "instance.yaml")
    edit(local / "instance.yaml", f"  id: {world.id}\n", f"  id: {world.id}\n  allowProcess: [web]\n")
    own(world.home)
    yield world

    def ended() -> bool:
        for pid in world.processes():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not world.processes()

    until(ended, "no replica is left")
    world.claim.drop()


def edit(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def test_processes_zones_and_pools_need_no_more_than_their_drop_ins(quickstart, place):
    world, local, zones = quickstart, place / "local", place / "zones"
    zones.mkdir()
    own(zones)
    edit(local / "instance.yaml", "  type: zonefile", f"  settings: {{directory: {zones}}}\n  type: zonefile")
    probed = world.home / "probed"
    keep = f"import pathlib as p; p.Path('{probed}').write_text(p.Path('/proc/self/status').read_text())"
    edit(
        world.manifests / "web.yaml",
        "          readinessProbe: # a failure removes the replica from the pool and from DNS\n            httpGet: {path: /readyz, port: http}",
        f'          readinessProbe:\n            exec: {{command: [python3, -c, "{keep}"]}}',
    )
    writable = {"/var/lib/reconcile": world.home, "/var/lib/zones": zones}
    prefix = Rights.of("process", "zonefile", writable=writable).command(place)
    with daemon(prefix, world.manifests, local, world.home) as process:
        check_confined(process.pid)
        zone = zones / "example.test.zone"
        until(lambda: zone.read_text().count(" IN A ") >= 3, "three addresses are in the zone")
        replicas = [pid for pid in world.processes() if b"service.py" in Path(f"/proc/{pid}/cmdline").read_bytes()]
        assert len(replicas) >= 3
        for pid in replicas:
            check_confined(pid)
        until(probed.exists, "a probe has run its command")
        account = dict(line.split(":", 1) for line in probed.read_text().splitlines())
        assert account["Uid"].split() == [str(USER)] * 4
        assert (account["CapBnd"].strip("\t0"), account["NoNewPrivs"].strip(), account["Seccomp"].strip()) == (
            "",
            "1",
            "2",
        )
    assert all(Path(f"/proc/{pid}").exists() for pid in replicas)


def low_port() -> int:
    """A free port below 1024, which only a process with CAP_NET_BIND_SERVICE can listen on."""
    for port in range(1023, 512, -1):
        with socket.socket() as link, suppress(OSError):
            link.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no free port below 1024")


NGINX = """
pid {run}/nginx.pid;
error_log {log}/error.log info;
daemon off;
events {{ worker_connections 64; }}
http {{
    access_log {log}/access.log;
    client_body_temp_path {lib}/body;
    proxy_temp_path {lib}/proxy;
    fastcgi_temp_path {lib}/fastcgi;
    uwsgi_temp_path {lib}/uwsgi;
    scgi_temp_path {lib}/scgi;
    include reconciler/*.conf;
    server {{
        listen 127.0.0.1:{port};
        location / {{ proxy_pass http://$http_host; }}
    }}
}}
"""


@contextmanager
def nginx(place: Path, port: int) -> Iterator[dict[str, Path]]:
    """nginx whose master is the unit's user and may listen on low ports, as drop-in nginx.conf says. Yields its directories by the unit's paths."""
    names = {"etc": "/etc/nginx", "log": "/var/log/nginx", "run": "/run/nginx", "lib": "/var/lib/nginx"}
    paths = {name: place / f"nginx-{name}" for name in names}
    for path in paths.values():
        path.mkdir()
        own(path)
    (paths["etc"] / "reconciler").mkdir()
    main = paths["etc"] / "nginx.conf"
    main.write_text(NGINX.format(**paths, port=port))
    own(paths["etc"] / "reconciler", main)
    program = shutil.which("nginx", path=os.environ["PATH"] + ":/usr/sbin:/usr/local/sbin")
    assert program is not None
    may = [
        "--inh-caps=-all,+net_bind_service",
        "--ambient-caps=-all,+net_bind_service",
        "--bounding-set=-all,+net_bind_service",
    ]
    user = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", *may, "--no-new-privs"]
    with (place / "nginx.out").open("wb") as out:
        process = subprocess.Popen([*user, program, "-c", str(main)], stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        try:
            until((paths["run"] / "nginx.pid").exists, "nginx runs")
            yield {names[name]: path for name, path in paths.items()}
        finally:
            process.terminate()
            process.wait(PATIENCE)


@pytest.mark.server("nginx")
def test_nginx_is_tested_and_reloaded_without_root(quickstart, place):
    world, local, port = quickstart, place / "local", low_port()
    bind = 1 << 10  # CAP_NET_BIND_SERVICE, linux/capability.h
    with nginx(place, port) as paths:
        etc, run = paths["/etc/nginx"], paths["/run/nginx"]
        places = f"directory: {etc}/reconciler, configuration: {etc}/nginx.conf, pidFile: {run}/nginx.pid"
        edit(local / "instance.yaml", "  type: file", f"  settings: {{{places}}}\n  type: nginx")
        writable = {"/var/lib/reconcile": world.home, **paths}
        fewer = Rights.of("process", writable={"/var/lib/reconcile": world.home}).command(place)
        checked = command(fewer, world.home, "doctor", str(world.manifests), "--instance", str(local))
        assert checked.returncode != 0, checked.stdout
        prefix = Rights.of("process", "nginx", writable=writable).command(place)
        checked = command(prefix, world.home, "doctor", str(world.manifests), "--instance", str(local))
        assert checked.returncode == 0, checked.stdout + checked.stderr
        with daemon(prefix, world.manifests, local, world.home) as process:
            check_confined(process.pid, bind)

            def served() -> bool:
                request = urllib.request.Request(f"http://127.0.0.1:{port}/", headers={"Host": "web"})
                with urllib.request.urlopen(request, timeout=20) as answer:
                    return bool(answer.status == 200)

            until(served, "a request goes through nginx to a replica")
