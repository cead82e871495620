"""Edits the images of containers in the text of their files, and checks the result with all manifests. Nothing is written here.

Called by `reconcile deploy`, and by `writer.py` for deployments over HTTP and image policies.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from manifests.load import Sources
from manifests.places import Places
from manifests.problems import Problem
from manifests.source.directory import with_contents
from manifests.types.durations import Duration
from manifests.values.desired import Container, Desired, Workload
from manifests.values.image_ref import parse_image
from manifests.yaml.edit import Change, Put, Rename, edit, find
from manifests.yaml.read import Document
from manifests.yaml.text import Refused
from reconciler import tree

_CONTAINERS = ("spec", "template", "spec", "containers")
_AT = ("spec", "rollout", "activateAt")
_DELAY = ("spec", "rollout", "activationDelay")


class When(NamedTuple):
    """When an image may be activated: a time as written, or a delay (ns); neither: as the manifest says."""

    at: str = ""
    delay: int | None = None


class ImageChange(NamedTuple):
    """A wanted image. `key` is that of the workload; `container` is empty for the only one.

    `expected`: where the manifests have neither this image nor the wanted one, nothing changes; empty: whatever they have.
    """

    key: str
    container: str
    image: str
    when: When = When()
    expected: str = ""


class Changed(NamedTuple):
    """One image that differs from before. `old` is the one in the manifest until now."""

    key: str
    container: str
    old: str
    new: str


class Edited(NamedTuple):
    """What changes make of a set of manifests.

    Attributes:
        files: contents before and after by the name of the file, only where they differ.
        images: the images that differ.
        desired: the manifests with the edit. warnings: about them.
        names: for each change its file and the name of its container.
        left: changes that were not made, because the manifests have another image than the expected one.
    """

    files: Mapping[str, tuple[bytes, bytes]]
    images: tuple[Changed, ...]
    desired: Desired
    warnings: tuple[Problem, ...]
    names: tuple[tuple[str, str], ...]
    left: tuple[ImageChange, ...] = ()


class NoSuchImage(Exception):
    """There is no such workload or container, or it has no image: the cause, and the next step."""

    def __init__(self, cause: str, next_step: str = "") -> None:
        super().__init__(cause)
        self.cause, self.next_step = cause, next_step

    def __str__(self) -> str:
        return f"{self.cause}; next step: {self.next_step}" if self.next_step else self.cause


class NoSuchWorkload(NoSuchImage):
    """The manifests have no workload of this key; `desired` are those that there are."""

    def __init__(self, key: str, desired: Desired) -> None:
        super().__init__(f"there is no {key}", "reconcile get workloads lists all")
        self.desired = desired


def edited(sources: Sources, changes: Sequence[ImageChange]) -> Edited:
    """The manifests after these changes, checked.

    Raises:
        ManifestErrors: the manifests are invalid, before or after the edit.
        Refused: an edit would change more than it should, or the file is no file of the set.
        NoSuchImage
    """
    sources = replace(sources, choices=())  # a commit is about what is written
    desired, warnings = tree.resolve_with_warnings(sources)
    before = {file.name: file.data for file in sources.tree.files}
    after = dict(before)
    images, names, left = [], [], []
    for change in changes:
        workload = next((known for known in desired.workloads if known.key == change.key), None)
        if workload is None:
            raise NoSuchWorkload(change.key, desired)
        container = _container(change.container, workload)
        name = _file(sources, workload, container)
        document = find(name, after[name], "Workload", workload.name) if name in after else None
        if document is None:
            raise Refused(f"{name} was changed meanwhile", "try again")
        index, old = _image(document, container, workload)
        names.append((name, container))
        if change.expected and old not in {change.expected, change.image}:
            left.append(change)
            continue
        wanted: list[Change] = [Put((*_CONTAINERS, index, "image"), change.image), *_times(document, change.when)]
        after[name] = edit(name, after[name], "Workload", workload.name, wanted)
        if old != change.image:
            images.append(Changed(change.key, container, old, change.image))
    files = {name: (before[name], data) for name, data in after.items() if data != before[name]}
    if files:
        contents = {name: data for name, (_, data) in files.items()}
        desired, warnings = tree.resolve_with_warnings(replace(sources, tree=with_contents(sources.tree, contents)))
        _check_reached(desired, images)
    return Edited(files, tuple(images), desired, warnings, tuple(names), tuple(left))


def _containers(workload: Workload) -> tuple[Container, ...]:
    return workload.template.container, *workload.template.sidecars


def _container(name: str, workload: Workload) -> str:
    """The name of the container that is meant."""
    names = [container.name for container in _containers(workload)]
    if name and name not in names:
        raise NoSuchImage(f"{workload.key} has no container '{name}'", f"its containers: {', '.join(names)}")
    if not name and len(names) > 1:
        raise NoSuchImage(f"{workload.key} has several containers", f"name one of: {', '.join(names)}")
    return name or names[0]


def _file(sources: Sources, workload: Workload, container: str) -> str:
    """The file where the image stands. With an environment only one of its own: Refused for the base, which all environments share."""
    if os.path.isabs(workload.where.file):
        raise Refused(f"{workload.key} is declared in the local document {workload.where.file}", "edit it by hand")
    if not sources.tree.environment:
        return workload.where.file
    places = Places(sources.tree.base, sources.tree.overlay)
    name = places.of(workload.where, f"containers[{container}].image").file
    if all(name != file.name for file in sources.tree.overlay):
        hint = f"set the image in environments/{sources.tree.environment}/, or edit {name} by hand"
        raise Refused(f"the image of {workload.key} is in {name}, which all environments share", hint)
    return name


def _check_reached(desired: Desired, images: Sequence[Changed]) -> None:
    """Raise Refused when an image that was written is not the one that the manifests give the container then."""
    for changed in images:
        workload = next((known for known in desired.workloads if known.key == changed.key), None)
        found = {} if workload is None else {known.name: known.engine.image for known in _containers(workload)}
        if str(parse_image(found.get(changed.container) or "none")) != str(parse_image(changed.new)):
            cause = f"the image of container {changed.container} of {changed.key} also stands in another document"
            raise Refused(cause, "edit the manifests by hand")


def _image(document: Document, container: str, workload: Workload) -> tuple[int, str]:
    """The container's place in the list of its document, and its image there."""
    value: Any = document.value
    containers = value["spec"]["template"]["spec"]["containers"]
    index = next(at for at, declared in enumerate(containers) if declared.get("name") == container)
    if "image" not in containers[index]:
        hint = "it runs a local program; edit its command in the manifest"
        raise NoSuchImage(f"container '{container}' of {workload.key} has no image", hint)
    return index, str(containers[index]["image"])


def _times(document: Document, when: When) -> list[Change]:
    """The changes that write the time into `rollout`; it replaces the field of the other kind of time."""
    if not when.at and when.delay is None:
        return []
    value: Any = document.value
    rollout = value["spec"].get("rollout") or {}
    field, text = (_AT, when.at) if when.at else (_DELAY, str(Duration(when.delay or 0)))
    other = _DELAY if when.at else _AT
    if other[-1] in rollout and field[-1] not in rollout:
        return [Rename(other, field[-1], text)]
    return [Put(field, text)]
