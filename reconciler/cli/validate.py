"""`reconcile validate PATH`: every problem of a tree at once, offline: no provider is asked, no state is read."""

from pathlib import Path
from typing import Any

import click

from reconciler.cli.failures import EMPTY
from reconciler.cli.options import Options, common_options, instance_option, path_argument
from reconciler.cli.view import View
from reconciler.exits import Exit


@click.command(
    epilog="""\b
Exit codes: 0 valid, 3 not valid, 7 there is nothing to validate.

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
def validate(path: Path, **raw: Any) -> Exit:
    """Check the manifests at PATH and list every problem: file:line:column, code, message, hint."""
    options = Options.of(raw)
    from manifests.problems import ManifestErrors  # noqa: PLC0415  (nothing heavy before the words are known to be right)
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
        found = [warning.to_dict() for warning in warnings]
        options.view.document({"exit_code": 0, "valid": True, "objects": count, "problems": found})
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
    for warning in warnings:
        options.view.out(warning.render())
    good = options.view.paint.good("valid")
    options.view.out(f"{good}: instance '{desired.instance.id}'{' with ' if parts else ''}{parts}")
    return Exit.OK


def _count(number: int, name: str) -> str:
    plural = name.removesuffix("y") + "ies" if name.endswith("y") else f"{name}s"
    return f"{number} {name if number == 1 else plural}"


def _invalid(error: Any, view: View) -> Exit:
    """The result is the list of problems, so it goes to standard output."""
    code = Exit.PERSON if error.empty_tree else Exit.INVALID
    problems = error.problems
    if view.json:
        found = [problem.to_dict() for problem in problems]
        view.document({"exit_code": int(code), "valid": False, "problems": found})
        return code
    paint = view.paint
    for problem in problems:
        first, *hints = problem.render().splitlines()
        view.out(f"{paint.warn(first) if problem.is_warning else paint.bad(first)}")
        view.out("\n".join(hints))
    if error.empty_tree:
        view.out(EMPTY)
    errors = [problem for problem in problems if not problem.is_warning]
    files = {problem.file for problem in errors}
    view.out(f"{_count(len(errors), 'problem')} in {_count(len(files), 'file')} (exit {int(code)})")
    return code
