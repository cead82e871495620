"""Files that SOPS or age has encrypted, without decrypting them: is it one, which keys has it, and which key services does it name?

SOPS leaves names readable and encrypts values, so `validate` checks references to a key without any identity. Its metadata names the
services that hold the key; SOPS sends its own credentials to their addresses, so a file of the tree may name only allowed ones. Pure.
Called by `resolve/secret_files.py` and `providers/lib/secret_programs.py`.
"""

import configparser
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from manifests.yaml.read import read_file

MAX_BYTES = 1024 * 1024
"""Largest encrypted file."""


class Format(StrEnum):
    """Formats of SOPS, with the values of its `--input-type`; the file's name decides, as in SOPS."""

    YAML = "yaml"
    JSON = "json"
    DOTENV = "dotenv"
    INI = "ini"
    BINARY = "binary"


_FORMATS = {".yaml": Format.YAML, ".yml": Format.YAML, ".json": Format.JSON, ".env": Format.DOTENV, ".ini": Format.INI}


class Unusable(Exception):
    """A file or key cannot be used. `cause` names no value; `next_step` is in the imperative."""

    def __init__(self, cause: str, next_step: str) -> None:
        super().__init__(cause)
        self.cause, self.next_step = cause, next_step


@dataclass(frozen=True, slots=True)
class SopsFile:
    """An encrypted file: its format, its values (still encrypted) without the metadata, and the addresses of its key services."""

    format: Format
    values: Mapping[str, Any]
    services: tuple[str, ...]


def format_of(path: str) -> Format:
    """The format of a file, by its name."""
    return next((form for suffix, form in _FORMATS.items() if path.endswith(suffix)), Format.BINARY)


def read_sops(path: str, data: bytes) -> SopsFile:
    """What an encrypted file has. Raises Unusable."""
    if len(data) > MAX_BYTES:
        raise Unusable(f"it has more than {MAX_BYTES} bytes", "split the file")
    form = format_of(path)
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise Unusable("it is not a SOPS file", f"encrypt it: sops encrypt -i {path}") from None
    documents = list(_DOCUMENTS[form](text))
    if not documents or any(metadata is None for _, metadata in documents):
        cause = f"it is not encrypted with SOPS (read as {form.value}, by its name)"
        raise Unusable(
            cause, f"encrypt it: sops encrypt -i {path}; if it was committed in plain text, replace the secret"
        )
    values, _ = documents[0]
    services = {address for _, metadata in documents for address in _services(metadata)}
    if form in (Format.DOTENV, Format.INI):
        services |= set(_services_of_lines(text))
    return SopsFile(form, values, tuple(sorted(services)))


def select(values: Any, key: str) -> Any:
    """The value at a path of keys. At each level the longest name that exists counts, so `tls.key` is found as one name too.

    Raises:
        Unusable: there is no such value.
    """
    return _select(values, key.split("."), "")


def _select(value: Any, parts: list[str], before: str) -> Any:
    if not parts:
        return value
    if isinstance(value, list):
        index = parts[0]
        if index.isascii() and index.isdecimal() and len(index) < 7 and int(index) < len(value):
            return _select(value[int(index)], parts[1:], f"{before}{index}.")
    elif isinstance(value, Mapping):
        for count in range(len(parts), 0, -1):
            name = ".".join(parts[:count])
            if name in value:
                return _select(value[name], parts[count:], f"{before}{name}.")
    place = f"below '{before[:-1]}'" if before else "in the file"
    raise Unusable(f"there is no key '{'.'.join(parts)}' {place}", "correct key, or add the value with sops edit")


def single_value(path: str, form: Format, values: Any, key: str) -> str | int | float | bool:
    """The value at a path of keys, which must be one of text, number or truth value. Raises Unusable."""
    if form is Format.BINARY:
        next_step = f"remove key, or give '{path}' a name that ends in .yaml, .json, .env or .ini"
        raise Unusable("a binary SOPS file has no keys", next_step)
    value = select(values, key)
    if value is None or isinstance(value, Mapping | list):
        raise Unusable(f"key '{key}' is not a single value", "name one value in it")
    if not isinstance(value, str | int | float | bool):
        raise Unusable(f"key '{key}' is not a text", "store it as text")
    return value


def is_age(data: bytes) -> bool:
    """Whether a file is encrypted by age, in either of its formats."""
    return data.lstrip().startswith((b"age-encryption.org/v1\n", b"-----BEGIN AGE ENCRYPTED FILE-----"))


# --- the formats -----------------------------------------------------------------------------------------------------

_Read = tuple[Mapping[str, Any], Any]
"""Values, and metadata or None."""


def _split(value: object) -> _Read:
    if not isinstance(value, dict):
        return {}, None
    metadata = value.get("sops")
    encrypted = isinstance(metadata, dict) and "mac" in metadata
    # SOPS reads JSON without regard to case: what it may take for its metadata counts too.
    own = {name: inner for name, inner in value.items() if str(name).casefold() == "sops"}
    return {name: inner for name, inner in value.items() if name not in own}, own if encrypted else None


def _yaml(text: str) -> Iterator[_Read]:
    documents, problems = read_file("", text.encode())
    wrong = next((problem for problem in problems if not problem.is_warning), None)
    if wrong is not None:
        raise Unusable(f"it cannot be read: line {wrong.line}: {wrong.code}", "correct the file")
    return (_split(document.value) for document in documents)


def _json(text: str) -> Iterator[_Read]:
    try:
        value = json.loads(text, object_pairs_hook=_without_repeats)
    except (ValueError, RecursionError):
        return iter(())
    return iter((_split(value),))


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON. Raises Unusable for a name that is there twice: SOPS merges both, and this program would see the last one only."""
    result = dict(pairs)
    if len(result) < len(pairs):
        raise Unusable("an object in it has the same name twice", "remove one of the two")
    return result


_ASSIGNMENT = re.compile(r"\s*([A-Za-z0-9_.-]+)\s*=(.*)")


def _dotenv(text: str) -> Iterator[_Read]:
    pairs = {match[1]: match[2] for line in text.splitlines() if (match := _ASSIGNMENT.match(line))}
    return iter((_flat(pairs, "sops_"),))


def _flat(pairs: Mapping[str, str], prefix: str) -> _Read:
    metadata = {name.removeprefix(prefix): value for name, value in pairs.items() if name.startswith(prefix)}
    values = {name: value for name, value in pairs.items() if not name.startswith(prefix)}
    return values, metadata if "mac" in metadata else None


def _ini(text: str) -> Iterator[_Read]:
    parser = configparser.RawConfigParser(strict=False, interpolation=None, allow_no_value=True)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    try:
        parser.read_string(text)
    except (configparser.Error, ValueError):
        return iter(())
    sections: dict[str, Any] = {name: dict(parser.items(name)) for name in parser.sections()}
    return iter((_split(sections),))


_DOCUMENTS = {
    Format.YAML: _yaml,
    Format.JSON: _json,
    Format.DOTENV: _dotenv,
    Format.INI: _ini,
    Format.BINARY: _json,
}

_ADDRESSES = ("vault_address", "vault_url", "vaulturl")
"""Fields of the metadata with the address of HashiCorp Vault (`hc_vault`) or of Azure Key Vault (`azure_kv`). SOPS reads the names in JSON
and in flat metadata without regard to case."""

_FLAT_ADDRESS = re.compile(r"__map_(?:vault_address|vault_?url)[^=:\n]*[=:](.*)", re.IGNORECASE)
"""The same in a line of flat metadata (`hc_vault__list_0__map_vault_address`)."""


def _services(metadata: object) -> Iterator[str]:
    """The addresses in metadata, nested or flat (`hc_vault__list_0__map_vault_address`)."""
    if isinstance(metadata, Mapping):
        for name, value in metadata.items():
            if isinstance(value, str) and str(name).casefold().endswith(_ADDRESSES):
                yield _address(value)
            else:
                yield from _services(value)
    elif isinstance(metadata, list):
        for value in metadata:
            yield from _services(value)


def _services_of_lines(text: str) -> Iterator[str]:
    """The addresses in flat metadata, line by line: where a value begins, and which of two lines counts, SOPS's parsers decide otherwise
    than Python's. An address that is written in an unusual way is none that local documents allow."""
    for line in text.split("\n"):
        for found in _FLAT_ADDRESS.finditer(line):
            yield _address(found[1])


def _address(value: str) -> str:
    """An address without blanks, quotes and a final slash."""
    text = value.strip()
    if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'":
        text = text[1:-1]
    return text.rstrip("/")
