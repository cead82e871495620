"""Where a field of a declared object stands in the files, for the readers of plans and of the audit.

`Desired` keeps the place of each document only, because marks of all fields would cost more than the values. The few files whose objects
are shown are read again. Called by the composition root for plans, and by `shell/report/origins`.
"""

import re
from collections.abc import Iterable
from typing import Any

from manifests.overlay.objects import overlaid
from manifests.problems import NOWHERE, Where
from manifests.source.directory import SourceFile
from manifests.yaml.read import Document, read_file

MOST_BYTES = 4 * 1024 * 1024
"""Bytes of files that are read again at most. The fields of all other files have the place of their document."""

_BASES: tuple[tuple[str, ...], ...] = (("spec",), ("spec", "template", "spec"), ("spec", "template", "metadata"))
"""Where the names of fields begin; the first of them where a field is in none."""

_PART = re.compile(r"\[([^\]]*)\]|([^.\[\]]+)")

_IDENTITIES = ("name", "mountPath", "containerPort", "pool")
"""Fields that identify the items of a list."""


class Places:
    """The places of fields in some files.

    Args:
        files: of the manifests that the objects come from, local documents included.
        overlay: those of the environment, whose documents are merged over the others.
    """

    def __init__(self, files: Iterable[SourceFile], overlay: Iterable[SourceFile] = ()) -> None:
        self._overlay = tuple(overlay)
        self._changes: list[Document] | None = None
        self._files = {file.name: file.data for file in (*files, *self._overlay)}
        self._documents: dict[str, dict[Where, Document]] = {}
        self._left = MOST_BYTES

    def of(self, where: Where, field: str) -> Where:
        """The place of a field, or of the nearest value around it.

        Args:
            where: the place of the document, as `Desired` has it.
            field: the name of the field from `spec` on, or from the pod's `spec` or `metadata`: `containers[web].env[LEVEL]`.
        """
        document = self._read(where.file).get(where) if where != NOWHERE else None
        if document is None:
            return where
        path = max((_path(document.value, base, field) for base in _BASES), key=lambda found: found[0])[1]
        return document.origin(path)

    def _read(self, file: str) -> dict[Where, Document]:
        known = self._documents.get(file)
        if known is None:
            data = self._files.get(file, b"")
            self._left -= len(data)
            documents = read_file(file, data)[0] if self._left >= 0 else []
            if self._overlay and all(file != other.name for other in self._overlay):
                documents = overlaid(documents, self._of_environment())[0]
            known = self._documents[file] = {document.where: document for document in documents}
        return known

    def _of_environment(self) -> list[Document]:
        if self._changes is None:
            self._changes = [document for file in self._overlay for document in read_file(file.name, file.data)[0]]
        return self._changes


def _path(value: Any, base: tuple[str, ...], field: str) -> tuple[int, tuple[str | int, ...]]:
    """How many parts of a field's name are there below `base`, and the path to the last of them."""
    path: list[str | int] = []
    for part in base:
        if not isinstance(value, dict) or part not in value:
            return -1, tuple(path)
        value = value[part]
        path.append(part)
    depth = 0
    for key, name in _PART.findall(field):
        step = _step(value, key, name)
        if step is None:
            break
        value = value[step]
        path.append(step)
        depth += 1
    if isinstance(value, dict) and "value" in value and depth:
        path.append("value")
    return depth, tuple(path)


def _step(value: Any, key: str, name: str) -> str | int | None:
    """The key or index of one part of a name; None where the value does not have it."""
    if isinstance(value, dict):
        return (name or key) if (name or key) in value else None
    if isinstance(value, list) and key:
        for index, item in enumerate(value):
            names = [str(item[field]) for field in _IDENTITIES if field in item] if isinstance(item, dict) else []
            if key in names or (key.partition("/")[0] in names and key[:1].isdecimal()):  # 8080/TCP
                return index
    return None
