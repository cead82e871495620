"""What a container that somebody else made has otherwise than a template: what an operator would be surprised by when the one took
the place of the other. Nothing here changes anything, and no value of a variable and no argument is told: they may be secrets.

Called by `adoption.py` for every adopted container that is not known to fit yet.
"""

import posixpath
from collections.abc import Iterator

from manifests.values.desired import Container, Template
from manifests.values.image_ref import parse_image
from manifests.values.pod import VolumeKind
from providers.facts import ContainerFact, ContainerState, MountFact, Setup, fingerprint

ENGINES_OWN = frozenset({"PATH", "HOME", "HOSTNAME", "TERM", "container"})
"""Variables that engines set by themselves where nobody else does."""

_DOWN = {ContainerState.CREATED, ContainerState.EXITED}

_ROOT = {"": "0", "root": "0", "0:0": "0", "root:root": "0"}


def differing(template: Template, fact: ContainerFact) -> list[str]:
    """What a container has otherwise than its template, field by field; empty when nothing is.

    Image, published ports, networks, command, environment, user and mounts are compared, as far as the runtime tells them. Of
    variables that are secrets only the names are.
    """
    found: list[str] = []
    image = template.container.engine.image
    if image and fact.image and _canonical(image) != _canonical(fact.image):
        found.append(f"image is {fact.image}, not {image}")
    if fact.setup is not None:
        found += _setup(template.container, fact.setup, fact.image_setup)
    if fact.state in _DOWN:
        return found  # what does not run has neither ports nor addresses
    published = {(port.number, port.port) for port in fact.published}
    for port in template.container.ports:
        if port.host_port and (port.number, port.host_port) not in published:
            found.append(f"port {port.number} is not published as hostPort {port.host_port}")
    joined = dict(fact.addresses)
    missing = [name for name in template.networks if name not in joined] if joined else []
    if missing:
        found.append(f"it is not in network {', '.join(missing)}")
    return found


def policy_kept(template: Template, fact: ContainerFact) -> tuple[str, str] | None:
    """The restart policy of an adopted container and the template's, where they differ and the container keeps its own.

    `always` is no difference to `unless-stopped`, which it is changed to.
    """
    wanted = next((one.restart for one in template.live if not one.container), "")
    there = next((one.restart for one in fact.live), "")
    if not wanted or not there or there == wanted or (there, wanted) == ("always", "unless-stopped"):
        return None
    return there, wanted


def _setup(container: Container, there: Setup, image: Setup | None) -> Iterator[str]:
    command = _command(container, image)
    if command is not None:
        yield from _words(command, (*there.entrypoint, *there.arguments))
    yield from _environment(container, there, image)
    user = container.engine.user or (None if image is None else image.user)
    if user is not None and _ROOT.get(user, user) != _ROOT.get(there.user, there.user):
        yield f"user is {there.user or 'root'}, not {user or 'root'}"
    yield from _mounts(container, there)


def _command(container: Container, image: Setup | None) -> tuple[str, ...] | None:
    """What a container of the template runs; None where that is for the image to say, which nobody knows."""
    if container.argv:
        return container.argv
    if image is None:
        return None
    return (*image.entrypoint, *(container.engine.args or image.arguments))


def _words(wanted: tuple[str, ...], there: tuple[str, ...]) -> Iterator[str]:
    if wanted[:1] != there[:1]:
        yield f"it runs {there[0] if there else 'nothing'}, not {wanted[0] if wanted else 'nothing'}"
    elif wanted != there:
        yield f"it runs {there[0]} with other arguments"


def _environment(container: Container, there: Setup, image: Setup | None) -> Iterator[str]:
    values, secret = dict(there.env), {name for name, _ in container.engine.secret_env}
    for name, value in sorted(container.env):
        if name in values and values[name] != fingerprint(value):
            yield f"variable {name} has another value"
    missing = sorted(({name for name, _ in container.env} | secret) - values.keys())
    if missing:
        yield f"variable {', '.join(missing)} is not set"
    if image is None:
        return
    named = {name for name, _ in container.env} | secret | (ENGINES_OWN - dict(image.env).keys())
    more = sorted(name for name, value in there.env if name not in named and (name, value) not in image.env)
    if more:
        yield f"variable {', '.join(more)} is set, and not in the template"


def _mounts(container: Container, there: Setup) -> Iterator[str]:
    found = {one.target: one for one in there.mounts}
    wanted: dict[str, MountFact] = {}
    for one in container.engine.mounts:
        target = posixpath.normpath(one.target)
        source = posixpath.normpath(one.source) if one.kind is VolumeKind.BIND else one.source
        wanted[target] = MountFact(target, source, one.read_only)
    for target, mount in sorted(wanted.items()):
        present = found.get(target)
        if present is None:
            yield f"nothing is mounted at {target}"
        elif present.source != mount.source:
            yield f"{present.source or 'a tmpfs'} is mounted at {target}, not {mount.source or 'a tmpfs'}"
        elif present.read_only != mount.read_only:
            yield f"{target} is mounted {'read-only' if present.read_only else 'for writing'}"
    more = [f"{one.source or 'a tmpfs'} at {one.target}" for one in there.mounts if one.target not in wanted]
    if more:
        yield f"{', '.join(more)} is mounted, and not in the template"


def _canonical(image: str) -> str:
    try:
        return str(parse_image(image))
    except ValueError:
        return image
