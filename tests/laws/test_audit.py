"""The audit in systemd's journal: the real loop logs each order of an operator, and each step with its outcome, with who is behind it."""

import io
import logging
import queue
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from manifests.values.desired import SECOND
from providers.facts import ProbeValue
from reconciler.core.model.instant import instant
from reconciler.core.model.restart_request import Request
from reconciler.shell.journal import Journal
from reconciler.shell.logs import configure
from tests.laws.helpers import WEB, ready
from tests.laws.test_logs import LoggedTape
from tests.shell.test_journal import FakeJournal
from tests.sim.manifest import shop
from tests.sim.world import World

ROOT = Path(__file__).parents[2]

ORDERS = {
    "suspend": ("workload/web", "workload/web", "suspend"),
    "resume": ("*", "", "resume everything"),
    "approve": ("0123456789abcdef", "", "approve 0123456789abcdef"),
    "rollback": ("workload/web", "workload/web", "rollback"),
    "drain": ("workload/web/0", "workload/web/0", "drain"),
    "force": ("workload/web/1", "workload/web/1", "force"),
    "release": ("workload/web/1", "workload/web/1", "release"),
    "of-a-newer-version": ("workload/web", "workload/web", "of-a-newer-version"),
}
"""For each order what it is given for, and the object and action of its line. `restart` is tested apart, because it has a request."""


class Watched:
    """A world whose log goes to a journal. A thread reads it, because a socket holds few datagrams."""

    def __init__(self, world: World, journal: FakeJournal) -> None:
        self.world, self.journal = world, journal
        self.records: queue.Queue[dict[str, str]] = queue.Queue()
        self.marks = Journal(journal.path)
        self.thread = threading.Thread(target=self._read)
        self.thread.start()

    def _read(self) -> None:
        while True:
            entry = self.journal.entry()
            self.records.put(entry)
            if entry.get("MARK") == "end":
                return

    def entries(self, seconds: int = 30) -> list[dict[str, str]]:
        """Run the world for a while; what the journal gets meanwhile."""
        self.world.run(seconds * SECOND)
        self.marks.send({"MARK": "here"})
        return list(iter(lambda: self.records.get(timeout=30), {"MARK": "here"}))

    def close(self) -> None:
        self.marks.send({"MARK": "end"})
        self.thread.join(30)
        self.marks.close()
        self.journal.socket.close()


@pytest.fixture
def watched(worlds, tmp_path: Path) -> Iterator[Watched]:
    root = logging.getLogger()
    handlers = list(root.handlers)
    levels = {name: logging.getLogger(name).level for name in ("", "reconciler", "manifests", "providers")}
    journal = FakeJournal(tmp_path / "socket")
    stream = io.StringIO()
    configure(stream=stream, journal=journal.path)
    world = worlds(shop())
    world.tape = LoggedTape(world)
    made = Watched(world, journal)
    ready(world)
    made.entries(0)
    yield made
    for handler in set(root.handlers) - set(handlers):
        handler.close()
    root.handlers[:] = handlers
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)
    made.close()
    assert stream.getvalue() == ""  # the journal took everything


def commands(entries: list[dict[str, str]]) -> list[dict[str, str]]:
    return [entry for entry in entries if entry.get("RECONCILER_KIND") == "command"]


@pytest.mark.parametrize("verb", ORDERS)
def test_each_order_is_one_line_with_who_gave_it(watched, verb):
    given, obj, action = ORDERS[verb]
    watched.world.memory.say(verb, given, value="down" if verb == "force" else "")
    (entry,) = commands(watched.entries())
    assert entry.get("RECONCILER_OBJECT", "") == obj
    assert entry["RECONCILER_ACTION"] == (f"{action} down" if verb == "force" else action)
    assert entry["RECONCILER_ACTOR"] == "an operator"
    assert entry["RECONCILER_OUTCOME"] == "by an operator"
    assert entry["RECONCILER_DETAIL"] == "a test"
    assert entry["SYSLOG_IDENTIFIER"] == "reconcile"
    assert entry["MESSAGE"].startswith(f"command {obj or '-'}: {action}")
    assert commands(watched.entries()) == []  # once


def test_a_restart_and_its_steps_are_lines_with_who_and_what_came_of_it(watched):
    asked = Request(
        "workload/web/0", instant(watched.world.clock.now()), "ada", "new certificates", deadline=300 * SECOND
    )
    watched.world.memory.request("r1", asked)
    entries = watched.entries(120)
    (order,) = commands(entries)
    assert (order["RECONCILER_ACTOR"], order["RECONCILER_OBJECT"]) == ("ada", "workload/web/0")
    assert order["RECONCILER_ACTION"] == "restart r1"
    steps = [entry for entry in entries if entry.get("RECONCILER_KIND") == "step"]
    assert [step for step in steps if step["RECONCILER_ACTION"].startswith("stop ")]
    assert {step["RECONCILER_OUTCOME"] for step in steps} == {"done"}
    assert {step["RECONCILER_ACTOR"] for step in steps} == {"reconcile"}
    decided = [entry for entry in entries if entry.get("RECONCILER_KIND") == "request"]
    assert [entry["RECONCILER_OUTCOME"] for entry in decided][-1] == "succeeded"


def test_an_order_with_an_end_and_flags_says_so(watched):
    until = watched.world.clock.now().wall + 600 * SECOND
    watched.world.memory.say("drain", "workload/web/0", until_wall=until, forced=True)
    (entry,) = commands(watched.entries())
    assert re.fullmatch(r"drain --force until \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", entry["RECONCILER_ACTION"])


def test_steps_without_an_order_name_the_operation(watched):
    watched.world.apps.lies[WEB.format(0), "readiness"] = ProbeValue.FAIL
    entries = watched.entries(60)
    assert commands(entries) == []
    steps = [entry for entry in entries if entry.get("RECONCILER_KIND") == "step"]
    assert steps
    assert all(step["RECONCILER_ACTOR"] == "reconcile" and step["RECONCILER_OUTCOME"] for step in steps)


def test_each_verb_that_the_command_line_sends_is_tested():
    texts = "".join(file.read_text() for file in (ROOT / "reconciler" / "cli").glob("*.py"))
    sent = set(re.findall(r'\bsend(?:_and_report)?\(\s*"(\w+)"', texts)) | {
        "drain",
        "force",
    }  # `override` sends its own name
    assert sent <= {*ORDERS, "restart"}
    assert len(sent) == 8
