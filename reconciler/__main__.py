"""The entry of `reconcile` and of `python -m reconciler`. Everything else is in `reconciler.cli`."""

import sys


def main() -> None:
    """Run the command line of this process and end with its exit code."""
    if sys.argv[1:2] == ["push"]:
        # Runs inside containers, many times over: it loads its own few modules and nothing else.
        from reconciler.push.__main__ import main as push  # noqa: PLC0415

        sys.exit(push(sys.argv[2:]))
    from reconciler.cli.app import run  # noqa: PLC0415

    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
