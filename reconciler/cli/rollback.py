"""`reconcile rollback KEY`: a word for the process that holds the instance: give the traffic back to the revision before."""

from pathlib import Path
from typing import Any

import click

from reconciler.cli.inbox import LATER, leave, person
from reconciler.cli.objects import known_objects, no_such
from reconciler.cli.options import Options, common_options, mistake, target_options
from reconciler.cli.where import find, path_optional
from reconciler.exits import Exit


@click.command(
    epilog="""\b
The revision before is kept for rollout.rollbackWindow after a switch; its containers are
started again, without a pull and without a new container, and get the traffic back once
they are available. The manifests stay as they are: the revision that was taken back is not
tried again until the template changes. reconcile get revisions shows how it goes.

\b
Exit codes: 0 asked for; 64 there is no such workload.

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
    taken = leave("rollback", [{"object": key, "reason": reason.strip()}], place)
    effect = "it is being done" if taken else LATER
    if options.view.json:
        asked = {"command": "rollback", "object": key, "who": person(), "taken": taken}
        options.view.document({"exit_code": 0, **asked, "result": effect})
    else:
        options.view.out(f"rollback of {key} asked for; {effect}")
    return Exit.OK
