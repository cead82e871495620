"""The rights of the systemd units in examples/systemd, read from the files themselves, and a process that has exactly these.

No systemd has to run. As root, `Rights.command` makes a command that starts in a mount namespace of its own, in which only the unit's
paths can be written, and then gives up everything that the unit does not give: user, groups, capabilities, system calls, address families,
memory that is written and run. `tests/e2e/confine.py` does it, with setpriv and libseccomp.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
UNITS = ROOT / "examples" / "systemd"
UNIT = UNITS / "reconcile.service"
DROP_INS = UNITS / "reconcile.service.d"

USER = 64_217
"""A user and group that no machine has, in place of `reconcile`."""

_SETTING = re.compile(r"^(\w+)=(.*)$")


def settings(*drop_ins: str) -> dict[str, list[str]]:
    """All settings of the unit with these drop-ins: each with its values in order. An empty value forgets the ones before, as systemd does."""
    found: dict[str, list[str]] = {}
    for file in (UNIT, *(DROP_INS / f"{name}.conf" for name in drop_ins)):
        for line in file.read_text(encoding="utf-8").splitlines():
            match = _SETTING.match(line)
            if match is None:
                assert not line or line[0] in "#[", f"{file.name}: {line!r} is no setting"
                continue
            name, value = match.groups()
            if value:
                found.setdefault(name, []).append(value)
            else:
                found[name] = []
    return found


def syscall_sets() -> dict[str, list[str]]:
    """systemd's sets of system calls: names of calls and of other sets."""
    done = subprocess.run(
        ["systemd-analyze", "syscall-filter"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        stdin=subprocess.DEVNULL,
    )
    sets: dict[str, list[str]] = {}
    current: list[str] = []
    for line in done.stdout.splitlines():
        word = line.strip()
        if line.startswith("@"):
            current = sets.setdefault(word, [])
        elif line.startswith(" ") and word and not word.startswith("#"):
            current.append(word)
    return sets


def syscalls(lines: Sequence[str], sets: Mapping[str, list[str]]) -> set[str]:
    """The calls that lines of `SystemCallFilter` allow, read in order: `~` takes away. `@default` is always allowed."""
    allowed = _members("@default", sets)
    for line in lines:
        takes = line.startswith("~")
        for word in line.removeprefix("~").split():
            calls = _members(word, sets)
            allowed = allowed - calls if takes else allowed | calls
    return allowed


def _members(name: str, sets: Mapping[str, list[str]]) -> set[str]:
    if not name.startswith("@"):
        return {name}
    return set().union(*(_members(word, sets) for word in sets[name]))


@dataclass(frozen=True, slots=True)
class Rights:
    """What the unit with some drop-ins gives."""

    settings: Mapping[str, list[str]]
    groups: tuple[int, ...]
    writable: tuple[Path, ...]

    @classmethod
    def of(
        cls, *drop_ins: str, groups: Mapping[str, int] | None = None, writable: Mapping[str, Path] | None = None
    ) -> "Rights":
        """The rights of the unit with these drop-ins.

        Args:
            groups: the number of each supplementary group on this machine.
            writable: this test's directory for each path of `StateDirectory` and `ReadWritePaths`. A path without one does not exist here.
        """
        found = settings(*drop_ins)
        paths = writable or {}
        named = [name for line in found.get("SupplementaryGroups", []) for name in line.split()]
        assert set(named) == set(groups or {}), f"the unit gives the groups {named}"
        wanted = [f"/var/lib/{name}" for name in found["StateDirectory"]]
        wanted += [path for line in found.get("ReadWritePaths", []) for path in line.split()]
        assert set(paths) <= set(wanted), f"the unit lets only {wanted} be written"
        numbers = tuple((groups or {})[name] for name in named)
        return cls(found, numbers, tuple(paths[path] for path in wanted if path in paths))

    def command(self, directory: Path, home: Path | None = None) -> list[str]:
        """The command that starts another one, which is appended, with these rights and no others.

        Args:
            directory: for files that it needs.
            home: the home of the unit's user. With it the process finds that user in /etc/passwd, as on a host where sysusers has made it.
        """
        found = self.settings
        users = ""
        if home is not None:
            entry = f"reconcile:x:{USER}:{USER}::{home}:/usr/sbin/nologin\n"
            (directory / "passwd").write_text(Path("/etc/passwd").read_text() + entry)
            users = str(directory / "passwd")
        for name, value in {"NoNewPrivileges": "yes", "ProtectSystem": "strict", "User": "reconcile"}.items():
            assert found[name] == [value]
        spec = {
            "user": USER,
            "groups": list(self.groups),
            "bounding": _capabilities(found["CapabilityBoundingSet"]),
            "ambient": _capabilities(found["AmbientCapabilities"]),
            "writable": [str(path) for path in self.writable],
            "syscalls": sorted(syscalls(found["SystemCallFilter"], syscall_sets())),
            "families": [word for line in found["RestrictAddressFamilies"] for word in line.split()],
            "no_written_code": found["MemoryDenyWriteExecute"][-1] == "yes",
            "umask": int(found["UMask"][-1], 8),
            "users": users,
            "needed": [sys.base_prefix, sys.prefix, str(ROOT)],
        }
        file = directory / "rights.json"
        file.write_text(json.dumps(spec))
        file.chmod(0o644)
        script = str(Path(__file__).with_name("confine.py"))
        return ["unshare", "--mount", "--propagation", "slave", sys.executable, script, "root", str(file)]


def _capabilities(lines: Sequence[str]) -> list[str]:
    return sorted({word.removeprefix("CAP_").lower() for line in lines for word in line.split()})


def own(*paths: Path) -> None:
    """Give files and directories to the user of the unit."""
    for path in paths:
        os.chown(path, USER, USER)


def rights_of(pid: int) -> dict[str, str]:
    """The kernel's own account of a process: ids, groups, capabilities, no_new_privs, seccomp."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: " ".join(value.split()) for name, _, value in (line.partition(":") for line in lines)}
