"""What differs between the files of the repository that containers have and those that the manifests declare, for the reader of a plan.

Pure: contents in, lines out. The shell finds the contents (`shell/file_diffs.py`), because only it can read the file store. A file that
holds a key or ciphertext is never shown, nor is one that is no text or is too long: then only the digests are.
"""

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

LONGEST_TEXT = 16 * 1024
"""Bytes of the longest text whose lines are compared."""
LONGEST_LINES = 1000
"""Lines of the longest text whose lines are compared: the time may grow with their square."""
LINES = 100
"""Most lines of the differences of one file."""
ALL_LINES = 1000
"""Most lines of the differences of all files of a plan."""
DIGITS = 12

_NO_END = "\\ No newline at end of file"

Contents = Mapping[str, tuple[bytes, bool]]
"""The files of a volume by name: the content, and whether it may be executed."""


@dataclass(frozen=True, slots=True)
class FileDiff:
    """One file of a volume that differs.

    Attributes:
        object: key of the workload. volume, name: the volume, and the path of the file in it.
        before, after: SHA-256 of the contents; empty where there is no such file. Equal where only the mode differs.
        lines: the differences as a unified diff without its head; empty where they are not shown, and `why` says why.
        reaction: what happens to running containers, as in the manifest.
    """

    object: str
    volume: str
    name: str
    before: str
    after: str
    reaction: str
    lines: tuple[str, ...] = ()
    why: str = ""


def compare(
    key: str, volume: str, reaction: str, before: Contents, after: Contents, secret_in: Callable[[bytes], str]
) -> tuple[FileDiff, ...]:
    """The files of a volume that differ, by name. `secret_in` says what in a content looks like a secret; empty for nothing."""
    diffs = []
    for name in sorted({*before, *after}):
        old, new = before.get(name), after.get(name)
        if old == new:
            continue
        lines, why = _lines(old, new, secret_in)
        diffs.append(FileDiff(key, volume, name, _digest(old), _digest(new), reaction, lines, why))
    return tuple(diffs)


def _digest(file: tuple[bytes, bool] | None) -> str:
    return "" if file is None else sha256(file[0]).hexdigest()


def _lines(
    old: tuple[bytes, bool] | None, new: tuple[bytes, bool] | None, secret_in: Callable[[bytes], str]
) -> tuple[tuple[str, ...], str]:
    """The differences of one file, or why they are not shown."""
    sides = [side[0] for side in (old, new) if side is not None]
    if old is not None and new is not None and old[0] == new[0]:
        return (), "it may be executed now" if new[1] else "it may not be executed any more"
    secret = next(filter(None, map(secret_in, sides)), "")
    if secret:
        return (), f"not shown: it holds {secret}"
    if any(len(side) > LONGEST_TEXT for side in sides):
        return (), f"not shown: it is longer than {LONGEST_TEXT // 1024} KiB"
    try:
        before, after = (_split(side[0].decode()) if side is not None else [] for side in (old, new))
    except UnicodeDecodeError:
        return (), "not shown: it is no text"
    if any("\0" in line for text in (before, after) for line in text):
        return (), "not shown: it is no text"
    if any(len(text) > LONGEST_LINES for text in (before, after)):
        return (), f"not shown: it has more than {LONGEST_LINES} lines"
    lines = list(difflib.unified_diff(before, after, n=2, lineterm=""))[2:]
    if len(lines) > LINES:
        return (), f"not shown: {len(lines)} lines differ"
    return tuple(part for line in lines for part in line.split("\n")), ""


def _split(text: str) -> list[str]:
    """The lines of a text; the last one says so when nothing ends it, as `diff` does."""
    *lines, last = text.split("\n")
    return [*lines, f"{last}\n{_NO_END}"] if last else lines


def bounded(diffs: Iterable[FileDiff]) -> tuple[FileDiff, ...]:
    """The differences of a plan, with at most `ALL_LINES` lines together."""
    kept: list[FileDiff] = []
    left = ALL_LINES
    for diff in diffs:
        left -= len(diff.lines)
        kept.append(
            diff
            if left >= 0 or not diff.lines
            else FileDiff(
                diff.object,
                diff.volume,
                diff.name,
                diff.before,
                diff.after,
                diff.reaction,
                (),
                "not shown: the plan is long",
            )
        )
    return tuple(kept)


_REACTIONS = {
    "rollout": "new containers replace those that run",
    "signal": "running containers get a signal",
    "nothing": "running containers keep the earlier file",
}


def to_lines(diffs: Iterable[FileDiff]) -> list[str]:
    """One line for each file, and its differences below it, indented."""
    lines = []
    for diff in diffs:
        before, after = (digest[:DIGITS] or "(none)" for digest in (diff.before, diff.after))
        why = f" ({diff.why})" if diff.why else ""
        head = f"file {diff.object}: volume {diff.volume}: {diff.name}: {before} -> {after}{why}"
        lines.append(f"{head}; {_REACTIONS.get(diff.reaction, diff.reaction)}")
        lines += [f"    {line}" for line in diff.lines]
    return lines


def to_json(diffs: Iterable[FileDiff]) -> list[dict[str, Any]]:
    """The same for scripts."""
    return [
        {
            "object": diff.object,
            "volume": diff.volume,
            "file": diff.name,
            "before": diff.before or None,
            "after": diff.after or None,
            "on_change": diff.reaction,
            "diff": list(diff.lines) or None,
            "why": diff.why or None,
        }
        for diff in diffs
    ]
