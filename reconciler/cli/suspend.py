"""`reconcile suspend` and `resume`: a person's word, left in the inbox of the store and folded by whoever holds the lock.

Both work beside a running daemon, and without one: then the next run reads the word before it decides anything.
"""

import json
import os
import pwd
from pathlib import Path
from typing import Any

import click

from manifests.desired import SECOND
from reconciler.cli.objects import Known, known_objects, no_such
from reconciler.cli.options import DurationType, Options, common_options, mistake, target_options
from reconciler.cli.where import Place, find, joined, path_optional
from reconciler.exits import Exit
from reconciler.shell.clock import SystemClock, utc
from reconciler.shell.lock import OWNER_FILE, Lock
from reconciler.shell.store import Store

EVERYTHING = "*"
"""The object of a suspension of everything."""

ANSWER = 2 * SECOND
"""How long to wait for a running daemon to read the word (ns)."""

ASK_EVERY = SECOND // 10
"""How often to look whether it has (ns)."""


@click.command(
    epilog="""\b
Probing, status and weights go on; nothing is created, stopped, restarted or removed.
A suspended Service or DNSPolicy keeps its weights or records as they are.

\b
Examples:
  reconcile suspend workload/web manifests/ --reason "looking into a leak" --for 30m
  reconcile suspend workload/web/0 --reason "debugging" --instance-id my-host
  reconcile suspend --all manifests/ --reason "maintenance of the host"
""",
)
@click.argument("key", required=False)
@path_optional
@click.option("--all", "everything", is_flag=True, help="Everything of this instance.")
@click.option("--reason", required=True, help="Why, for whoever sees it in status and plan.")
@click.option("--for", "duration", type=DurationType(), metavar="DURATION", help="Ends by itself after this time.")
@target_options
@common_options
def suspend(
    key: str | None, path: Path | None, everything: bool, reason: str, duration: int | None, **raw: Any
) -> Exit:
    """Stop all actions on KEY (workload/web, workload/web/0, service/web, dnspolicy/app) until it is resumed."""
    key, path = _key(key, path, everything)
    if not reason.strip():
        raise mistake("--reason is empty", "say why, for whoever finds it suspended")
    if duration is not None and duration < SECOND:
        raise mistake("--for is shorter than a second", "give a time such as 30m, or leave --for out")
    options = Options.of(raw)
    place = find(path, options, raw["instance_id"])
    _check(key, known_objects(place))
    now = SystemClock().now()
    until = now.wall + duration if duration else 0
    word = {"object": key, "reason": reason.strip(), "until_wall": until}
    end = f" until {utc(until):%Y-%m-%d %H:%M:%S} UTC" if until else " until it is resumed"
    return _leave("suspend", [word], place, options, f"to be suspended{end}: {_name(key)}")


@click.command(
    epilog="""\b
Examples:
  reconcile resume workload/web manifests/
  reconcile resume --all manifests/
""",
)
@click.argument("key", required=False)
@path_optional
@click.option("--all", "everything", is_flag=True, help="Every suspension, of everything and of single objects.")
@target_options
@common_options
def resume(key: str | None, path: Path | None, everything: bool, **raw: Any) -> Exit:
    """Take back the suspension of KEY. One that manifests ask for (spec.suspend) is taken back there."""
    key, path = _key(key, path, everything)
    options = Options.of(raw)
    place = find(path, options, raw["instance_id"])
    known = known_objects(place)
    if key == EVERYTHING:
        if not known.suspended:
            raise mistake("nothing is suspended", "spec.suspend of a Workload or Guard is taken back in the manifests")
        words = [{"object": one} for one in sorted(known.suspended)]
        names = ", ".join(_name(one) for one in sorted(known.suspended))
        return _leave("resume", words, place, options, f"to be resumed: {names}")
    if key not in known.suspended:
        _check(key, known)
        more = "everything is: reconcile resume --all" if EVERYTHING in known.suspended else ""
        raise mistake(
            f"{key} is not suspended", more or f"suspended: {', '.join(sorted(known.suspended)) or 'nothing'}"
        )
    return _leave("resume", [{"object": key}], place, options, f"to be resumed: {key}")


def _key(key: str | None, path: Path | None, everything: bool) -> tuple[str, Path | None]:
    """KEY and PATH as meant: with `--all` the only word is PATH."""
    if everything:
        if key is not None and path is not None:
            raise mistake(f"--all and '{key}' exclude each other", "give one of them")
        return EVERYTHING, Path(key) if key is not None else None
    if key is None:
        raise mistake("KEY is missing", "give an object such as workload/web, or --all")
    return key.lower() if "/" in key else key, path


def _name(key: str) -> str:
    return "everything" if key == EVERYTHING else key


def _check(key: str, known: Known) -> None:
    """Refuse a KEY that names nothing; without any knowledge of objects every KEY is taken."""
    if key != EVERYTHING and known.all and key not in known.all:
        raise no_such(key, known)


def person() -> str:
    """Who says it: the person behind `sudo`, else the login name of this user."""
    behind = os.environ.get("SUDO_USER", "")
    if behind:
        return behind
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a user without a name, as in many containers
        return str(os.getuid())


def _leave(verb: str, words: list[dict[str, Any]], place: Place, options: Options, text: str) -> Exit:
    """Put the words into the inbox and say when they take effect."""
    clock = SystemClock()
    if not place.used:
        if place.desired is None:
            raise mistake(place.unused, "give PATH, then the word is kept for the first run")
        # Nothing has run yet: make the store as a run would, so that the first run finds the word.
        with Lock.acquire(place.state_dir, f"reconcile {verb}", clock), Store.open(place.state_dir, clock):
            pass
    with joined(place) as store:
        numbers = {store.append(verb, json.dumps(word), person(), clock.now()) for word in words}
        folded = _folded(store, numbers, place, clock)
    effect = "in effect now" if folded else "takes effect with the next run, or at the next look of a running daemon"
    if options.view.json:
        options.view.document(
            {"exit_code": 0, "command": verb, "words": words, "who": person(), "in_effect": folded, "result": effect}
        )
    else:
        options.view.out(f"{text}; {effect}")
    return Exit.OK


def _folded(store: Store, numbers: set[int], place: Place, clock: SystemClock) -> bool:
    """Whether a process that holds the lock has taken the words in, given a moment. The record of a dead holder costs the wait."""
    end = clock.now().steady + ANSWER
    while True:
        if not numbers & {one.id for one in store.pending()}:
            return True
        if clock.now().steady >= end or not (place.state_dir / OWNER_FILE).exists():
            return False
        clock.pause(ASK_EVERY)
