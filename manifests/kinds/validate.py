"""From documents to checked manifests of one kind each. Called by `resolve.py` for every document.

The models say what is right; this module says, in words, what is wrong: it turns pydantic's errors into problems with a
place, a key path and a next step. The same is done for the settings of a provider, whose model the caller brings.
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
_OWN = {"bad_value": Code.BAD_VALUE, "wrong_type": Code.WRONG_TYPE, "out_of_range": Code.OUT_OF_RANGE}

_ELSEWHERE = {
    "host": "probes go to the address of the observed container; remove it",
    "secretKeyRef": "write secret: {env: NAME} or {file: /path}",
    "requests": "only limits do something here; remove it",
    "privileged": "add the capabilities it needs",
    "emptyDir": "write tmpfs: {} for memory, or named: NAME for a volume of the engine",
    "persistentVolumeClaim": "write named: NAME",
    "envFrom": "only plain values are supported; list them in env",
    "namespace": "there are no namespaces; remove it",
    "initContainers": "all containers of a pod run together here; remove it",
    "labels": "only the template of a workload has labels; remove it",
}
"""Fields that people bring along from Kubernetes, and what to do instead."""
_KUBERNETES = frozenset(
    [
        "annotations", "affinity", "automountServiceAccountToken", "dnsPolicy", "ephemeralContainers", "hostNetwork",
        "imagePullSecrets", "lifecycle", "nodeSelector", "restartPolicy", "schedulerName",
        "serviceAccountName", "strategy", "tolerations",
    ]
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Declared:
    """A document whose identity is known. `manifest` is None when the rest of it is not valid."""

    document: Document
    kind: str
    name: str
    manifest: Manifest | None

    @property
    def key(self) -> str:
        """Identity of the object: kind in lower case, slash, name."""
        return f"{self.kind.lower()}/{self.name}"


def problem_at(
    document: Document, path: Path, code: Code, message: str, hint: str = "", *, key: bool = False
) -> Problem:
    """A problem of the value at `path` (or of its key), with its place and its key path."""
    line, column = document.place(path, key=key)
    return Problem(document.file, line, column, code, key_path(path), message, hint)


def validate(document: Document) -> tuple[Declared | None, list[Problem]]:
    """Check one document against the model of its kind.

    Returns:
        The declared object, or None when the document does not even say what it is; and everything that is wrong.
    """
    value = document.value
    if not isinstance(value, dict):
        hint = "a manifest is a mapping with apiVersion, kind, metadata and spec"
        message = f"the document is {type_name(value)}, not a manifest"
        return None, [problem_at(document, (), Code.NOT_A_MANIFEST, message, hint)]
    unknown = _unknown_kind(document, value)
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


def _unknown_kind(document: Document, value: dict[str, Any]) -> Problem | None:
    """The problem of a document that is not one of our manifests: none may be skipped in silence."""
    version, kind = value.get("apiVersion"), value.get("kind")
    if "kind" not in value and "apiVersion" not in value:
        hint = "every YAML and JSON file below the path must hold manifests: move other files elsewhere"
        return problem_at(document, (), Code.NOT_A_MANIFEST, "the document has neither apiVersion nor kind", hint)
    if version != API_VERSION:
        found = f"'{version[:60]}'" if isinstance(version, str) else type_name(version)
        message = f"apiVersion is {found}, but this program reads '{API_VERSION}'"
        return problem_at(document, ("apiVersion",), Code.UNKNOWN_VERSION, message, f"write apiVersion: {API_VERSION}")
    if isinstance(kind, str) and kind in KINDS:
        return None
    found = f"'{kind[:60]}'" if isinstance(kind, str) else type_name(kind)
    hint = did_you_mean(kind if isinstance(kind, str) else "", list(KINDS), "kinds")
    return problem_at(document, ("kind",), Code.UNKNOWN_KIND, f"there is no kind {found}", hint)


def explain(
    document: Document, error: ValidationError, model: type[BaseModel], prefix: Path, subject: str
) -> Iterator[Problem]:
    """Problems for all errors of a validation.

    Args:
        document: what was validated.
        error: what pydantic says.
        model: the model it was validated against.
        prefix: where in the document the validated value is.
        subject: the object's key, for the messages.
    """
    for detail in error.errors(include_url=False):
        yield _explain_one(document, detail, model, prefix, subject)


def _explain_one(
    document: Document, detail: ErrorDetails, model: type[BaseModel], prefix: Path, subject: str
) -> Problem:
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
        line, column = document.place(path[:-1])
        return Problem(
            document.file, line, column, Code.MISSING_FIELD, key_path(path), message, f"add {name}: {hint}".rstrip(": ")
        )
    if kind == "extra_forbidden":
        hint = _hint_for_unknown(str(location[-1]), model, location)
        around = key_path(path[:-1]) or "the document"
        message = f"{subject}: {around} cannot have a field '{location[-1]}'"
        return problem_at(document, path, Code.UNKNOWN_FIELD, message, hint, key=True)
    if kind in _OWN:
        return problem_at(document, path, _OWN[kind], f"{head}: {context['message']}", context["hint"], key=of_key)
    if kind in _EXPECTED:
        expected, found = _EXPECTED[kind], detail["input"]
        message = f"{head}: expected {expected}, found {type_name(found)}"
        return problem_at(document, path, Code.WRONG_TYPE, message, _hint_for_type(expected, found), key=of_key)
    if kind in _LIMITS:
        return problem_at(document, path, Code.OUT_OF_RANGE, f"{head}: {_LIMITS[kind].format(**context)}", key=of_key)
    if kind == "literal_error":
        found = detail["input"]
        options = str(context.get("expected", "")).replace(" or ", ", ").replace("'", "").split(", ")
        hint = (
            did_you_mean(found, options, "choose from")
            if isinstance(found, str)
            else f"choose from: {', '.join(options)}"
        )
        return problem_at(
            document, path, Code.BAD_VALUE, f"{head}: expected one of {', '.join(options)}", hint, key=of_key
        )
    message = detail["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ")
    return problem_at(document, path, Code.BAD_VALUE, f"{head}: {message}", key=of_key)


def _hint_for_type(expected: str, found: object) -> str:
    if expected == "a string" and isinstance(found, bool | int | float):
        return "put it in quotes"
    if isinstance(found, str) and expected == "true or false":
        return "write true or false, without quotes"
    if isinstance(found, str) and expected in ("a whole number", "a number") and found.removeprefix("-").isdecimal():
        return "write it without quotes"
    if found is None:
        return "remove the key, or give it a value"
    if expected == "a list" and isinstance(found, str) and " " in found.strip():
        return 'there is no shell: write a list with one item a word, such as ["/bin/serve", "--port", "80"]'
    return "start the item with '- '" if expected == "a list" and isinstance(found, str | dict) else ""


def _hint_for_unknown(name: str, model: type[BaseModel], location: Path) -> str:
    known = [alias for owner in _models_at(model, location[:-1]) for alias in _aliases(owner)]
    if name in _ELSEWHERE and model is KINDS["Workload"]:
        return _ELSEWHERE[name]
    if name in _KUBERNETES and model is KINDS["Workload"]:
        return "this version does nothing with it; remove it"
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
    """The models that a value at `location` may have; list positions and the words of unions lead no further."""
    models = [model]
    for part in location:
        if isinstance(part, int):
            continue
        inner = [
            found
            for owner in models
            for name, info in owner.model_fields.items()
            if (info.alias or name) == part
            for found in _models_in(info.annotation)
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
