"""`reconcile drain`, `force` and `release`: a person's order about an endpoint or a target of a name, above everything but facts.

An order is about a replica with all its endpoints (`workload/web/0`), about one member of one pool
(`endpoint/PROVIDER/POOL/ADDRESS:PORT`), or, to force only, about one target of a DNSPolicy (`dnspolicy/app/eu`). It is left in the inbox of the instance, and remembered until it expires or is released.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from manifests.values.desired import SECOND
from reconciler.cli.inbox import LATER, current_user, leave
from reconciler.cli.objects import Known, key_of, known_objects, no_such
from reconciler.cli.options import DurationType, Options, common_options, mistake, target_options
from reconciler.cli.where import find, path_optional
from reconciler.exits import Exit
from reconciler.shell.clock import SystemClock, utc

F = TypeVar("F", bound=Callable[..., Any])

EVERYTHING = "*"
"""The object of a release of all orders."""

_WHAT = "give a replica such as workload/web/0, or an endpoint as 'reconcile get endpoints' names it"
_TARGET = ", or a target of a name such as dnspolicy/app/eu"


@click.command(
    epilog="""\b
Its weight becomes 0 at once, in every pool for a replica; requests in flight go on, and
nothing is stopped. The order stays over restarts of the replica, and counts it as not
available. To stop restarts for health as well: reconcile suspend.

\b
Examples:
  reconcile drain workload/web/0 manifests/ --reason "looking into a leak" --for 30m
  reconcile drain endpoint/edge-1/be_web:web/172.20.0.4:8080 --instance-id my-host
""",
)
@click.argument("key")
@path_optional
@click.option("--for", "duration", type=DurationType(), metavar="DURATION", help="Ends by itself after this time.")
@click.option("--reason", default="", help="Why, for whoever finds it drained.")
@target_options
@common_options
def drain(key: str, path: Path | None, duration: int | None, reason: str, **raw: Any) -> Exit:
    """Take KEY, a replica or one of its endpoints, out of traffic until it is released."""
    return _order("drain", key, path, duration, reason, "", raw)


@click.command(
    epilog="""\b
up: full weight, whatever its pushes and probes say. down: weight 0, whatever they say.
Facts rank above an order: what does not run gets no weight. --for is required, because a
forced endpoint is one that nobody watches.

\b
A target of a name (dnspolicy/NAME/TARGET) is published or withdrawn, whatever its check,
its service and its manifest say. The last target of a name stays.

\b
Examples:
  reconcile force workload/web/0 up manifests/ --for 10m --reason "its probe is wrong"
  reconcile force endpoint/edge-1/be_web:web/172.20.0.4:8080 down --for 1h --reason "bad disk"
  reconcile force dnspolicy/app/eu down manifests/ --for 2h --reason "work on the line"
""",
)
@click.argument("key")
@click.argument("value", metavar="up|down", type=click.Choice(["up", "down"]))
@path_optional
@click.option(
    "--for", "duration", type=DurationType(), metavar="DURATION", required=True, help="Ends by itself after this time."
)
@click.option("--reason", required=True, help="Why, for whoever sees it in status and events.")
@target_options
@common_options
def force(key: str, value: str, path: Path | None, duration: int, reason: str, **raw: Any) -> Exit:
    """Give KEY, a replica, one of its endpoints or a target of a name, traffic or none, whatever pushes and probes say."""
    if not reason.strip():
        raise mistake("--reason is empty", "say why, for whoever finds it forced")
    return _order("force", key, path, duration, reason, value, raw)


@click.command(
    epilog="""\b
Examples:
  reconcile release workload/web/0 manifests/
  reconcile release --all --instance-id my-host
""",
)
@click.argument("key", required=False)
@path_optional
@click.option("--all", "everything", is_flag=True, help="All orders of this instance.")
@target_options
@common_options
def release(key: str | None, path: Path | None, everything: bool, **raw: Any) -> Exit:
    """Take back what 'drain' or 'force' ordered about KEY: pushes and probes decide again."""
    if everything and key is not None:
        if path is not None:
            raise mistake(f"--all and '{key}' exclude each other", "give one of them")
        path, key = Path(key), None
    if key is None and not everything:
        raise mistake("KEY is missing", "give what is drained or forced, or --all")
    options = Options.of(raw)
    place = find(path, options, raw["instance_id"])
    known = known_objects(place)
    ordered = ", ".join(sorted(known.ordered)) or "nothing"
    if key is None:
        if not known.ordered:
            raise mistake("nothing is drained or forced", "see: reconcile get endpoints")
        key, name = EVERYTHING, ordered
    else:
        key = name = key_of(key)
        if key not in known.ordered:
            if known.all and key not in known.all:
                raise no_such(key, known)
            raise mistake(f"{key} is neither drained nor forced", f"drained or forced: {ordered}")
    words = [{"object": key}]
    return _say("release", words, leave("release", words, place), options, f"released: {name}")


def _order(
    verb: str, key: str, path: Path | None, duration: int | None, reason: str, value: str, raw: dict[str, Any]
) -> Exit:
    key = key_of(key)
    if duration is not None and duration < SECOND:
        raise mistake("--for is shorter than a second", "give a time such as 30m")
    options = Options.of(raw)
    place = find(path, options, raw["instance_id"])
    _check(verb, key, known_objects(place))
    now = SystemClock().now()
    until = now.wall + duration if duration else 0
    word = {"object": key, "reason": reason.strip(), "until_wall": until, "value": value}
    end = f" until {utc(until):%Y-%m-%d %H:%M:%S} UTC" if until else " until it is released"
    text = f"{'drained' if verb == 'drain' else f'forced {value}'}{end}: {key}"
    return _say(verb, [word], leave(verb, [word], place), options, text)


def _check(verb: str, key: str, known: Known) -> None:
    """Refuse what cannot be ordered about; without any knowledge every KEY of a kind that can is taken."""
    kind, _, name = key.partition("/")
    if kind == "dnspolicy" and "/" in name:
        _check_target(verb, key, known)
        return
    whole = kind == "workload" and "/" not in name
    if kind not in {"workload", "endpoint"} or whole:
        more = f"; a whole workload leaves traffic when its {key} is scaled to 0 in its manifest" if whole else ""
        word, what = ("drained", _WHAT) if verb == "drain" else ("forced", _WHAT + _TARGET)
        raise mistake(f"'{key}' cannot be {word}", what + more)
    if known.all and key not in known.all:
        raise no_such(key, known)


def _check_target(verb: str, key: str, known: Known) -> None:
    if verb == "drain":
        raise mistake(f"'{key}' cannot be drained: a name has no requests under way", f"reconcile force {key} down")
    if known.all and key not in known.targets:
        raise mistake(f"there is no target '{key}'", f"targets: {', '.join(sorted(known.targets)) or 'none'}")


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
