"""A snapshot that leaves the host has no messages of servers, wherever the host keeps them."""

from dataclasses import replace

from manifests.values.desired import SECOND
from providers.facts import Unknown
from reconciler.core.model.instant import Instant
from reconciler.core.model.ledger import StepFailure
from reconciler.core.model.ledger_codec import read_rows, to_rows
from reconciler.shell.clock import SystemClock
from reconciler.shell.instance_clock import InstanceClock
from reconciler.snapshots import document
from reconciler.snapshots.snapshot import masked, taken
from tests.cli.conftest import DESIRED, last_decision

SAID = "registry.internal: denied for user deploy-7"


def test_messages_of_servers_stay_on_the_host_and_their_steps_do_not():
    clock = InstanceClock(SystemClock(), None)
    decision, now = last_decision(clock), clock.now()
    observed = decision.status.observed
    observed = replace(observed, runtimes={"local": Unknown(SAID, "local", now.steady)})
    decision = replace(decision, status=replace(decision.status, observed=observed))
    at = Instant(now.wall, now.steady, now.lineage)
    failed = StepFailure(3, at, True, SAID, first=at, wait=5 * SECOND, whole=True)
    rows = to_rows(replace(decision.ledger, step_failures={"create web": failed}))
    rows["step_failures", "start web"] = f"damaged {SAID}"
    whole = taken(decision, DESIRED, now, clock.record(), rows, "")
    assert SAID in document.write(whole)
    shown = masked(whole, DESIRED)
    assert SAID not in document.write(shown)
    kept = read_rows(shown.rows)[0].step_failures
    assert kept == {"create web": failed._replace(message=kept["create web"].message)}
    assert {key for key in rows if key[0] != "step_failures"} == {
        key for key in shown.rows if key[0] != "step_failures"
    }
