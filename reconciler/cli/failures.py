"""Turns an exception into an exit code, a message and a next step.

Called once, by the outermost frame of the command line. It finds exception types by their module, because most command lines
never import the modules that define them.
"""

import sys
import traceback
from typing import TYPE_CHECKING, Any

import click

from reconciler.cli.view import View, masked
from reconciler.exits import Exit

if TYPE_CHECKING:
    from manifests.problems import ManifestErrors

EMPTY_SOURCE = 'nothing was changed: an empty source never means "delete all"'
"""The message when there are no manifests at all."""


def report_error(error: Exception, view: View) -> Exit:
    """Write what went wrong and return the exit code. With JSON, the document on standard output has it as well."""
    if isinstance(error, click.exceptions.Abort):
        view.err(f"result: {Exit.INTERRUPTED.sentence} (exit {int(Exit.INTERRUPTED)})")
        return Exit.INTERRUPTED
    if isinstance(error, click.ClickException):
        return _usage(error, view)
    code, (text, *more), extra = _explain(error)
    if view.verbose and code is Exit.ERROR:
        # Behind a bar, so that no line of an exception's text looks like one of ours.
        view.err(*(f"| {line}" for line in "".join(traceback.format_exception(error)).rstrip().split("\n")))
    view.err(f"{view.paint_err.bad('error:')} {text}", *more)
    view.err(f"result: {code.sentence} (exit {int(code)})")
    if view.json:
        view.document(
            {"exit_code": int(code), "result": code.sentence, "reasons": [masked("\n".join([text, *more]))], **extra}
        )
    return code


def code_of(error: Exception) -> Exit:
    """The exit code of an error that ends a command."""
    return _explain(error)[0]


def code_of_manifests(error: "ManifestErrors") -> Exit:
    """The exit code of manifests that cannot be used."""
    if error.empty_tree:
        return Exit.MANUAL
    return Exit.SOURCE if error.of_source else Exit.INVALID


def _usage(error: click.ClickException, view: View) -> Exit:
    """A usage error, with the help to read."""
    view.err(*f"{view.paint_err.bad('error:')} {error.format_message()}".split("\n"))
    context = getattr(error, "ctx", None)
    if context is not None:
        view.err(f"for help, run: {context.command_path} --help")
    return Exit.USAGE


def _is(error: Exception, module: str, name: str) -> bool:
    """Whether it is an instance of that class, without importing the module: if nothing imported it, nothing raised it."""
    kind = getattr(sys.modules.get(module), name, None)
    return isinstance(kind, type) and isinstance(error, kind)


def _explain(error: Any) -> tuple[Exit, tuple[str, ...], dict[str, Any]]:
    """The exit code, the lines of the message, and the fields of the JSON document."""
    if _is(error, "manifests.problems", "ManifestErrors"):
        from manifests.problems import count_problems, counted  # noqa: PLC0415  (imported already: it defines the error)

        code = code_of_manifests(error)
        lines = [line for problem in error.problems for line in problem.lines()]
        if error.empty_tree:
            lines.append(EMPTY_SOURCE)
        elif code is Exit.INVALID:
            lines.insert(0, f"{counted(error.problems)} in the manifests")
        errors, warnings = count_problems(error.problems)
        problems = [problem.to_dict() for problem in error.problems]
        return code, tuple(lines), {"errors": errors, "warnings": warnings, "problems": problems}
    if _is(error, "reconciler.tree", "AmbiguousInstance"):
        return Exit.INVALID, tuple(error.lines()), {"instances": list(error.instances)}
    if _is(error, "reconciler.shell.parts", "Stopped"):
        return error.exit, (str(error),), {}
    if _is(error, "reconciler.shell.store.lock", "Locked"):
        return Exit.LOCKED, (str(error),), {}
    if _is(error, "reconciler.shell.store.directory", "StoreError"):
        return Exit.ERROR, (str(error),), {}
    if _is(error, "reconciler.snapshots.snapshot", "SnapshotRefused"):
        return Exit.SOURCE, (str(error),), {}
    if _is(error, "reconciler.snapshots.signature", "CannotSign"):
        return Exit.ERROR, (str(error),), {}
    if _is(error, "reconciler.saved_plan", "StalePlan"):
        return Exit.STALE, tuple(error.lines()), {"moved": list(error.moved)}
    if _is(error, "reconciler.saved_plan", "PlanFileError"):
        return Exit.ERROR, (str(error),), {}
    if _is(error, "reconciler.tree", "NoHome"):
        return Exit.ERROR, (str(error),), {}
    if _is(error, "providers.errors", "ProviderError"):
        return Exit.UNFINISHED, (str(error),), {}
    if isinstance(error, OSError) and error.filename is not None:
        text = f"{error.filename}: {error.strerror}; next step: check the permissions of this user and the free space"
        return Exit.ERROR, (text,), {}
    text = (
        f"unexpected {type(error).__name__}: {error}; "
        "next step: run again with --verbose and report the error with its traceback"
    )
    return Exit.ERROR, (text,), {}
