"""The entry point of `reconcile` and of `python -m reconciler`. Everything else is in `reconciler/cli`."""

import gc
import os
import sys

COLLECT_EVERY = 150_000
"""Allocated objects before the cyclic garbage collector runs. A start makes some 100,000; at Python's default of 700 the collector
takes a tenth of the time of `reconcile plan`. It delays the release of at most as many objects, some 15 MB."""


def without_current_directory(home: str) -> None:
    """Take the current directory off the module search path, where `python -m` puts it first.

    A directory called `manifests` or a file `yaml.py` beside the manifests would be imported in place of ours. It stays when it
    is `home`, the directory of our packages: then the program runs from its source.
    """
    try:
        here = os.path.realpath(os.getcwd())
    except FileNotFoundError:  # the directory was removed, so nothing can be imported from it
        return
    if sys.path and os.path.realpath(sys.path[0]) == here != os.path.realpath(home):
        del sys.path[0]


def open_standard_streams() -> None:
    """Open the standard streams that the caller has closed (`>&-`) on the null device.

    Otherwise the next file or socket that is opened gets the number of the closed stream, and Python has no stream to write to.
    """
    closed = []
    for number, mode in ((0, os.O_RDONLY), (1, os.O_WRONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, mode)  # gets the lowest free number, which is this one
            closed.append(number)
    for number in closed:
        name, mode_text = ("stdin", "stdout", "stderr")[number], "r" if number == 0 else "w"
        stream = open(number, mode_text, encoding="utf-8", closefd=False)  # noqa: SIM115  (for the life of the process)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def main() -> None:
    """Run the command line of this process and end with its exit code."""
    open_standard_streams()
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
    without_current_directory(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    main()
