"""`reconcile suspend` and `resume`: a person's word that our actions stop, on one object, a node, or everything."""

from pathlib import Path
from typing import Any

import click

from manifests.values.desired import SECOND
from reconciler.cli.inbox import LATER, current_user, leave
from reconciler.cli.objects import Known, known_objects, no_such
from reconciler.cli.options import DurationType, Options, common_options, mistake, target_options
from reconciler.cli.where import find, path_optional
from reconciler.exits import Exit
from reconciler.shell.clock import SystemClock, utc

EVERYTHING = "*"
"""The object of a suspension of everything."""


@click.command(
    epilog="""\b
Probing, status and weights go on; nothing is created, stopped, restarted or removed.
With --probes probing stops too: then nothing is known of the health of what is suspended,
and weights and names stay as they are. A suspended Service or DNSPolicy keeps its weights
or records as they are.

\b
Examples:
  reconcile suspend workload/web manifests/ --reason "looking into a leak" --for 30m
  reconcile suspend workload/web/0 --reason "debugging" --probes --instance-id my-host
  reconcile suspend --node host-a manifests/ --reason "kernel update" --for 1h
  reconcile suspend --all manifests/ --reason "maintenance of the host"
""",
)
@click.argument("key", required=False)
@path_optional
@click.option("--all", "everything", is_flag=True, help="Everything of this instance.")
@click.option("--node", metavar="NAME", default="", help="Everything on one node (a runtime Provider).")
@click.option("--reason", required=True, help="Why, for whoever sees it in status and plan.")
@click.option("--for", "duration", type=DurationType(), metavar="DURATION", help="Ends by itself after this time.")
@click.option("--probes", is_flag=True, help="Stop the probes as well; for workloads, replicas, nodes and everything.")
@target_options
@common_options
def suspend(
    key: str | None,
    path: Path | None,
    everything: bool,
    node: str,
    reason: str,
    duration: int | None,
    probes: bool,
    **raw: Any,
) -> Exit:
    """Stop all actions on KEY (workload/web, workload/web/0, service/web, dnspolicy/app) until it is resumed."""
    key, path = _key(key, path, everything, node)
    if not reason.strip():
        raise mistake("--reason is empty", "say why, for whoever finds it suspended")
    if duration is not None and duration < SECOND:
        raise mistake("--for is shorter than a second", "give a time such as 30m, or leave --for out")
    if probes and key.partition("/")[0] in {"service", "dnspolicy", "record"}:
        raise mistake(f"{key} has no probes", "leave --probes out, or name a workload, a replica, --node or --all")
    options = Options.of(raw)
    place = find(path, options, raw["instance_id"])
    _check(key, known_objects(place))
    now = SystemClock().now()
    until = now.wall + duration if duration else 0
    word = {"object": key, "reason": reason.strip(), "until_wall": until, "probes": probes}
    end = f" until {utc(until):%Y-%m-%d %H:%M:%S} UTC" if until else " until it is resumed"
    too = ", its probes too" if probes else ""
    return _say("suspend", [word], leave("suspend", [word], place), options, f"suspended{end}{too}: {_name(key)}")


@click.command(
    epilog="""\b
A replica or workload whose restarts were given up (Failed) is tried again, and so is a
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
@click.option("--all", "everything", is_flag=True, help="Every suspension: of everything, of nodes, of single objects.")
@click.option("--node", metavar="NAME", default="", help="The suspension of one node.")
@target_options
@common_options
def resume(key: str | None, path: Path | None, everything: bool, node: str, **raw: Any) -> Exit:
    """Take back the suspension of KEY, or try a Failed one again. What manifests ask for (spec.suspend) is taken back there."""
    key, path = _key(key, path, everything, node)
    options = Options.of(raw)
    place = find(path, options, raw["instance_id"])
    known = known_objects(place)
    held = known.suspended | known.failed
    if key == EVERYTHING:
        if not held:
            raise mistake("nothing is suspended", "spec.suspend of a Workload or Guard is taken back in the manifests")
        words = [{"object": one} for one in sorted(held)]
        names = ", ".join(_name(one) for one in sorted(held))
        return _say("resume", words, leave("resume", words, place), options, f"resumed: {names}")
    if key not in held and not any(one.startswith(f"{key}/") for one in known.failed):
        _check(key, known)
        more = "everything is: reconcile resume --all" if EVERYTHING in known.suspended else ""
        raise mistake(
            f"{key} is not suspended", more or f"suspended: {', '.join(sorted(known.suspended)) or 'nothing'}"
        )
    word = {"object": key}
    return _say("resume", [word], leave("resume", [word], place), options, f"resumed: {_name(key)}")


def _key(key: str | None, path: Path | None, everything: bool, node: str) -> tuple[str, Path | None]:
    """KEY and PATH as meant: with `--all` or `--node` the only word is PATH."""
    if everything and node:
        raise mistake("--all and --node exclude each other", "give one of them")
    if everything or node:
        if key is not None and path is not None:
            raise mistake(f"{'--all' if everything else '--node'} and '{key}' exclude each other", "give one of them")
        return (EVERYTHING if everything else f"node/{node}"), Path(key) if key is not None else None
    if key is None:
        raise mistake("KEY is missing", "give an object such as workload/web, --node NAME or --all")
    return key.lower() if "/" in key else key, path


def _name(key: str) -> str:
    return "everything" if key == EVERYTHING else key


def _check(key: str, known: Known) -> None:
    """Refuse a KEY that names nothing; without any knowledge of objects every KEY is taken."""
    if key != EVERYTHING and known.all and key not in known.all:
        raise no_such(key, known)


def _say(verb: str, words: list[dict[str, Any]], in_effect: bool, options: Options, text: str) -> Exit:
    """Say what was said, and when it takes effect."""
    effect = "in effect now" if in_effect else LATER
    if options.view.json:
        options.view.document(
            {
                "exit_code": 0,
                "command": verb,
                "words": words,
                "who": current_user(),
                "in_effect": in_effect,
                "result": effect,
            }
        )
    else:
        options.view.out(f"to be {text}; {effect}")
    return Exit.OK
