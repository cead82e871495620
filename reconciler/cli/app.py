"""Routes a command line to one command and turns its result into an exit code. Called by `reconciler/__main__.py`.

A command is imported only when it is named, so that `--version` and `--help` stay fast and a broken optional dependency
affects only the commands that need it.
"""

import importlib
import os
import sys
from collections.abc import Sequence
from typing import NamedTuple

import click

from reconciler.cli.failures import report_error
from reconciler.cli.options import usage_error
from reconciler.cli.view import View, flush_quietly, lost_result
from reconciler.exits import Exit


class Entry(NamedTuple):
    """The module and the attribute of a command, and its line in the list of commands."""

    module: str
    attribute: str
    summary: str


COMMANDS: dict[str, Entry] = {
    "validate": Entry("validate", "validate", "Check manifests offline and list every problem."),
    "plan": Entry("plan", "plan", "Show the steps that a run would take, and change nothing."),
    "comment": Entry("comment", "comment", "Put a plan on a merge request as a comment."),
    "drift": Entry("drift", "drift", "List what moved while the manifests did not, and change nothing."),
    "apply": Entry("apply", "apply", "Show the plan, ask for confirmation, and converge once."),
    "show": Entry("show", "show", "Show a saved plan."),
    "approve": Entry("approve", "approve", "List what waits for an approval, or approve it."),
    "doctor": Entry("doctor", "doctor", "Check that every provider is reachable and configured."),
    "schema": Entry("schema", "schema", "Print the JSON Schema of the manifests, for editors."),
    "render": Entry("merged", "render", "Show the manifests as they are merged, with the origin of each field."),
    "status": Entry("status", "status", "Show the last known state of all objects."),
    "explain": Entry("explain", "explain", "Explain the state of one object."),
    "suspend": Entry("suspend", "suspend", "Suspend all actions on an object."),
    "resume": Entry("suspend", "resume", "Resume a suspended object."),
    "restart": Entry("restart", "restart", "Restart a workload or a replica without an outage."),
    "deploy": Entry("deploy", "deploy", "Write a new image into the manifest of a workload."),
    "rollback": Entry("rollback", "rollback", "Roll a workload back to its previous revision."),
    "drain": Entry("override", "drain", "Take a replica or an endpoint out of traffic."),
    "force": Entry("override", "force", "Force a replica, an endpoint or a DNS target up or down."),
    "release": Entry("override", "release", "Release what was drained or forced."),
    "get": Entry("get", "get", "List endpoints, requests, records, healthchecks or revisions."),
    "events": Entry("events", "events", "Show recent events."),
    "wait": Entry("wait", "wait", "Wait until a commit is applied and healthy."),
    "snapshot": Entry("snapshot", "snapshot", "Write what is observed to a file, for plans without access."),
    "notify": Entry("notify", "notify", "Send a test notice through the channels of the Instance."),
    "push": Entry("push", "push", "Report the state of a replica, from inside its container."),
    "destroy": Entry("destroy", "destroy", "Remove everything that this instance owns."),
}
"""All commands, in the order of the help."""

OPTIONS_WITH_VALUE = frozenset(
    {
        "--activate-at",
        "--activate-in",
        "--approve",
        "--by",
        "--ca-file",
        "--channel",
        "--color",
        "--commit",
        "--container",
        "--deadline",
        "--drain",
        "--env",
        "--expires",
        "--failure-policy",
        "--for",
        "--forge",
        "--grace",
        "--image",
        "--instance",
        "--instance-id",
        "--log-format",
        "--key",
        "--max-age",
        "--metrics-textfile",
        "--min-started",
        "--node",
        "--number",
        "--object",
        "--observed",
        "--observed-key",
        "--out",
        "--output",
        "--plan",
        "--project",
        "--reason",
        "--since",
        "--state-dir",
        "--timeout",
        "--token-env",
        "--token-file",
        "--until",
        "--url",
        "-o",
    }
)
"""Options that take a value. The word after them is neither a command nor a PATH."""


MODES = frozenset({"--once", "--watch", "--dry-run"})
"""Options that say how to run the manifests at PATH."""

HELP_NAMES = ["-h", "--help"]
"""Options that show the help of a command."""

HELP = frozenset({"-h", "--help", "--version"})
"""Options that are answered whatever the other words are."""


def first_word(words: Sequence[str]) -> int | None:
    """The index of the first word that is neither an option nor the value of one; None when there is none."""
    skip = False
    for index, word in enumerate(words):
        if skip:
            skip = False
        elif word == "--":
            return index + 1 if index + 1 < len(words) else None
        elif word.startswith("--") or (word.startswith("-") and len(word) == 2):
            skip = word in OPTIONS_WITH_VALUE
        elif word.startswith("-") and len(word) > 2:
            skip = f"-{word[-1]}" in OPTIONS_WITH_VALUE and not any(
                f"-{letter}" in OPTIONS_WITH_VALUE for letter in word[1:-1]
            )
        else:
            return index
    return None


def route(words: Sequence[str]) -> tuple[str, list[str]]:
    """The name of the command (empty: converge a PATH) and its words.

    The first word that is not an option is a command if there is one of that name, else a PATH; `./status` is always a PATH.
    """
    index = first_word(words)
    if index is None or words[index] not in COMMANDS or "--" in words[:index]:
        return "", list(words)
    return words[index], [*words[:index], *words[index + 1 :]]


def load(name: str) -> click.Command:
    """Import and return the command of that name. The empty name is the command that takes a PATH."""
    module, attribute = ("converge", "converge") if not name else COMMANDS[name][:2]
    command = getattr(importlib.import_module(f"reconciler.cli.{module}"), attribute)
    if not isinstance(command, click.Command):
        raise TypeError(f"reconciler.cli.{module}.{attribute} is not a command")
    command.context_settings.setdefault("help_option_names", HELP_NAMES)
    return command


def run(words: Sequence[str]) -> int:
    """Run one command line. Returns the exit code; raises nothing."""
    name, rest = route(words)
    view = View.guess(words)
    try:
        code = _call(name, rest)
    except KeyboardInterrupt:
        view.err(f"result: {Exit.INTERRUPTED.sentence} (exit {int(Exit.INTERRUPTED)})")
        code = Exit.INTERRUPTED
    except Exception as error:  # noqa: BLE001  (the outermost frame: every error becomes a line and an exit code)
        code = report_error(error, view)
    lost = lost_result()
    if lost is not None:
        code = report_error(lost, View(verbose=view.verbose))
    # Python would flush at exit, where a closed pipe cannot be caught any more.
    for stream in (sys.stdout, sys.stderr):
        flush_quietly(stream)
    return int(code)


def _call(name: str, words: list[str]) -> Exit:
    if not words and not name:
        return _help_as_usage_error()
    if not name:
        _refuse_unknown_command(words)
    command = load(name)
    prog = f"reconcile {name}".strip()
    try:
        result = command.main(args=words, prog_name=prog, standalone_mode=False)
    except click.exceptions.Exit as end:
        return Exit(end.exit_code)
    # `--help` and `--version` return 0, commands their Exit.
    return result if isinstance(result, Exit) else Exit.OK


def _refuse_unknown_command(words: Sequence[str]) -> None:
    """Raise a usage error for a first word that is meant as a command, before the options of another command are read.

    It is meant so when no file has that name, and another word follows it, or it is like a command and no option says how to run.
    """
    index = first_word(words)
    if index is None or "--" in words[:index] or "/" in words[index] or os.path.lexists(words[index]):
        return
    from manifests.problems import suggest  # noqa: PLC0415  (only for the hint)

    guess = suggest(words[index], COMMANDS)
    if first_word(words[index + 1 :]) is None and (not guess or (MODES | HELP) & set(words)):
        return  # the command without a name says what is wrong with a PATH or an option
    hint = f"did you mean 'reconcile {guess}'?" if guess else f"commands: {', '.join(COMMANDS)}"
    raise usage_error(f"'{words[index]}' is neither a command nor an existing path", hint)


def _help_as_usage_error() -> Exit:
    """No words at all: print help and return the usage error code, so that a script with an empty variable notices."""
    command = load("")
    with click.Context(command, info_name="reconcile", help_option_names=HELP_NAMES) as context:
        click.echo(command.get_help(context), err=True)
    return Exit.USAGE
