"""What went wrong in other tools between a commit and a host, each with the test that shows that it does not here.

Each line below is one report: where it was made, what is shown here, and the test. The last test of this module checks that all of them
exist. The tests of this module are those that no other module had.

    vscode#98063, wintty#1138          a half-saved file never counts                laws/test_reports.py::test_a_file_that_is_being_saved_never_counts
    CQ-editor#48, hyper#2718           ten saves are ten reloads                     shell/looks/test_triggers.py::test_each_of_ten_saves_by_renaming_wakes
    kubernetes#24215                   contents count, and no time of change         manifests/source/test_directory.py::test_the_revision_follows_names_and_contents_and_nothing_else
    argo-cd#9843, argo-events#1947     no link leads out of the set                  git/test_reader.py::test_links_that_leave_the_set_are_refused
    kustomize-controller#409           one bad document: no action for the set       laws/test_reports.py::test_one_bad_document_stops_the_whole_set
    argo-cd#10987, #3484, #23645       no manifests never mean "delete all"          laws/test_reports.py::test_an_emptied_set_deletes_nothing_with_foreign_objects_beside_it
    argo-cd#18212, #14318, #22127      an outage is never an empty list              git/test_reader.py::test_what_cannot_be_read_is_a_problem_and_never_empty
    applicationset#423                 another page is no answer of git              git/test_mirror.py::test_an_answer_that_is_not_of_git_is_an_error
    kustomize-controller#98, #1664     a stuck deletion blocks no other object       laws/test_reports.py::test_a_deletion_that_is_stuck_blocks_nothing_else
    deploy-gotify-alerter#3            every deletion is in the plan                 laws/test_reports.py::test_every_deletion_of_a_commit_is_in_the_plan
    compose#14029, #13040              a plan writes nothing                         cli/test_plan.py::test_planning_writes_nothing_at_all
    compose#11335, #9897, doco-cd#830  another order or file recreates nothing       core/drift/test_applied.py::test_a_comment_another_order_or_another_file_moves_nothing
    compose#11335                      an upgrade recreates nothing                  laws/test_changes_and_kills.py::test_with_the_ledger_of_an_earlier_version_a_release_takes_nothing
    ansible#45829, argo-cd#21135       what was set is no difference                 core/replicas/test_template_fit.py::test_a_container_that_fits_has_no_differences
    argo-cd#1861, #16965               a fight with another writer ends              laws/test_drift.py::test_a_field_that_another_writer_changes_again_and_again_is_contested
    hive#343, controller-runtime#2831  an idle hour with a git source writes nothing laws/test_reports.py::test_an_idle_hour_of_polls_writes_and_logs_nothing
    controller-runtime#392             success ends the waiting times                core/limits/test_backoff.py::test_a_first_failure_and_one_after_the_reset_do_not_wait
    kopf#1108                          a remote that asks for patience gets it       git/test_reader.py::test_a_remote_that_asks_for_patience_gets_it
    argo-cd#17314, #15489, doco-cd#666 a fix replaces a stuck rollout in one poll    laws/test_supersede.py::test_a_fix_replaces_a_stuck_rollout_within_one_poll
    flux#696, flux2#4875               a force-push is followed and reported         e2e/test_git_source.py::test_a_force_push_is_followed_and_is_an_event
    flux#696                           a held force-push stays held over restarts    laws/test_histories.py::test_a_restart_does_not_let_a_held_force_push_go
    nomad#1781                         a saved plan of another world does nothing    cli/test_saved_plan.py::test_what_moved_is_named_and_nothing_is_done
    nomad#1778                         a saved plan of another commit does nothing   cli/test_saved_plan.py::test_a_commit_that_moved_is_named
    terraform#14487, #17066, #13851    kill -9 anywhere, with the same end           laws/test_histories.py::test_a_random_history_ends_at_its_last_good_commit
    cpython#125688, aiohttp#1932       SIGTERM ends a run while the remote hangs     e2e/test_git_source.py::test_a_remote_that_hangs_delays_neither_health_nor_the_end
    kamal#1844, deployer#3335          a killed holder frees the lock                shell/store/test_lock.py::test_a_killed_holder_frees_the_lock_and_its_record_is_ignored
    argo-cd#4505, #6674                two runs never interleave                     shell/store/test_lock.py::test_two_racing_processes_never_hold_the_lock_at_once
    nomad#20502, terraform#35117       exit code and text agree                      cli/test_plan.py::test_the_detailed_exit_code_the_steps_and_the_sentence_agree
    argo-cd#16193, #897, #3479         no secret is anywhere                         e2e/test_sentinel_secrets.py::test_no_secret_of_a_source_is_in_any_output_file_or_argument
    flux2#4945, #2690                  ciphertext reaches no container               e2e/test_secret_sources.py::test_a_workload_waits_for_its_secret_and_goes_on_by_itself
    flux2#5836, home-ops#2425          nothing is substituted in texts               manifests/resolve/test_ciphertext.py::test_nothing_is_substituted_in_shell_text
    argo-cd#18166, #8811               one identity twice is an error with both      manifests/test_reports.py::test_an_object_declared_twice_is_an_error_that_names_both_places
    watchtower#1043, #417              a failed update leaves the old one running    laws/test_reports.py::test_an_update_that_cannot_be_created_leaves_the_old_one
    watchtower#650, humio-operator#115 a fix applies to what crashes in a loop       laws/test_reports.py::test_a_commit_mends_what_crashes_in_a_loop
    komodo#773, portainer#10986        an unrelated commit causes no action          laws/test_supersede.py::test_an_unrelated_commit_touches_nothing_and_starts_nothing
    argo-cd#14242                      the same for polls and webhooks               laws/test_histories.py::test_a_random_history_ends_at_its_last_good_commit
    argocd-notifications#153           one notice, over restarts                     notify/test_causes.py::test_a_restart_of_the_program_repeats_no_notice
    notification-controller#92         a commit gets each status once                notify/test_causes.py::test_a_commit_is_pending_then_applied_and_set_once_each
    argo-cd#9570, #5351                a rollback lasts until a newer commit         laws/test_supersede.py::test_a_rollback_lasts_until_a_commit_changes_the_template
    podman#18778, #25084               an invalid manifest is never skipped          manifests/test_reports.py::test_a_file_without_manifests_is_never_skipped_silently
    terraform-change-pr-commenter#91   5,000 objects fit in a comment                core/test_plan_markdown.py::test_five_thousand_objects_fit_with_what_destroys_first
    komodo#85, portainer#10630         a bad signature is refused                    web/test_webhook_api.py::test_a_wrong_signature_is_refused_and_reads_nothing
    komodo#85, portainer#10630         what is accepted is found in the events       web/test_webhook_api.py::test_a_push_of_the_ref_is_read_soon_and_its_id_is_in_the_event
    komodo#85, portainer#10630         another branch is ignored, with the reason    web/test_webhook_api.py::test_another_ref_is_ignored_with_its_reason
    argo-cd#20785, kamal#1587          a child that hangs is killed with its group   providers/lib/test_program.py::test_a_child_that_ignores_the_signal_is_killed_with_its_group
    argo-cd#17623, #27930              locks of a killed git are removed             git/test_mirror.py::test_locks_of_a_killed_git_are_removed
    keel#822                           actions go on while a channel fails           notify/test_causes.py::test_actions_and_other_channels_go_on_while_a_channel_fails
    argo-cd#15043                      a notice counts as sent when it was sent      core/notices/test_outbox.py::test_a_message_leaves_its_queue_only_when_it_was_sent
    confd#125, datadog-agent#2121      an outage is one record, not one each poll    laws/test_reports.py::test_an_hour_without_the_remote_is_reported_once
    portainer#10552, dockhand#662      what is suspended is left alone by commits    laws/test_reports.py::test_no_commit_touches_what_is_suspended
    gitops-promotion#175               every commit that was seen gets an end        notify/test_causes.py::test_a_commit_that_is_superseded_ends_and_a_failed_one_says_why
    controller-runtime#2719            a lost lock is noticed                        shell/store/test_lock.py::test_the_holder_notices_another_directory_at_its_path
    argo-cd#15118                      a refusal names commit, signer and rule       git/test_verify.py::test_an_unsigned_commit_is_refused_with_commit_author_and_rule
    argo-cd#3465                       healing goes on while commits are held        laws/test_switches.py::test_while_new_commits_are_suspended_healing_goes_on
    argo-cd#21692                      a commit of a closed window comes later       laws/test_switches.py::test_a_commit_of_a_window_comes_into_force_when_it_closes
"""

import ast
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from manifests.values.desired import SECOND
from providers.actions import Action, RemoveContainer
from providers.errors import Rejected
from providers.facts import ContainerState
from providers.spi import Context
from providers.testing.faults import Fault
from providers.testing.memory import MemorySettings
from providers.testing.memory_container import MemoryContainer
from providers.testing.memory_runtime import MemoryRuntime
from reconciler.core.forecast import forecast
from reconciler.core.model.reasons import Rule
from tests.laws.git_world import POLLED, GitWorld
from tests.laws.histories import Item, Repository, Tree
from tests.shell.test_source import GOOD, Run
from tests.sim.clock import VirtualClock
from tests.sim.manifest import INSTANCE, NODE

TESTS = Path(__file__).parents[1]
MINUTE = 60 * SECOND
FIRST = Tree((Item("api", "api.yaml"), Item("shop", "shop.yaml"), Item("web", "web.yaml")))


class Host:
    """A host that has converged to the first commit of a repository."""

    def __init__(self, base: Path) -> None:
        self.repository, self.tree = Repository(base, None, None), FIRST
        self.repository.commit(FIRST, "the first commit")
        self.repository.push()
        self.world = GitWorld(base, self.repository.bare)
        self.world.run(3 * MINUTE)
        assert self.versions() == {"api": ["v1"] * 2, "shop": ["v1"] * 2, "web": ["v1"] * 2}

    def push(self, tree: Tree) -> None:
        self.tree = tree
        self.repository.commit(tree, "a change")
        self.repository.push()

    def item(self, name: str) -> Item:
        return next(item for item in self.tree.items if item.name == name)

    def changed(self, name: str, version: str = "v2") -> Tree:
        return self.tree.changed(self.item(name), version=version)

    def without(self, *names: str) -> Tree:
        return self.tree.with_items(*(item for item in self.tree.items if item.name not in names))

    def of(self, name: str) -> list[MemoryContainer]:
        return [item for item in self.world.containers().values() if item.mark and item.mark.workload == name]

    def versions(self) -> dict[str, list[str]]:
        """The versions that run, by workload."""
        found: dict[str, list[str]] = {}
        for item in self.world.containers().values():
            if item.mark is not None and item.state is ContainerState.RUNNING:
                found.setdefault(item.mark.workload, []).append(dict(item.env)["VERSION"])
        return {name: sorted(versions) for name, versions in sorted(found.items())}

    def writes(self, duration: int) -> int:
        """How many writes there are in a time."""
        before = len(self.world.traffic.writes)
        self.world.run(duration)
        return len(self.world.traffic.writes) - before

    def rules(self) -> set[Rule]:
        assert self.world.tape.last is not None
        return {hold.rule for hold in self.world.tape.last.holds}


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    made = Host(tmp_path)
    yield made
    made.world.close()


def test_one_bad_document_stops_the_whole_set(host: Host) -> None:
    tree = host.changed("web").with_items(*host.changed("web").items[1:])  # changes one workload and lacks another
    host.push(replace(tree, fault="an unknown kind"))
    assert host.writes(10 * MINUTE) == 0
    assert host.rules() == {Rule.SOURCE_INVALID}


def test_an_emptied_set_deletes_nothing_with_foreign_objects_beside_it(host: Host) -> None:
    foreign = MemoryContainer("by-hand", "f" * 64, "127.77.9.9", None, state=ContainerState.RUNNING)
    host.world.outside.nodes[NODE]["by-hand"] = foreign
    host.push(replace(host.tree, fault="no manifests"))
    assert host.writes(10 * MINUTE) == 0
    host.world.kill()  # a new process has nothing but the repository and what is stored
    assert host.writes(10 * MINUTE) == 0
    assert set(host.versions()) == {"api", "shop", "web"}


class _Stuck(MemoryRuntime):
    """A runtime that refuses to remove one container."""

    stuck = ""

    def perform(self, action: Action) -> None:
        if isinstance(action, RemoveContainer) and action.name == self.stuck:
            raise Rejected(action.name, "removal is in progress", "wait")
        super().perform(action)


def test_a_deletion_that_is_stuck_blocks_nothing_else(host: Host) -> None:
    world = host.world
    runtime = _Stuck(NODE, MemorySettings(), Context(INSTANCE, "/nowhere"), world.outside)
    runtime.stuck = host.of("api")[0].name
    world.kill()
    world.runtimes[NODE] = runtime
    host.push(host.without("api", "web").changed(host.item("shop"), version="v2"))
    world.run(15 * MINUTE)
    assert host.versions() == {"shop": ["v2", "v2"]}
    assert [item.name for item in host.of("api")] == [runtime.stuck]
    assert host.of("web") == []
    assert world.tape.last is not None
    stuck = [hold for hold in world.tape.last.holds if hold.rule is Rule.STEP_FAILED and "api" in hold.object]
    assert stuck, world.tape.last.holds
    runtime.stuck = ""
    world.run(15 * MINUTE)
    assert host.of("api") == []


def test_every_deletion_of_a_commit_is_in_the_plan(host: Host) -> None:
    containers = {item.name for item in host.of("web")}
    host.push(host.without("web"))
    _, observed, now = host.world.observe_once()
    plan = forecast(host.world.begin(), observed, now)
    planned = {item.step.object for item in plan.steps} | {hold.object for hold in plan.holds}
    assert {"workload/web/0", "workload/web/1", "pool/web", "dnspolicy/web"} <= planned
    host.world.run(POLLED)  # the second read, after which deletions begin
    _, observed, now = host.world.observe_once()
    plan = forecast(host.world.begin(), observed, now)
    removed = {item.step.action.name for item in plan.steps if isinstance(item.step.action, RemoveContainer)}
    assert removed == containers


def test_an_idle_hour_of_polls_writes_and_logs_nothing(host: Host) -> None:
    host.push(replace(host.tree, loose=(("README.md", "a line\n"),)))
    host.world.run(5 * MINUTE)
    tape, memory = host.world.tape, host.world.memory
    before = len(tape.notes), len(tape.events), memory.saves, memory.decisions, len(memory.events)
    files = {path: path.stat().st_mtime_ns for path in host.world.state.rglob("*") if path.is_file()}
    assert host.writes(60 * MINUTE) == 0
    assert (len(tape.notes), len(tape.events), memory.saves, memory.decisions, len(memory.events)) == before
    assert {path: path.stat().st_mtime_ns for path in host.world.state.rglob("*") if path.is_file()} == files


def test_an_hour_without_the_remote_is_reported_once(host: Host) -> None:
    bare = host.repository.bare
    notes = len(host.world.tape.notes)
    bare.rename(bare.with_name("gone"))
    assert host.writes(60 * MINUTE) == 0
    assert host.rules() == {Rule.SOURCE_UNREADABLE}
    said = [text for _, text in host.world.tape.notes[notes:]]
    assert len(said) == 2, said  # that it cannot be used, and why
    bare.with_name("gone").rename(bare)
    host.push(host.changed("web"))
    host.world.run(5 * MINUTE)
    assert host.versions()["web"] == ["v2", "v2"]


def test_an_update_that_cannot_be_created_leaves_the_old_one(host: Host) -> None:
    host.world.fail_next(NODE, *[Fault.REJECTED] * 5)
    weights = host.world.weights("web")
    host.push(host.changed("web"))
    host.world.run(POLLED)
    assert host.versions()["web"] == ["v1", "v1"]
    assert host.world.weights("web") == weights
    assert any(outcome == "rejected" for _, outcome in host.world.memory.audit), "the audit has no refused step"
    host.world.run(20 * MINUTE)
    assert host.versions()["web"] == ["v2", "v2"]


def test_a_commit_mends_what_crashes_in_a_loop(host: Host) -> None:
    host.world.apps.crash_after = {item.name: 3 * SECOND for item in host.of("web")}
    host.world.run(10 * MINUTE)
    host.push(host.changed("web"))
    host.world.run(15 * MINUTE)
    assert host.versions()["web"] == ["v2", "v2"]


def test_no_commit_touches_what_is_suspended(host: Host) -> None:
    host.world.memory.say("suspend", "workload/web")
    host.world.run(MINUTE)
    (first, *_) = host.of("web")
    host.world.runtime.exit(first.name)
    host.push(host.changed("web"))
    host.world.deliver()
    before = len(host.world.traffic.writes)
    host.world.run(10 * MINUTE)
    host.world.restart()
    host.push(replace(host.tree, loose=(("README.md", "a line\n"),)))
    host.world.run(10 * MINUTE)
    touched = [write.action for write in host.world.traffic.writes[before:] if first.name in repr(write.action)]
    assert not [action for action in touched if type(action).__name__.endswith("Container")], touched
    assert host.versions()["web"] == ["v1"]
    host.world.memory.say("resume", "workload/web")
    host.world.run(10 * MINUTE)
    assert host.versions()["web"] == ["v2", "v2"]


class _Saving(VirtualClock):
    """A clock in whose first pause an editor goes on to write a file."""

    def __init__(self, file: Path, text: str) -> None:
        super().__init__()
        self.file, self.text = file, text

    def pause(self, duration: int) -> None:
        self.file.write_text(self.text)
        super().pause(duration)


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_a_file_that_is_being_saved_never_counts(tmp_path: Path, share: float) -> None:
    run = Run(tmp_path)
    file, whole = run.path / "web.yaml", GOOD["web.yaml"] + "# saved\n"
    run.clock = _Saving(file, whole)
    source = run.source()
    file.write_text(whole[: int(len(whole) * share)])
    fresh, messages = source.reread()
    assert fresh is not None, messages
    assert [workload.key for workload in fresh.workloads] == ["workload/web"]
    assert fresh.revision == run.read().revision


def test_each_report_has_its_test() -> None:
    rows = [line for line in (__doc__ or "").splitlines() if "::" in line]
    assert len(rows) > 50
    for row in rows:
        module, _, name = row.split()[-1].partition("::")
        tree = ast.parse((TESTS / module).read_text())
        names = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
        assert name in names, f"{module} has no {name}"
