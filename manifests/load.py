"""The entry to this package: a path in, `Desired` or every problem at once out. Called by the command line and the loop.

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
from manifests.resolve.provider import KnownTypes, SettingsModel
from manifests.resolve.resolver import Resolved, any_field, resolve
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
    """Read, check and resolve the manifests at `path`. The keyword arguments are what this package cannot know.

    Args:
        path: a directory or one file.
        instance_file: a local file; its documents replace those of the tree with the same identity.
        settings_model: role and settings model of a provider type, None for a type that does not exist.
        known_types: names of all provider types, for suggestions.
        template_support: which fields of a pod template a runtime type supports and requires; by default all, and none.

    Raises:
        ManifestErrors: the tree is invalid; nothing of it may be used. `empty_tree` is set when there are no manifests.
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
    """As `load`, with the warnings. `edited` holds, by file name, contents to read instead of those of the files."""
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
        outside = _links_out_of_the_tree(resolved.desired)
    if outside:
        raise ManifestErrors([*outside, *resolved.warnings])
    return resolved


def _documents(files: tuple[SourceFile, ...], problems: list[Problem]) -> list[Document]:
    documents: list[Document] = []
    for file in files:
        read, wrong = read_file(file.name, file.data)
        documents += read
        problems += wrong
    return documents


def _with_local(tree: SourceTree, instance_file: StrPath, problems: list[Problem]) -> tuple[SourceTree, list[Document]]:
    """The documents of the local file; its content becomes part of the revision."""
    name = os.fspath(instance_file)
    file, wrong = read_one(Path(os.path.realpath(name)), name)
    problems += wrong
    if file is None:
        return tree, []
    revision = sha256(f"{tree.revision}\n{sha256(file.data).hexdigest()}".encode()).hexdigest()
    return replace(tree, revision=revision), _documents((file,), problems)


def _links_out_of_the_tree(value: Desired) -> list[Problem]:
    """Working directories that a link leads out of the tree: write access to manifests must not give access to the host."""
    root = os.path.realpath(value.root)
    problems = []
    for workload in value.workloads:
        directory = workload.template.container.working_dir
        if os.path.isabs(directory):
            continue  # inside the container
        real = os.path.realpath(os.path.join(root, directory))
        if not (real + "/").startswith(root.rstrip("/") + "/"):
            where, path = workload.where, "spec.template.spec.containers[0].workingDir"
            message = f"{workload.key}: {path}: a link leads from '{directory}' out of the manifests' directory"
            hint = "replace the link with the directory itself"
            problems.append(Problem(where.file, where.line, where.column, Code.LINK_LEAVES_TREE, path, message, hint))
    return problems
