"""The entry of `reconcile` and of `python -m reconciler`. Everything else is in `reconciler.cli`."""

import sys

from reconciler.cli.app import run


def main() -> None:
    """Run the command line of this process and end with its exit code."""
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
