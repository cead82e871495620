"""What differs between a container that runs and a template, where the ledger does not have the template of the container.

The runtime shows less than a template: image, digest, limits, restart policy, networks, and, where the provider reads them for a plan,
command, variables (by name: their values may be secrets), user and mounts. Fields that it does not show are not listed. Called by `forecast`.
"""

from collections.abc import Iterator

from manifests.values.desired import Template
from manifests.values.pod import Live, VolumeKind
from providers.facts import ContainerFact, Setup, fingerprint
from reconciler.core.replicas import template_changes, template_fit
from reconciler.core.replicas.field_changes import ABSENT, NOT_KNOWN, SECRET, Effect, FieldChange, shown


def changes(fact: ContainerFact, template: Template) -> tuple[FieldChange, ...]:
    """The fields that are seen to differ, in the order of their names."""
    main = template.container.name
    rows = [*_image(fact, template), *_live(fact, template), *_networks(fact, template)]
    if fact.setup is not None:
        rows += _setup(fact.setup, fact.image_setup, template, f"containers[{main}].")
    return tuple(sorted(row for row in rows if row.before != row.after))


def _new(field: str, before: str, after: str) -> FieldChange:
    return FieldChange(field, before, after, Effect.NEW_CONTAINER)


def _image(fact: ContainerFact, template: Template) -> Iterator[FieldChange]:
    main, wanted = template.container, template.container.engine.image
    if fact.image and wanted and template_fit.canonical(fact.image) != template_fit.canonical(wanted):
        before = template_changes.image_text(fact.image, dict(fact.digests).get("", ""))
        yield _new(f"containers[{main.name}].image", before, wanted)


def _live(fact: ContainerFact, template: Template) -> Iterator[FieldChange]:
    yield from live_changes(fact.live, template.live, template.container.name)


def live_changes(before: tuple[Live, ...], after: tuple[Live, ...], main: str) -> Iterator[FieldChange]:
    """Settings that an engine changes while containers run; of containers that both lists have."""
    known = {live.container: live for live in before}
    for live in after:
        old = known.get(live.container)
        if old is None:
            continue
        at = f"containers[{live.container or main}].resources.limits"
        texts = [
            (f"{at}.cpu", *(f"{item.cpu}m" if item.cpu else ABSENT for item in (old, live))),
            (
                f"{at}.memory",
                *(template_changes.size_text(item.memory) if item.memory else ABSENT for item in (old, live)),
            ),
        ]
        if not live.container:
            texts.append(("runtimeRestart", old.restart, live.restart))
        yield from (FieldChange(name, was, now, Effect.IN_PLACE) for name, was, now in texts if was != now)


def _networks(fact: ContainerFact, template: Template) -> Iterator[FieldChange]:
    joined = [name for name, _ in fact.addresses]
    if joined and template.networks and set(joined) != set(template.networks):
        yield _new("networks", shown(sorted(joined)), shown(list(template.networks)))


def _setup(setup: Setup, image: Setup | None, template: Template, at: str) -> Iterator[FieldChange]:
    container, engine = template.container, template.container.engine
    wanted = template_fit.command(container, image)
    actual = (*setup.entrypoint, *setup.arguments)
    if wanted is not None and wanted != actual:
        # Its arguments may hold a secret that is not known here, so only the program is shown.
        old = actual[0] if actual else ABSENT
        yield _new(f"{at}command", f"{old} …" if len(actual) > 1 else old, shown(list(wanted)))
    values, secrets = dict(setup.env), {name for name, _ in engine.secret_env}
    for name, value in container.env:
        if values.get(name) != fingerprint(value):
            yield _new(f"{at}env[{name}]", NOT_KNOWN if name in values else ABSENT, value)
    for name in secrets - values.keys():
        yield _new(f"{at}env[{name}]", ABSENT, SECRET)
    if image is not None:
        named = {name for name, _ in container.env} | secrets | (template_fit.ENGINES_OWN - dict(image.env).keys())
        for name, value in setup.env:
            if name not in named and (name, value) not in image.env:
                yield _new(f"{at}env[{name}]", NOT_KNOWN, ABSENT)
    mounted = {mount.target: mount for mount in setup.mounts}
    for mount in engine.mounts:
        old_mount = mounted.pop(mount.target, None)
        text = f"{mount.source or 'tmpfs'}{' read-only' if mount.read_only else ''}"
        before = ABSENT if old_mount is None else f"{old_mount.source or 'tmpfs'}{' read-only' * old_mount.read_only}"
        if before != text and not (mount.kind is VolumeKind.TMPFS and old_mount is not None):
            yield _new(f"{at}volumeMounts[{mount.target}]", before, text)
    for target, rest in mounted.items():
        yield _new(f"{at}volumeMounts[{target}]", rest.source or "tmpfs", ABSENT)
