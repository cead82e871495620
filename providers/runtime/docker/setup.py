"""What somebody else's container was created with, and what its image says of the same: whoever adopts it compares that with a template.

An inspection shows both merged, so what a person has set is known only beside the image. Values of variables may be secrets: from
here on only their fingerprints exist. Pure but for one question per image. Called by `docker_life.py` and `docker_look.py`.
"""

import posixpath
import re
from collections.abc import Mapping
from typing import Any

from providers.facts import MountFact, Setup, fingerprint

_ANONYMOUS = re.compile(r"[0-9a-f]{64}")
"""Names that engines give to volumes without a name: they come from the image and go with the container."""


def read_setup(found: Mapping[str, Any]) -> Setup:
    """The setup of a container, or of an image, in its inspection. Raises AttributeError, TypeError, ValueError."""
    config = found.get("Config") or {}
    mounts = {one.target: one for one in map(_mount, found.get("Mounts") or ()) if not _ANONYMOUS.fullmatch(one.source)}
    for target in (found.get("HostConfig") or {}).get("Tmpfs") or {}:
        place = posixpath.normpath(str(target))
        mounts.setdefault(place, MountFact(place, "", False))
    return Setup(
        _words(config.get("Entrypoint")),
        _words(config.get("Cmd")),
        tuple(sorted(_variable(str(one)) for one in config.get("Env") or ())),
        str(config.get("User") or ""),
        tuple(mounts[target] for target in sorted(mounts)),
    )


def _words(value: object) -> tuple[str, ...]:
    """A command: a list, or one word where an older Podman tells it so."""
    if isinstance(value, str):
        return (value,) if value else ()
    return tuple(str(one) for one in value) if isinstance(value, list) else ()


def _variable(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name, fingerprint(value)


def _mount(found: Mapping[str, Any]) -> MountFact:
    kind = str(found.get("Type") or "")
    source = str(found.get("Name") or "") if kind == "volume" else str(found.get("Source") or "")
    if kind == "bind":
        source = posixpath.normpath(source)
    target = posixpath.normpath(str(found.get("Destination") or ""))
    return MountFact(target, "" if kind == "tmpfs" else source, found.get("RW") is False)
