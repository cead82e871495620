"""The systemd units in examples/systemd: the lines that they must have, and systemd's own judgement of them."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.e2e.unit_rights import DROP_INS, ROOT, UNIT, UNITS, settings, syscall_sets, syscalls

LEAST = {
    "Type": "notify",
    "User": "reconcile",
    "StateDirectory": "reconcile",
    "StateDirectoryMode": "0700",
    "UMask": "0077",
    "NoNewPrivileges": "yes",
    "ProtectSystem": "strict",
    "ProtectHome": "yes",
    "ProtectProc": "invisible",
    "PrivateTmp": "yes",
    "PrivateDevices": "yes",
    "ProtectKernelTunables": "yes",
    "ProtectKernelModules": "yes",
    "ProtectControlGroups": "yes",
    "RestrictSUIDSGID": "yes",
    "RestrictNamespaces": "yes",
    "SystemCallArchitectures": "native",
    "RestrictAddressFamilies": "AF_UNIX AF_INET AF_INET6 AF_NETLINK",
}
"""Settings that no drop-in may weaken, and their values."""

EXPOSURE = {"": 15, "nginx": 17}
"""The highest exposure that `systemd-analyze security` may give (tenths), for the unit alone and with some drop-ins. Others are as the unit
alone."""

names = sorted(file.stem for file in DROP_INS.glob("*.conf"))


def test_there_is_a_drop_in_for_each_provider_that_needs_a_right():
    assert names == ["docker", "git", "haproxy", "nginx", "podman", "process", "zonefile"]


@pytest.mark.parametrize("drop_ins", [(), *((name,) for name in names), tuple(names)])
def test_a_unit_keeps_its_restrictions_with_every_drop_in(drop_ins):
    found = settings(*drop_ins)
    assert {name: found.get(name, [])[-1:] for name in LEAST} == {name: [value] for name, value in LEAST.items()}
    capabilities = set(found["CapabilityBoundingSet"])
    assert capabilities == set(found["AmbientCapabilities"])
    assert capabilities == ({"CAP_NET_BIND_SERVICE"} if "nginx" in drop_ins else set())


def test_the_unit_alone_has_no_group_and_writes_only_its_state():
    found = settings()
    assert found["CapabilityBoundingSet"] == found["AmbientCapabilities"] == []
    assert "SupplementaryGroups" not in found
    assert "ReadWritePaths" not in found


@pytest.mark.server("systemd-analyze")
def test_no_system_call_of_an_administrator_is_allowed():
    sets = syscall_sets()
    allowed = syscalls(settings(*names)["SystemCallFilter"], sets)
    assert {"read", "execve", "prlimit64", "fchown"} <= allowed
    for name in (
        "mount",
        "ptrace",
        "bpf",
        "setuid",
        "chown",
        "reboot",
        "init_module",
        "io_uring_setup",
        "keyctl",
    ):
        assert name not in allowed


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root directory for systemd-analyze with the unit in it, and the program that it starts."""
    directory = tmp_path / "etc" / "systemd" / "system"
    directory.mkdir(parents=True)
    shutil.copy(UNIT, directory)
    program = tmp_path / "opt" / "reconciler" / "bin" / "reconcile"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    return tmp_path


def analyze(root: Path, *words: str) -> str:
    done = subprocess.run(
        ["systemd-analyze", *words, f"--root={root}"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    return done.stdout + done.stderr


@pytest.mark.server("systemd-analyze")
@pytest.mark.parametrize("name", ["", *names])
def test_systemd_calls_the_exposure_of_the_unit_low(root, name):
    if name:
        drop_ins = root / "etc/systemd/system/reconcile.service.d"
        drop_ins.mkdir()
        shutil.copy(DROP_INS / f"{name}.conf", drop_ins)
    out = analyze(root, "security", "--offline=yes", "--no-pager", "reconcile.service")
    match = re.search(r"Overall exposure level for reconcile.service: (\d+)\.(\d)", out)
    assert match is not None, out
    assert int(match[1] + match[2]) <= EXPOSURE.get(name, EXPOSURE[""]), out


@pytest.mark.server("systemd-analyze")
def test_systemd_knows_every_setting(root):
    """A misspelled setting would be ignored with a warning."""
    shutil.copytree(DROP_INS, root / "etc/systemd/system/reconcile.service.d")
    out = analyze(root, "verify", "reconcile.service")
    assert not re.search(r"Unknown|Failed to parse|ignoring|Invalid", out), out
    wrong = root / "etc/systemd/system/reconcile.service.d/wrong.conf"
    wrong.write_text("[Service]\nProtectSytem=strict\n")
    assert "Unknown" in analyze(root, "verify", "reconcile.service")  # it would be seen


def test_the_user_of_the_unit_is_made_by_the_sysusers_file():
    lines = [line for line in (UNITS / "reconcile.sysusers.conf").read_text().splitlines() if not line.startswith("#")]
    assert lines == ['u reconcile - "reconcile" /var/lib/reconcile']


def test_the_page_has_a_row_for_each_drop_in():
    page = (ROOT / "docs" / "rights.md").read_text(encoding="utf-8")
    rows = "".join(line for line in page.splitlines() if line.startswith("| "))
    assert [name for name in names if f"`{name}.conf`" not in rows] == []
    for target in re.findall(r"`(tests/\S+\.py)`", page):
        assert (ROOT / target).exists()
