"""`reconcile rollback KEY`: asks the process that holds the instance to give the traffic back to the previous revision.

It refuses a rollback that the rollout history in the store rules out, because the command would have no effect.
"""

import json
from typing import TYPE_CHECKING, Any

import click

from manifests.values.rollouts import STAGED
from reconciler.cli.inbox import LATER, current_user, send
from reconciler.cli.objects import known_objects, unknown_object
from reconciler.cli.options import Options, common_options, target_options, usage_error
from reconciler.cli.where import Place, find, joined, path_optional
from reconciler.core.model.revision import can_roll_back, read_rollout
from reconciler.exits import Exit

if TYPE_CHECKING:
    from reconciler.tree import Given


@click.command(
    epilog="""\b
The previous revision is kept for rollout.rollbackWindow after an activation. Its
containers are started again, without a pull and without new containers, and get the
traffic back when they are available. The manifests do not change: the revision that was
rolled back is not tried again until the template changes. To see the progress, run
reconcile get revisions.

\b
Exit codes: 0 requested; 64 no workload is named KEY, or it has no previous revision.

\b
Examples:
  reconcile rollback workload/web manifests/ --reason "checkout fails"
  reconcile rollback workload/web --instance-id my-host
""",
)
@click.argument("key")
@path_optional
@click.option("--reason", default="", help="The reason, shown in status and events.")
@target_options
@common_options
def rollback(key: str, path: "Given | None", reason: str, **raw: Any) -> Exit:
    """Roll KEY (workload/web) back to its previous revision."""
    options, key = Options.of(raw), key.lower()
    if not key.startswith("workload/") or key.count("/") > 1:
        raise usage_error(f"'{key}' cannot be rolled back", "give a workload, such as workload/web")
    place = find(path, options, raw["instance_id"])
    known = known_objects(place)
    if known.all and key not in known.all:
        raise unknown_object(key, known)
    _check(key, place)
    taken = send("rollback", [{"object": key, "reason": reason.strip()}], place)
    effect = "in progress" if taken else LATER
    if options.view.json:
        document = {"exit_code": 0, "command": "rollback", "object": key, "who": current_user(), "taken": taken}
        options.view.document({**document, "result": effect})
    else:
        options.view.out(f"rollback of {key} requested; {effect}")
    return Exit.OK


def _check(key: str, place: Place) -> None:
    """Refuse a workload without a previous revision.

    Raises:
        click.UsageError: its revisions are unknown, there is no previous one, or its strategy keeps none.
        StoreError
    """
    row = None
    if place.has_run:
        with joined(place) as store:
            row = store.ledger_row("rollouts", key)
    if row is None:
        raise usage_error(
            f"{key} has no known revisions, so it cannot be rolled back", "run it first: reconcile --once PATH"
        )
    workloads = place.desired.workloads if place.desired is not None else ()
    strategy = next((workload.strategy for workload in workloads if workload.key == key), None)
    if strategy is not None and strategy not in STAGED:
        hint = "change the template back in the manifest, which takes effect at once"
        raise usage_error(f"{key} has strategy {strategy.value}, which keeps no previous revision", hint)
    try:
        possible = can_roll_back(read_rollout(json.loads(row)))
    except (ValueError, TypeError):  # a newer version wrote it; the process that holds the instance decides
        return
    if not possible:
        hint = "to list revisions, run: reconcile get revisions; or change the template back in the manifest"
        raise usage_error(f"{key} has no previous revision, so it cannot be rolled back", hint)
