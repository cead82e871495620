"""Differences between a foreign container and a template, which would surprise an operator when the template replaces the container.

Nothing is changed here. Values of variables and arguments are not shown: they may be secrets. Called by `adoption` for every adopted
container that is not known to fit yet.
"""

import posixpath
from collections.abc import Iterator

from manifests.values.desired import Container, Template
from manifests.values.image_ref import parse_image
from manifests.values.pod import VolumeKind
from providers.facts import ContainerFact, ContainerState, MountFact, Setup, fingerprint

ENGINES_OWN = frozenset({"PATH", "HOME", "HOSTNAME", "TERM", "container"})
"""Variables that engines set themselves."""

_DOWN = {ContainerState.CREATED, ContainerState.EXITED}

_ROOT = {"": "0", "root": "0", "0:0": "0", "root:root": "0"}


def differing(template: Template, fact: ContainerFact) -> list[str]:
    """The differences of a container from its template, field by field.

    Image, published ports, networks, command, environment, user and mounts are compared, as far as the runtime reports them. Of
    secret variables only the names are compared.
    """
    differences: list[str] = []
    image = template.container.engine.image
    if image and fact.image and canonical(image) != canonical(fact.image):
        differences.append(f"image is {fact.image}, not {image}")
    if fact.setup is not None:
        differences += _setup(template.container, fact.setup, fact.image_setup)
    if fact.state in _DOWN:
        return differences  # a container that does not run has neither ports nor addresses
    published = {(port.number, port.port) for port in fact.published}
    for port in template.container.ports:
        if port.host_port and (port.number, port.host_port) not in published:
            differences.append(f"port {port.number} is not published as hostPort {port.host_port}")
    joined = dict(fact.addresses)
    missing = [name for name in template.networks if name not in joined] if joined else []
    if missing:
        differences.append(f"it is not in network {', '.join(missing)}")
    return differences


def policy_kept(template: Template, fact: ContainerFact) -> tuple[str, str] | None:
    """The restart policy of an adopted container and the template's, where they differ and the container keeps its own.

    `always` does not differ: it is changed to the template's.
    """
    wanted = next((settings.restart for settings in template.live if not settings.container), "")
    actual = next((settings.restart for settings in fact.live), "")
    if not wanted or actual in ("", "always", wanted):
        return None
    return actual, wanted


def _setup(container: Container, actual: Setup, image: Setup | None) -> Iterator[str]:
    wanted = command(container, image)
    if wanted is not None:
        yield from _compare_commands(wanted, (*actual.entrypoint, *actual.arguments))
    yield from _environment(container, actual, image)
    user = container.engine.user or (None if image is None else image.user)
    if user is not None and _ROOT.get(user, user) != _ROOT.get(actual.user, actual.user):
        yield f"user is {actual.user or 'root'}, not {user or 'root'}"
    yield from _mounts(container, actual)


def command(container: Container, image: Setup | None) -> tuple[str, ...] | None:
    """The command of the template; None where the image decides it and is not known."""
    if container.argv:
        return container.argv
    if image is None:
        return None
    return (*image.entrypoint, *(container.engine.args or image.arguments))


def _compare_commands(wanted: tuple[str, ...], actual: tuple[str, ...]) -> Iterator[str]:
    if wanted[:1] != actual[:1]:
        yield f"it runs {actual[0] if actual else 'nothing'}, not {wanted[0] if wanted else 'nothing'}"
    elif wanted != actual:
        yield f"it runs {actual[0]} with other arguments"


def _environment(container: Container, actual: Setup, image: Setup | None) -> Iterator[str]:
    values, secret = dict(actual.env), {name for name, _ in container.engine.secret_env}
    for name, value in sorted(container.env):
        if name in values and values[name] != fingerprint(value):
            yield f"variable {name} has another value"
    missing = sorted(({name for name, _ in container.env} | secret) - values.keys())
    if missing:
        yield f"variable {', '.join(missing)} is not set"
    if image is None:
        return
    named = {name for name, _ in container.env} | secret | (ENGINES_OWN - dict(image.env).keys())
    more = sorted(name for name, value in actual.env if name not in named and (name, value) not in image.env)
    if more:
        yield f"variable {', '.join(more)} is set, but not in the template"


def _mounts(container: Container, actual: Setup) -> Iterator[str]:
    mounted = {mount.target: mount for mount in actual.mounts}
    wanted: dict[str, MountFact] = {}
    for volume in container.engine.mounts:
        target = posixpath.normpath(volume.target)
        source = posixpath.normpath(volume.source) if volume.kind is VolumeKind.BIND else volume.source
        if volume.kind is VolumeKind.FILES:
            source = f"the files of volume {volume.source}"
        wanted[target] = MountFact(target, source, volume.read_only)
    for target, mount in sorted(wanted.items()):
        present = mounted.get(target)
        if present is None:
            yield f"nothing is mounted at {target}"
        elif present.source != mount.source:
            yield f"{present.source or 'a tmpfs'} is mounted at {target}, not {mount.source or 'a tmpfs'}"
        elif present.read_only != mount.read_only:
            yield f"{target} is mounted {'read-only' if present.read_only else 'for writing'}"
    more = [f"{mount.source or 'a tmpfs'} at {mount.target}" for mount in actual.mounts if mount.target not in wanted]
    if more:
        yield f"{', '.join(more)} is mounted, but not in the template"


def canonical(image: str) -> str:
    """An image with registry and tag spelled out, as far as it can be read."""
    try:
        return str(parse_image(image))
    except ValueError:
        return image
