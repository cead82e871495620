"""Overrides are events when they begin and when they end, once each."""

from dataclasses import replace

from reconciler.core.decision import Decision
from reconciler.core.model.instant import Instant, Now
from reconciler.core.model.ledger import Ledger
from reconciler.core.model.override import Force, Override
from reconciler.core.status.objects import Status
from reconciler.shell.report.events import LastReport, changes

NOW = Now(1_000, 500, "boot")
DRAIN = Override(Force.DRAIN, Instant(*NOW), "ada", "bad disk")


def decision(**overrides: Override) -> Decision:
    ledger = Ledger(overrides={f"workload/{name}/0": override for name, override in overrides.items()})
    return Decision((), (), (), Status(), ledger, 2_000)


def test_an_override_and_its_end_are_events_with_operator_and_reason():
    last, events, _ = changes(LastReport(), decision(web=DRAIN), NOW)
    assert [(event.kind, event.object, event.step, event.outcome, event.message) for event in events] == [
        ("ordered", "workload/web/0", "drain", "by ada", "bad disk")
    ]
    last, events, _ = changes(last, decision(web=DRAIN), NOW)
    assert events == []
    forced = DRAIN._replace(force=Force.UP)
    last, events, _ = changes(last, decision(web=forced), NOW)
    assert [event.step for event in events] == ["force up"]
    _, events, _ = changes(last, decision(), NOW)
    assert [(event.kind, event.step) for event in events] == [("ended", "release force up")]


def test_an_override_from_an_earlier_process_is_not_reported_again():
    before = decision(web=DRAIN)
    _, events, _ = changes(replace(LastReport(), overrides=before.ledger.overrides), before, NOW)
    assert events == []
