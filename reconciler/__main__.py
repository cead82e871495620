"""The entry point of `reconcile` and of `python -m reconciler`. Everything else is in `reconciler/cli`."""

import gc
import sys

COLLECT_EVERY = 150_000
"""Allocated objects before the cyclic garbage collector runs. A start makes some 100,000; at Python's default of 700 the collector
takes a tenth of the time of `reconcile plan`. It delays the release of at most as many objects, some 15 MB."""


def main() -> None:
    """Run the command line of this process and end with its exit code."""
    if sys.argv[1:2] == ["push"]:
        # Runs often, inside containers: it loads its own few modules and nothing else.
        from reconciler.push.__main__ import main as push  # noqa: PLC0415

        sys.exit(push(sys.argv[2:]))
    gc.set_threshold(COLLECT_EVERY)
    from reconciler.cli.app import run  # noqa: PLC0415

    code = run(sys.argv[1:])
    # Everything that this run opened is closed. Only modules and classes are left; walking them once more, as Python does before
    # it ends, takes a fifth of the time of `reconcile plan`.
    gc.freeze()
    sys.exit(code)


if __name__ == "__main__":
    main()
