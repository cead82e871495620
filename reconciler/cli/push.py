"""`reconcile push`: calls the push client (`reconciler/push`), which needs only the standard library.

`reconciler/__main__.py` calls the client directly, so that a container loads nothing else. This module puts it into the list of
commands.
"""

import sys
from typing import NoReturn

import click


@click.command(
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False, "help_option_names": []}
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
def push(words: tuple[str, ...]) -> NoReturn:
    """Report the state of a replica, from inside its container."""
    from reconciler.push.__main__ import main  # noqa: PLC0415  (imported when it is needed)

    # The exit code may be that of a program that the client ran, so it is not always an `Exit`.
    sys.exit(main(words))
