"""What a command says about the source of an instance: the revision in force, and the attempted one while they differ.

`where.find` makes a `SourceState` for every command about an instance; it becomes the first line of the text and the field
`manifests` of the JSON document.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from manifests.load import Sources
from manifests.problems import OF_SOURCE, Code, ManifestErrors, Problem
from reconciler.core.model.source_problem import named
from reconciler.shell.store import source_record
from reconciler.shell.store.source_record import InForce, SeenCommit

if TYPE_CHECKING:
    from reconciler.tree import Location

PROBLEMS = 20
"""How many problems of an invalid revision are in the JSON document."""


_NOTHING_THERE = frozenset({Code.EMPTY_TREE.value, Code.PATH_NOT_FOUND.value, *(code.value for code in OF_SOURCE)})
"""Problems of a source that has no manifests or cannot be read, and so no revision that could be invalid."""


@dataclass(frozen=True, slots=True)
class Seen:
    """The source as this command has read it: its files, and their problems; no error when they are valid."""

    sources: Sources
    location: "Location"
    error: ManifestErrors | None = None


@dataclass(frozen=True, slots=True)
class AttemptedState:
    """A revision that is at the source and not in force. `since_wall` is None when no run has seen it yet."""

    revision: str
    commit: str
    since_wall: int | None
    count: int
    problems: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True)
class SourceState:
    """The revision in force (None when none is known), the attempted one where it differs, and the newest commit of a git source."""

    in_force: InForce | None
    attempted: AttemptedState | None
    seen: SeenCommit | None = None

    def line(self, now: int) -> str:
        """The first line of a command's text; empty when the revision at a directory is in force, or none was attempted."""
        from reconciler.cli.render.times import short  # noqa: PLC0415  (only with something to say)

        attempted = self.attempted
        if attempted is None:
            return self._line_of_commit()
        name = f"revision {named(attempted.revision, attempted.commit)}"
        since = "" if attempted.since_wall is None else f" for {short(now - attempted.since_wall)}"
        kept = "no revision is in force"
        if self.in_force is not None:
            held = named(self.in_force.revision, self.in_force.commit)
            stays = " and stays so" if attempted.problems else ""
            kept = f"revision {held} has been in force for {short(now - self.in_force.since_wall)}{stays}"
        if not attempted.problems:
            return f"manifests: {name} is at PATH, and no run has put it in force yet; {kept}"
        if {problem.get("code") for problem in attempted.problems} <= _NOTHING_THERE:
            return f"manifests: {_where(attempted.problems[0])}{since}; {kept}"
        more = f" and {attempted.count - 1} more" if attempted.count > 1 else ""
        return f"manifests: {_where(attempted.problems[0])}{more}; {name} is invalid{since}; {kept}"

    def _line_of_commit(self) -> str:
        """The commit in force of a git source, and the newest one where that changes nothing."""
        seen, in_force = self.seen, self.in_force
        if seen is None or in_force is None:
            return ""
        of = f" of {seen.ref}" if seen.ref else ""
        if seen.commit == in_force.commit:
            return f"manifests: commit {seen.commit[:12]}{of} is in force"
        newer = f"the newest commit{of}, {seen.commit[:12]}, changes nothing in them"
        return f"manifests: commit {in_force.commit[:12]} is in force; {newer}"

    def document(self) -> dict[str, Any]:
        """The field `manifests` of a JSON document."""
        from reconciler.shell.clock import utc  # noqa: PLC0415

        in_force, attempted, seen = self.in_force, self.attempted, self.seen
        return {
            "seen": None
            if seen is None
            else {"commit": seen.commit, "ref": seen.ref or None, "since": utc(seen.since_wall).isoformat()},
            "in_force": None
            if in_force is None
            else {
                "revision": in_force.revision,
                "commit": in_force.commit or None,
                "source": in_force.source,
                "since": utc(in_force.since_wall).isoformat(),
            },
            "attempted": None
            if attempted is None
            else {
                "revision": attempted.revision,
                "commit": attempted.commit or None,
                "since": None if attempted.since_wall is None else utc(attempted.since_wall).isoformat(),
                "valid": not attempted.problems,
                "problem_count": attempted.count,
                "problems": list(attempted.problems),
            },
        }


def source_state(state_dir: Path, seen: Seen | None) -> SourceState:
    """The state of the source of an instance: as this command has read it, else as the last run has.

    Args:
        state_dir: where the instance keeps its state.
        seen: what was read at PATH; None without PATH.
    """
    record = source_record.load(state_dir)
    in_force = record.in_force if record is not None else None
    kept = record.attempted if record is not None else None
    newest = record.seen if record is not None else None
    places = record.places if record is not None else ()
    # Runs with local documents see other manifests than a command without them, so what such a run has seen is what counts.
    other_files = seen is not None and seen.sources.local is None and bool(places)
    other_files = other_files and all(place.instance_file for place in places)
    if seen is None or (other_files and seen.error is not None):
        if kept is None:
            return SourceState(in_force, None, newest)
        attempted = AttemptedState(kept.revision, kept.commit, kept.since_wall, kept.count, kept.problems)
        return SourceState(in_force, attempted, newest)
    revision = seen.sources.revision
    if seen.error is None and (in_force is None or in_force.revision == revision or other_files):
        return SourceState(in_force, None, newest)
    wrong: list[Problem] = []
    if seen.error is not None:
        wrong = [problem for problem in seen.error.problems if not problem.is_warning]
    known = kept is not None and kept.revision == revision
    commit = kept.commit if known and kept is not None else seen.location.commit()
    since = kept.since_wall if known and kept is not None else None
    shown = tuple(problem.to_dict() for problem in wrong[:PROBLEMS])
    return SourceState(in_force, AttemptedState(revision, commit, since, len(wrong), shown), newest)


def _where(problem: Mapping[str, Any]) -> str:
    """A problem in one line: file:line:column: code: message."""
    place = str(problem.get("file", ""))
    if problem.get("line"):
        place += f":{problem['line']}:{problem.get('column', 1)}"
    message = " ".join(str(problem.get("message", "")).split())
    return f"{place}: {problem.get('code', '')}: {message}"
