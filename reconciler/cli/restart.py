"""`reconcile restart KEY`: sends a restart request to the process that holds the instance; `--wait` follows it to its end."""

import json
import secrets
from typing import TYPE_CHECKING, Any

import click

from manifests.values.desired import SECOND
from reconciler.cli.inbox import LATER, current_user, send
from reconciler.cli.objects import Known, known_objects, unknown_object
from reconciler.cli.options import DurationType, Options, common_options, target_options, usage_error
from reconciler.cli.where import Place, find, joined, path_optional
from reconciler.core.model.restart_request import DEADLINE, Request, read_request
from reconciler.exits import Exit
from reconciler.shell.clock import SystemClock
from reconciler.shell.store.lock import holder
from reconciler.shell.store.state_db import Store

if TYPE_CHECKING:
    from reconciler.tree import Given

ASK_EVERY = SECOND // 2
"""How often `--wait` reads the request (ns)."""

SLACK = 10 * SECOND
"""How long after the deadline of a request `--wait` still waits until the process ends it (ns)."""

_MANUAL = {"Suspended", "Denied", "Failed", "SecretChanged"}
"""Rules whose holds only the operator ends."""


@click.command(
    epilog="""\b
Each replica is restarted once; one that starts again for another reason counts as done.
The restart respects suspensions, deny lists and availability budgets like every planned
disruption; the limits of health restarts do not apply. In the end every replica is done,
failed, skipped or expired; reconcile get requests shows this for an hour.

\b
--container restarts one container of each replica. The first container of a workload
restarts the others too, because they share its network. The replica leaves service
meanwhile, as in every restart.

\b
Exit codes: 0 requested; with --wait: 0 all restarted and available, 6 not all of them,
7 held by a suspension or the deny list; 64 no object is named KEY.

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
@click.option("--ordered", is_flag=True, help="Restart the next replica only when the last one is available again.")
@click.option(
    "--failure-policy",
    type=click.Choice(["fail", "ignore"]),
    default="fail",
    help="After a failed replica: stop (fail) or go on (ignore); default fail.",
)
@click.option(
    "--min-started", type=DurationType(), metavar="DURATION", help="How long a replica must run to count as restarted."
)
@click.option(
    "--grace",
    type=DurationType(),
    metavar="DURATION",
    help="How long a container may take to stop before it is killed.",
)
@click.option("--drain", type=DurationType(), metavar="DURATION", help="How long to wait for requests in flight.")
@click.option(
    "--deadline",
    type=DurationType(),
    metavar="DURATION",
    help="Time limit of the request; default 10m, or the time that the manifest needs.",
)
@click.option("--wait", is_flag=True, help="Wait for the end of the request.")
@click.option("--reason", default="", help="The reason, shown in status and events.")
@target_options
@common_options
def restart(  # one parameter per argument and option of the command line
    key: str,
    path: "Given | None",
    container: str,
    ordered: bool,
    failure_policy: str,
    min_started: int | None,
    grace: int | None,
    drain: int | None,
    deadline: int | None,
    wait: bool,
    reason: str,
    **raw: Any,
) -> Exit:
    """Restart KEY, a workload or one replica of it (workload/web, workload/web/0), without an outage."""
    options = Options.of(raw)
    key = key.lower()
    if key.partition("/")[0] != "workload":
        raise usage_error(
            f"'{key}' cannot be restarted", "give a workload or a replica, such as workload/web or workload/web/0"
        )
    if deadline is not None and deadline < SECOND:
        raise usage_error("--deadline is shorter than a second", "give a time such as 10m, or leave out --deadline")
    place = find(path, options, raw["instance_id"])
    known = known_objects(place)
    if known.all and key not in known.all:
        raise unknown_object(key, known)
    _check_container(key, container, known)
    payload = {
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
    taken = send("restart", [payload], place)
    view = options.view
    effect = "in progress" if taken else LATER
    about = f"container {container} of {key}" if container else key
    request = {"command": "restart", "request": payload["id"], "object": key, "container": container or None}
    request |= {"who": current_user(), "taken": taken}
    if not (wait and taken):
        code = Exit.UNFINISHED if wait else Exit.OK
        if view.json:
            view.document({"exit_code": int(code), **request, "result": effect})
        else:
            view.out(f"restart request {payload['id']} for {about}; {effect}")
            if wait:
                view.err(f"--wait ends at once: no reconcile process is running (exit {int(code)})")
        return code
    if not view.json:
        view.out(f"restart request {payload['id']} for {about}; {effect}")
    limit = DEADLINE if deadline is None else deadline
    return _follow(str(payload["id"]), limit, place, options, request)


def _check_container(key: str, container: str, known: Known) -> None:
    """Refuse a container that the workload does not have. Raises UsageError."""
    workload = next((name for name in known.containers if key == name or key.startswith(f"{name}/")), "")
    names = known.containers.get(workload, ())
    if container and names and container not in names:
        raise usage_error(f"{workload} has no container '{container}'", f"its containers: {', '.join(names)}")


def _follow(name: str, limit: int, place: Place, options: Options, document: dict[str, Any]) -> Exit:
    """Print the result of each replica as it is decided, then the result of the request.

    Args:
        limit: the deadline of the request (ns), until it is read from the request itself.
        document: the fields of the request as JSON.
    """
    clock, view = SystemClock(), options.view
    begun = clock.now().steady
    printed: set[tuple[str, str]] = set()
    request: Request | None = None
    unfinished = ""
    with joined(place) as store:
        while True:
            request = _read(store, name) or request
            for member in (request.members or ()) if request is not None else ():
                if (member.object, member.fate) not in printed and not view.json:
                    printed.add((member.object, member.fate))
                    message = f" ({member.message})" if member.message else ""
                    view.out(f"{member.object}: {view.paint.state(member.fate.value)}{message}")
            if request is not None and request.finished is not None:
                break
            limit = request.limit if request is not None else limit
            if clock.now().steady >= begun + limit + SLACK:
                unfinished = "the request did not end within its deadline"
                break
            if holder(place.state_dir, clock) is None:
                unfinished = f"the reconcile process ended before the request did; {LATER}"
                break
            clock.pause(ASK_EVERY)
        held = _held(store, request)
    code = Exit.OK if request is not None and request.succeeded else Exit.MANUAL if held else Exit.UNFINISHED
    sentence = "all replicas are restarted and available" if code is Exit.OK else code.sentence
    result = unfinished or (request.message if request is not None and request.message else sentence)
    if view.json:
        members = [member._asdict() for member in (request.members or ())] if request is not None else []
        view.document({"exit_code": int(code), **document, "members": members, "held": held, "result": result})
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
    """Holds of its replicas that only the operator ends, from the last decision."""
    last = store.last_decision()
    if last is None or request is None:
        return []
    replicas = {member.object for member in request.members or ()}
    return [
        f"{hold['object']}: {hold['rule']}: {hold['message']}; next step: {hold['next_step']}"
        for hold in json.loads(last.text)["holds"]
        if hold["object"] in replicas and hold["rule"] in _MANUAL
    ]
