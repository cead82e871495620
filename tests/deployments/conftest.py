"""The command line, as tests of commands use it."""

from tests.cli.conftest import home, reconcile

__all__ = ["home", "reconcile"]
