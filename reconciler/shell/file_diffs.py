"""Finds the contents of the files that differ between running containers and the manifests, for a plan. Called by `wire.py`."""

from collections.abc import Iterator, Mapping
from typing import Any

from manifests.resolve.repository_files import secret_in
from manifests.values.desired import Desired, Workload
from providers.facts import ContainerFact, Known
from reconciler.core.replicas import file_diffs
from reconciler.core.replicas.file_diffs import Contents, FileDiff
from reconciler.shell.store.file_store import FileStore


def of_plan(desired: Desired, runtimes: Mapping[str, Any], store: FileStore) -> tuple[FileDiff, ...]:
    """The files that differ. `runtimes` are the facts of each node, as in `Observed.runtimes`."""
    if not any(workload.template.volumes for workload in desired.workloads):
        return ()
    running: dict[str, list[ContainerFact]] = {}
    for known in runtimes.values():
        for fact in known.value if isinstance(known, Known) else ():
            mark = fact.mark or fact.claim
            if mark is not None and mark.instance == desired.instance.id and fact.files:
                running.setdefault(mark.workload, []).append(fact)
    rows = (
        row for workload in desired.workloads for row in _of(desired, workload, running.get(workload.name, []), store)
    )
    return file_diffs.bounded(rows)


def _of(desired: Desired, workload: Workload, facts: list[ContainerFact], store: FileStore) -> Iterator[FileDiff]:
    """The files of one workload that differ from those that most of its other containers have."""
    for volume in workload.template.volumes:
        others = [digest for fact in facts for name, digest in fact.files if name == volume.name and digest]
        others = [digest for digest in others if digest != volume.digest]
        if not others:
            continue
        earlier = max(sorted(set(others)), key=others.count)
        before = store.contents(earlier)
        declared = desired.file_contents.get(volume.digest)
        after: Contents = {file.name: (file.data, file.executable) for file in declared.files} if declared else {}
        if before is None:
            why = "the earlier files are not kept, so they cannot be compared"
            reaction = volume.on_change.value
            yield FileDiff(workload.key, volume.name, "(all files)", earlier, volume.digest, reaction, (), why)
        else:
            yield from file_diffs.compare(workload.key, volume.name, volume.on_change.value, before, after, secret_in)
