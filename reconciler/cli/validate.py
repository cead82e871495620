"""`reconcile validate PATH`: lists every problem of the manifests, offline: it asks no provider and reads no state."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from reconciler.cli.failures import EMPTY_SOURCE, code_of_manifests
from reconciler.cli.given import path_argument, required
from reconciler.cli.options import Options, common_options, instance_option
from reconciler.cli.view import View
from reconciler.exits import Exit

if TYPE_CHECKING:
    from manifests.problems import ManifestErrors, Problem
    from reconciler.tree import Given


@click.command(
    epilog="""\b
A warning does not make manifests invalid; its line has the word warning.

\b
Exit codes: 0 valid, 3 invalid, 7 there are no manifests at PATH, 8 the git source at PATH
cannot be read.

\b
Examples:
  reconcile validate manifests/
  reconcile validate manifests/ -o json | jq '.problems[].code'
  reconcile validate manifests/ --instance /etc/reconciler/instance.yaml
""",
)
@path_argument
@instance_option
@common_options
def validate(path: "Given | None", **raw: Any) -> Exit:
    """Check the manifests at PATH and list every problem: file:line:column, code, message, hint."""
    options = Options.of(raw)
    path = required(path, options, "reconcile validate")
    from manifests.problems import ManifestErrors, counted  # noqa: PLC0415  (nothing heavy before the command line is checked)
    from reconciler import tree  # noqa: PLC0415

    try:
        desired, warnings = tree.load_with_warnings(path, options.instance)
    except ManifestErrors as error:
        return _invalid(error, options.view)
    objects = [
        *desired.providers,
        *desired.workloads,
        *desired.services,
        *desired.policies,
        *desired.checks,
        *desired.records,
        *desired.record_lists,
    ]
    count = len(objects) + 1
    if options.view.json:
        problems = [warning.to_dict() for warning in warnings]
        document = {"exit_code": 0, "valid": True, "objects": count, "errors": 0, "warnings": len(warnings)}
        options.view.document({**document, "problems": problems})
        return Exit.OK
    kinds = (
        ("provider", len(desired.providers)),
        ("workload", len(desired.workloads)),
        ("service", len(desired.services)),
        ("DNS policy", len(desired.policies)),
        ("health check", len(desired.checks)),
        ("record", len(desired.records)),
        ("record list", len(desired.record_lists)),
    )
    parts = ", ".join(_count(number, name) for name, number in kinds if number)
    _list(warnings, options.view)
    good = options.view.paint.good("valid")
    tail = f"; {counted(warnings)}" if warnings else ""
    options.view.out(f"{good}: instance '{desired.instance.id}'{' with ' if parts else ''}{parts}{tail}")
    return Exit.OK


def _count(number: int, name: str) -> str:
    plural = name.removesuffix("y") + "ies" if name.endswith("y") else f"{name}s"
    return f"{number} {name if number == 1 else plural}"


def _list(problems: Sequence["Problem"], view: View) -> None:
    """Write the problems. They are the result, so they go to standard output."""
    paint = view.paint
    for problem in problems:
        first, *hints = problem.lines()
        view.out(paint.warn(first) if problem.is_warning else paint.bad(first), *hints)


def _invalid(error: "ManifestErrors", view: View) -> Exit:
    from manifests.problems import count_problems, counted  # noqa: PLC0415  (imported already: it defines the error)

    code = code_of_manifests(error)
    problems = error.problems
    if view.json:
        errors, warnings = count_problems(problems)
        document = {"exit_code": int(code), "valid": False, "errors": errors, "warnings": warnings}
        view.document({**document, "problems": [problem.to_dict() for problem in problems]})
        return code
    _list(problems, view)
    if error.empty_tree:
        view.out(EMPTY_SOURCE)
    files = {problem.file for problem in problems}
    view.out(f"{counted(problems)} in {_count(len(files), 'file')} (exit {int(code)})")
    return code
