"""From what was read beside the manifests to volumes and variables of a pod. Called by `workload.py` before the template is made.

Every problem has its place: that of the reference in the manifest, or the line of the file of variables. Files of the repository are not
a place for secrets, so what looks like one is a warning. Ciphertext is an error, as in a manifest: the program would use it as it is.
"""

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from manifests.kinds.pod import Container, Files, PodSpec
from manifests.kinds.validate import Declared, Path
from manifests.problems import Code, Problem
from manifests.resolve import dotenv
from manifests.resolve.references import Scope
from manifests.source.directory import SUFFIXES
from manifests.source.file_sets import SETS, is_manifest
from manifests.values import ciphertext
from manifests.values.files import (
    FileContents,
    FileSet,
    FilesVolume,
    OnFilesChange,
    SetFile,
    content_digest,
    entry,
)

_SPEC: Path = ("spec", "template", "spec")

DEFAULT_SIGNAL = "SIGHUP"

_KEY = re.compile(rb"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY-----|AGE-SECRET-KEY-1")
"""Marks of private keys."""

_MOST = 20
"""Most problems with ciphertext of one file of variables: one that is encrypted value by value has one in every line."""

_SECRET_NAME = re.compile(r"(?:^|_)(?:PASSWORD|PASSWD|PASSPHRASE|TOKEN|SECRET|KEY|CREDENTIALS?)(?:$|_)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class EnvFileVariables:
    """The variables of one container that come from files, without those that `env` overrides: (name, value), and (name, file:line)."""

    variables: tuple[tuple[str, str], ...] = ()
    origins: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class RepositoryFiles:
    """What a pod gets from files of the repository: its volumes by name, and the variables by container."""

    volumes: Mapping[str, FilesVolume] = field(default_factory=dict)
    variables: Mapping[str, EnvFileVariables] = field(default_factory=dict)

    @property
    def origins(self) -> tuple[tuple[str, str, str], ...]:
        """(container, variable, `file:line`) of every variable that is from a file."""
        return tuple((name, *pair) for name, given in self.variables.items() for pair in given.origins)


NO_FILES = RepositoryFiles()
_NO_VARIABLES = EnvFileVariables()


def secret_in(data: bytes) -> str:
    """What in a text looks like a secret, in words; empty when nothing does."""
    if _KEY.search(data):
        return "a private key"
    return "ciphertext" if ciphertext.ciphertext(data.decode("utf-8", "replace")) else ""


def repository_files(declared: Declared, scope: Scope, spec: PodSpec) -> RepositoryFiles:
    """The files that a pod refers to. Problems are reported; files with one are left out."""
    volumes = {
        volume.name: made
        for index, volume in enumerate(spec.volumes)
        if volume.files is not None
        and (made := _volume(declared, scope, volume.name, volume.files, (*_SPEC, "volumes", index, "files")))
    }
    variables = {
        container.name: _variables(declared, scope, container, (*_SPEC, "containers", index, "envFile"))
        for index, container in enumerate(spec.containers)
        if container.env_file
    }
    return RepositoryFiles(volumes, variables) if volumes or variables else NO_FILES


def _read(declared: Declared, scope: Scope, path: str) -> FileSet | None:
    """What was read at a path; with a problem where it was not read."""
    if declared.local:
        hint = "move the workload into the tree, or use hostPath"
        return FileSet(path, problem="a local document cannot refer to files of the tree", hint=hint)
    return scope.sets.get(path)


def _report(declared: Declared, scope: Scope, at: Path, path: str, given: FileSet | None) -> None:
    if given is None:
        problem, hint = f"it was not read: the tree refers to more than {SETS} paths", "refer to fewer files"
    else:
        problem, hint = given.problem, given.hint
    if given is not None and given.missing:
        beside = posixpath.normpath(posixpath.join(posixpath.dirname(declared.document.file), path))
        hint = "paths are relative to the manifests' directory"
        if beside != path:
            hint += f": for a file beside the manifest write ./{beside}"
    scope.report(declared, at, Code.UNUSABLE_FILES, f"{declared.key}: '{path}': {problem}", hint)


# --- volumes ---------------------------------------------------------------------------------------------------------


def _volume(declared: Declared, scope: Scope, name: str, files: Files, path: Path) -> FilesVolume | None:
    given = _read(declared, scope, files.from_)
    if given is None or given.problem:
        _report(declared, scope, (*path, "from"), files.from_, given)
        return None
    held = [file.name or given.path for file in given.files if _holds_manifest(file.name or given.path, file.data)]
    if held:
        message = f"{declared.key}: '{files.from_}' holds a manifest: {held[0]}"
        scope.report(declared, (*path, "from"), Code.UNUSABLE_FILES, message, "keep manifests and mounted files apart")
        return None
    taken = _taken(declared, scope, files, given, path)
    if taken is None:
        return None
    if given.is_file and files.on_change == "signal":
        message = f"{declared.key}: onChange: signal needs a directory: a mount of one file cannot show another one"
        scope.report(declared, (*path, "onChange"), Code.BAD_VALUE, message, "put the file into a directory")
        return None
    reserved = [file.name for file in taken if file.name.startswith("..")] if files.on_change == "signal" else []
    if reserved:
        message = f"{declared.key}: '{files.from_}' has '{reserved[0]}': with onChange: signal, names that begin with '..' are kept for links"
        scope.report(
            declared, (*path, "from"), Code.UNUSABLE_FILES, message, "rename the file, or leave it out with items"
        )
        return None
    _check_secrets(declared, scope, taken, (*path, "from"), allow_ciphertext=files.allow_ciphertext)
    digest = content_digest(taken)
    scope.file_contents[digest] = FileContents(digest, taken)
    on_change = OnFilesChange(files.on_change)
    signal = (files.signal or DEFAULT_SIGNAL) if on_change is OnFilesChange.SIGNAL else ""
    return FilesVolume(name, digest, tuple(map(entry, taken)), given.is_file, on_change, signal)


def _holds_manifest(name: str, data: bytes) -> bool:
    return name.casefold().endswith(SUFFIXES) and is_manifest(data)


def _taken(declared: Declared, scope: Scope, files: Files, given: FileSet, path: Path) -> tuple[SetFile, ...] | None:
    """The files of a volume, with their names and modes in it."""
    executable = {"0555": True, "0444": False}.get(files.mode or "")
    known = {file.name or posixpath.basename(given.path): file for file in given.files}
    if given.is_file and files.items:
        message = f"{declared.key}: items does nothing where `from` is one file"
        scope.report(declared, (*path, "items"), Code.BAD_VALUE, message, "remove it, or refer to the directory")
        return None
    chosen = [(item.key, item.path or item.key) for item in files.items] or [(name, name) for name in known]
    for index, (key, _) in enumerate(chosen):
        if key not in known:
            message = f"{declared.key}: '{files.from_}' has no file '{key}'"
            shown = ", ".join(sorted(known)[:12])
            scope.report(declared, (*path, "items", index, "key"), Code.UNUSABLE_FILES, message, f"its files: {shown}")
            return None
    return tuple(
        sorted(
            SetFile(name, known[key].data, known[key].executable if executable is None else executable)
            for key, name in chosen
        )
    )


def _check_secrets(
    declared: Declared, scope: Scope, files: Iterable[SetFile], path: Path, *, allow_ciphertext: bool
) -> None:
    for file in files:
        if _KEY.search(file.data):
            message = f"{declared.key}: {file.name} holds a private key; files of the repository are not secrets"
            hint = "take it out of the repository; pass secrets with env.valueFrom.secret, or mount them with hostPath"
            scope.report(declared, path, Code.PLAIN_SECRET, message, hint)
            continue
        marker = None if allow_ciphertext else ciphertext.marker_of_bytes(file.data)
        if marker is not None:
            message = f"{declared.key}: {file.name}: it is {marker.name}, and the container would get it as it is"
            hint = f"{marker.next_step}; if the program in the container decrypts it, write allowCiphertext: true"
            scope.report(declared, path, Code.CIPHERTEXT, message, hint)


# --- variables -------------------------------------------------------------------------------------------------------


def _variables(declared: Declared, scope: Scope, container: Container, path: Path) -> EnvFileVariables:
    own = {variable.name for variable in container.env}
    values: dict[str, tuple[str, str]] = {}
    for index, env_file in enumerate(container.env_file):
        at: Path = (*path, index) if isinstance(_written(declared, path), list) else path
        given = _read(declared, scope, env_file.path)
        if given is not None and given.missing and not env_file.required:
            continue
        if given is None or given.problem or not given.is_file:
            if given is not None and not given.problem:
                given = FileSet(given.path, problem="it is a directory", hint="write the path of a file")
            _report(declared, scope, at, env_file.path, given)
            continue
        if _is_encrypted(declared, scope, given, at):
            continue
        for name, value, origin in _of_file(scope, given):
            values[name] = value, origin
    kept = {name: value for name, value in values.items() if name not in own}
    return EnvFileVariables(
        tuple((name, value) for name, (value, _) in kept.items()),
        tuple((name, origin) for name, (_, origin) in kept.items()),
    )


def _is_encrypted(declared: Declared, scope: Scope, given: FileSet, path: Path) -> bool:
    """Whether a file of variables is, or holds, ciphertext or a placeholder in place of a value; each is reported."""
    data = given.files[0].data
    found = 0
    for variable in dotenv.parse(data).variables:
        marker = ciphertext.marker(variable.value)
        if marker is not None and found < _MOST:
            found += 1
            message = f"{variable.name}: it is {marker.name}"
            hint = f"remove it, and add {variable.name} to env with valueFrom.secret"
            scope.problems.append(Problem(given.path, variable.line, 1, Code.CIPHERTEXT, "", message, hint))
    whole = None if found else ciphertext.marker_of_bytes(data)
    if whole is not None:
        message = f"{declared.key}: {given.path}: it is {whole.name}"
        scope.report(declared, path, Code.CIPHERTEXT, message, whole.next_step)
    return bool(found) or whole is not None


def _written(declared: Declared, path: Path) -> object:
    """The value at a path as the manifest has it."""
    value = declared.document.value
    for part in path:
        value = value[part]  # type: ignore[index]
    return value


def _of_file(scope: Scope, given: FileSet) -> Iterator[tuple[str, str, str]]:
    """(name, value, `file:line`) of each variable of a file; its mistakes are reported once, however many objects refer to it."""
    text = dotenv.parse(given.files[0].data)
    scope.problems.extend(
        Problem(given.path, mistake.line, 1, Code.ENV_FILE_SYNTAX, "", mistake.message, mistake.hint)
        for mistake in text.mistakes
    )
    first: dict[str, int] = {}
    for variable in text.variables:
        if variable.name in first:
            message = f"{variable.name} is set again; line {first[variable.name]} has no effect"
            scope.problems.append(
                Problem(given.path, variable.line, 1, Code.REPEATED_VARIABLE, "", message, "remove one of the lines")
            )
        first[variable.name] = variable.line
        if variable.value and _SECRET_NAME.search(variable.name):
            message = (
                f"{variable.name} looks like a secret; values of an envFile are shown in plans and kept in the ledger"
            )
            hint = f"remove it, and add {{name: {variable.name}, valueFrom: {{secret: {{file: /path}}}}}} to env"
            scope.problems.append(Problem(given.path, variable.line, 1, Code.PLAIN_SECRET, "", message, hint))
        yield variable.name, variable.value, f"{given.path}:{variable.line}"


def variables_of(files: RepositoryFiles, container: Container) -> EnvFileVariables:
    """The variables that a container gets from files."""
    return files.variables.get(container.name, _NO_VARIABLES)
