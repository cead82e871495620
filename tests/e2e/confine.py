"""Gives up rights, then runs a command: `confine.py root SPEC COMMAND...`, in a mount namespace of its own. See `unit_rights.py`.

It runs twice. As root it makes everything read-only but the spec's directories, and starts itself again through setpriv. As the user it
loads the filter of system calls, and then is replaced by the command. Standard library only.
"""

import ctypes
import json
import os
import shutil
import socket
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

# seccomp(3)
_ALLOW, _EPERM = 0x7FFF0000, 0x00050001
_EQUAL, _MASKED_EQUAL = 4, 7
_WRITE, _EXECUTE, _SHM_EXECUTE = 2, 4, 0o100000

KERNELS_OWN = ("/dev", "/proc", "/sys")
"""What ProtectSystem=strict leaves as it is."""


class _Comparison(ctypes.Structure):
    _fields_ = (("argument", ctypes.c_uint), ("how", ctypes.c_int), ("a", ctypes.c_uint64), ("b", ctypes.c_uint64))


def mount(*words: str) -> None:
    program = shutil.which("mount", path=os.environ.get("PATH", "") + ":/usr/bin:/bin")
    assert program is not None
    subprocess.run([program, *words], check=True, timeout=60, stdin=subprocess.DEVNULL)


def reachable(path: str) -> None:
    """Let every user reach an interpreter that is in a private home: an empty directory takes the place of that home, with that path in it."""
    directory = Path(path).resolve()
    closed = next((above for above in reversed(directory.parents) if not above.stat().st_mode & stat.S_IXOTH), None)
    if closed is None:
        return
    descriptor = os.open(directory, os.O_PATH)
    os.set_inheritable(descriptor, True)
    mount("-t", "tmpfs", "-o", "mode=755", "none", str(closed))
    directory.mkdir(parents=True)
    source = f"/proc/{os.getpid()}/fd/{descriptor}"
    mount("--no-canonicalize", "--bind", source, str(directory))
    os.close(descriptor)


def protect(writable: list[str]) -> None:
    """All mounts read-only, but those of these directories."""
    for path in writable:
        mount("--bind", path, path)
    points = [
        line.split()[4].encode().decode("unicode_escape")
        for line in Path("/proc/self/mountinfo").read_text().splitlines()
    ]
    for point in dict.fromkeys(points):
        own = any(point == top or point.startswith(f"{top}/") for top in KERNELS_OWN)
        if not own and point not in writable and os.path.ismount(point):
            mount("-o", "remount,bind,ro", point)


def as_root(spec: dict[str, Any], file: str, command: list[str]) -> None:
    for path in spec["needed"]:
        reachable(path)
    if spec["users"]:
        mount("--bind", spec["users"], "/etc/passwd")
    protect(spec["writable"])
    os.umask(spec["umask"])
    user, groups = str(spec["user"]), ",".join(map(str, spec["groups"]))
    ambient = ",".join(["-all", *(f"+{name}" for name in spec["ambient"])])
    bounding = ",".join(["-all", *(f"+{name}" for name in spec["bounding"])])
    words = ["setpriv", f"--reuid={user}", f"--regid={user}", f"--groups={groups}" if groups else "--clear-groups"]
    words += [f"--inh-caps={ambient}", f"--ambient-caps={ambient}", f"--bounding-set={bounding}", "--no-new-privs"]
    os.execvp(words[0], [*words, sys.executable, "-P", __file__, "user", file, *command])


def filter_calls(spec: dict[str, Any]) -> None:
    """Allow the spec's system calls only; sockets of its families only; and no memory that is written and run."""
    library = ctypes.CDLL("libseccomp.so.2")
    library.seccomp_init.restype = ctypes.c_void_p
    context = ctypes.c_void_p(library.seccomp_init(ctypes.c_uint32(_EPERM)))

    def allow(call: int, *comparisons: _Comparison) -> None:
        values = (_Comparison * len(comparisons))(*comparisons)
        failed = library.seccomp_rule_add_array(context, ctypes.c_uint32(_ALLOW), call, len(comparisons), values)
        assert failed == 0, (call, failed)

    for name in spec["syscalls"]:
        call = library.seccomp_syscall_resolve_name(name.encode())
        if call < 0:
            continue  # of another architecture
        if name == "socket":
            for family in spec["families"]:
                allow(call, _Comparison(0, _EQUAL, int(getattr(socket, family)), 0))
        elif spec["no_written_code"] and name == "mmap":
            for protection in (0, _WRITE, _EXECUTE):
                allow(call, _Comparison(2, _MASKED_EQUAL, _WRITE | _EXECUTE, protection))
        elif spec["no_written_code"] and name in {"mprotect", "pkey_mprotect"}:
            allow(call, _Comparison(2, _MASKED_EQUAL, _EXECUTE, 0))
        elif spec["no_written_code"] and name == "shmat":
            allow(call, _Comparison(2, _MASKED_EQUAL, _SHM_EXECUTE, 0))
        else:
            allow(call)
    failed = library.seccomp_load(context)
    assert failed == 0, failed


def main() -> None:
    stage, file, *command = sys.argv[1:]
    spec = json.loads(Path(file).read_text())
    if stage == "root":
        as_root(spec, file, command)
    filter_calls(spec)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
