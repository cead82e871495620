"""Fields of containers: which drifted, which the manifests changed, and what the rules say of each."""

from dataclasses import replace

import pytest

from manifests.values.desired import SECOND
from manifests.values.drift import DriftAction, DriftRules
from manifests.values.pod import Live
from providers.facts import ContainerFact, ContainerState, Mark
from reconciler.core.drift.fields import REVERTS, WITHIN, Watch, contested_until, other_image
from reconciler.core.model.drift import Applied, Reverts, Why
from reconciler.core.model.instant import Instant, Now
from reconciler.core.model.ledger import Ledger
from reconciler.core.model.reasons import Rule
from reconciler.core.model.revision import revision_key
from tests.sim.manifest import Spec, workload

NOW = Now(10**18, 10**13, "boot")
SPEC = Spec(cpu=500, restart="unless-stopped")
WEB = workload(SPEC)
LIVE = WEB.template.live
REVISION = SPEC.revision
KNOWN = Ledger(
    applied={WEB.key: Applied("digest", LIVE)}, pins={revision_key(WEB.key, REVISION): (("", "app@sha256:1"),)}
)


def fact(**fields: object) -> ContainerFact:
    made = ContainerFact(
        "node-a", "shop-web-0", "id", ContainerState.RUNNING, mark=Mark("shop", "web", 0, REVISION), live=LIVE
    )
    return replace(made, **fields)  # type: ignore[arg-type]


def at(seconds: int) -> Instant:
    return Instant(NOW.wall - seconds * SECOND, NOW.steady - seconds * SECOND, NOW.lineage)


def test_a_field_that_the_manifests_changed_is_set_beside_one_that_is_left():
    ruled = replace(WEB, drift=DriftRules(resources=DriftAction.IGNORE))
    wanted = (LIVE[0]._replace(restart="no"),)
    other = fact(live=(LIVE[0]._replace(cpu=900),))
    compared = Watch(KNOWN, NOW).compare(ruled, "workload/web/0", other, wanted)
    assert compared.live == (Live("", 900, restart="no"),), "the limit stays, the new restart policy is set"
    assert compared.why is Why.CHANGE
    assert [moved.field for moved in compared.moved] == ["restartPolicy"]


def test_without_a_known_declaration_everything_is_a_change():
    other = fact(live=(LIVE[0]._replace(cpu=900),))
    ruled = replace(WEB, drift=DriftRules(resources=DriftAction.IGNORE))
    compared = Watch(Ledger(), NOW).compare(ruled, "workload/web/0", other, LIVE)
    assert (compared.live, compared.why) == (LIVE, Why.CHANGE)


@pytest.mark.parametrize(
    ("digests", "moved"),
    [
        ((("", "app@sha256:1"),), None),
        ((), None),
        ((("", "app@sha256:2"),), ("image", "app@sha256:1", "app@sha256:2")),
        ((("", "app@sha256:1"), ("log", "log@sha256:9")), None),
    ],
)
def test_the_image_of_a_container_is_compared_with_that_of_its_revision(digests, moved):
    assert other_image(WEB, fact(digests=digests), KNOWN) == moved


def test_containers_of_other_owners_have_no_image_to_compare():
    digests = (("", "app@sha256:2"),)
    assert other_image(WEB, fact(digests=digests, adopted=True), KNOWN) is None
    assert other_image(WEB, fact(digests=digests, mark=None), KNOWN) is None


def test_another_image_is_reported_and_by_its_rule_recreated():
    other = fact(digests=(("", "app@sha256:2"),))
    watch = Watch(KNOWN, NOW)
    assert watch.image(WEB, "workload/web/0", other) is None
    [hold] = watch.holds
    assert hold.rule is Rule.DRIFT
    assert "app@sha256:2 observed" in hold.message
    ruled = replace(WEB, drift=DriftRules(image=DriftAction.CORRECT))
    assert Watch(KNOWN, NOW).image(ruled, "workload/web/0", other) is not None


def test_a_field_is_contested_after_three_reverts_within_the_span():
    times = tuple(at(seconds) for seconds in (300, 200, 100))
    assert len(times) == REVERTS
    assert contested_until(None, NOW) == 0
    assert contested_until(Reverts(times[:2], restored=True), NOW) == 0
    assert contested_until(Reverts(times), NOW) == 0, "its third correction is under way"
    assert contested_until(Reverts(times, restored=True), NOW) == times[0].steady + WITHIN
    assert contested_until(Reverts((*times, at(0))), NOW) == NOW.steady + WITHIN
    old = tuple(at(WITHIN // SECOND + seconds) for seconds in (300, 200, 100))
    assert contested_until(Reverts(old, restored=True), NOW) == 0
