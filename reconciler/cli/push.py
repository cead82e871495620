"""`reconcile push`: hands its words to the client, which is a program of its own that needs nothing but the standard library.

`__main__` calls that client directly, so that a container starts nothing else; this module puts it into the list of commands.
"""

import sys
from typing import NoReturn

import click


@click.command(
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False, "help_option_names": []}
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
def push(words: tuple[str, ...]) -> NoReturn:
    """Say what state this instance is in, from inside of it."""
    from reconciler.push.__main__ import main  # noqa: PLC0415  (what runs is imported when it runs)

    # The code may be that of the program that ran: any, not only those that commands of ours have.
    sys.exit(main(words))
