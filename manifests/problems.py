"""Problems: what is wrong with a tree of manifests, all of it at once, each with its place and what to do about it.

Reading, validating and resolving collect `Problem`s and go on; `load.py` raises them together as `ManifestErrors`, and the
command line prints them. Nothing else in this package reports bad input.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum

CANDIDATES = 200
"""How many names are compared for a suggestion: comparing is slow, and a tree may hold thousands of names."""


class Code(StrEnum):
    """What kind of problem it is. People and scripts may rely on these texts."""

    # the tree
    PATH_NOT_FOUND = "path-not-found"
    UNREADABLE_FILE = "unreadable-file"
    FILE_TOO_LARGE = "file-too-large"
    TOO_MANY_FILES = "too-many-files"
    LINK_LEAVES_TREE = "link-leaves-tree"
    EMPTY_TREE = "empty-tree"
    # the text
    ENCODING = "encoding"
    YAML_SYNTAX = "yaml-syntax"
    YAML_VERSION = "yaml-version"
    YAML_TAG = "yaml-tag"
    YAML_AMBIGUOUS = "yaml-ambiguous"
    DUPLICATE_KEY = "duplicate-key"
    BAD_KEY = "bad-key"
    BAD_NUMBER = "bad-number"
    BAD_ALIAS = "bad-alias"
    ALIAS_BUDGET = "alias-budget"
    TOO_DEEP = "too-deep"
    TOO_MANY_DOCUMENTS = "too-many-documents"
    # one document
    NOT_A_MANIFEST = "not-a-manifest"
    UNKNOWN_VERSION = "unknown-version"
    UNKNOWN_KIND = "unknown-kind"
    UNKNOWN_FIELD = "unknown-field"
    MISSING_FIELD = "missing-field"
    WRONG_TYPE = "wrong-type"
    OUT_OF_RANGE = "out-of-range"
    BAD_VALUE = "bad-value"
    # the documents together
    DUPLICATE_OBJECT = "duplicate-object"
    NO_INSTANCE = "no-instance"
    UNKNOWN_REFERENCE = "unknown-reference"
    UNKNOWN_TYPE = "unknown-type"
    UNKNOWN_PORT = "unknown-port"
    UNSUPPORTED_FIELD = "unsupported-field"
    WRONG_ROLE = "wrong-role"
    NO_DEFAULT = "no-default"
    SELECTS_NOTHING = "selects-nothing"
    NOTHING_TO_PUBLISH = "nothing-to-publish"
    OUTSIDE_ZONE = "outside-zone"
    CONFLICT = "conflict"
    NAME_TOO_LONG = "name-too-long"
    NOT_ALLOWED = "not-allowed"
    NOT_INSTALLED = "not-installed"
    COSTLY_PROBE = "costly-probe"
    NO_INIT = "no-init"
    CNAME_LOOP = "cname-loop"
    FAILS_CLOSED = "fails-closed"
    EARLY_TRAFFIC = "early-traffic"


WARNINGS = frozenset({Code.YAML_AMBIGUOUS, Code.COSTLY_PROBE, Code.NO_INIT, Code.FAILS_CLOSED, Code.EARLY_TRAFFIC})
"""Codes that do not make a tree invalid."""

MEANINGS: dict[Code, str] = {
    Code.PATH_NOT_FOUND: "The path that was given does not exist.",
    Code.UNREADABLE_FILE: "A file or directory cannot be read, or is not a regular file.",
    Code.FILE_TOO_LARGE: "A file is larger than the limit.",
    Code.TOO_MANY_FILES: "There are more files, or deeper directories, than the limits.",
    Code.LINK_LEAVES_TREE: "A symbolic link leads out of the manifests' directory.",
    Code.EMPTY_TREE: "There are no manifests at all: a person should look, nothing is removed.",
    Code.ENCODING: "A file is not UTF-8.",
    Code.YAML_SYNTAX: "The text is not YAML.",
    Code.YAML_VERSION: "The text declares another version than YAML 1.2.",
    Code.YAML_TAG: "A tag that is not allowed, or that does not fit its value.",
    Code.YAML_AMBIGUOUS: "YAML 1.1 would read another value than YAML 1.2.",
    Code.DUPLICATE_KEY: "A mapping has a key twice.",
    Code.BAD_KEY: "A key is not a text.",
    Code.BAD_NUMBER: "A number is infinite, not a number, or too long.",
    Code.BAD_ALIAS: "An alias without its anchor, inside its own anchor, or merged although it is not a mapping.",
    Code.ALIAS_BUDGET: "Aliases repeat more values than the limit.",
    Code.TOO_DEEP: "Values are nested deeper than the limit.",
    Code.TOO_MANY_DOCUMENTS: "A file has more documents than the limit.",
    Code.NOT_A_MANIFEST: "A document is not a manifest.",
    Code.UNKNOWN_VERSION: "The `apiVersion` is not one that this program reads.",
    Code.UNKNOWN_KIND: "There is no such kind.",
    Code.UNKNOWN_FIELD: "There is no such field at this place.",
    Code.MISSING_FIELD: "A required field is missing.",
    Code.WRONG_TYPE: "A value has another type than its field.",
    Code.OUT_OF_RANGE: "A number or a length is outside its limits.",
    Code.BAD_VALUE: "A value has the right type but is not valid.",
    Code.DUPLICATE_OBJECT: "Two documents declare the same object.",
    Code.NO_INSTANCE: "There is no Instance.",
    Code.UNKNOWN_REFERENCE: "A name or key points at nothing.",
    Code.UNKNOWN_TYPE: "There is no such type of provider.",
    Code.UNKNOWN_PORT: "A port is not declared by the container.",
    Code.UNSUPPORTED_FIELD: "The runtime of a workload's node has no such field.",
    Code.WRONG_ROLE: "A provider is of another role than is needed.",
    Code.NO_DEFAULT: "A provider must be named, because there is not exactly one to choose.",
    Code.SELECTS_NOTHING: "A selector fits no workload.",
    Code.NOTHING_TO_PUBLISH: "A service without balancer addresses is to be published by them.",
    Code.OUTSIDE_ZONE: "A host is not in its zone.",
    Code.CONFLICT: "Two objects claim the same pool, name, port of a host or exclusive volume, or records that cannot stand together.",
    Code.NAME_TOO_LONG: "Container names would be longer than 63 characters.",
    Code.NOT_ALLOWED: "The Guard does not allow this command.",
    Code.NOT_INSTALLED: "An optional Python package is needed and not installed.",
    Code.COSTLY_PROBE: "Commands run so often that they are a load on the container engine.",
    Code.NO_INIT: "Commands run in a container without an init, which reaps what they leave behind.",
    Code.CNAME_LOOP: "Names point at each other in a circle.",
    Code.FAILS_CLOSED: "A name or a pool gives clients nothing while nothing behind it is healthy.",
    Code.EARLY_TRAFFIC: "Replicas that push may get requests before their first push, because no probe says that they are not ready.",
}
"""One sentence for each code, for the generated reference."""

LOST = frozenset(
    {
        Code.UNREADABLE_FILE,
        Code.FILE_TOO_LARGE,
        Code.TOO_MANY_FILES,
        Code.LINK_LEAVES_TREE,
        Code.ENCODING,
        Code.YAML_SYNTAX,
        Code.YAML_VERSION,
        Code.TOO_DEEP,
        Code.TOO_MANY_DOCUMENTS,
        Code.NOT_A_MANIFEST,
        Code.UNKNOWN_VERSION,
        Code.UNKNOWN_KIND,
    }
)
"""Codes after which documents may be missing, so that a name that is not found proves nothing."""


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """One thing that is wrong.

    Attributes:
        file: path relative to the tree's root, or as given for a file outside it.
        line, column: counted from 1, the column in characters; 0 when the problem has no place in a text.
        code: the kind of problem.
        path: the key path inside the document, such as `spec.template.spec.containers[0].name`; empty for a document.
        message: names the object and the cause. Never holds a value that could be a secret.
        hint: the next step; may have several lines, may be empty.
    """

    file: str
    line: int
    column: int
    code: Code
    path: str
    message: str
    hint: str = ""

    @property
    def is_warning(self) -> bool:
        """Whether the tree is valid all the same."""
        return self.code in WARNINGS

    def render(self) -> str:
        """`file:line:column: code: message`, and the hint indented below it."""
        place = f"{self.file}:{self.line}:{self.column}" if self.line else self.file
        head = f"{place}: {self.code}: {self.message}"
        return "\n".join([head, *(f"    {line}" for line in self.hint.splitlines())])

    def to_dict(self) -> dict[str, str | int]:
        """The problem as a JSON object; line and column are 0 when there is no place."""
        return {
            "severity": "warning" if self.is_warning else "error",
            "code": self.code.value,
            "file": self.file,
            "line": self.line,
            "column": self.column,
            "path": self.path,
            "message": self.message,
            "hint": self.hint,
        }


class ManifestErrors(Exception):
    """The tree is invalid: nothing may be applied or pruned from it. `problems` is sorted by place and has no repeats."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems: tuple[Problem, ...] = tuple(sorted(set(problems)))
        super().__init__(self.problems)

    def __str__(self) -> str:
        return render(self.problems)

    @property
    def empty_tree(self) -> bool:
        """Whether the only thing wrong is that there are no manifests at all: a person should look, see `EMPTY_TREE`."""
        return {problem.code for problem in self.problems} == {Code.EMPTY_TREE}


def render(problems: Iterable[Problem]) -> str:
    """All problems as text, one after the other, in the order given."""
    return "\n".join(problem.render() for problem in problems)


def key_path(parts: Sequence[str | int]) -> str:
    """`("spec", "ports", 0, "a.b")` as people write it: `spec.ports[0]."a.b"`."""
    text = ""
    for part in parts:
        if isinstance(part, int):
            text += f"[{part}]"
            continue
        shown = part if part.replace("_", "a").replace("-", "a").isalnum() else f'"{part}"'
        text += f".{shown}" if text else shown
    return text


def suggest(word: str, candidates: Iterable[str]) -> str:
    """The candidate that `word` was probably meant to be, or an empty text."""
    lowered = word.casefold()
    near: list[str] = []
    for candidate in candidates:
        if candidate.casefold() == lowered:
            return candidate
        if abs(len(candidate) - len(word)) <= 6 and len(near) < CANDIDATES:
            near.append(candidate)
    by_lower = {candidate.casefold(): candidate for candidate in reversed(near)}
    matches = get_close_matches(lowered, by_lower, n=1, cutoff=0.6)
    return by_lower[matches[0]] if matches else ""


def did_you_mean(word: str, candidates: Sequence[str], what: str) -> str:
    """A hint for an unknown word: the nearest candidate, else the candidates themselves when they are few."""
    guess = suggest(word, candidates)
    if guess:
        return f"did you mean '{guess}'?"
    if not candidates:
        return ""
    shown = ", ".join(candidates[:12])
    return f"{what}: {shown}{', …' if len(candidates) > 12 else ''}"


@dataclass(frozen=True, slots=True)
class Where:
    """The place of a document or value: path relative to the tree's root, line and column counted from 1."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


NOWHERE = Where("", 0, 0)
