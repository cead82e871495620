"""Liveness restarts by label: ordinary groups for the gates, and never more than a restart."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manifests.resolve.probe_context import parse_context
from manifests.values.desired import SECOND, Desired, Guard, Probe, ProbeKind
from manifests.values.pod import Live
from providers.actions import StartContainer, StopContainer
from providers.facts import ContainerFact, ContainerState, ExitCause, Known, Probes
from reconciler.core.decide import decide
from reconciler.core.forecast import forecast
from reconciler.core.model.instant import Instant, Now
from reconciler.core.model.ledger import Grant, Ledger
from reconciler.core.model.ledger_fold import Command, apply_commands
from reconciler.core.model.observed import Observed
from reconciler.core.model.passed_probe import probe_key
from reconciler.core.model.probe_context import Context
from reconciler.core.model.reasons import Reason, Rule
from reconciler.core.replicas.labelled import group_key
from reconciler.shell.probing.label_contexts import LabelContexts
from tests.builders import FAIL, NOW, PASS, SEEN
from tests.sim.manifest import NODE, Shop

TEXT = '[{"name": "web", "livenessProbe": {"tcpSocket": {"port": 80}}}]'
PROBE = Probe(ProbeKind.TCP, 80)
KEY = f"container/{NODE}/shop-web"
GATES = Ledger(
    source="git:shop",
    passed=frozenset(probe_key(key, "", "liveness") for key in (KEY, f"container/{NODE}/lone")),
)


def labelled(number: int, text: str = TEXT, **changes: object) -> ContainerFact:
    """A labelled container of the compose service shop/web."""
    labels = {
        "com.docker.compose.container-number": str(number),
        "com.docker.compose.project": "shop",
        "com.docker.compose.service": "web",
        "reconciler.container-probe-context": text,
        "reconciler.enhanced-liveness": "true",
    }
    fact = ContainerFact(
        NODE,
        f"shop-web-{number}",
        f"id-{number}",
        ContainerState.RUNNING,
        NOW.wall - 1000 * SECOND,
        SEEN - 1000 * SECOND,
        f"10.2.0.{number}",
        labels=tuple(sorted(labels.items())),
        live=(Live("", 0, 0, "always"),),
    )
    return replace(fact, **changes)


def wanted(enhanced: bool = True, **guard: object) -> Desired:
    """A shop without workloads, whose Instance reads labels."""
    desired = Shop(()).desired()
    limits = replace(desired.guard, **guard) if guard else desired.guard
    return replace(desired, instance=replace(desired.instance, enhanced_liveness=enhanced), guard=limits)


def observed_with(
    *facts: ContainerFact, sick: tuple[str, ...] = (), ledger: Ledger = GATES, context: Context | None = None
) -> Observed:
    probes = {fact.generation: Probes(None, FAIL if fact.id in sick else PASS) for fact in facts}
    return Observed(
        runtimes={NODE: Known(facts, NODE, SEEN)},
        probes=probes,
        ledger=ledger,
        source_read_at=SEEN,
        contexts={TEXT: context or Context((("web", PROBE), ("lone", PROBE)))},
    )


def test_a_failing_container_is_stopped_and_started_once_and_nothing_else():
    observed = observed_with(labelled(1), labelled(2), labelled(3), sick=("id-2",))
    done = [planned.step for planned in forecast(wanted(), observed, NOW).steps]
    assert [type(step.action) for step in done] == [StopContainer, StartContainer]
    assert {step.object for step in done} == {f"{KEY}/2"}
    assert {step.cause for step in done} == {Reason.LIVENESS_FAILED}
    assert all(step.action.adopted and step.action.name == "shop-web-2" for step in done)


def test_healthy_labelled_containers_have_a_status_and_cause_no_steps():
    decision = decide(wanted(), observed_with(labelled(1), labelled(2)), NOW)
    assert not decision.steps
    assert not decision.holds
    (row,) = decision.status.workloads
    assert (row.key, row.wanted, row.available) == (KEY, 2, 2)


def test_labels_count_only_with_enhanced_liveness_of_the_instance():
    decision = decide(wanted(enhanced=False), observed_with(labelled(1), labelled(2), sick=("id-1",)), NOW)
    assert not decision.steps
    assert not decision.status.workloads


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"deny": frozenset({KEY})}, Rule.DENIED),
        ({"deny": frozenset({f"{KEY}/1"})}, Rule.DENIED),
        ({"suspend": True}, Rule.SUSPENDED),
    ],
)
def test_the_guard_holds_groups_by_their_key(change, rule):
    decision = decide(wanted(**change), observed_with(labelled(1), labelled(2), labelled(3), sick=("id-1",)), NOW)
    assert not decision.steps
    assert [hold.rule for hold in decision.holds] == [rule]


def test_a_suspension_of_the_group_holds_its_restarts():
    ledger = apply_commands(GATES, (Command("suspend", KEY, "ann", "looking"),))
    decision = decide(
        wanted(), observed_with(labelled(1), labelled(2), labelled(3), sick=("id-1",), ledger=ledger), NOW
    )
    assert [hold.rule for hold in decision.holds] == [Rule.SUSPENDED]
    assert not decision.steps


def test_two_failing_containers_of_a_service_do_not_restart_together():
    facts = tuple(labelled(number) for number in range(1, 6))
    decision = decide(wanted(), observed_with(*facts, sick=("id-1", "id-2")), NOW)
    assert len(decision.ledger.grants) == 1
    assert (
        len([hold for hold in decision.holds if hold.rule in (Rule.RESTART_IN_PROGRESS, Rule.MASS_FAILURE, Rule.RATE)])
        == 1
    )


def test_a_container_without_a_compose_service_is_a_group_of_its_own():
    lone = labelled(1, name="lone")
    labels = tuple(label for label in lone.labels if "compose" not in label[0])
    lone = replace(lone, labels=labels)
    assert group_key(lone) == f"container/{NODE}/lone"
    decision = decide(wanted(), observed_with(lone, sick=("id-1",)), NOW)
    assert [grant.object for grant in decision.ledger.grants.values()] == [f"container/{NODE}/lone/0"]


@pytest.mark.parametrize("state", [ContainerState.EXITED, ContainerState.CREATED])
def test_a_container_that_ended_without_us_is_not_started(state):
    down = labelled(1, state=state, running_since=0, exit_cause=ExitCause.EXITED, exit_code=1)
    decision = decide(wanted(), observed_with(down, labelled(2)), NOW)
    assert not decision.steps
    assert not decision.status.workloads[0].key.endswith("/1")


@given(hours=st.integers(0, 100))
def test_a_container_that_we_stopped_is_started_however_late(hours):
    down = labelled(1, state=ContainerState.EXITED, running_since=0, exit_cause=ExitCause.STOPPED_BY_US)
    then = Instant(NOW.wall - hours * 3600 * SECOND, NOW.steady - hours * 3600 * SECOND, NOW.lineage)
    grant = Grant(f"{KEY}/1", down.generation, Reason.LIVENESS_FAILED, then, weight_out=then)
    ledger = replace(GATES, grants={down.id: grant})
    (step,) = decide(wanted(), observed_with(down, labelled(2), ledger=ledger), NOW).steps
    assert isinstance(step.action, StartContainer)
    assert step.action.adopted


# --- contexts -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no label reconciler.container-probe-context"),
        ("{", "the label is not JSON"),
        ("{}", "the label must be a list"),
        ('[{"name": "other", "livenessProbe": {"tcpSocket": {"port": 80}}}]', "no entry named shop-web-1 or web"),
        ('[{"name": "web", "livenessProbe": {"tcpSocket": {"port": "http"}}}]', "write the number"),
        ('[{"name": "web", "livenessProbe": {"tcpSocket": {"port": 80}, "host": "x"}}]', "cannot have a field 'host'"),
        ('[{"name": "web"}]', "no field 'livenessProbe'"),
        ('[{"name": "web", "name": "web"}]', "twice"),
        ("[" * 5000 + "]" * 5000, "nested"),  # too deeply, or more than 100 deep: interpreters read more or less
        ("[" * 200 + "]" * 200, "values are nested more than 100 levels deep"),
        (" " * 20_000 + "[]", "at most 16384"),
    ],
    ids=range(11),
)
def test_an_invalid_context_is_reported_and_never_causes_a_restart(text, message):
    fact = labelled(1, text)
    runtimes = {NODE: Known((fact,), NODE, SEEN)}
    label_contexts = LabelContexts()
    label_contexts.find(wanted(), runtimes, GATES)
    observed = Observed(
        runtimes=runtimes,
        probes={fact.generation: Probes(None, FAIL)},
        ledger=GATES,
        contexts=label_contexts.contexts,
    )
    decision = decide(wanted(), observed, NOW)
    (hold,) = decision.holds
    assert hold.rule is Rule.PROBE_CONTEXT
    assert message in hold.message
    assert hold.next_step
    assert not decision.steps
    assert not decision.ledger.grants


def test_a_context_has_the_fields_of_manifests():
    text = (
        '[{"name": "web", "livenessProbe": {"httpGet": {"path": "/live", "port": 8080, "httpHeaders": '
        '[{"name": "X-Probe", "value": "1"}]}, "periodSeconds": 0.5, "failureThreshold": 2, '
        '"terminationGracePeriodSeconds": 7}}]'
    )
    ((name, probe),) = parse_context(text, None)
    assert name == "web"
    assert (probe.kind, probe.port, probe.path, probe.headers) == (ProbeKind.HTTP, 8080, "/live", (("X-Probe", "1"),))
    assert (probe.period, probe.failure_threshold, probe.grace) == (SECOND // 2, 2, 7 * SECOND)


@pytest.mark.parametrize(
    "probe",
    [
        '{"httpGet": {"port": 1, "httpHeaders": [{"name": "A", "valueFrom": {"secret": {"env": "TOKEN"}}}]}}',
        '{"httpGet": {"port": 1, "scheme": "HTTPS", "tls": {"verify": true, "caFile": "ca.pem"}}}',
        '{"exec": {"command": ["rm", "-r", "/"]}}',
    ],
    ids=["a secret of ours", "a file of ours", "a command that the Guard does not allow"],
)
def test_a_label_cannot_use_secrets_files_or_commands_of_ours(probe):
    with pytest.raises(ValueError, match="web: "):
        parse_context(f'[{{"name": "web", "livenessProbe": {probe}}}]', [["healthcheck"]])


def test_a_changed_guard_parses_contexts_again():
    fact = labelled(1, '[{"name": "web", "livenessProbe": {"exec": {"command": ["check"]}}}]')
    runtimes = {NODE: Known((fact,), NODE, SEEN)}
    label_contexts = LabelContexts()
    (_, key, container), *_ = label_contexts.find(wanted(), runtimes, GATES).values()
    assert key == KEY
    assert container.liveness.command == ("check",)
    strict = replace(wanted(), guard=Guard(exec_commands=()))
    (_, _, container), *_ = label_contexts.find(strict, runtimes, GATES).values()
    assert container.liveness is None
    assert not label_contexts.find(wanted(enhanced=False), runtimes, GATES)


@given(st.permutations(range(1, 6)))
def test_the_order_of_a_look_changes_nothing(order):
    first = decide(wanted(), observed_with(*(labelled(number) for number in range(1, 6)), sick=("id-3",)), NOW)
    other = decide(wanted(), observed_with(*(labelled(number) for number in order), sick=("id-3",)), NOW)
    assert (first.steps, first.holds, first.ledger, first.wake_at) == (
        other.steps,
        other.holds,
        other.ledger,
        other.wake_at,
    )


def test_the_answer_stays_the_same_until_it_wakes():
    observed = observed_with(labelled(1), labelled(2), labelled(3), sick=("id-2",))
    first = decide(wanted(), observed, NOW)
    just_before = Now(NOW.wall + first.wake_at - NOW.steady - 1, first.wake_at - 1, NOW.lineage)
    later = decide(wanted(), replace(observed, ledger=first.ledger), just_before)
    assert later.steps == first.steps


def test_a_restart_is_finished_after_labels_are_switched_off():
    down = labelled(1, state=ContainerState.EXITED, running_since=0, exit_cause=ExitCause.STOPPED_BY_US)
    then = Instant(NOW.wall - SECOND, NOW.steady - SECOND, NOW.lineage)
    grant = Grant(f"{KEY}/1", down.generation, Reason.LIVENESS_FAILED, then, weight_out=then)
    ledger = replace(GATES, grants={down.id: grant})
    (step,) = decide(wanted(enhanced=False), observed_with(down, labelled(2), ledger=ledger), NOW).steps
    assert isinstance(step.action, StartContainer)
    assert step.action.adopted
