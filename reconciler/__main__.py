"""The entry of `reconcile` and of `python -m reconciler`. Everything else is in `reconciler.cli`."""

import gc
import sys

COLLECT_EVERY = 150_000
"""Objects that are made and still there before the cyclic garbage collector looks for those that nobody can reach. A start makes
some 100,000; at Python's own 700 the collector walks them so often that it is a tenth of the time of `reconcile plan`. What it
finds later is at most so many objects, some 15 MB."""


def main() -> None:
    """Run the command line of this process and end with its exit code."""
    if sys.argv[1:2] == ["push"]:
        # Runs inside containers, many times over: it loads its own few modules and nothing else.
        from reconciler.push.__main__ import main as push  # noqa: PLC0415

        sys.exit(push(sys.argv[2:]))
    gc.set_threshold(COLLECT_EVERY)
    from reconciler.cli.app import run  # noqa: PLC0415

    code = run(sys.argv[1:])
    # All that this run opened is closed by now. What is left are modules and classes; to walk them once more, as Python does before
    # it ends, is a fifth of the time of `reconcile plan`.
    gc.freeze()
    sys.exit(code)


if __name__ == "__main__":
    main()
