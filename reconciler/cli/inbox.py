"""Sends an operator's command to the process that holds an instance: it goes into the inbox of the store, and a wake follows.

Without a running process the command stays in the inbox, and the next run reads it before its first decision. Called by
`suspend`, `resume`, `restart`, `rollback`, `drain`, `force` and `release`; `status`, `explain`, `get` and `plan` ask for a fresh decision.
"""

import json
import os
import pwd
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from manifests.values.desired import SECOND
from reconciler.cli.options import Options, usage_error
from reconciler.cli.where import Place, joined
from reconciler.exits import Exit
from reconciler.shell import daemon_view
from reconciler.shell.clock import SystemClock
from reconciler.shell.looks.wake_pipe import SHOW, wake_holder
from reconciler.shell.store.directory import StoreError
from reconciler.shell.store.lock import Lock, holder
from reconciler.shell.store.state_db import Store

ANSWER = 2 * SECOND
"""How long to wait for a running process to store its decision (ns)."""

CONFIRMED = 10 * SECOND
"""How long to wait until a running process has recorded a command (ns). It takes some ms, on a very busy host seconds."""

ASK_EVERY = SECOND // 20
"""How often to check whether it has (ns)."""

TRIES = 3
"""How often a plan asks: a decision that the process stores right after its answer has no view of health."""

LATER = "no reconcile process is running for this instance; the next 'reconcile --once PATH' or 'reconcile --watch PATH' applies it"
"""The message when no process took the command."""


def current_user() -> str:
    """The operator: who called `sudo`, else the login name of this user."""
    caller = os.environ.get("SUDO_USER", "")
    if caller:
        return caller.encode(errors="backslashreplace").decode()
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a user without a name, as in many containers
        return str(os.getuid())


def send(verb: str, payloads: Sequence[dict[str, Any]], place: Place) -> bool:
    """Put one command per payload into the inbox, wake the running process, and wait up to `CONFIRMED`.

    Returns whether a running process has recorded the commands; False when none runs.

    Raises:
        click.UsageError: the instance has never run, and without PATH it is unknown; or a text has bytes that are no text.
        StoreError: the commands cannot be put into the inbox, or the process that runs does not record them.
        Locked
    """
    clock = SystemClock()
    for payload in payloads:
        _check_text(payload)
    if not place.has_run:
        if place.desired is None:
            raise usage_error(place.never_run, "or give PATH: then the first run reads the command")
        # The instance has never run: make the store as a run would, so that the first run finds the command.
        with Lock.acquire(place.state_dir, f"reconcile {verb}", clock), Store.open(place.state_dir, clock):
            pass
    with joined(place) as store:
        numbers = {store.append(verb, json.dumps(payload), current_user(), clock.now()) for payload in payloads}
        woken = wake_holder(place.state_dir)
        if _taken(store, numbers, place, clock):
            return True
    owner = holder(place.state_dir, clock)
    if (
        owner is None or not woken
    ):  # a daemon that began on a full disk has no pipe, and takes the order in a later tick
        return False
    raise StoreError(
        place.state_dir,
        f"the running reconcile (pid {owner.pid}) has not recorded the order within {CONFIRMED // SECOND}s, so it is not in effect",
        "read the log of that process for the cause; the order stays in the inbox until it can be recorded",
    )


def _check_text(payload: dict[str, Any]) -> None:
    """Refuse bytes that are no text, before they are in the store: the running process could not write them to its own."""
    for name, value in payload.items():
        try:
            str(value).encode()
        except UnicodeEncodeError:
            word = "KEY" if name == "object" else f"--{name.replace('_', '-')}"
            raise usage_error(
                f"{word} is no valid text in the encoding of this terminal", "give it in UTF-8, or set LC_ALL=C.UTF-8"
            ) from None


def send_and_report(
    verb: str,
    payloads: Sequence[dict[str, Any]],
    place: Place,
    options: Options,
    key: str,
    effect: str,
    held: Callable[[], str] = str,
) -> Exit:
    """Send commands and print what they do to `key`, such as "suspended until it is resumed", and when. Errors as `send`.

    Args:
        held: says why a running process that took the commands holds them; empty when it does not.
    """
    in_effect = send(verb, payloads, place)
    why_held = held() if in_effect else ""
    result = f"held: {why_held}" if why_held else "in effect now" if in_effect else LATER
    code = Exit.MANUAL if why_held else Exit.OK
    if options.view.json:
        document = {"exit_code": int(code), "command": verb, "words": payloads, "who": current_user()}
        options.view.document({**document, "in_effect": in_effect and not why_held, "result": result})
    else:
        options.view.out(f"{key}: {'' if in_effect and not why_held else 'will be '}{effect}; {result}")
    return code


def _taken(store: Store, numbers: set[int], place: Place, clock: SystemClock) -> bool:
    """Whether the process that holds the lock takes the commands within `CONFIRMED`."""
    end = clock.now().steady + CONFIRMED
    while True:
        if not numbers & {row.id for row in store.pending()}:
            return True
        if clock.now().steady >= end or holder(place.state_dir, clock) is None:
            return not numbers & {row.id for row in store.pending()}
        clock.pause(ASK_EVERY)


def refreshed(place: Place) -> bool:
    """Ask a running process to store its present decision. Returns False when none runs or it did not answer in time."""
    if not wake_holder(place.state_dir):
        return False
    clock = SystemClock()
    asked = clock.now()
    try:
        with joined(place) as store:
            number = store.append(SHOW, json.dumps({"object": "*"}), current_user(), asked)
            wake_holder(place.state_dir)
            while clock.now().steady < asked.steady + ANSWER:
                last = store.last_decision()
                if last is not None and last.wall >= asked.wall and number not in {row.id for row in store.pending()}:
                    return True
                clock.pause(ASK_EVERY)
    except StoreError:  # this user may only read: the caller shows the stored decision with its age
        return False
    return False


def present_decision(state_dir: Path, note: Callable[[str], None]) -> str:
    """The present decision of the running process with its view of health, as stored; empty when no process answers.

    Args:
        note: takes a message when a process holds the instance and does not answer.
    """
    place = Place("this instance", state_dir)
    if not place.has_run:
        return ""
    for _ in range(TRIES):
        if not refreshed(place):
            break
        with joined(place) as store:
            last = store.last_decision()
        if last is not None and daemon_view.KEY in json.loads(last.text):
            return last.text
    if holder(state_dir, SystemClock()) is not None:
        seconds = ANSWER // SECOND
        note(
            f"a reconcile process holds this instance and has not answered in {seconds}s; the plan looks and probes by itself"
        )
    return ""
