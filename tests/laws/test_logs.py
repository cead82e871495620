"""The log of the real loop: one line for each change, with its fields, and none while nothing changes."""

import io
import json
import logging
from collections.abc import Iterator
from dataclasses import replace

import pytest

from manifests.values.desired import SECOND
from providers.facts import ProbeValue
from reconciler.cli.render.progress import Logged
from reconciler.core.decision import Decision
from reconciler.core.model.instant import Now
from reconciler.core.model.ledger_fold import Outcome
from reconciler.core.model.step import Step
from reconciler.shell.logs import LogFormat, configure
from reconciler.shell.secrets import Secrets
from tests.laws.helpers import WEB, ready
from tests.sim.manifest import shop
from tests.sim.world import Tape, World

SENTINEL = "s3ntinel"


class LoggedTape(Tape):
    """The reporter of a daemon, beside the one of simulations."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.logged = Logged(world.clock)

    def started(self, step: Step) -> None:
        super().started(step)
        self.logged.started(step)

    def finished(self, step: Step, outcome: Outcome) -> None:
        super().finished(step, outcome)
        self.logged.finished(step, outcome)

    def decided(self, decision: Decision, now: Now) -> None:
        super().decided(decision, now)
        self.logged.decided(decision, now)

    def event(self, *fields: str) -> None:  # type: ignore[override]
        super().event(*fields)
        self.logged.event(*fields)

    def note(self, text: str, *, level: int = logging.INFO) -> None:
        super().note(text, level=level)
        self.logged.note(text, level=level)


class Log:
    """The JSON log of a world."""

    def __init__(self, world: World) -> None:
        self.world, self.stream = world, io.StringIO()
        secrets = Secrets()
        secrets.add(SENTINEL)
        configure(form=LogFormat.JSON, stream=self.stream, secrets=secrets)
        world.tape = LoggedTape(world)

    def new(self, **fields: object) -> list[dict]:
        """The records since the last call that have these values."""
        records = [json.loads(line) for line in self.stream.getvalue().splitlines()]
        self.stream.seek(0)
        self.stream.truncate()
        return [record for record in records if fields.items() <= record.items()]


@pytest.fixture
def log(worlds) -> Iterator[Log]:
    root = logging.getLogger()
    handlers = list(root.handlers)
    levels = {name: logging.getLogger(name).level for name in ("", "reconciler", "manifests", "providers")}
    yield Log(worlds(shop()))
    root.handlers[:] = handlers
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)


def test_an_hour_without_a_change_logs_nothing(log):
    ready(log.world)
    assert log.new()
    log.world.run(3600 * SECOND)
    assert log.new() == []
    log.world.apps.lies["*", "readiness"] = ProbeValue.FAIL
    log.world.run(120 * SECOND)
    assert log.new()
    log.world.run(3600 * SECOND)
    assert log.new() == []


def test_each_change_of_a_failing_replica_has_one_record_with_its_fields(log):
    name = WEB.format(0)
    ready(log.world)
    log.new()
    log.world.apps.mute.add(name)
    log.world.run(30 * SECOND)
    records = log.new()
    assert [(record["kind"], record["object"]) for record in records] == [
        ("verdict", "workload/web/0"),
        ("step", "service/web"),
        ("step", "dnspolicy/web"),
    ] or sorted(record["kind"] for record in records) == ["step", "step", "verdict"]
    (verdict,) = (record for record in records if record["kind"] == "verdict")
    assert verdict["action"] == f"readiness of {name}"
    assert verdict["cause"] == "pass -> fail"
    weight = next(record for record in records if record["kind"] == "step" and "weight" in record["action"])
    assert (weight["outcome"], weight["cause"]) == ("done", "NotReady")
    assert weight["duration_seconds"] >= 0
    assert {record["revision"] for record in records} == {log.world.shop.desired().revision}


def test_the_records_of_one_tick_have_its_id(log):
    ready(log.world)
    records = log.new(kind="step")
    ids = [record["reconcile_id"] for record in records]
    assert len({reconcile_id.partition("-")[0] for reconcile_id in ids}) == 1
    numbers = [int(reconcile_id.partition("-")[2]) for reconcile_id in ids]
    assert 1 < len(set(numbers)) < len(numbers)
    first = min(numbers)
    created = [record["action"] for record, number in zip(records, numbers, strict=True) if number == first]
    assert sorted(created) == [f"create {WEB.format(n)} on node-a" for n in range(3)]
    process = ids[0].partition("-")[0]
    log.world.restart()
    log.world.apps.mute.add(WEB.format(0))
    log.world.run(60 * SECOND)
    assert process not in {record["reconcile_id"].partition("-")[0] for record in log.new(kind="step")}


def test_holds_have_their_rule_and_are_logged_when_they_begin_and_end(log):
    ready(log.world)
    log.new()
    log.world.apps.lies["*", "readiness"] = ProbeValue.FAIL
    log.world.run(120 * SECOND)
    begun = [record for record in log.new() if record.get("kind") == "held" and record["rule"] == "LastRecord"]
    assert [record["object"] for record in begun] == ["dnspolicy/web"]
    assert "cause" not in begun[0]
    log.world.apps.lies.clear()
    log.world.run(120 * SECOND)
    ended = [record for record in log.new() if record.get("kind") == "released" and record["rule"] == "LastRecord"]
    assert [record["object"] for record in ended] == ["dnspolicy/web"]


def test_start_end_and_new_settings_of_a_probe_are_logged(log):
    ready(log.world)
    started = [record for record in log.new(kind="probe") if record["outcome"] == "started"]
    assert sorted((record["object"], record["action"]) for record in started) == sorted(
        (f"workload/web/{n}", f"{probe} of {WEB.format(n)}") for n in range(3) for probe in ("liveness", "readiness")
    )
    assert started[0]["detail"].startswith("GET http://127.77.0.")
    assert started[0]["detail"].endswith(" every 5s, timeout 1s, fails after 2, passes after 1")
    log.world.push(replace(log.world.shop, specs=(replace(log.world.shop.specs[0], replicas=2),)))
    log.world.run(120 * SECOND)
    ended = [record for record in log.new(kind="probe") if record["outcome"] == "ended"]
    assert {record["object"] for record in ended} == {"workload/web/2"}


def test_no_secret_is_in_a_record(log):
    ready(log.world)
    log.world.memory.say("suspend", "workload/web", value=SENTINEL)
    log.world.tape.logged.event("verdict", SENTINEL, SENTINEL, SENTINEL, SENTINEL, SENTINEL)
    log.world.tape.logged.note(f"a {SENTINEL}", level=logging.WARNING)
    log.world.run(30 * SECOND)
    text = log.stream.getvalue()
    assert "***" in text
    assert SENTINEL not in text
