"""`reconcile suspend` and `resume`: the operator stops all actions on one object, a node or everything, and lets them go on.

With `--commits` or `--healing` only one of both stops: new revisions of the manifests, or what reconcile does by itself.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from manifests.values.desired import SECOND
from reconciler.cli.inbox import refreshed, send_and_report
from reconciler.cli.objects import Known, known_objects, unknown_object
from reconciler.cli.options import DurationType, Options, common_options, target_options, usage_error
from reconciler.cli.where import Place, find, joined, path_optional
from reconciler.core.limits.commits import KEY as COMMITS
from reconciler.core.model.reasons import Rule
from reconciler.core.model.source_problem import OBJECT
from reconciler.core.model.suspension_scope import Scope, key_of, shown
from reconciler.exits import Exit
from reconciler.shell.clock import SystemClock, utc

if TYPE_CHECKING:
    from reconciler.tree import Given

EVERYTHING = "*"
"""The object of a suspension of everything."""

_HEALED = frozenset({"workload", "node", EVERYTHING})
"""The kinds of objects of which healing can be suspended."""


@click.command(
    epilog="""\b
Probes, status and weights go on; nothing is created, stopped, restarted or removed.
With --probes the probes stop too: then the health of KEY is unknown, and its weights and
DNS records stay as they are. A suspended Service keeps its weights, a suspended DNSPolicy
its records.

\b
--commits keeps the manifests in force: a new commit waits until it is resumed, over restarts
of the daemon too, and healing goes on. --healing holds what the manifests did not ask for:
restarts, starts, recreations and corrections of containers; new commits are taken, and
weights and DNS records follow health.

\b
Examples:
  reconcile suspend workload/web manifests/ --reason "looking into a leak" --for 30m
  reconcile suspend --commits manifests/ --reason "release freeze" --for 48h
  reconcile suspend workload/web --healing manifests/ --reason "debugging"
  reconcile suspend workload/web/0 --reason "debugging" --probes --instance-id my-host
  reconcile suspend --node host-a manifests/ --reason "kernel update" --for 1h
  reconcile suspend --all manifests/ --reason "maintenance of the host"
""",
)
@click.argument("key", required=False)
@path_optional
@click.option("--all", "everything", is_flag=True, help="Suspend everything of this instance.")
@click.option("--node", metavar="NAME", default="", help="Suspend everything on this node (a runtime Provider).")
@click.option("--reason", required=True, help="The reason, shown in status and plan.")
@click.option(
    "--for", "duration", type=DurationType(), metavar="DURATION", help="Resume automatically after this time."
)
@click.option("--probes", is_flag=True, help="Stop the probes too (workloads, replicas, --node and --all).")
@click.option("--commits", is_flag=True, help="Suspend new commits only: the manifests in force stay.")
@click.option("--healing", is_flag=True, help="Suspend healing only (workloads, replicas, --node and --all).")
@target_options
@common_options
def suspend(
    key: str | None,
    path: "Given | None",
    everything: bool,
    node: str,
    reason: str,
    duration: int | None,
    probes: bool,
    commits: bool,
    healing: bool,
    **raw: Any,
) -> Exit:
    """Suspend all actions on KEY (workload/web, workload/web/0, service/web, dnspolicy/app) until it is resumed."""
    key, path, scope = _scoped(key, path, everything, node, commits=commits, healing=healing)
    if not reason.strip():
        raise usage_error("--reason is empty", "give a reason for other operators")
    if duration is not None and duration < SECOND:
        raise usage_error("--for is shorter than a second", "give a time such as 30m, or leave out --for")
    if probes and key.partition("/")[0] in {"service", "dnspolicy", "record"}:
        raise usage_error(f"{key} has no probes", "leave out --probes, or give a workload, a replica, --node or --all")
    if probes and scope is not Scope.ALL:
        raise usage_error(f"--probes and --{scope.value} cannot be used together", "leave out one of them")
    if scope is Scope.HEALING and key.partition("/")[0] not in _HEALED:
        hint = f"give a workload, a replica, --node or --all, or suspend {key} without --healing"
        raise usage_error(f"{key} has no containers to heal", hint)
    options = Options.of(raw)
    place = find(path, options, raw["instance_id"])
    _check(key, known_objects(place))
    key = key_of(scope, key)
    now = SystemClock().now()
    until = now.wall + duration if duration else 0
    payload = {"object": key, "reason": reason.strip(), "until_wall": until, "probes": probes}
    end = f"until {utc(until):%Y-%m-%d %H:%M:%S} UTC" if until else "until it is resumed"
    effect = f"suspended{' with its probes' if probes else ''} {end}"
    return send_and_report("suspend", [payload], place, options, shown(key), effect)


@click.command(
    epilog="""\b
resume also retries a replica or workload that is Failed after too many restarts, and a
rolling rollout that has failed.

\b
Examples:
  reconcile resume workload/web manifests/
  reconcile resume --node host-a manifests/
  reconcile resume --all manifests/
""",
)
@click.argument("key", required=False)
@path_optional
@click.option("--all", "everything", is_flag=True, help="End every suspension: of --all, of nodes and of objects.")
@click.option("--node", metavar="NAME", default="", help="End the suspension of this node.")
@click.option("--commits", is_flag=True, help="Take new commits again.")
@click.option("--healing", is_flag=True, help="End a suspension of healing: of KEY, --node or --all.")
@target_options
@common_options
def resume(
    key: str | None, path: "Given | None", everything: bool, node: str, commits: bool, healing: bool, **raw: Any
) -> Exit:
    """Resume KEY after a suspension, retry it when it is Failed, or accept a changed probe that fails. A suspension in a manifest (spec.suspend) ends there."""
    key, path, scope = _scoped(key, path, everything, node, commits=commits, healing=healing)
    options = Options.of(raw)
    place = find(path, options, raw["instance_id"])
    known = known_objects(place)
    if scope is not Scope.ALL:
        return _resume_scope(key_of(scope, key), known, place, options)
    held = known.suspended | known.failed
    if key == EVERYTHING:
        if not held:
            raise usage_error(
                "nothing is suspended", "a suspension by spec.suspend of a Workload or Guard ends in its manifest"
            )
        payloads = [{"object": name} for name in sorted(held)]
        names = ", ".join(shown(name) for name in sorted(held))
        return send_and_report(
            "resume", payloads, place, options, names, "resumed", lambda: _still_suspended(place, EVERYTHING)
        )
    if key not in held and not any(name.startswith(f"{key}/") for name in known.failed):
        _check(key, known)
        if EVERYTHING in known.suspended:
            raise usage_error(f"{key} is suspended with everything else", "run: reconcile resume --all")
        raise _not_suspended(key, known)
    return send_and_report(
        "resume", [{"object": key}], place, options, shown(key), "resumed", lambda: _still_suspended(place, key)
    )


def _resume_scope(key: str, known: Known, place: Place, options: Options) -> Exit:
    """End one suspension of new commits or of healing."""
    if key not in known.suspended:
        raise _not_suspended(key, known)
    return send_and_report(
        "resume", [{"object": key}], place, options, shown(key), "resumed", lambda: _still_waits(place, key)
    )


def _not_suspended(key: str, known: Known) -> click.UsageError:
    names = ", ".join(shown(name) for name in sorted(known.suspended))
    return usage_error(f"{shown(key)} is not suspended", f"suspended: {names or 'nothing'}")


def _still_waits(place: Place, key: str) -> str:
    """What else holds new commits, from the present decision of the running process; empty for other scopes."""
    if key != COMMITS or not refreshed(place):
        return ""
    with joined(place) as store:
        last = store.last_decision()
    holds = json.loads(last.text)["holds"] if last is not None else []
    rules = {Rule.SUSPENDED.value, Rule.WINDOW.value}
    causes = [hold for hold in holds if hold["object"] == OBJECT and hold["rule"] in rules]
    return "; ".join(dict.fromkeys(f"{hold['message']}; next step: {hold['next_step']}" for hold in causes))


def _still_suspended(place: Place, key: str) -> str:
    """What else suspends what was resumed, from the present decision of the running process; empty when nothing does."""
    if not refreshed(place):
        return ""
    with joined(place) as store:
        last = store.last_decision()
    workloads = json.loads(last.text)["status"]["workloads"] if last is not None else ()
    causes = [
        f"{cause['message']}; next step: {cause['next_step']}"
        for workload in workloads
        if key in {EVERYTHING, workload["key"]} or key.startswith(f"{workload['key']}/")
        for cause in workload["suspended_by"]
    ]
    return "; ".join(dict.fromkeys(causes))


def _scoped(
    key: str | None, path: "Given | None", everything: bool, node: str, *, commits: bool, healing: bool
) -> "tuple[str, Given | None, Scope]":
    """KEY, PATH and what is suspended: new commits are those of the whole instance, so `--commits` has no KEY."""
    if commits and healing:
        raise usage_error("--commits and --healing cannot be used together", "run the command once for each of them")
    if not commits:
        return (*_key(key, path, everything, node), Scope.HEALING if healing else Scope.ALL)
    if node or (key is not None and path is not None):
        named = f"--node {node}" if node else f"'{key}'"
        hint = f"leave out {named}, or suspend it without --commits"
        raise usage_error(f"--commits and {named} cannot be used together: a commit is taken as a whole", hint)
    return EVERYTHING, Path(key) if key is not None else path, Scope.COMMITS


def _key(key: str | None, path: "Given | None", everything: bool, node: str) -> "tuple[str, Given | None]":
    """KEY and PATH: with `--all` or `--node` the only argument is PATH."""
    if everything and node:
        raise usage_error("--all and --node cannot be used together", "give one of them")
    if everything or node:
        if key is not None and path is not None:
            flag = "--all" if everything else "--node"
            raise usage_error(f"{flag} and '{key}' cannot be used together", "give one of them")
        return (EVERYTHING if everything else f"node/{node}"), Path(key) if key is not None else None
    if key is None:
        raise usage_error("KEY is missing", "give an object such as workload/web, --node NAME or --all")
    return key.lower() if "/" in key else key, path


def _check(key: str, known: Known) -> None:
    """Refuse a KEY that names no object. While no object is known, every KEY is accepted."""
    if key != EVERYTHING and known.all and key not in known.all:
        raise unknown_object(key, known)
