"""Ciphertext and placeholders of removed secrets in manifests: neither may reach a container, a server or a zone. Called by `load.py` and
`resolver.py`.

Whole files and documents that are encrypted give one problem each, because nothing in them can be read. Texts inside a document give one
problem each, with line and field.
"""

import posixpath
from collections.abc import Iterable, Iterator, Sequence

from manifests.kinds.validate import Path, problem_at
from manifests.problems import Code, Problem, key_path
from manifests.source.directory import SourceFile
from manifests.values import ciphertext
from manifests.values.ciphertext import Marker
from manifests.yaml.read import Document

_WITH_PLACEHOLDERS = frozenset({"Workload", "DNSPolicy", "HealthCheck", "Provider"})
"""Kinds whose texts reach programs or servers, where a placeholder would be used as a secret."""

_MOST = 20
"""Most problems of one document: a file that is encrypted value by value has one in every line."""


def encrypted_file(file: SourceFile) -> Problem | None:
    """The problem of a file that is ciphertext from its first byte on."""
    marker = ciphertext.ciphertext(file.data[:200].decode("utf-8", "replace").lstrip("\ufeff \t\r\n"))
    head = file.data[:200].lstrip(b"\xef\xbb\xbf \t\r\n")
    begins = head.startswith((b"-----BEGIN ", b"age-encryption", b"$ANSIBLE_VAULT", b"\0GITCRYPT"))
    if marker is None or not begins:
        return None
    return Problem(
        file.name, 1, 1, Code.CIPHERTEXT, "", f"the file is encrypted: it is {marker.name}", marker.next_step
    )


def without_data(documents: Sequence[Document], local: Sequence[Document]) -> tuple[list[Document], list[Problem]]:
    """The documents that are manifests, and a problem for each that is encrypted as a whole.

    A file that SOPS has encrypted and that a reference names is data, not a manifest.
    """
    manifests: list[Document] = []
    problems: list[Problem] = []
    encrypted = [document for document in documents if _is_encrypted(document)]
    named = _named((*documents, *local)) if encrypted else frozenset()
    for document in documents:
        if not _is_encrypted(document):
            manifests.append(document)
        elif _is_manifest(document) or document.file not in named:
            problems.append(_problem_of(document))
    return manifests, problems


def _is_encrypted(document: Document) -> bool:
    value = document.value
    if not isinstance(value, dict):
        return False
    sops = value.get("sops")
    return value.get("kind") == "SealedSecret" or (isinstance(sops, dict) and "mac" in sops)


def _is_manifest(document: Document) -> bool:
    return isinstance(document.value, dict) and bool(document.value.keys() & {"apiVersion", "kind"})


def _named(documents: Iterable[Document]) -> frozenset[str]:
    """The files that references of documents name, as they are written, in normal form."""
    return frozenset(
        posixpath.normpath(text)
        for document in documents
        if any("sops" in text for text in document.texts())
        for path, text in _strings(document.value, ())
        if path[-2:] == ("sops", "file")
    )


def _problem_of(document: Document) -> Problem:
    """The problem of a document that is encrypted as a whole, and is not the data of a reference."""
    value = document.value
    if isinstance(value, dict) and value.get("kind") == "SealedSecret":
        marker = ciphertext.SEALED
        return problem_at(document, ("kind",), Code.CIPHERTEXT, f"the document is {marker.name}", marker.next_step)
    if _is_manifest(document):
        message = "the manifest is encrypted with SOPS"
        hint = "only single values are decrypted: keep them in a file of their own, and refer to them with valueFrom.secret.sops"
    else:
        message = "the file is encrypted with SOPS, and no reference names it"
        hint = f"refer to it with valueFrom.secret.sops: {{file: {document.file}, key: NAME}}, or move it elsewhere"
    return problem_at(document, ("sops",), Code.CIPHERTEXT, message, hint, key=True)


def texts(document: Document) -> Iterator[Problem]:
    """The problems of single texts of a document, at most `_MOST`."""
    kind = document.value.get("kind") if isinstance(document.value, dict) else None
    strict = kind in _WITH_PLACEHOLDERS
    if not strict and not any(map(ciphertext.may_have, document.texts())):
        return
    metadata = document.value.get("metadata") if isinstance(document.value, dict) else None
    name = metadata.get("name") if isinstance(metadata, dict) else None
    subject = f"{kind.lower()}/{name}" if isinstance(kind, str) and isinstance(name, str) else "the document"
    found = 0
    for path, text in _strings(document.value, ()):
        marker = _marker(text, strict=strict)
        if marker is None:
            continue
        yield problem_at(
            document, path, Code.CIPHERTEXT, f"{subject}: {key_path(path)}: it is {marker.name}", marker.next_step
        )
        found += 1
        if found == _MOST:
            return


def _marker(text: str, *, strict: bool) -> Marker | None:
    return ciphertext.marker(text) if strict else ciphertext.ciphertext(text)


def _strings(value: object, path: Path) -> Iterator[tuple[Path, str]]:
    """Every string below a value, with its path. Documents are bounded in depth and size when they are read."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _strings(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _strings(inner, (*path, index))
