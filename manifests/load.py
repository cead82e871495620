"""The one entry to this package: a path in, `Desired` out, or every problem at once. Called by the command line and the loop.

load(path, settings_model=…, known_types=…)   the value
load_tree(…)                                  the value, and warnings about the text
"""

import os
from collections.abc import Mapping
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

from manifests.gc_pause import collector_paused
from manifests.problems import Code, ManifestErrors, Problem
from manifests.resolve.pod import TemplateSupport
from manifests.resolve.tree import Resolved, any_field, resolve
from manifests.resolve.workload_and_service import KnownTypes, SettingsModel
from manifests.source.directory import SourceFile, SourceTree, read_one, read_tree, with_contents
from manifests.values.desired import Desired
from manifests.yaml.read import Document, read_file

StrPath = str | os.PathLike[str]


def load(
    path: StrPath,
    *,
    instance_file: StrPath | None = None,
    settings_model: SettingsModel,
    known_types: KnownTypes,
    template_support: TemplateSupport = any_field,
) -> Desired:
    """Read, check and resolve the manifests at `path` (a directory or one file).

    Args:
        path: what to read.
        instance_file: a local file whose documents win over those of the tree that have the same identity.
        settings_model: role and settings model of a provider type, None for a type that does not exist.
        known_types: names of all provider types, for suggestions.
        template_support: which fields of a pod template a runtime type has, and needs; by default all, and none.

    Raises:
        ManifestErrors: something is wrong; nothing of the tree may be used. Its `empty_tree` says that there was nothing.
    """
    return load_tree(
        path,
        instance_file=instance_file,
        settings_model=settings_model,
        known_types=known_types,
        template_support=template_support,
    ).desired


def load_tree(
    path: StrPath,
    *,
    instance_file: StrPath | None = None,
    settings_model: SettingsModel,
    known_types: KnownTypes,
    template_support: TemplateSupport = any_field,
    edited: Mapping[str, bytes] | None = None,
) -> Resolved:
    """As `load`, with the warnings. `edited` holds contents that count in place of those of the files of these names."""
    with collector_paused():
        tree = with_contents(read_tree(path), edited or {})
        problems = list(tree.problems)
        documents = _documents(tree.files, problems)
        local: list[Document] = []
        if instance_file is not None:
            tree, local = _with_local(tree, instance_file, problems)
        resolved = resolve(
            tree,
            documents,
            local,
            settings_model=settings_model,
            known_types=known_types,
            template_support=template_support,
            problems=problems,
        )
        outside = _links_that_leave(resolved.desired)
    if outside:
        raise ManifestErrors([*outside, *resolved.warnings])
    return resolved


def _documents(files: tuple[SourceFile, ...], problems: list[Problem]) -> list[Document]:
    documents: list[Document] = []
    for file in files:
        found, wrong = read_file(file.name, file.data)
        documents += found
        problems += wrong
    return documents


def _with_local(tree: SourceTree, instance_file: StrPath, problems: list[Problem]) -> tuple[SourceTree, list[Document]]:
    """The documents of the local file; its content becomes part of the revision."""
    name = os.fspath(instance_file)
    found, wrong = read_one(Path(os.path.realpath(name)), name)
    problems += wrong
    if found is None:
        return tree, []
    revision = sha256(f"{tree.revision}\n{sha256(found.data).hexdigest()}".encode()).hexdigest()
    return replace(tree, revision=revision), _documents((found,), problems)


def _links_that_leave(value: Desired) -> list[Problem]:
    """Working directories that are, or are below, a link out of the tree: whoever can merge must not gain the host."""
    root = os.path.realpath(value.root)
    problems = []
    for workload in value.workloads:
        directory = workload.template.container.working_dir
        if os.path.isabs(directory):
            continue  # inside the container
        real = os.path.realpath(os.path.join(root, directory))
        if not (real + "/").startswith(root.rstrip("/") + "/"):
            where, path = workload.where, "spec.template.spec.containers[0].workingDir"
            message = f"{workload.key}: {path}: '{directory}' leads out of the manifests' directory through a link"
            hint = "put the directory itself there"
            problems.append(Problem(where.file, where.line, where.column, Code.LINK_LEAVES_TREE, path, message, hint))
    return problems
