"""Environment, working directory and program of a replica's processes, for every start and every exec probe.

The environment starts empty, so that secrets in the environment of `reconcile` do not reach replicas. Called by `runtime.py` and
`start.py`.
"""

import os
import re
import shutil

from providers.errors import Rejected
from providers.runtime.process.store import ContainerRecord

PASSED_ON = ("HOME", "LANG", "LC_ALL", "PATH", "TMPDIR", "USER")
"""The only variables that a replica inherits: programs need them to find files and for their language."""


def environment(record: ContainerRecord) -> dict[str, str]:
    """The inherited variables, overridden by the template's, overridden by ADDRESS, PORT (the first port) and PORT_<NAME>."""
    result = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    result.setdefault("PATH", os.defpath)
    result.update(record.env)
    result["ADDRESS"] = record.address
    if record.ports:
        result["PORT"] = str(record.ports[0][1])
    for name, number in record.ports:
        if name:
            result["PORT_" + re.sub("[^A-Z0-9]", "_", name.upper())] = str(number)
    return result


def working_directory(name: str, root: str, working_dir: str, spare: str) -> str:
    """The absolute directory, with all links resolved. Raises Rejected when it is missing or outside `root`.

    A replica that declares no directory of its own starts in the empty, private directory `spare` while `root` is missing: a removed
    or moved checkout does not keep a replica down that needs nothing from it.
    """
    path = os.path.join(root, working_dir)
    if os.path.normpath(working_dir) == "." and not os.path.lexists(root):
        os.makedirs(spare, mode=0o700, exist_ok=True)
        return os.path.realpath(spare)
    try:
        resolved_root = os.path.realpath(root, strict=True)
        resolved = os.path.realpath(path, strict=True)
    except (OSError, ValueError) as error:
        cause = f"working directory {path} cannot be used: {getattr(error, 'strerror', None) or error}"
        raise Rejected(name, cause, "correct workingDir, or create the directory") from error
    if os.path.commonpath((resolved_root, resolved)) != resolved_root:
        raise Rejected(name, f"working directory {path} is outside {root}", "use a directory in the manifests' tree")
    if not os.path.isdir(resolved):
        raise Rejected(name, f"working directory {path} is not a directory", "correct workingDir")
    return resolved


def executable(name: str, program: str, env: dict[str, str], cwd: str) -> str:
    """The absolute path of a program, searched on the replica's PATH. Raises Rejected when there is none."""
    search_path = os.pathsep.join(os.path.join(cwd, part) for part in env["PATH"].split(os.pathsep) if part)
    command = os.path.join(cwd, program) if "/" in program else program
    path = shutil.which(command, path=search_path)
    if path is None:
        searched = f"in {cwd}" if "/" in program else f"on PATH ({env['PATH']})"
        raise Rejected(name, f"no executable {program!r} {searched}", "install it, or correct the command")
    return path
