"""An edit as a patch that `git apply` takes, for an operator who may write where this program may not. Used by `writer.py`."""

from collections.abc import Iterator, Mapping
from difflib import unified_diff

_PLAIN = frozenset(range(0x20, 0x7F)) - set(b'"\\')
_SHORT = {ord("\t"): "\\t", ord("\n"): "\\n", ord("\r"): "\\r", ord('"'): '\\"', ord("\\"): "\\\\"}


def patch(files: Mapping[str, tuple[bytes, bytes]]) -> str:
    """The patch of files that exist, by their paths from where it is applied: contents before and after, UTF-8."""
    return "".join(line for name in sorted(files) for line in _of_file(name, *files[name]))


def _of_file(name: str, before: bytes, after: bytes) -> Iterator[str]:
    old, new = (_lines(data.decode("utf-8", "surrogateescape")) for data in (before, after))
    yield f"diff --git {_quoted('a/' + name)} {_quoted('b/' + name)}\n"
    yield f"--- {_quoted('a/' + name)}\n"
    yield f"+++ {_quoted('b/' + name)}\n"
    for line in list(unified_diff(old, new))[2:]:  # without the two lines of names, which are not quoted
        yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"


def _lines(text: str) -> list[str]:
    """Lines with their ends; only a line feed ends a line, as for git."""
    parts = text.split("\n")
    return [f"{part}\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])


def _quoted(name: str) -> str:
    """A path as git writes it in patches: in quotes with octal escapes when it has unusual characters."""
    raw = name.encode("utf-8", "surrogateescape")
    if all(byte in _PLAIN for byte in raw) and not name.endswith(" "):
        return name
    return '"' + "".join(_SHORT.get(byte) or (chr(byte) if byte in _PLAIN else f"\\{byte:03o}") for byte in raw) + '"'
