"""Volumes with files of the repository whose content changed while a container runs, for the volumes where that needs no new container.

With `onChange: signal` the container sees the new files and gets a signal, once for each generation; with `nothing` it keeps the files that
it was created with. With `rollout` the digest is a part of the revision, so there is nothing to compare. Called by `differences`, and `needed`
by the shell, which removes the files that nothing needs any more.
"""

from collections.abc import Mapping
from typing import Any

from manifests.values.desired import Desired, Template
from manifests.values.files import OnFilesChange
from providers.facts import ContainerFact, Known, container_name
from reconciler.core.model import value_json
from reconciler.core.model.ledger import Ledger

FileChange = tuple[str, str, str]
"""(volume, digest, signal)."""


def due(template: Template, fact: ContainerFact) -> tuple[FileChange, ...]:
    """The volumes of which a container needs to see other files, and to get a signal for them."""
    if not template.volumes or not fact.files:
        return ()
    known = dict(fact.files)
    return tuple(
        (volume.name, volume.digest, volume.signal)
        for volume in template.volumes
        if volume.on_change is OnFilesChange.SIGNAL and known.get(volume.name, volume.digest) != volume.digest
    )


def kept(template: Template, fact: ContainerFact) -> tuple[str, ...]:
    """The volumes of which a container keeps earlier files, because the manifest says so."""
    if not template.volumes or not fact.files:
        return ()
    known = dict(fact.files)
    return tuple(
        volume.name
        for volume in template.volumes
        if volume.on_change is OnFilesChange.NOTHING and known.get(volume.name, volume.digest) != volume.digest
    )


def needed(desired: Desired, ledger: Ledger, runtimes: Mapping[str, Any]) -> tuple[set[str], set[str]] | None:
    """The digests and the names of containers that need files; None while a node cannot be read.

    A digest is needed by the manifests in force, by a container, and by each revision that the ledger keeps a template of: those are the
    ones that containers may be created from again.

    Args:
        runtimes: the facts of each node, as in `Observed.runtimes`.
    """
    digests = set(desired.file_contents)
    containers: set[str] = set()
    for node in desired.nodes | runtimes.keys():
        known = runtimes.get(node)
        if not isinstance(known, Known):
            return None
        for fact in known.value:
            mark = fact.mark or fact.claim
            if mark is not None and mark.instance == desired.instance.id:
                containers.add(container_name(mark))
                digests |= {digest for _, digest in fact.files}
    for text in ledger.templates.values():
        if '"volumes":[{' in text:
            template = value_json.parse(Template, text)
            if template is None:
                return None  # another version of the program wrote it
            digests |= {volume.digest for volume in template.volumes}
    return digests, containers
