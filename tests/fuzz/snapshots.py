"""Surface: files of `reconcile snapshot` for plans elsewhere. A file is refused, or gives a plan that can be shown."""

import asyncio
import contextlib
import io
import json
import re
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from manifests.values.desired import SECOND
from providers.facts import RecordKey, RecordSet, ZoneFact
from reconciler.cli.options import Options
from reconciler.cli.plan import code_of
from reconciler.cli.render.paint import Paint
from reconciler.cli.render.plan import plan_json, plan_lines, plan_markdown
from reconciler.cli.render.untrusted import untrusted_json, untrusted_lines, untrusted_markdown
from reconciler.cli.snapshot import opened
from reconciler.cli.view import View
from reconciler.core.model.ledger_codec import to_rows
from reconciler.exits import Exit
from reconciler.intent import Intent
from reconciler.shell.clock import SystemClock
from reconciler.shell.instance_clock import InstanceClock
from reconciler.snapshots import document
from reconciler.snapshots.signature import file_of
from reconciler.snapshots.snapshot import Snapshot, SnapshotRefused, masked, taken
from reconciler.tree import Location
from reconciler.wire import MadePlan, make_plan
from tests.cli.conftest import DESIRED, TREE, last_decision
from tests.cli.test_hostile_text import safe
from tests.fuzz.mutations import VALUES, as_json, changed, changes, edited, edits
from tests.fuzz.surface import Check, Surface

PLACES = ("ledger", "runtimes", "pools", "zones", "unknown", "view", "manifests", "clock")
"""The members of a snapshot that have members: each is changed as often as the others."""

EXTREMES = (float("inf"), float("nan"), 10**400, 2**63, -1, "\ud800", None)
"""Values that JSON can have, and that a careless reader of it lets through."""

inputs = st.tuples(
    st.sampled_from(("", *PLACES)),
    changes | st.just([]),
    st.none() | st.tuples(st.integers(0, 2**16), st.sampled_from(EXTREMES) | st.sampled_from(VALUES)),
    edits | st.just([]) | st.just([]),
    st.booleans(),
)
"""Changes of one member, a value in place of another one anywhere, changes of the text, and whether the author is trusted."""


def _leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all values that have no members."""
    if isinstance(value, dict | list) and value:
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _leaves(inner, (*path, key))
    else:
        yield path


def _replaced(value: Any, leaf: tuple[int, Any] | None) -> Any:
    """A copy with another value in one place."""
    value = json.loads(json.dumps(value))
    paths = list(_leaves(value))
    if leaf is None or not paths or not paths[0]:
        return value
    *way, last = paths[leaf[0] % len(paths)]
    place = value
    for key in way:
        place = place[key]
    place[last] = leaf[1]
    return value


def valid() -> str:
    """A snapshot with something in each member, as `reconcile snapshot` writes it."""
    clock = SystemClock()
    instance = InstanceClock(clock, None)
    decision, now = last_decision(instance), instance.now()
    made = taken(
        decision, DESIRED, now, instance.record(), to_rows(decision.ledger), "c" * 40, now.wall + 3600 * SECOND
    )
    key = RecordKey("app.example.test.", "A")
    zone = ZoneFact("example.test.", 7, {key: RecordSet(60, ("127.0.0.10",))}, {key: "small/dnspolicy/app"})
    facts = replace(made.facts, zones={("zone", "example.test."): zone}, unknown={"elsewhere": "no answer"})
    whole: Snapshot = replace(made, facts=facts).with_manifests((("all.yaml", TREE),), "file:///srv/manifests")
    return document.write(masked(whole, DESIRED))


def _shown(made: MadePlan, view: View, *, untrusted: bool) -> None:
    """Print the plan in each form, as the command does."""
    desired = made.decision.status.desired
    assert desired is not None
    if untrusted:
        view.out(*untrusted_lines(made, desired, Exit.OK, Paint(False)))
        json.dumps(untrusted_json(made, desired, Exit.OK))
        view.markdown(untrusted_markdown(made, desired, Exit.OK, "reconcile plan"))
        return
    code = code_of(made, detailed=False)
    view.out(*plan_lines(made, code, Paint(False)))
    json.dumps(plan_json(made, code))
    view.markdown(plan_markdown(made, code, "reconcile plan"))


@contextlib.contextmanager
def world() -> Iterator[Check]:
    with tempfile.TemporaryDirectory() as place:
        tree, file = Path(place, "tree"), Path(place, "host.snapshot")
        tree.mkdir()
        (tree / "all.yaml").write_text(TREE.replace('"60"', '"61"'))
        whole = json.loads(valid())
        options = Options.of({"color": "never"})

        def check(value: Any) -> str:
            member, steps, leaf, raw, untrusted = value
            body = {**whole, member: changed(whole[member], steps)} if member else changed(whole, steps)
            body = _replaced(body, leaf)
            file.write_bytes(file_of("", None).partition(b"\n")[0] + b"\n" + edited(as_json(body), raw) + b"\n")
            out = io.StringIO()
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
                try:
                    snapshot = opened(file, None, options)
                    planning = make_plan(
                        Location(tree),
                        intent=Intent(),
                        deadline=0,
                        note=lambda _: None,
                        untrusted=untrusted,
                        snapshot=snapshot,
                    )
                    made = asyncio.run(planning)
                except SnapshotRefused as error:
                    options.view.err(str(error))
                    safe(out.getvalue())
                    return "refused"
                _shown(made, options.view, untrusted=untrusted)
            safe(re.sub("(?m)^---$", "", out.getvalue()))
            return "accepted"

        yield check


SURFACES = (
    Surface("snapshots", "a host, or an author who can replace the file", "a SnapshotRefused, or a plan that can be shown, in printable characters only", inputs, world),
)  # fmt: skip
