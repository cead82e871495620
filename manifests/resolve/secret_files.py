"""Encrypted files that the tree refers to, as far as they can be checked without an identity. Called by `resolver.py` for `validate`.

A run does not check them here: a file may come later, and then one workload waits for it and not the whole set.
"""

from collections.abc import Callable

from manifests.kinds.secret_ref import SopsReference
from manifests.kinds.validate import Declared, Path
from manifests.problems import Code
from manifests.resolve.local import references_in
from manifests.resolve.references import Scope
from manifests.source.encrypted_file import Unusable, is_age, read_sops, single_value

ReadFile = Callable[[str], bytes | str]
"""The bytes of a file below the manifests' directory, or why it cannot be used."""

_KINDS = ("Workload", "DNSPolicy", "HealthCheck")


def check_secret_files(scope: Scope, read: ReadFile) -> None:
    """Report files that are missing, not encrypted, or without the key of a reference."""
    for kind in _KINDS:
        for item in scope.all(kind):
            for path, _, reference in references_in(item.manifest) if item.manifest is not None else ():
                if reference.sops is not None:
                    _sops(scope, item, (*path, "sops"), reference.sops, read)
                elif reference.age is not None and not reference.age.file.startswith("/"):
                    _age(scope, item, (*path, "age", "file"), reference.age.file, read)


def _sops(scope: Scope, item: Declared, path: Path, reference: SopsReference, read: ReadFile) -> None:
    if reference.file.startswith("/"):
        return  # this host's, which may be another one than that of `validate`
    data = read(reference.file)
    if isinstance(data, str):
        _report(scope, item, (*path, "file"), f"'{reference.file}' {data}", "add the file, encrypted with SOPS")
        return
    try:
        file = read_sops(reference.file, data)
    except Unusable as error:
        _report(scope, item, (*path, "file"), f"'{reference.file}': {error.cause}", error.next_step)
        return
    if reference.key is None:
        return
    try:
        single_value(reference.file, file.format, file.values, reference.key)
    except Unusable as error:
        _report(scope, item, (*path, "key"), f"'{reference.file}': {error.cause}", error.next_step)


def _age(scope: Scope, item: Declared, path: Path, file: str, read: ReadFile) -> None:
    data = read(file)
    if isinstance(data, str):
        _report(scope, item, path, f"'{file}' {data}", "add the file, encrypted with age")
    elif not is_age(data):
        hint = "encrypt it: age -r RECIPIENT; if it was committed in plain text, replace the secret"
        _report(scope, item, path, f"'{file}' is not encrypted with age", hint)


def _report(scope: Scope, item: Declared, path: Path, cause: str, hint: str) -> None:
    scope.report(item, path, Code.BAD_SECRET_FILE, f"{item.key}: {cause}", hint)
