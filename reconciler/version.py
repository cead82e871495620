"""The version of the installed program, for `--version` and the record of the lock's owner."""

from importlib import metadata

DISTRIBUTION = "reconciler-gitops"
"""Name of the distribution. `reconciler` on the Python index is another project, which has a package of that name, too."""


def version() -> str:
    """The version, or `unknown` in a source tree that is not installed."""
    try:
        return metadata.version(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return "unknown"
