"""What an exception means for the caller: an exit code, what went wrong, and what to do about it.

Called once, by the outermost frame of the command line. Types are looked up by where they live, because most command lines
never import the modules that define them.
"""

import sys
import traceback
from typing import Any

import click

from reconciler.cli.view import View, masked
from reconciler.exits import Exit

EMPTY = 'an empty source is never read as "delete all": nothing was changed'
"""Said when there are no manifests at all."""


def failed(error: Exception, view: View) -> Exit:
    """Tell the user what went wrong and return the exit code. With JSON, the one document on standard output says it as well."""
    if isinstance(error, click.exceptions.Abort):
        view.err(f"result: {Exit.INTERRUPTED.sentence} (exit {int(Exit.INTERRUPTED)})")
        return Exit.INTERRUPTED
    if isinstance(error, click.ClickException):
        return _usage(error, view)
    code, text, extra = _explain(error)
    if view.verbose and code is Exit.ERROR:
        view.err("".join(traceback.format_exception(error)).rstrip())
    view.err(f"{view.paint_err.bad('error:')} {text}")
    view.err(f"result: {code.sentence} (exit {int(code)})")
    if view.json:
        view.document({"exit_code": int(code), "result": code.sentence, "reasons": [masked(text)], **extra})
    return code


def _usage(error: click.ClickException, view: View) -> Exit:
    """Wrong words: which, and what was probably meant."""
    view.err(f"{view.paint_err.bad('error:')} {error.format_message()}")
    context = getattr(error, "ctx", None)
    if context is not None:
        view.err(f"try: {context.command_path} --help")
    return Exit.USAGE


def _is(error: Exception, module: str, name: str) -> bool:
    """Whether it is an instance of that class, without importing the module that nobody has imported yet."""
    found = getattr(sys.modules.get(module), name, None)
    return isinstance(found, type) and isinstance(error, found)


def _explain(error: Any) -> tuple[Exit, str, dict[str, Any]]:
    if _is(error, "manifests.problems", "ManifestErrors"):
        code = Exit.PERSON if error.empty_tree else Exit.INVALID
        text = f"{len(error.problems)} problem{'' if len(error.problems) == 1 else 's'} in the manifests\n{error}"
        if error.empty_tree:
            text = f"{error}\n{EMPTY}"
        return code, text, {"problems": [problem.to_dict() for problem in error.problems]}
    if _is(error, "reconciler.shell.parts", "Stopped"):
        return error.exit, str(error), {}
    if _is(error, "reconciler.shell.store.lock", "Locked"):
        return Exit.LOCKED, str(error), {}
    if _is(error, "reconciler.shell.store.directory", "StoreError"):
        return Exit.ERROR, str(error), {}
    if _is(error, "providers.errors", "ProviderError"):
        return Exit.UNFINISHED, str(error), {}
    if isinstance(error, OSError) and error.filename is not None:
        text = f"{error.filename}: {error.strerror}; see that this user may use it, then try again"
        return Exit.ERROR, text, {}
    text = f"unexpected {type(error).__name__}: {error}; run again with --verbose for the traceback, and report it"
    return Exit.ERROR, text, {}
