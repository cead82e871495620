"""What a replica's processes get: environment, working directory, program. Used by every start and every exec probe.

The environment is built up from nothing, so that what is secret in ours stays with us.
"""

import os
import re
import shutil

from providers.errors import Rejected
from providers.runtime.process.store import ContainerRecord

PASSED_ON = ("HOME", "LANG", "LC_ALL", "PATH", "TMPDIR", "USER")
"""The only variables of our own environment that a replica gets: what programs need to find files and talk to people."""


def environment(record: ContainerRecord) -> dict[str, str]:
    """The template's variables over the few of ours, and over both ADDRESS, PORT (the first one) and PORT_<NAME>."""
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


def working_directory(name: str, root: str, working_dir: str) -> str:
    """The absolute directory, with all links followed. Raises Rejected when it is missing or leaves `root`."""
    asked = os.path.join(root, working_dir)
    try:
        inside = os.path.realpath(root, strict=True)
        found = os.path.realpath(asked, strict=True)
    except (OSError, ValueError) as error:
        cause = f"working directory {asked} cannot be used: {getattr(error, 'strerror', None) or error}"
        raise Rejected(name, cause, "correct workingDir, or create the directory") from error
    if os.path.commonpath((inside, found)) != inside:
        raise Rejected(name, f"working directory {asked} leads out of {root}", "use a directory of the manifests' tree")
    if not os.path.isdir(found):
        raise Rejected(name, f"working directory {asked} is not a directory", "correct workingDir")
    return found


def executable(name: str, program: str, env: dict[str, str], cwd: str) -> str:
    """The absolute path of a program, looked up on the replica's PATH. Raises Rejected when there is none."""
    where = os.pathsep.join(os.path.join(cwd, part) for part in env["PATH"].split(os.pathsep) if part)
    asked = os.path.join(cwd, program) if "/" in program else program
    found = shutil.which(asked, path=where)
    if found is None:
        place = f"in {cwd}" if "/" in program else f"on PATH ({env['PATH']})"
        raise Rejected(name, f"there is no executable {program!r} {place}", "install it, or correct the command")
    return found
