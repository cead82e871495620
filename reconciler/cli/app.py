"""From the words of a command line to one command, and from how it ended to an exit code. Called by `__main__`.

Commands are imported when they are named, so that `--version` and `--help` stay fast and a broken optional dependency
harms only the commands that need it.
"""

import importlib
import sys
from collections.abc import Sequence
from typing import NamedTuple

import click

from reconciler.cli.failures import failed
from reconciler.cli.view import View, quiet_pipe
from reconciler.exits import Exit


class Entry(NamedTuple):
    """Where a command lives and what it does, in a line for the list of commands."""

    module: str
    attribute: str
    summary: str


COMMANDS: dict[str, Entry] = {
    "validate": Entry("validate", "validate", "Check manifests, offline, and list every problem."),
    "plan": Entry("plan", "plan", "Show what would be done, and change nothing."),
    "apply": Entry("apply", "apply", "Show the plan, ask, and converge once."),
    "doctor": Entry("doctor", "doctor", "Ask every provider whether it can do its part."),
    "status": Entry("status", "status", "Show the last known state of everything."),
    "explain": Entry("explain", "explain", "Say why one object is as it is."),
    "suspend": Entry("suspend", "suspend", "Stop all actions on an object for a while."),
    "resume": Entry("suspend", "resume", "Take a suspension back."),
    "restart": Entry("restart", "restart", "Restart a workload or a replica without an outage."),
    "deploy": Entry("deploy", "deploy", "Write an image into the manifest of a workload."),
    "rollback": Entry("rollback", "rollback", "Take the last switch of a workload back."),
    "drain": Entry("override", "drain", "Take a replica or an endpoint out of traffic."),
    "force": Entry(
        "override", "force", "Give an endpoint or a target of a name traffic or none, whatever is observed."
    ),
    "release": Entry("override", "release", "Take back what was drained or forced."),
    "get": Entry("get", "get", "Show endpoints, requests, names, checks or revisions in detail."),
    "events": Entry("events", "events", "Show what happened lately."),
    "push": Entry("push", "push", "Say, from inside an instance, what state it is in."),
    "destroy": Entry("destroy", "destroy", "Remove everything that this instance owns."),
}
"""All commands, in the order in which help lists them."""

VALUED = frozenset(
    {
        "--activate-at",
        "--activate-in",
        "--approve",
        "--color",
        "--container",
        "--deadline",
        "--drain",
        "--failure-policy",
        "--for",
        "--grace",
        "--image",
        "--instance",
        "--instance-id",
        "--log-format",
        "--min-started",
        "--node",
        "--object",
        "--output",
        "--reason",
        "--since",
        "--state-dir",
        "--timeout",
        "-o",
    }
)
"""Options that are followed by a value: what comes after them is not the first word."""


def first_word(words: Sequence[str]) -> int | None:
    """The place of the first word that is neither an option nor the value of one; None when there is none."""
    skip = False
    for index, word in enumerate(words):
        if skip:
            skip = False
        elif word == "--":
            return index + 1 if index + 1 < len(words) else None
        elif word.startswith("--") or (word.startswith("-") and len(word) == 2):
            skip = word in VALUED
        elif word.startswith("-") and len(word) > 2:
            skip = f"-{word[-1]}" in VALUED and not any(f"-{letter}" in VALUED for letter in word[1:-1])
        else:
            return index
    return None


def route(words: Sequence[str]) -> tuple[str, list[str]]:
    """The command's name (empty: converge a PATH) and its words.

    The first word that is not an option is a known command, else a PATH; `./status` is always a path.
    """
    index = first_word(words)
    if index is None or words[index] not in COMMANDS or "--" in words[:index]:
        return "", list(words)
    return words[index], [*words[:index], *words[index + 1 :]]


def load(name: str) -> click.Command:
    """The command of that name, imported now. The empty name is the one that takes a PATH."""
    module, attribute = ("converge", "converge") if not name else COMMANDS[name][:2]
    command = getattr(importlib.import_module(f"reconciler.cli.{module}"), attribute)
    if not isinstance(command, click.Command):
        raise TypeError(f"reconciler.cli.{module}.{attribute} is not a command")
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
    except Exception as error:  # noqa: BLE001  (the outermost frame: whatever it is becomes a line and an exit code)
        code = failed(error, view)
    # What Python would flush at exit may still meet a closed pipe, where nobody can catch it.
    for stream in (sys.stdout, sys.stderr):
        quiet_pipe(stream)
    return int(code)


def _call(name: str, words: list[str]) -> Exit:
    if not words and not name:
        return _nothing_asked()
    command = load(name)
    prog = f"reconcile {name}".strip()
    try:
        answer = command.main(args=words, prog_name=prog, standalone_mode=False)
    except click.exceptions.Exit as end:
        return Exit(end.exit_code)
    # `--help` and `--version` answer 0, commands their Exit.
    return answer if isinstance(answer, Exit) else Exit.OK


def _nothing_asked() -> Exit:
    """Without a single word: help, and the exit code of a wrong command line, so that a script with an empty variable notices."""
    command = load("")
    with click.Context(command, info_name="reconcile") as context:
        click.echo(command.get_help(context), err=True)
    return Exit.USAGE
