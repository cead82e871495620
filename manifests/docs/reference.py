"""Generates `docs/manifests.md` and `docs/defaults.md` from the models.

Run `python -m manifests.docs.reference [DIRECTORY]` after changing a model; a test compares the committed files with the models.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from manifests.kinds import KINDS
from manifests.kinds.probe import Probe
from manifests.problems import MEANINGS, WARNINGS, Code
from manifests.types.durations import Duration
from manifests.types.fields import Shown
from manifests.types.numbers import Percent
from manifests.types.record_types import TABLE

_HEADER = "<!-- Generated from the models by `python -m manifests.docs.reference`. Do not edit. -->\n"

_FRAME = frozenset({"apiVersion", "kind", "metadata", "metadata.name", "spec"})

_INTRODUCTION = """\
# Manifests

A manifest is a YAML 1.2 (or JSON) document. A file may hold several, separated by `---`. All `*.yaml`, `*.yml` and `*.json`
files in the directory and below are read, except hidden files and temporary files of editors; each document must have one
of the kinds below. The given directory is the root of its set: objects that were created from it and are no longer in it
may be pruned.

Every manifest has these fields:

| field | type | meaning |
|---|---|---|
| `apiVersion` | `reconciler/v1` | Version of the manifest format. |
| `kind` | one of the kinds below | Kind of the object. |
| `metadata.name` | name, at most 40 of a-z, 0-9 and - | Name of the object, unique among the objects of its kind. |
| `spec` | mapping | Desired state of the object; its fields are listed with the kind. |

- `reconcile schema` prints the JSON Schema of all kinds. An editor with a YAML language server completes and checks a file that begins with
  `# yaml-language-server: $schema=schema.json`; `reconcile schema > schema.json` writes that file.
- Keys that are not listed here are errors, and so are duplicate keys, custom tags and values of a type other than the one shown.
- Durations are strings with units, largest first: `500ms`, `30s`, `5m`, `1h30m`, `7d`. Fields that end in `Seconds` are numbers, as in Kubernetes.
- Objects refer to each other by name. The key of an object is its kind in lower case, a slash and its name: `workload/web`.
- With local documents (`--instance FILE|DIR`) only they may declare the kinds Instance, Guard and Provider, and the Instance says which secrets the others may refer to.
- While any document of the set has an error, nothing is applied or pruned. All errors are reported at once.
- *Foreign containers* are containers that this instance did not create.
"""

_RECORD_TYPES = """\
Values are as in a zone file. A value of TXT is the text itself, of any length and without quotes. Names in values are absolute, with or
without a final dot. Digits in hexadecimal or base64 may have blanks, and a value may stand in parentheses over several lines. Fields in
brackets are optional. A number of 1 to 65534 without a name in this table or in IANA's registry is written as `TYPE` and that number.
"""


def manifests_page() -> str:
    """The text of `docs/manifests.md`."""
    sections = [_HEADER + _INTRODUCTION]
    for kind, model in KINDS.items():
        sections.append(f"## {kind}\n\n{_summary(model)}\n\n{_table(model)}")
        if kind == "Workload":
            sections.append(f"### Probe\n\n{_summary(Probe)}\n\n{_table(Probe)}")
        if kind == "Record":
            sections.append(f"### Record types\n\n{_RECORD_TYPES}\n{_record_types()}")
    codes = "\n".join(f"- `{code}`{' (a warning)' if code in WARNINGS else ''}: {MEANINGS[code]}" for code in Code)
    sections.append(
        f"## Problems\n\nEach problem has one of these codes. They are stable, so scripts may rely on them:\n\n{codes}\n"
    )
    return "\n".join(sections)


def _record_types() -> str:
    """The types of records, from the table that reads their values."""
    rows = ["| type | value | example | defined in |", "|---|---|---|---|"]
    rows += [f"| `{row.name}` | `{row.shape}` | `{_short(row.example)}` | {row.source} |" for row in TABLE.values()]
    rows.append("| `TYPE` and a number | `\\# LENGTH HEX` | `\\# 4 c0000201` | RFC 3597 |")
    return "\n".join(rows) + "\n"


def _short(example: str) -> str:
    return example if len(example) <= 60 else f"{example[:24]}…{example[-8:]}"


def defaults_page() -> str:
    """The text of `docs/defaults.md`."""
    rows = ["| kind | field | default | unit |", "|---|---|---|---|"]
    shown: dict[str, type[BaseModel]] = {**KINDS, "Probe": Probe}
    for kind, model in shown.items():
        for path, info in _leaves(model):
            if info.is_required() or info.get_default(call_default_factory=True) in (None, (), {}):
                continue
            rows.append(f"| {kind} | `{path}` | `{_default(info)}` | {_unit(path, info)} |")
    text = "Optional fields and their defaults. Fields that are empty by default are not listed.\n"
    return f"{_HEADER}# Defaults\n\n{text}\n" + "\n".join(rows) + "\n"


def _summary(model: type[BaseModel]) -> str:
    return (model.__doc__ or "").strip()


def _table(model: type[BaseModel]) -> str:
    rows = ["| field | type | default | meaning |", "|---|---|---|---|"]
    for path, info in _fields(model, ""):
        if path in _FRAME:
            continue
        default = "required" if info.is_required() else _default(info)
        shown = default if default in ("required", "") else f"`{default}`"
        rows.append(f"| `{path}` | {_type(info)} | {shown} | {info.description} |")
    return "\n".join(rows) + "\n"


def _fields(model: type[BaseModel], prefix: str) -> Iterator[tuple[str, FieldInfo]]:
    """All fields below a model with their key paths, parents first."""
    for name, info in model.model_fields.items():
        path = f"{prefix}{info.alias or name}"
        yield path, info
        inner, many = _model_in(info.annotation)
        if inner is not None and inner is not Probe:
            yield from _fields(inner, f"{path}{'[]' if many else ''}.")


def _leaves(model: type[BaseModel]) -> Iterator[tuple[str, FieldInfo]]:
    return ((path, info) for path, info in _fields(model, "") if _model_in(info.annotation)[0] is None)


def _model_in(annotation: Any) -> tuple[type[BaseModel] | None, bool]:
    """The model inside an annotation, and whether it is in a list."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation, False
    origin = get_origin(annotation)
    if origin not in (Annotated, Union, UnionType, tuple):
        return None, False
    inner = next((model for argument in get_args(annotation) if (model := _model_in(argument)[0])), None)
    return inner, origin is tuple or any(_model_in(argument)[1] for argument in get_args(annotation))


def _default(info: FieldInfo) -> str:
    value = info.get_default(call_default_factory=True)
    if value is None or isinstance(value, BaseModel):
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        items = ('"{}-{}"'.format(*item) if isinstance(item, tuple) else str(item) for item in value)
        return f"[{', '.join(items)}]"
    if isinstance(value, dict):
        return "{}"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _unit(path: str, info: FieldInfo) -> str:
    value = info.get_default(call_default_factory=True)
    if isinstance(value, Duration):
        return "duration"
    if isinstance(value, Percent):
        return "percent"
    return "seconds" if path.endswith("Seconds") else ""


def _type(info: FieldInfo) -> str:
    return _named(info.annotation, info.metadata)


def _named(annotation: Any, metadata: list[Any]) -> str:
    shown = next((item.text for item in reversed(metadata) if isinstance(item, Shown)), None)
    if shown is not None:
        return shown
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _named(arguments[0], list(annotation.__metadata__))
    if origin in (Union, UnionType):
        return " or ".join(_named(argument, []) for argument in arguments if argument is not type(None))
    if origin is tuple:
        return f"list of: {_named(arguments[0], [])}" if _model_in(arguments[0])[0] is None else "list"
    if origin is dict:
        return f"mapping of {_named(arguments[0], [])} to {_named(arguments[1], [])}"
    if origin is Literal:
        return " or ".join(f"`{argument}`" for argument in arguments)
    if (inner := _model_in(annotation)[0]) is not None:
        return "[Probe](#probe)" if inner is Probe else "mapping"
    low = next((item.ge for item in metadata if hasattr(item, "ge")), None)
    high = next((item.le for item in metadata if hasattr(item, "le")), None)
    limits = f", {low} to {high}" if low is not None and high is not None else ""
    return {bool: "true or false", int: "number", float: "number", str: "text"}[annotation] + limits


def main(arguments: list[str]) -> None:
    """Write both pages into a directory (default: `docs`)."""
    directory = Path(arguments[0] if arguments else "docs")
    (directory / "manifests.md").write_text(manifests_page(), encoding="utf-8")
    (directory / "defaults.md").write_text(defaults_page(), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
