"""Existing records and other writers on real name servers, with the real program and the commands that it prints."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from providers.actions import ChangeRecords, RecordChange
from providers.errors import Conflict
from providers.facts import RecordKey, RecordSet
from providers.spi import Context
from tests.e2e.dns_world import PATIENCE, ROOT, NameServer, document

KINDS = [
    pytest.param("named", marks=pytest.mark.server("named")),
    pytest.param("knot", marks=pytest.mark.server("knotd")),
    pytest.param("powerdns", marks=pytest.mark.server("pdns_server")),
]

OURS, THEIRS = RecordSet(300, ("192.0.2.1",)), RecordSet(300, ("203.0.113.66",))


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"it did not happen: {what}"
        time.sleep(0.1)


@pytest.fixture(scope="module", params=KINDS)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NameServer]:
    made = NameServer(request.param, tmp_path_factory.mktemp(request.param))
    yield made
    made.kill()


class Place:
    """A tree of manifests, its state, and another program that writes to the same zone."""

    def __init__(self, directory: Path, server: NameServer) -> None:
        self.directory, self.server, self.zone = directory, server, server.new_zone()
        self.tree = directory / "tree"
        self.tree.mkdir()
        made = server._power.provider() if server.kind == "powerdns" else None
        self.outside = made or server._names.provider(Context("outside", str(directory)))

    def key(self, label: str) -> RecordKey:
        return RecordKey(f"{label}.{self.zone}", "A")

    def write(self, *documents: dict[str, object], **instance: object) -> None:
        first = document("Instance", "here", id="dns-rules", **instance)
        text = "\n---\n".join(json.dumps(part) for part in (first, self.server.document, *documents))
        (self.tree / "all.yaml").write_text(text)

    def record(self, label: str, value: str, **spec: object) -> dict[str, object]:
        host = self.key(label).name
        return document("Record", label, host=host, zone=self.zone, type="A", values=[value], **spec)

    def change(self, label: str, before: RecordSet | None, after: RecordSet | None) -> None:
        """Change a set as another program does, without an owner mark."""
        change = RecordChange(self.key(label), before, after, "")
        self.outside.perform(ChangeRecords("names", self.zone, (change,)))

    def records(self) -> dict[RecordKey, RecordSet]:
        (fact,) = self.outside.observe([self.zone])
        return dict(fact.records)

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "reconciler", *words]

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "XDG_STATE_HOME": str(self.directory / "state"), "PYTHONPATH": str(ROOT), "NO_COLOR": "1"}

    def run(self, *words: str) -> tuple[int, str]:
        done = subprocess.run(
            self.command(*words),
            cwd=self.directory,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE,
            stdin=subprocess.DEVNULL,
        )
        return done.returncode, done.stdout + done.stderr


@pytest.fixture
def place(server: NameServer, tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path, server)
    yield made
    made.outside.close()


def test_a_full_zone_moves_in_and_only_what_differs_needs_approval(place: Place) -> None:
    for number in range(30):
        place.change(f"n{number}", None, OURS)
    place.change("www", None, THEIRS)
    place.change("left", None, THEIRS)
    names = {place.key(f"n{number}").name: {"A": OURS.values[0]} for number in range(30)}
    listed = document("RecordList", "zone", zone=place.zone, adopt=True, names=names)
    place.write(listed, place.record("www", OURS.values[0], adopt=True))

    code, text = place.run("--once", "tree", "--timeout", "20s")
    assert code == 7, text
    before = place.records()
    assert {before[place.key(f"n{number}")] for number in range(30)} == {OURS}
    assert sum(key.name.startswith("_reconciler-a.n") for key in before) == 30
    assert before[place.key("www")] == THEIRS

    line = next(line for line in text.splitlines() if line.startswith("to approve the held changes, run: "))
    code, text = place.run(*shlex.split(line.partition("run: ")[2])[1:])
    assert code == 0, text
    after = place.records()
    assert after[place.key("www")] == OURS
    assert after[place.key("left")] == THEIRS
    assert not any(key.name.startswith("_reconciler") and "left" in key.name for key in after)


def test_a_fight_is_named_and_ends(place: Place) -> None:
    place.write(place.record("www", OURS.values[0]), place.record("calm", OURS.values[0]), intervals={"dns": "1s"})
    with (place.directory / "log").open("wb") as log:
        daemon = subprocess.Popen(
            place.command("--watch", "tree"), cwd=place.directory, env=place.environment, stdout=log, stderr=log
        )
    try:
        until(lambda: place.records().get(place.key("www")) == OURS, "the record is published")
        rewritten = -1

        def left_alone() -> bool:
            nonlocal rewritten
            if place.records().get(place.key("www")) == OURS:
                try:
                    place.change("www", OURS, THEIRS)
                except Conflict:
                    return False
                rewritten += 1
            return "ConflictingWriter" in place.run("status", "tree")[1]

        until(left_alone, "the other writer is named")
        assert rewritten == 3
        assert place.records()[place.key("www")] == THEIRS
        place.change("calm", OURS, None)
        until(lambda: place.records().get(place.key("calm")) == OURS, "other sets are written")
        assert place.records()[place.key("www")] == THEIRS
    finally:
        daemon.send_signal(signal.SIGTERM)
        daemon.wait(30)
