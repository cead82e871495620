"""A person's word to the process that holds an instance: left in the inbox of its store, with the bell rung, and followed.

Works beside a running daemon, and without one: then the next run reads the word before it decides anything. Called by `suspend`,
`resume`, `restart` and `status`.
"""

import json
import os
import pwd
from collections.abc import Sequence
from typing import Any

from manifests.values.desired import SECOND
from reconciler.cli.options import mistake
from reconciler.cli.where import Place, joined
from reconciler.shell.clock import SystemClock
from reconciler.shell.looks.wake_pipe import SHOW, wake_holder
from reconciler.shell.store.directory import StoreError
from reconciler.shell.store.lock import OWNER_FILE, Lock
from reconciler.shell.store.state_db import Store

ANSWER = 2 * SECOND
"""How long to wait for a running process to read the word (ns)."""

ASK_EVERY = SECOND // 20
"""How often to look whether it has (ns)."""

LATER = "nothing runs on this instance now: the next 'reconcile --once PATH' does it, or 'reconcile --watch PATH' when it starts"
"""What to say when nobody took the word."""


def current_user() -> str:
    """Who says it: the person behind `sudo`, else the login name of this user."""
    behind = os.environ.get("SUDO_USER", "")
    if behind:
        return behind
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a user without a name, as in many containers
        return str(os.getuid())


def leave(verb: str, words: Sequence[dict[str, Any]], place: Place) -> bool:
    """Put the words into the inbox, ring, and wait a moment. Returns whether a running process has taken them in.

    Raises:
        click.UsageError: nothing has run yet, and without PATH the instance is not known.
        Locked, StoreError
    """
    clock = SystemClock()
    if not place.used:
        if place.desired is None:
            raise mistake(place.unused, "give PATH, then the word is kept for the first run")
        # Nothing has run yet: make the store as a run would, so that the first run finds the word.
        with Lock.acquire(place.state_dir, f"reconcile {verb}", clock), Store.open(place.state_dir, clock):
            pass
    with joined(place) as store:
        numbers = {store.append(verb, json.dumps(word), current_user(), clock.now()) for word in words}
        wake_holder(place.state_dir)
        return _folded(store, numbers, place, clock)


def _folded(store: Store, numbers: set[int], place: Place, clock: SystemClock) -> bool:
    """Whether a process that holds the lock has taken the words in, given a moment. The record of a dead holder costs the wait."""
    end = clock.now().steady + ANSWER
    while True:
        if not numbers & {one.id for one in store.pending()}:
            return True
        if clock.now().steady >= end or not (place.state_dir / OWNER_FILE).exists():
            return False
        clock.pause(ASK_EVERY)


def refreshed(place: Place) -> bool:
    """Ask a running process to store how things are now. Returns False when none runs or it did not answer in time."""
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
                if last is not None and last.wall >= asked.wall and number not in {one.id for one in store.pending()}:
                    return True
                clock.pause(ASK_EVERY)
    except StoreError:  # read without rights to write: what is stored is shown, with its age
        return False
    return False
