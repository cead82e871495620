"""The entry to this package: a path in, `Desired` or every problem at once out. Called by the command line and the loop.

load(path, settings_model=…, known_types=…)   the value
load_tree(…)                                  the value, and warnings about the text
read_sources(path), resolve_sources(sources)  the same in two steps, for a caller that keeps what it read
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from hashlib import sha256

from manifests.gc_pause import collector_paused
from manifests.kinds import Instance
from manifests.kinds.instance import InstanceSpec
from manifests.kinds.validate import Declared, validate
from manifests.overlay.objects import overlaid
from manifests.problems import Code, ManifestErrors, Problem, Where
from manifests.resolve import image_choices
from manifests.resolve.ciphertext import encrypted_file, without_data
from manifests.resolve.encrypted_paths import encrypted_paths
from manifests.resolve.pod import TemplateSupport
from manifests.resolve.provider import KnownTypes, SettingsModel
from manifests.resolve.resolver import Resolved, any_field, resolve
from manifests.source.directory import SourceFile, SourceTree, read_tree, with_contents
from manifests.source.encrypted_file import MAX_BYTES
from manifests.source.files_below import open_below
from manifests.source.local import LocalDocuments, read_local
from manifests.values.desired import Desired
from manifests.values.image_choice import ImageChoice, choices_digest
from manifests.values.pod import RELATIVE_WORKING_DIR
from manifests.yaml.read import Document, internal_problem, read_file

StrPath = str | os.PathLike[str]


def load(
    path: StrPath,
    *,
    instance_file: StrPath | None = None,
    environment: str | None = None,
    settings_model: SettingsModel,
    known_types: KnownTypes,
    template_support: TemplateSupport = any_field,
) -> Desired:
    """Read, check and resolve the manifests at `path`. The keyword arguments are what this package cannot know.

    Args:
        path: a directory or one file.
        instance_file: a file or directory of local documents, see `Sources`.
        environment: as in `read_sources`.
        settings_model: role and settings model of a provider type, None for a type that does not exist.
        known_types: names of all provider types, for suggestions.
        template_support: which fields of a pod template a runtime type supports and requires; by default all, and none.

    Raises:
        ManifestErrors: the tree is invalid; nothing of it may be used. `empty_tree` is set when there are no manifests.
    """
    return load_tree(
        path,
        instance_file=instance_file,
        environment=environment,
        settings_model=settings_model,
        known_types=known_types,
        template_support=template_support,
    ).desired


@dataclass(frozen=True, slots=True)
class Sources:
    """The files of one read, not yet checked: what the manifests are resolved from, and what is kept of valid ones.

    Attributes:
        tree: the files at a path.
        local: local documents, which say what the tree may reach (`resolve/local.py`); None without `--instance`.
        choices: images that policies chose without a commit, of containers that the manifests have (`with_choices`).
    """

    tree: SourceTree
    local: LocalDocuments | None = None
    choices: tuple[ImageChoice, ...] = ()

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What could not be read, of the tree and of the local documents."""
        return self.tree.problems if self.local is None else (*self.tree.problems, *self.local.problems)

    @property
    def revision(self) -> str:
        """Digest of the names and contents of the files, 64 hex digits; local documents and chosen images are a part of it."""
        if self.local is None:
            return self.tree.revision
        chosen = choices_digest(self.choices)
        images = f"\n{chosen}" if chosen else ""
        return sha256(f"{self.tree.revision}\n{self.local.revision}{images}".encode()).hexdigest()

    @property
    def state(self) -> str:
        """As `revision`, with the problems of reading: an unreadable file never looks like a missing one."""
        return "\n".join([self.revision, *(problem.render() for problem in self.problems)])


def read_sources(path: StrPath, instance_file: StrPath | None = None, environment: str | None = None) -> Sources:
    """Read the files of a directory, or one file, and local documents. Never raises: see `problems`.

    `environment`: the environment to read with the base, empty for the base alone; None: as the local documents say, else the base alone.
    """
    local = None if instance_file is None else read_local(instance_file, path)
    chosen = environment_of(environment, local)
    return with_chosen(Sources(read_tree(path, environment=chosen), local), environment)


def with_choices(sources: Sources, choices: tuple[ImageChoice, ...]) -> Sources:
    """The files of a read, with the images that policies chose: only those that count (`resolve/image_choices.py`).

    Without local documents that allow it there are none. Manifests that cannot be read keep all: they do not come into force.
    """
    if sources.local is None or not choices:
        return replace(sources, choices=())
    return replace(sources, choices=_fitting(_Read(sources), choices))


class _Read:
    """Sources that are compared by what was read, so that equal reads are looked through once."""

    def __init__(self, sources: Sources) -> None:
        self.sources, self.key = replace(sources, choices=()), sources.state

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Read) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


@lru_cache(maxsize=1)  # it keeps the files that it has looked through
def _fitting(read: _Read, choices: tuple[ImageChoice, ...]) -> tuple[ImageChoice, ...]:
    local = read.sources.local
    problems = list(read.sources.problems)
    with collector_paused():
        of_local = (
            [declared for document in _documents(local.files, problems) if (declared := _valid(document))]
            if local
            else []
        )
        if not image_choices.allowed(of_local):
            return ()
        documents = documents_of(read.sources.tree, problems)
        wanted = {choice.key.partition("/")[2] for choice in choices}
        of_tree = [
            declared
            for document in documents
            if _may_declare(document.value, wanted) and (declared := _valid(document)) is not None
        ]
    if any(not problem.is_warning for problem in problems):
        return choices
    return image_choices.fitting((*of_tree, *of_local), choices)


def _valid(document: Document) -> Declared | None:
    try:
        return validate(document)[0]
    except Exception:  # noqa: BLE001  (a document that breaks a check is reported when it is resolved)
        return None


def _may_declare(value: object, names: set[str]) -> bool:
    """Whether a document is a Workload of one of these names, without checking it."""
    metadata = value.get("metadata") if isinstance(value, dict) and value.get("kind") == "Workload" else None
    return isinstance(metadata, dict) and metadata.get("name") in names


def environment_of(given: str | None, local: LocalDocuments | None) -> str:
    """The environment to read: the one that was given, else that of the local documents; empty for the base alone."""
    return given if given is not None else _declared_environment(local)


def with_chosen(sources: Sources, given: str | None) -> Sources:
    """The files of a read, with a problem when another environment was given than the local documents declare."""
    declared = _declared_environment(sources.local)
    if sources.local is None or not given or not declared or given == declared:
        return sources
    message = f"--env {given} is not the environment of this host: the local Instance declares '{declared}'"
    hint = "leave out --env, or correct spec.source.env of the local Instance"
    problem = Problem(sources.local.name, 0, 0, Code.WRONG_ENVIRONMENT, "", message, hint)
    tree = sources.tree
    if problem in tree.problems:
        return sources
    return replace(sources, tree=replace(tree, problems=tuple(sorted({*tree.problems, problem}))))


@lru_cache(maxsize=4)
def _declared_environment(local: LocalDocuments | None) -> str:
    """The environment that local documents declare; empty without one, and while they are invalid, because then nothing is used."""
    try:
        spec = None if local is None else declared_instance(local)
    except ManifestErrors:
        return ""
    return spec.source.env or "" if spec is not None and spec.source is not None else ""


@lru_cache(maxsize=4)
def chooses_images(local: LocalDocuments | None) -> str:
    """The id of the instance whose local documents let image policies roll out without a commit; empty where they do not, and while
    they are invalid, because then nothing is used.
    """
    try:
        spec = None if local is None else declared_instance(local)
    except ManifestErrors:
        return ""
    allowed = spec is not None and spec.image_policies is not None and spec.image_policies.apply == "rollout"
    return spec.id if spec is not None and allowed else ""


def resolve_sources(
    sources: Sources,
    *,
    settings_model: SettingsModel,
    known_types: KnownTypes,
    template_support: TemplateSupport = any_field,
    confined: bool = True,
    enforce: bool = True,
    check_files: bool = False,
) -> Resolved:
    """Check and resolve the files of one read. Arguments and errors as `load`; also a failure of this program is a problem.

    `confined`: with local documents the tree reaches only what they allow. False: they only replace objects of the tree with the
    same identity, as they did before that rule; for manifests that came into force then.
    `enforce`: whether violations of the policy are problems. False: they only mark the workloads (`Workload.forbidden`).
    `check_files`: check encrypted files of the tree that references name, without decrypting them.
    """
    with collector_paused():
        problems = list(sources.problems)
        documents = documents_of(sources.tree, problems)
        local = None if sources.local is None else _documents(sources.local.files, problems)
        try:
            resolved = resolve(
                replace(sources.tree, revision=sources.revision),
                documents,
                local,
                settings_model=settings_model,
                known_types=known_types,
                template_support=template_support,
                problems=problems,
                confined=confined,
                enforce=enforce,
                secret_files=partial(_secret_file, sources.tree) if check_files else None,
                choices=sources.choices,
            )
        except ManifestErrors:
            raise
        except Exception as error:  # manifests that break the resolver must not end a daemon
            raise ManifestErrors([*problems, internal_problem(Where(".", 0, 0), error)]) from error
        outside = [
            *_unprovided(sources.tree, resolved.desired, template_support),
            *_links_out_of_the_tree(resolved.desired),
            *_secrets_out_of_the_tree(resolved.desired),
        ]
    if outside:
        raise ManifestErrors([*outside, *resolved.warnings])
    return resolved


def load_tree(
    path: StrPath,
    *,
    instance_file: StrPath | None = None,
    environment: str | None = None,
    settings_model: SettingsModel,
    known_types: KnownTypes,
    template_support: TemplateSupport = any_field,
    edited: Mapping[str, bytes] | None = None,
    check_files: bool = False,
) -> Resolved:
    """As `load`, with the warnings.

    `edited` holds, by file name, contents to read instead of those of the files. `check_files` as `resolve_sources`.
    """
    sources = read_sources(path, instance_file, environment)
    return resolve_sources(
        replace(sources, tree=with_contents(sources.tree, edited or {})),
        settings_model=settings_model,
        known_types=known_types,
        template_support=template_support,
        check_files=check_files,
    )


def _secret_file(tree: SourceTree, path: str) -> bytes | str:
    """The content of an encrypted file of the tree, or why it cannot be used."""
    failed = tree.provide(path)
    if failed:
        return f"cannot be read from the source: {failed}"
    try:
        with open_below(tree.root, path) as file:
            return file.read(MAX_BYTES + 1)
    except OSError as error:
        return f"cannot be read: {(error.strerror or type(error).__name__).lower()}"


def manifest_documents(sources: Sources) -> list[Document]:
    """The merged documents of a valid tree that are manifests, without encrypted data that references name."""
    with collector_paused():
        documents = documents_of(sources.tree, [])
        local = () if sources.local is None else _documents(sources.local.files, [])
        return without_data(documents, local)[0]


def documents_of(tree: SourceTree, problems: list[Problem]) -> list[Document]:
    """The documents of a tree, with those of its environment merged over the others. Adds to the problems."""
    documents = _documents(tree.base, problems)
    if not tree.environment:
        return documents
    result, wrong = overlaid(documents, _documents(tree.overlay, problems))
    problems += wrong
    return result


def _documents(files: tuple[SourceFile, ...], problems: list[Problem]) -> list[Document]:
    documents: list[Document] = []
    for file in files:
        encrypted = encrypted_file(file)
        if encrypted is not None:
            problems.append(encrypted)
            continue
        read, wrong = read_file(file.name, file.data)
        documents += read
        problems += wrong
    return documents


def _unprovided(tree: SourceTree, value: Desired, support: TemplateSupport) -> list[Problem]:
    """Make the files that manifests name readable below the root of the tree; a problem for each that cannot be.

    A process of this host that names no directory works in the root itself, so it gets all files of the set.
    """
    on_host = {
        provider.name
        for provider in value.providers
        if (known := support(provider.type)) is not None and RELATIVE_WORKING_DIR in known[0]
    }
    named: dict[str, Where] = {}
    for workload in value.workloads:
        container = workload.template.container
        if not on_host.isdisjoint(workload.nodes) and not os.path.isabs(container.working_dir):
            named.setdefault(os.path.normpath(container.working_dir), workload.where)
        for probe in (container.startup, container.liveness, container.readiness):
            if probe is not None and probe.tls is not None and probe.tls.ca_file:
                named.setdefault(os.path.normpath(probe.tls.ca_file), workload.where)
    for path, where in encrypted_paths(value).items():
        named.setdefault(path, where)
    problems = []
    for path, where in named.items():
        failed = tree.provide(path)
        if failed:
            message = f"'{path}' cannot be read from the source: {failed}"
            problems.append(Problem(where.file, where.line, where.column, Code.UNREADABLE_FILE, "", message))
    return problems


def declared_instance(local: LocalDocuments) -> InstanceSpec | None:
    """The Instance that local documents declare; None without one.

    Raises ManifestErrors when they cannot be read, or their Instance is invalid.
    """
    problems = list(local.problems)
    spec: InstanceSpec | None = None
    for document in _documents(local.files, problems):
        declared, wrong = validate(document)
        if declared is None or declared.kind == "Instance":
            problems += wrong
        if declared is not None and isinstance(declared.manifest, Instance):
            spec = spec or declared.manifest.spec
    if any(not problem.is_warning for problem in problems):
        raise ManifestErrors(problems)
    return spec


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


def _secrets_out_of_the_tree(value: Desired) -> list[Problem]:
    """Encrypted files that a link leads out of the tree: a manifest must not have other files of the host read."""
    root = os.path.realpath(value.root)
    problems = []
    for path, where in encrypted_paths(value).items():
        real = os.path.realpath(os.path.join(root, path))
        if not real.startswith(root.rstrip("/") + "/"):
            message = f"a link leads from the encrypted file '{path}' out of the manifests' directory"
            hint = "replace the link with the file itself, or write its absolute path in a local document"
            problems.append(Problem(where.file, where.line, where.column, Code.LINK_LEAVES_TREE, "", message, hint))
    return problems
