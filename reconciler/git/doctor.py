"""Whether this host can use a git source: the version of git, and what the remote answers. Called by `reconcile doctor`."""

import re
from dataclasses import dataclass

from providers.lib.program import ProgramError, run
from reconciler.git.access import ENVIRONMENT
from reconciler.git.reader import GitReader

FIRST = (2, 36)
"""The oldest git that works: it can fetch again what an earlier fetch has filtered out (`--refetch`)."""


@dataclass(frozen=True, slots=True)
class SourceFinding:
    """The result for a source: whether it answers, a summary, and what is missing."""

    reached: bool
    summary: str
    missing: tuple[str, ...] = ()


def examine(reader: GitReader) -> SourceFinding:
    """Check git, and what the last read of the source gave."""
    try:
        said = run(["git", "--version"], timeout=10, env=ENVIRONMENT).out.decode("ascii", "replace").strip()
    except ProgramError as error:
        return SourceFinding(False, str(error), ("install git, so that it is on the PATH of reconcile",))
    found = re.search(r"(\d+)\.(\d+)", said)
    version = (int(found[1]), int(found[2])) if found else (0, 0)
    missing = () if version >= FIRST else (f"install git {FIRST[0]}.{FIRST[1]} or newer: {said} cannot fetch in parts",)
    if reader.problem is not None:
        return SourceFinding(
            False, reader.problem.cause, (*missing, reader.problem.hint) if reader.problem.hint else missing
        )
    commit, ref = reader.seen
    return SourceFinding(True, f"commit {commit}{f' of {ref}' if ref else ''}; {said}", missing)
