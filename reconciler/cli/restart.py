"""`reconcile restart KEY`: a restart request, left for the process that holds the instance; `--wait` follows it to its end."""

import json
import secrets
from pathlib import Path
from typing import Any

import click

from manifests.values.desired import SECOND
from reconciler.cli.inbox import LATER, current_user, leave
from reconciler.cli.objects import Known, known_objects, no_such
from reconciler.cli.options import DurationType, Options, common_options, mistake, target_options
from reconciler.cli.where import Place, find, joined, path_optional
from reconciler.core.model.restart_request import DEADLINE, Request, read_request
from reconciler.exits import Exit
from reconciler.shell.clock import SystemClock
from reconciler.shell.store.lock import holder
from reconciler.shell.store.state_db import Store

ASK_EVERY = SECOND // 2
"""How often `--wait` looks (ns)."""

SLACK = 10 * SECOND
"""How long after the deadline of a request `--wait` still waits for somebody to say so (ns)."""

_PERSON = {"Suspended", "Denied", "Failed", "SecretChanged"}
"""Rules whose holds only a person ends."""


@click.command(
    epilog="""\b
Each replica is restarted once: one that starts anew for another reason counts as done.
It goes through the gates that every disruption goes through (suspension, deny list,
availability budget), only not through those for failed health. At the end every replica
is done, failed, skipped or expired; reconcile get requests shows it for an hour.

\b
--container restarts one container of each replica. The first container of a workload
takes the others with it, because they live in its network. The replica leaves service
meanwhile, as in every restart.

\b
Exit codes: 0 asked for; with --wait 0 all restarted and available, 6 not all of them,
7 held by a suspension or the deny list; 64 there is no such object.

\b
Examples:
  reconcile restart workload/web manifests/ --reason "new certificates"
  reconcile restart workload/web/0 --instance-id my-host --grace 5s
  reconcile restart workload/web manifests/ --ordered --min-started 30s --wait
  reconcile restart workload/web manifests/ --container proxy
""",
)
@click.argument("key")
@path_optional
@click.option("--container", default="", metavar="NAME", help="Restart this container of each replica only.")
@click.option("--ordered", is_flag=True, help="One after the other, each available before the next is begun.")
@click.option(
    "--failure-policy",
    type=click.Choice(["fail", "ignore"]),
    default="fail",
    help="After a failed replica leave the rest alone, or go on; default fail.",
)
@click.option(
    "--min-started", type=DurationType(), metavar="DURATION", help="How long a replica must run to count as restarted."
)
@click.option(
    "--grace", type=DurationType(), metavar="DURATION", help="How long it may take to stop before it is killed."
)
@click.option("--drain", type=DurationType(), metavar="DURATION", help="How long it keeps its requests in flight.")
@click.option(
    "--deadline", type=DurationType(), default=DEADLINE, metavar="DURATION", help="When the request ends; default 10m."
)
@click.option("--wait", is_flag=True, help="Follow it to its end.")
@click.option("--reason", default="", help="Why, for whoever sees it in status and events.")
@target_options
@common_options
def restart(
    key: str,
    path: Path | None,
    container: str,
    ordered: bool,
    failure_policy: str,
    min_started: int | None,
    grace: int | None,
    drain: int | None,
    deadline: int,
    wait: bool,
    reason: str,
    **raw: Any,
) -> Exit:
    """Restart KEY, a workload or one replica of it (workload/web, workload/web/0), without an outage."""
    options = Options.of(raw)
    key = key.lower()
    if key.partition("/")[0] != "workload":
        raise mistake(
            f"'{key}' cannot be restarted", "give a workload or a replica, such as workload/web or workload/web/0"
        )
    if deadline < SECOND:
        raise mistake("--deadline is shorter than a second", "give a time such as 10m, or leave it out")
    place = find(path, options, raw["instance_id"])
    known = known_objects(place)
    if known.all and key not in known.all:
        raise no_such(key, known)
    _check_container(key, container, known)
    word = {
        "id": secrets.token_hex(4),
        "object": key,
        "container": container,
        "reason": reason.strip(),
        "ordered": ordered,
        "failure_policy": failure_policy,
        "min_started": min_started,
        "grace": grace,
        "drain": drain,
        "deadline": deadline,
    }
    taken = leave("restart", [word], place)
    view = options.view
    effect = "it is being done" if taken else LATER
    about = f"container {container} of {key}" if container else key
    asked = {"command": "restart", "request": word["id"], "object": key, "container": container or None}
    asked |= {"who": current_user(), "taken": taken}
    if not (wait and taken):
        code = Exit.UNFINISHED if wait else Exit.OK
        if view.json:
            view.document({"exit_code": int(code), **asked, "result": effect})
        else:
            view.out(f"restart request {word['id']} for {about}; {effect}")
            if wait:
                view.err(f"nothing to wait for (exit {int(code)})")
        return code
    if not view.json:
        view.out(f"restart request {word['id']} for {about}; {effect}")
    return _follow(str(word["id"]), deadline, place, options, asked)


def _check_container(key: str, container: str, known: Known) -> None:
    """Refuse a container that the workload does not have. Raises UsageError."""
    workload = next((one for one in known.containers if key == one or key.startswith(f"{one}/")), "")
    there = known.containers.get(workload, ())
    if container and there and container not in there:
        raise mistake(f"{workload} has no container '{container}'", f"it has: {', '.join(there)}")


def _follow(name: str, deadline: int, place: Place, options: Options, asked: dict[str, Any]) -> Exit:
    """Tell each replica as it is decided, then how it ended."""
    clock, view = SystemClock(), options.view
    end = clock.now().steady + deadline + SLACK
    told: set[tuple[str, str]] = set()
    request: Request | None = None
    why = ""
    with joined(place) as store:
        while True:
            request = _read(store, name) or request
            for member in (request.members or ()) if request is not None else ():
                if (member.object, member.fate) not in told and not view.json:
                    told.add((member.object, member.fate))
                    view.out(
                        f"{member.object}: {view.paint.word(member.fate.value)}{f' ({member.message})' if member.message else ''}"
                    )
            if request is not None and request.finished is not None:
                break
            if clock.now().steady >= end:
                why = "nobody decided it in time"
                break
            if holder(place.state_dir, clock) is None:
                why = f"the process that did it has ended; {LATER}"
                break
            clock.pause(ASK_EVERY)
        held = _held(store, request)
    code = Exit.OK if request is not None and request.succeeded else Exit.PERSON if held else Exit.UNFINISHED
    result = why or (request.message if request is not None and request.message else code.sentence)
    if view.json:
        members = [member._asdict() for member in (request.members or ())] if request is not None else []
        view.document({"exit_code": int(code), **asked, "members": members, "held": held, "result": result})
        return code
    for line in held:
        view.out(f"{view.paint.warn('held')}: {line}")
    view.out(f"result: {result} (exit {int(code)})")
    return code


def _read(store: Store, name: str) -> Request | None:
    """The request as the ledger has it now."""
    text = store.ledger_row("requests", name)
    return None if text is None else read_request(json.loads(text))


def _held(store: Store, request: Request | None) -> list[str]:
    """Holds on its members that only a person ends, from the last decision."""
    last = store.last_decision()
    if last is None or request is None:
        return []
    mine = {member.object for member in request.members or ()}
    return [
        f"{one['object']}: {one['rule']}: {one['message']}; to end it: {one['next_step']}"
        for one in json.loads(last.text)["holds"]
        if one["object"] in mine and one["rule"] in _PERSON
    ]
