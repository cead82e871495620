"""New commits: what lets a valid revision of the manifests wait while those in force stay and healing goes on.

An operator's `suspend --commits`, the Guard's `suspendCommits`, and windows that hold `commits`. The Guard of the revision that waits
decides, with the local documents as they are now: the next commit can end what a commit began, and nothing waits for itself. `decide`
shows the holds; the loop and the start of a run ask whether there are any.
"""

from manifests.values.limits import Held
from reconciler.core.limits import windows
from reconciler.core.model.instant import Now
from reconciler.core.model.ledger import Ledger
from reconciler.core.model.reasons import Hold, Rule, Wait, Waiting
from reconciler.core.model.source_problem import OBJECT
from reconciler.core.model.suspension_scope import Scope, key_of, resume_command
from reconciler.core.model.waiting_revision import WaitingRevision

KEY = key_of(Scope.COMMITS, "*")
"""The key of an operator's suspension of new commits in the ledger."""


def holds(waiting: WaitingRevision, ledger: Ledger, now: Now) -> list[Hold]:
    """Everything that keeps the revision waiting; empty when it may come into force."""
    action = f"use revision {waiting.name}"
    stays = f"revision {waiting.in_force} stays in force, revision {waiting.name} waits"
    found: list[Hold] = []
    if waiting.guard.suspend_commits:
        message = f"the Guard suspends new commits; {stays}"
        next_step = "set spec.suspendCommits of the Guard to false"
        found.append(Hold(OBJECT, action, Rule.SUSPENDED, message, next_step=next_step, since=waiting.since))
    row = ledger.suspensions.get(KEY)
    if row is not None and (not row.until_wall or row.until_wall > now.wall):
        message = f"{row.who or 'an operator'} suspended new commits: {row.reason or 'no reason given'}; {stays}"
        until = now.steady + row.until_wall - now.wall if row.until_wall else None
        found.append(Hold(OBJECT, action, Rule.SUSPENDED, message, until, resume_command(KEY), since=waiting.since))
    for name, until in windows.open_until(waiting.guard.windows, Held.COMMITS, now):
        message = f"window {name} of the Guard holds new commits; {stays}"
        next_step = f"wait until the window closes, or remove commits from window {name} of the Guard"
        found.append(Hold(OBJECT, action, Rule.WINDOW, message, until, next_step, since=waiting.since))
    return found


def wait(waiting: WaitingRevision) -> Wait:
    """The wait for the read that puts a revision in force once nothing holds it any more."""
    return Wait(OBJECT, Waiting.COMMIT, f"revision {waiting.name} comes into force when the manifests are read again")
