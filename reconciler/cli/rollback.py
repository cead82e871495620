"""`reconcile rollback KEY`: a word for the process that holds the instance: give the traffic back to the revision before.

What cannot be taken back as far as the books tell is refused here: the word would be read, and nothing would come of it.
"""

import json
from pathlib import Path
from typing import Any

import click

from manifests.values.rollouts import STAGED
from reconciler.cli.inbox import LATER, current_user, leave
from reconciler.cli.objects import known_objects, no_such
from reconciler.cli.options import Options, common_options, mistake, target_options
from reconciler.cli.where import Place, find, joined, path_optional
from reconciler.core.model.revision import may_go_back, read_rollout
from reconciler.exits import Exit


@click.command(
    epilog="""\b
The revision before is kept for rollout.rollbackWindow after a switch; its containers are
started again, without a pull and without a new container, and get the traffic back once
they are available. The manifests stay as they are: the revision that was taken back is not
tried again until the template changes. reconcile get revisions shows how it goes.

\b
Exit codes: 0 asked for; 64 there is no such workload, or nothing of it to take back.

\b
Examples:
  reconcile rollback workload/web manifests/ --reason "checkout fails"
  reconcile rollback workload/web --instance-id my-host
""",
)
@click.argument("key")
@path_optional
@click.option("--reason", default="", help="Why, for whoever sees it in status and events.")
@target_options
@common_options
def rollback(key: str, path: Path | None, reason: str, **raw: Any) -> Exit:
    """Take the last switch of KEY (workload/web) back."""
    options, key = Options.of(raw), key.lower()
    if not key.startswith("workload/") or key.count("/") > 1:
        raise mistake(f"'{key}' cannot be rolled back", "give a workload, such as workload/web")
    place = find(path, options, raw["instance_id"])
    known = known_objects(place)
    if known.all and key not in known.all:
        raise no_such(key, known)
    _check(key, place)
    taken = leave("rollback", [{"object": key, "reason": reason.strip()}], place)
    effect = "it is being done" if taken else LATER
    if options.view.json:
        asked = {"command": "rollback", "object": key, "who": current_user(), "taken": taken}
        options.view.document({"exit_code": 0, **asked, "result": effect})
    else:
        options.view.out(f"rollback of {key} asked for; {effect}")
    return Exit.OK


def _check(key: str, place: Place) -> None:
    """Refuse what has nothing to go back to.

    Raises:
        click.UsageError: its revisions are not known, there was none before, or its strategy keeps none.
        StoreError
    """
    row = None
    if place.used:
        with joined(place) as store:
            row = store.ledger_row("rollouts", key)
    if row is None:
        raise mistake(
            f"no revisions of {key} are known, so there is nothing to take back", "run it first: reconcile --once PATH"
        )
    workloads = place.desired.workloads if place.desired is not None else ()
    strategy = next((workload.strategy for workload in workloads if workload.key == key), None)
    if strategy is not None and strategy not in STAGED:
        hint = "change the template back, which takes over at once"
        raise mistake(f"{key} has strategy {strategy.value}, which keeps no revision to go back to", hint)
    try:
        nothing = not may_go_back(read_rollout(json.loads(row)))
    except (ValueError, TypeError):  # a newer version wrote it: the process that holds the instance knows more
        return
    if nothing:
        hint = "see what there is: reconcile get revisions; or change the template back"
        raise mistake(f"{key} has no other revision than the one that serves, so there is nothing to take back", hint)
