"""Why the manifests in force are not those of the source. Made by the shell, turned into a hold by `decide`."""

from dataclasses import dataclass

from reconciler.core.model.reasons import Hold, Rule

OBJECT = "source/manifests"
"""The object of everything that is reported about the source itself."""


def named(revision: str, commit: str) -> str:
    """A revision as operators see it: the begin of its digest, and the commit when there is one: `0123456789ab (commit …)`."""
    if not commit:
        return revision[:12]
    number, dirty, _ = commit.partition("-dirty")
    return f"{revision[:12]} (commit {number[:12]}{dirty})"


@dataclass(frozen=True, slots=True)
class SourceProblem:
    """A revision of the source that cannot be put in force.

    Attributes:
        revision: digest of the files as they are; 64 hex digits.
        commit: what is checked out there; empty when it is no git work tree.
        cause: the first problem, in one line, with its file and line.
        count: how many problems there are.
        in_force: the revision that stays in force, as operators see it.
        since: steady instant (ns) since which the source has had this problem; since_wall the same by the wall clock.
        unreadable: the source itself cannot be read or is refused, so that nothing is known about the manifests that it has now.
        unverified: it is refused because its commit does not have the signature that local documents ask for.
        hint: the next step, where the problem has one of its own.
    """

    revision: str
    commit: str
    cause: str
    count: int
    in_force: str
    since: int
    since_wall: int
    unreadable: bool = False
    unverified: bool = False
    hint: str = ""

    def hold(self) -> Hold:
        """The hold that shows it in status, events and `explain`."""
        if self.unverified:
            message = f"{self.cause}; revision {self.in_force} stays in force"
            action = f"use commit {self.commit[:12]}"
            return Hold(OBJECT, action, Rule.SOURCE_UNVERIFIED, message, next_step=self.hint, since=self.since)
        if self.unreadable:
            message = f"the source cannot be used: {self.cause}; revision {self.in_force} stays in force"
            next_step = "the source is asked again automatically; reconcile doctor shows whether it can be reached"
            return Hold(
                OBJECT, "read the source", Rule.SOURCE_UNREADABLE, message, next_step=next_step, since=self.since
            )
        more = f" and {self.count - 1} more" if self.count > 1 else ""
        message = f"the manifests are invalid: {self.cause}{more}; revision {self.in_force} stays in force"
        next_step = "correct the manifests; they are read again automatically"
        return Hold(
            OBJECT,
            f"use revision {named(self.revision, self.commit)}",
            Rule.SOURCE_INVALID,
            message,
            next_step=next_step,
            since=self.since,
        )
