"""`reconcile validate PATH`: lists every problem of the manifests, offline: it asks no provider and reads no state."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from reconciler.cli.failures import EMPTY_SOURCE, code_of_manifests
from reconciler.cli.given import path_argument, required
from reconciler.cli.options import Options, common_options, instance_option, usage_error
from reconciler.cli.view import View
from reconciler.exits import Exit

if TYPE_CHECKING:
    from manifests.problems import ManifestErrors, Problem
    from reconciler.tree import Given


@click.command(
    epilog="""\b
A warning does not make manifests invalid; its line has the word warning.
Without --env and --all-envs only the base is checked, without environments/.

\b
Exit codes: 0 valid, 3 invalid, 7 there are no manifests at PATH, 8 the git source at PATH
cannot be read.

\b
Examples:
  reconcile validate manifests/
  reconcile validate manifests/ -o json | jq '.problems[].code'
  reconcile validate manifests/ --instance /etc/reconciler/instance.yaml
  reconcile validate manifests/ --all-envs
""",
)
@path_argument
@click.option("--all-envs", is_flag=True, help="Check each environment, merged over the base.")
@instance_option
@common_options
def validate(path: "Given | None", all_envs: bool, **raw: Any) -> Exit:
    """Check the manifests at PATH and list every problem: file:line:column, code, message, hint."""
    options = Options.of(raw)
    if all_envs and options.env is not None:
        raise usage_error("--env and --all-envs cannot be used together", "give one of them")
    path = required(path, options, "reconcile validate")
    from reconciler import tree  # noqa: PLC0415  (nothing heavy before the command line is checked)

    environments = tree.Location(path, options.instance, environment="").read().tree.environments if all_envs else ()
    if all_envs and not environments:
        raise usage_error(f"{path} has no environments", "leave out --all-envs, or create environments/NAME")
    if not all_envs:
        code, document = _checked(path, options, options.env)
        if options.view.json:
            options.view.document(document)
        return code
    results: dict[str, dict[str, Any]] = {}
    codes = []
    for environment in environments:
        if not options.view.json:
            options.view.out(f"environment {environment}:")
        code, results[environment] = _checked(path, options, environment)
        codes.append(code)
    worst = next((code for code in codes if code is not Exit.OK), Exit.OK)
    if options.view.json:
        document = {"exit_code": int(worst), "valid": worst is Exit.OK}
        document |= {name: sum(result[name] for result in results.values()) for name in ("errors", "warnings")}
        options.view.document({**document, "environments": results})
    return worst


def _checked(path: "Given", options: Options, environment: str | None) -> tuple[Exit, dict[str, Any]]:
    """Check the base with an environment, write the result as text, and return the exit code and the JSON document."""
    from manifests.problems import ManifestErrors, counted  # noqa: PLC0415
    from reconciler import tree  # noqa: PLC0415

    try:
        desired, warnings = tree.load_with_warnings(path, options.instance, environment=environment, check_files=True)
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
        return Exit.OK, {**document, "problems": problems}
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
    return Exit.OK, {}


def _count(number: int, name: str) -> str:
    plural = name.removesuffix("y") + "ies" if name.endswith("y") else f"{name}s"
    return f"{number} {name if number == 1 else plural}"


def _list(problems: Sequence["Problem"], view: View) -> None:
    """Write the problems. They are the result, so they go to standard output."""
    paint = view.paint
    for problem in problems:
        first, *hints = problem.lines()
        view.out(paint.warn(first) if problem.is_warning else paint.bad(first), *hints)


def _invalid(error: "ManifestErrors", view: View) -> tuple[Exit, dict[str, Any]]:
    from manifests.problems import count_problems, counted  # noqa: PLC0415  (imported already: it defines the error)

    code = code_of_manifests(error)
    problems = error.problems
    if view.json:
        errors, warnings = count_problems(problems)
        document = {"exit_code": int(code), "valid": False, "errors": errors, "warnings": warnings}
        return code, {**document, "problems": [problem.to_dict() for problem in problems]}
    _list(problems, view)
    if error.empty_tree:
        view.out(EMPTY_SOURCE)
    files = {problem.file for problem in problems}
    view.out(f"{counted(problems)} in {_count(len(files), 'file')} (exit {int(code)})")
    return code, {}
