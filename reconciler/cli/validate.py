"""`reconcile validate PATH`: lists every problem of the manifests, offline: it asks no provider and reads no state."""

from pathlib import Path
from typing import Any

import click

from reconciler.cli.failures import EMPTY_SOURCE
from reconciler.cli.options import Options, common_options, instance_option, path_argument
from reconciler.cli.view import View
from reconciler.exits import Exit


@click.command(
    epilog="""\b
Exit codes: 0 valid, 3 invalid, 7 there are no manifests at PATH.

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
    from manifests.problems import ManifestErrors  # noqa: PLC0415  (nothing heavy before the command line is checked)
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
        options.view.document({"exit_code": 0, "valid": True, "objects": count, "problems": problems})
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
    """Write the problems. They are the result, so they go to standard output."""
    code = Exit.MANUAL if error.empty_tree else Exit.INVALID
    problems = error.problems
    if view.json:
        view.document({"exit_code": int(code), "valid": False, "problems": [problem.to_dict() for problem in problems]})
        return code
    paint = view.paint
    for problem in problems:
        first, *hints = problem.render().splitlines()
        view.out(f"{paint.warn(first) if problem.is_warning else paint.bad(first)}")
        view.out("\n".join(hints))
    if error.empty_tree:
        view.out(EMPTY_SOURCE)
    errors = [problem for problem in problems if not problem.is_warning]
    files = {problem.file for problem in errors}
    view.out(f"{_count(len(errors), 'problem')} in {_count(len(files), 'file')} (exit {int(code)})")
    return code
