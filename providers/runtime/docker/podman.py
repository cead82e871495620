"""What Podman's own settings mean for its containers: how long exec probes leave processes behind, and the init process.

Podman's API shows neither, so the files are read that its service reads (containers.conf(5)). Called by `doctor.py`.
"""

import os
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from manifests.values.desired import SECOND, Container, Probe, ProbeKind, Template
from providers.runtime.docker.client import NO_INIT
from providers.runtime.docker.spec import members_of

FILES = ("/usr/share/containers/containers.conf", "/etc/containers/containers.conf")
"""Settings of the system, the later ones first in rank; then those in `DROP_INS`."""

DROP_INS = "/etc/containers/containers.conf.d"

EXEC_DELAY = 300
"""Seconds that Podman keeps the two monitors (conmon) of a command that came through its API, unless set otherwise. It has no
request to end them earlier: containers/podman issue 20415; measured with 4.3.1."""

SHORT_DELAY = 30
"""Seconds up to which these monitors are no burden."""

ADVISED_DELAY = 10
"""Seconds to set: enough to read the exit code of a command."""

INIT_PATHS = (
    "/usr/libexec/podman/catatonit",
    "/usr/local/libexec/podman/catatonit",
    "/usr/local/lib/podman/catatonit",
    "/usr/lib/podman/catatonit",
    "/usr/bin/catatonit",
)
"""Where Podman looks for its init process."""


def settings(pid: int) -> Mapping[str, Any]:
    """The settings of the Podman service with this pid (0: unknown), by table. A file that cannot be read counts as empty."""
    own = _environment(pid)
    files = [own["CONTAINERS_CONF"]] if own.get("CONTAINERS_CONF") else [*FILES, *_drop_ins()]
    if own.get("CONTAINERS_CONF_OVERRIDE"):
        files.append(own["CONTAINERS_CONF_OVERRIDE"])
    merged: dict[str, dict[str, Any]] = {}
    for file in files:
        for table, values in _read(file).items():
            if isinstance(values, dict):
                merged.setdefault(table, {}).update(values)
    return merged


def problems(conf: Mapping[str, Any], node: str, templates: Iterable[Template]) -> Iterator[str]:
    """What the templates need and the settings lack."""
    inits = {container.name for template in templates for container in members_of(template) if container.engine.init}
    if inits and not _has_init(conf):
        names = ", ".join(sorted(inits))
        yield f"{node}: Podman's init process catatonit is missing, and container {names} has init; {NO_INIT}"


def warnings(conf: Mapping[str, Any], node: str, templates: Sequence[Template]) -> Iterator[str]:
    """What the templates cost on Podman."""
    delay = conf.get("engine", {}).get("exit_command_delay", EXEC_DELAY)
    if not isinstance(delay, int) or delay <= SHORT_DELAY:
        return
    for name, container in sorted({template.container.name: template.container for template in templates}.items()):
        rate = sum(SECOND / probe.period for probe in _exec_probes(container))
        if rate:
            yield (
                f"{node}: Podman keeps two conmon processes of each exec probe for {delay} s: about {2 * delay * rate:.0f} "
                f"for each replica with container {name}; use another kind of probe, or set exit_command_delay = "
                f"{ADVISED_DELAY} in the table [engine] of /etc/containers/containers.conf and restart Podman's service"
            )


def _exec_probes(container: Container) -> list[Probe]:
    """The exec probes of a container that runs. Its startup probe ends when it has passed."""
    return [
        probe
        for probe in (container.liveness, container.readiness)
        if probe is not None and probe.kind is ProbeKind.EXEC
    ]


def _has_init(conf: Mapping[str, Any]) -> bool:
    given = [conf.get(table, {}).get("init_path") for table in ("containers", "engine")]
    if any(given):
        return any(isinstance(path, str) and os.access(path, os.X_OK) for path in given)
    helpers = conf.get("engine", {}).get("helper_binaries_dir", [])
    paths = [f"{directory}/catatonit" for directory in helpers if isinstance(directory, str)]
    return any(os.access(path, os.X_OK) for path in (*paths, *INIT_PATHS))


def _environment(pid: int) -> dict[str, str]:
    """The environment of a process; empty when it cannot be read."""
    try:
        entries = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0") if pid else []
    except OSError:
        return {}
    pairs = (entry.decode(errors="replace").partition("=") for entry in entries)
    return {name: value for name, _, value in pairs if name.startswith("CONTAINERS_CONF")}


def _drop_ins() -> list[str]:
    return sorted(map(str, Path(DROP_INS).glob("*.conf")))


def _read(file: str) -> dict[str, Any]:
    try:
        return tomllib.loads(Path(file).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
