"""Problems of a tree of manifests: each with its place, its cause and the next step.

Reading, validating and resolving collect `Problem`s and go on; `load.py` raises them together as `ManifestErrors`, and the
command line prints them. Nothing else in this package reports bad input.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum

from manifests.escape import escape

CANDIDATES = 200
"""Most names that are compared for a suggestion: comparing is slow, and a tree may hold thousands of names."""


class Code(StrEnum):
    """The kind of a problem. Scripts may rely on these texts."""

    # the tree
    PATH_NOT_FOUND = "path-not-found"
    UNREADABLE_FILE = "unreadable-file"
    FILE_TOO_LARGE = "file-too-large"
    TOO_MANY_FILES = "too-many-files"
    LINK_LEAVES_TREE = "link-leaves-tree"
    EMPTY_TREE = "empty-tree"
    UNSAFE_LOCAL = "unsafe-local"
    SOURCE_UNREADABLE = "source-unreadable"
    SOURCE_UNVERIFIED = "source-unverified"
    INTERNAL_ERROR = "internal-error"
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
    POLICY_VIOLATION = "policy-violation"
    LOCAL_ONLY = "local-only"
    CIPHERTEXT = "ciphertext"
    BAD_SECRET_FILE = "bad-secret-file"  # noqa: S105  (a code, not a password)
    SECRET_NOT_ALLOWED = "secret-not-allowed"  # noqa: S105  (a code, not a password)
    PROCESS_NOT_ALLOWED = "process-not-allowed"
    NOT_INSTALLED = "not-installed"
    COSTLY_PROBE = "costly-probe"
    NO_INIT = "no-init"
    CNAME_LOOP = "cname-loop"
    FAILS_CLOSED = "fails-closed"
    EARLY_TRAFFIC = "early-traffic"
    UNSUPPORTED_TYPE = "unsupported-type"
    SUSPICIOUS_NAME = "suspicious-name"
    LARGE_SET = "large-set"
    # files of the repository
    UNUSABLE_FILES = "unusable-files"
    ENV_FILE_SYNTAX = "env-file-syntax"
    REPEATED_VARIABLE = "repeated-variable"
    PLAIN_SECRET = "plain-secret"  # noqa: S105  (a code, not a password)
    # environments
    WRONG_ENVIRONMENT = "wrong-environment"
    NOTHING_TO_REMOVE = "nothing-to-remove"


WARNINGS = frozenset(
    {
        Code.YAML_AMBIGUOUS,
        Code.COSTLY_PROBE,
        Code.NO_INIT,
        Code.FAILS_CLOSED,
        Code.EARLY_TRAFFIC,
        Code.SUSPICIOUS_NAME,
        Code.LARGE_SET,
        Code.REPEATED_VARIABLE,
        Code.PLAIN_SECRET,
    }
)
"""Codes that do not make a tree invalid."""

MEANINGS: dict[Code, str] = {
    Code.PATH_NOT_FOUND: "The given path does not exist.",
    Code.UNREADABLE_FILE: "A file or directory cannot be read, or is not a regular file.",
    Code.FILE_TOO_LARGE: "A file is larger than the limit.",
    Code.TOO_MANY_FILES: "There are more files, or directories are nested deeper, than the limits allow.",
    Code.LINK_LEAVES_TREE: "A symbolic link leads out of the manifests' directory.",
    Code.EMPTY_TREE: "There are no manifests; nothing is removed.",
    Code.UNSAFE_LOCAL: "A local document is in the tree, or another user can write it.",
    Code.SOURCE_UNREADABLE: "The git source, or the commit that it names, cannot be read; the manifests in force stay.",
    Code.SOURCE_UNVERIFIED: "The commit does not have the signature that `source.verify` asks for; the manifests in force stay.",
    Code.INTERNAL_ERROR: "This program fails on a file or document: a bug, reported with its place.",
    Code.ENCODING: "A file is not UTF-8.",
    Code.YAML_SYNTAX: "The text is not YAML.",
    Code.YAML_VERSION: "The text declares a version other than YAML 1.2.",
    Code.YAML_TAG: "A tag is not allowed, or does not fit its value.",
    Code.YAML_AMBIGUOUS: "YAML 1.1 and YAML 1.2 read different values.",
    Code.DUPLICATE_KEY: "A mapping has the same key twice.",
    Code.BAD_KEY: "A key is not a string.",
    Code.BAD_NUMBER: "A number is infinite, not a number, or too long.",
    Code.BAD_ALIAS: "An alias has no anchor, is inside its own anchor, or merges a value that is not a mapping.",
    Code.ALIAS_BUDGET: "Aliases repeat more values than the limit allows.",
    Code.TOO_DEEP: "Values are nested deeper than the limit allows.",
    Code.TOO_MANY_DOCUMENTS: "A file has more documents than the limit allows.",
    Code.NOT_A_MANIFEST: "A document is not a manifest.",
    Code.UNKNOWN_VERSION: "This version of the program does not read the `apiVersion`.",
    Code.UNKNOWN_KIND: "The kind does not exist.",
    Code.UNKNOWN_FIELD: "The field does not exist at this place.",
    Code.MISSING_FIELD: "A required field is missing.",
    Code.WRONG_TYPE: "A value does not have the type of its field.",
    Code.OUT_OF_RANGE: "A number or a length is outside its limits.",
    Code.BAD_VALUE: "A value has the right type but is not valid.",
    Code.DUPLICATE_OBJECT: "Two documents declare the same object.",
    Code.NO_INSTANCE: "The manifests declare no Instance.",
    Code.UNKNOWN_REFERENCE: "A name or key refers to an object that does not exist.",
    Code.UNKNOWN_TYPE: "The type of provider does not exist.",
    Code.UNKNOWN_PORT: "The container does not declare the port.",
    Code.UNSUPPORTED_FIELD: "The runtime of a workload's node does not support the field.",
    Code.WRONG_ROLE: "A provider does not have the role that the field needs.",
    Code.NO_DEFAULT: "The field must name a provider, because there is none or more than one.",
    Code.SELECTS_NOTHING: "A selector matches no workload.",
    Code.NOTHING_TO_PUBLISH: "A target publishes balancer addresses, and the balancers of its service have none.",
    Code.OUTSIDE_ZONE: "A host is not in its zone.",
    Code.CONFLICT: "Two objects claim the same pool, name, host port or exclusive volume, or declare records that cannot coexist.",
    Code.NAME_TOO_LONG: "Container names would be longer than 63 characters.",
    Code.NOT_ALLOWED: "The Guard does not allow this command.",
    Code.POLICY_VIOLATION: "The policy of the Guard, or its default with local documents, does not allow this.",
    Code.LOCAL_ONLY: "With local documents (`--instance`), only they may declare this.",
    Code.CIPHERTEXT: "A text is ciphertext that was not decrypted, or a placeholder that stands for a removed secret.",
    Code.BAD_SECRET_FILE: "An encrypted file is missing, is not encrypted, or has no such key.",
    Code.SECRET_NOT_ALLOWED: "No rule of the local Instance lets the tree use this secret here.",
    Code.PROCESS_NOT_ALLOWED: "The local Instance does not let this workload of the tree run programs on the host.",
    Code.NOT_INSTALLED: "A required optional Python package is not installed.",
    Code.COSTLY_PROBE: "Exec probes run so often that they load the container engine.",
    Code.NO_INIT: "Exec probes run in a container without an init process, so processes that they leave behind are not reaped.",
    Code.CNAME_LOOP: "Names point at each other in a loop.",
    Code.FAILS_CLOSED: "A name has no answer, or a pool no endpoint, while nothing behind it is healthy.",
    Code.EARLY_TRAFFIC: "Replicas that push may get requests before their first push, because they have no readiness or startup probe.",
    Code.UNSUPPORTED_TYPE: "The DNS provider cannot hold records of this type.",
    Code.SUSPICIOUS_NAME: "A name cannot be meant: it is an address, lacks its zone, or has it twice.",
    Code.LARGE_SET: "A record set does not fit into one DNS message, so resolvers get no answer.",
    Code.UNUSABLE_FILES: "Files of the repository that a workload refers to are missing, are links, or are too many or too large.",
    Code.ENV_FILE_SYNTAX: "A line of an `envFile` is not valid.",
    Code.REPEATED_VARIABLE: "An `envFile` sets a variable twice; the last value counts.",
    Code.PLAIN_SECRET: "A secret seems to be in a file of the repository, which is not a place for secrets.",
    Code.WRONG_ENVIRONMENT: "The environment does not exist, or the instance runs with another one, or a file belongs to none.",
    Code.NOTHING_TO_REMOVE: "An environment removes a field, an item or an object that the base does not have.",
}
"""One sentence for each code, for the generated reference."""

HIDES_DOCUMENTS = frozenset(
    {
        Code.PATH_NOT_FOUND,
        Code.UNREADABLE_FILE,
        Code.FILE_TOO_LARGE,
        Code.TOO_MANY_FILES,
        Code.LINK_LEAVES_TREE,
        Code.UNSAFE_LOCAL,
        Code.SOURCE_UNREADABLE,
        Code.SOURCE_UNVERIFIED,
        Code.WRONG_ENVIRONMENT,
        Code.INTERNAL_ERROR,
        Code.ENCODING,
        Code.YAML_SYNTAX,
        Code.YAML_VERSION,
        Code.TOO_DEEP,
        Code.TOO_MANY_DOCUMENTS,
        Code.NOT_A_MANIFEST,
        Code.UNKNOWN_VERSION,
        Code.UNKNOWN_KIND,
        Code.CIPHERTEXT,
    }
)
"""Codes after which documents may be missing: an unknown name is no problem then, because its object may be among them."""


OF_SOURCE = frozenset({Code.SOURCE_UNREADABLE, Code.SOURCE_UNVERIFIED})
"""Codes of a source that could not be read or is refused as a whole."""


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """One problem of one place.

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
        """Whether the tree is valid in spite of the problem."""
        return self.code in WARNINGS

    def lines(self) -> list[str]:
        """`file:line:column: code: message`, with `warning:` before the code of a warning, and the hint indented below it.

        Text from the manifests is escaped, so the message is one line.
        """
        place = f"{self.file}:{self.line}:{self.column}" if self.line else self.file
        head = f"{place}: {'warning: ' if self.is_warning else ''}{self.code}: {self.message}"
        return [escape(head), *(f"    {escape(line)}" for line in self.hint.split("\n") if self.hint)]

    def render(self) -> str:
        """`lines` as one text."""
        return "\n".join(self.lines())

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
        """Whether the only problem is that there are no manifests (`EMPTY_TREE`)."""
        return {problem.code for problem in self.problems} == {Code.EMPTY_TREE}

    @property
    def of_source(self) -> bool:
        """Whether the source itself cannot be read or is refused: nothing is known about the manifests that it has now."""
        codes = {problem.code for problem in self.problems if not problem.is_warning}
        return bool(codes) and codes <= OF_SOURCE


def render(problems: Iterable[Problem]) -> str:
    """All problems as text, one after the other, in the order given."""
    return "\n".join(problem.render() for problem in problems)


def count_problems(problems: Iterable[Problem]) -> tuple[int, int]:
    """How many errors and how many warnings there are."""
    severities = [problem.is_warning for problem in problems]
    return severities.count(False), severities.count(True)


def counted(problems: Iterable[Problem]) -> str:
    """Their numbers in words: `2 errors`, `1 error and 3 warnings`."""
    errors, warnings = count_problems(problems)
    parts = [(errors, "error")] if errors or not warnings else []
    parts += [(warnings, "warning")] if warnings else []
    return " and ".join(f"{number} {noun}{'' if number == 1 else 's'}" for number, noun in parts)


def key_path(parts: Sequence[str | int]) -> str:
    """`("spec", "ports", 0, "a.b")` as messages show it: `spec.ports[0]."a.b"`."""
    text = ""
    for part in parts:
        if isinstance(part, int):
            text += f"[{part}]"
            continue
        shown = part if part.replace("_", "a").replace("-", "a").isalnum() else f'"{part}"'
        text += f".{shown}" if text else shown
    return text


def suggest(name: str, candidates: Iterable[str]) -> str:
    """The candidate that is most like an unknown name, or an empty text."""
    lowered = name.casefold()
    near: list[str] = []
    for candidate in candidates:
        if candidate.casefold() == lowered:
            return candidate
        if abs(len(candidate) - len(name)) <= 6 and len(near) < CANDIDATES:
            near.append(candidate)
    by_lower = {candidate.casefold(): candidate for candidate in reversed(near)}
    matches = get_close_matches(lowered, by_lower, n=1, cutoff=0.6)
    return by_lower[matches[0]] if matches else ""


def did_you_mean(name: str, candidates: Sequence[str], label: str) -> str:
    """A hint for an unknown name: the nearest candidate, else the first candidates after `label`."""
    guess = suggest(name, candidates)
    if guess:
        return f"did you mean '{guess}'?"
    if not candidates:
        return ""
    shown = ", ".join(candidates[:12])
    return f"{label}: {shown}{', …' if len(candidates) > 12 else ''}"


@dataclass(frozen=True, slots=True)
class Where:
    """The place of a document or value: path relative to the tree's root, line and column counted from 1."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


NOWHERE = Where("", 0, 0)
