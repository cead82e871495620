"""From documents to checked manifests of one kind each. Called by `resolve/resolver.py` for every document.

This module turns the errors of the models into problems with a place, a key path and a next step; `resolve/provider.py`
uses it for the settings of a provider too.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from manifests.kinds import KINDS
from manifests.kinds.base import API_VERSION, Manifest
from manifests.problems import Code, Problem, did_you_mean, key_path
from manifests.types.errors import type_name
from manifests.yaml.read import Document

Path = tuple[str | int, ...]

_EXPECTED = {
    "string_type": "a string",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "tuple_type": "a list",
    "list_type": "a list",
}
_LIMITS = {
    "greater_than": "must be more than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "too_short": "needs at least {min_length}",
    "too_long": "may have at most {max_length}",
    "string_too_short": "needs at least {min_length} characters",
    "string_too_long": "may have at most {max_length} characters",
    "finite_number": "must be finite",
}
_CODES = {"bad_value": Code.BAD_VALUE, "wrong_type": Code.WRONG_TYPE, "out_of_range": Code.OUT_OF_RANGE}

_KUBERNETES_HINTS = {
    "host": "remove it: probes connect to the observed address of the container",
    "secretKeyRef": "write secret: {env: NAME} or {file: /path}",
    "requests": "remove it: only limits are supported",
    "privileged": "add the capabilities that the container needs",
    "emptyDir": "write tmpfs: {} for memory, or named: NAME for a volume of the engine",
    "persistentVolumeClaim": "write named: NAME",
    "envFrom": "list the variables in env",
    "namespace": "remove it: there are no namespaces",
    "initContainers": "remove it: all containers of a pod run together",
    "labels": "remove it: only the template of a workload has labels",
}
"""Kubernetes fields that do not exist here, and the next step for each."""

_KUBERNETES_FIELDS = frozenset(
    [
        "annotations", "affinity", "automountServiceAccountToken", "dnsPolicy", "ephemeralContainers", "hostNetwork",
        "imagePullSecrets", "lifecycle", "nodeSelector", "restartPolicy", "schedulerName",
        "serviceAccountName", "strategy", "tolerations",
    ]
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Declared:
    """A document whose identity is known. `manifest` is None when the rest of it is not valid.

    `local`: it is a local document, which an operator of this host wrote, and not one of the tree.
    """

    document: Document
    kind: str
    name: str
    manifest: Manifest | None
    local: bool = False

    @property
    def key(self) -> str:
        """Identity of the object: kind in lower case, slash, name."""
        return f"{self.kind.lower()}/{self.name}"


def problem_at(
    document: Document, path: Path, code: Code, message: str, hint: str = "", *, key: bool = False
) -> Problem:
    """A problem of the value at `path` (or of its key), with its place and its key path."""
    where = document.origin(path, key=key)
    return Problem(where.file, where.line, where.column, code, key_path(path), message, _noted(document, path, hint))


def _noted(document: Document, path: Path, hint: str) -> str:
    return "\n".join(text for text in (hint, document.note(path)) if text)


def validate(document: Document) -> tuple[Declared | None, list[Problem]]:
    """Check one document against the model of its kind.

    Returns:
        The declared object, or None when the document has no kind or name; and all problems.
    """
    value = document.value
    if not isinstance(value, dict):
        hint = "write a mapping with apiVersion, kind, metadata and spec"
        message = f"the document is {type_name(value)}, not a manifest"
        return None, [problem_at(document, (), Code.NOT_A_MANIFEST, message, hint)]
    unknown = unknown_kind(document, value)
    if unknown is not None:
        return None, [unknown]
    kind = value["kind"]
    if not document.broken:
        try:
            manifest = KINDS[kind].model_validate(value)
        except ValidationError as error:
            problems = list(explain(document, error, KINDS[kind], (), _subject(value)))
        else:
            return Declared(document, kind, manifest.metadata.name, manifest), []
    else:
        problems = []
    metadata = value.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return (Declared(document, kind, name, None) if isinstance(name, str) else None), problems


def _subject(value: dict[str, Any]) -> str:
    metadata = value.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return f"{str(value['kind']).lower()}/{name}" if isinstance(name, str) else str(value["kind"])


def unknown_kind(document: Document, value: dict[str, Any]) -> Problem | None:
    """The problem of a document that is not a manifest: none is skipped silently."""
    version, kind = value.get("apiVersion"), value.get("kind")
    if "kind" not in value and "apiVersion" not in value:
        hint = "move files without manifests elsewhere: every YAML and JSON file below the path must hold manifests"
        return problem_at(document, (), Code.NOT_A_MANIFEST, "the document has neither apiVersion nor kind", hint)
    if version != API_VERSION:
        shown = f"'{version[:60]}'" if isinstance(version, str) else type_name(version)
        message = f"apiVersion {shown} is not supported"
        return problem_at(document, ("apiVersion",), Code.UNKNOWN_VERSION, message, f"write apiVersion: {API_VERSION}")
    if isinstance(kind, str) and kind in KINDS:
        return None
    shown = f"'{kind[:60]}'" if isinstance(kind, str) else type_name(kind)
    hint = did_you_mean(kind if isinstance(kind, str) else "", list(KINDS), "kinds")
    return problem_at(document, ("kind",), Code.UNKNOWN_KIND, f"there is no kind {shown}", hint)


def explain(
    document: Document, error: ValidationError, model: type[BaseModel], prefix: Path, subject: str
) -> Iterator[Problem]:
    """Problems for all errors of a validation.

    Args:
        document: the validated document.
        error: the error of pydantic.
        model: the model of the validated value.
        prefix: path of the validated value in the document.
        subject: key of the object, for the messages.
    """
    for detail in error.errors(include_url=False):
        yield _problem(document, detail, model, prefix, subject)


def _problem(document: Document, detail: ErrorDetails, model: type[BaseModel], prefix: Path, subject: str) -> Problem:
    kind, context = detail["type"], detail.get("ctx", {})
    of_key = detail["loc"][-1:] == ("[key]",)
    location = tuple(detail["loc"][:-1] if of_key else detail["loc"])
    if kind not in ("missing", "extra_forbidden"):
        location = (*location, *context.get("at", ()))
    path = prefix + location
    head = f"{subject}: {key_path(path)}" if path else subject
    if kind == "missing":
        name = str(location[-1])
        around = key_path(path[:-1]) or "the document"
        hint = _description(model, location)
        message = f"{subject}: {around} has no field '{name}'"
        where = document.origin(path)  # of the nearest value around it
        hint = _noted(document, path, f"add {name}: {hint}".rstrip(": "))
        return Problem(where.file, where.line, where.column, Code.MISSING_FIELD, key_path(path), message, hint)
    if kind == "extra_forbidden":
        hint = _hint_for_unknown(str(location[-1]), model, location)
        around = key_path(path[:-1]) or "the document"
        message = f"{subject}: {around} cannot have a field '{location[-1]}'"
        return problem_at(document, path, Code.UNKNOWN_FIELD, message, hint, key=True)
    if kind in _CODES:
        return problem_at(document, path, _CODES[kind], f"{head}: {context['message']}", context["hint"], key=of_key)
    if kind in _EXPECTED:
        expected, given = _EXPECTED[kind], detail["input"]
        message = f"{head}: expected {expected}, found {type_name(given)}"
        return problem_at(document, path, Code.WRONG_TYPE, message, _hint_for_type(expected, given), key=of_key)
    if kind in _LIMITS:
        return problem_at(document, path, Code.OUT_OF_RANGE, f"{head}: {_LIMITS[kind].format(**context)}", key=of_key)
    if kind == "literal_error":
        given = detail["input"]
        options = str(context.get("expected", "")).replace(" or ", ", ").replace("'", "").split(", ")
        hint = (
            did_you_mean(given, options, "choose from")
            if isinstance(given, str)
            else f"choose from: {', '.join(options)}"
        )
        return problem_at(
            document, path, Code.BAD_VALUE, f"{head}: expected one of {', '.join(options)}", hint, key=of_key
        )
    message = detail["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ")
    return problem_at(document, path, Code.BAD_VALUE, f"{head}: {message}", key=of_key)


def _hint_for_type(expected: str, given: object) -> str:
    if expected == "a string" and isinstance(given, bool | int | float):
        return "put it in quotes"
    if isinstance(given, str) and expected == "true or false":
        return "write true or false, without quotes"
    if isinstance(given, str) and expected in ("a whole number", "a number") and given.removeprefix("-").isdecimal():
        return "write it without quotes"
    if given is None:
        return "remove the key, or give it a value"
    if expected == "a list" and isinstance(given, str) and " " in given.strip():
        return 'write a list with one item per word, such as ["/bin/serve", "--port", "80"]: there is no shell'
    return "start each item with '- '" if expected == "a list" and isinstance(given, str | dict) else ""


def _hint_for_unknown(name: str, model: type[BaseModel], location: Path) -> str:
    known = [alias for owner in _models_at(model, location[:-1]) for alias in _aliases(owner)]
    if name in _KUBERNETES_HINTS and model is KINDS["Workload"]:
        return _KUBERNETES_HINTS[name]
    if name in _KUBERNETES_FIELDS and model is KINDS["Workload"]:
        return "remove it: the field is not supported"
    return did_you_mean(name, known, "known fields")


def _description(model: type[BaseModel], location: Path) -> str:
    for owner in _models_at(model, location[:-1]):
        for name, info in owner.model_fields.items():
            if (info.alias or name) == location[-1]:
                return info.description or ""
    return ""


def _aliases(model: type[BaseModel]) -> list[str]:
    return [info.alias or name for name, info in model.model_fields.items()]


def _models_at(model: type[BaseModel], location: Path) -> list[type[BaseModel]]:
    """The models that a value at `location` may have; list positions and the names of union members are skipped."""
    models = [model]
    for part in location:
        if isinstance(part, int):
            continue
        inner = [
            nested
            for owner in models
            for name, info in owner.model_fields.items()
            if (info.alias or name) == part
            for nested in _models_in(info.annotation)
        ]
        models = inner or models
    return models


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
        return
    if get_origin(annotation) in (Annotated, Union, UnionType, tuple, list, dict):
        for argument in get_args(annotation):
            yield from _models_in(argument)
