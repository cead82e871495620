"""The conformance suite for runtimes, in levels: each level needs the ones before it.

For authors of providers: subclass `RuntimeConformance` in a test module, name the class `Test...`, and write the hooks of
`RuntimeHooks`. Start with level 1 and work down. The suite assumes nothing about speed: it waits where a real process needs
time. It touches only what it has made itself, so it may run where other containers live.
"""

from dataclasses import replace
from functools import partial

import pytest

from providers.actions import CreateContainer, RemoveContainer, StartContainer, StopContainer
from providers.errors import Conflict, Foreign, Gone, OutcomeUnknown, ProviderError
from providers.facts import ContainerState, ExitCause, Generation
from providers.spi import Context, RuntimeProvider
from providers.testing.checks import expect, raises, same, wait_until
from providers.testing.faults import Fault, faulty, sequence
from providers.testing.runtime_hooks import GRACE, INSTANCE, OTHER, STRANGER, RuntimeHooks
from providers.wrappers.owned import owned


class RuntimeConformance(RuntimeHooks):
    """Levels 1 to 10 for a runtime provider."""

    # --- level 1: see nothing -----------------------------------------------------------------------------------

    def test_level_01_an_empty_node_shows_nothing(self, runtime: RuntimeProvider) -> None:
        """Nothing there is an answer, not an error."""
        same(self.replicas(runtime), (), 1, "an empty node shows no containers")
        same(runtime.observe(["no-such-container"]), (), 1, "a name that does not exist shows nothing")
        same(runtime.logs("no-such-container", 10), (), 1, "no container, no log lines")

    # --- level 2: create and see it -----------------------------------------------------------------------------

    def test_level_02_a_created_container_is_seen_with_its_mark(self, runtime: RuntimeProvider, root: str) -> None:
        """Creating does not start."""
        fact = self.create(runtime, root)
        same(fact.state, ContainerState.CREATED, 2, "a new container is created, not started")
        same(fact.mark, self.mark(), 1, "the mark is read back")
        same(fact.node, runtime.name, 1, "the node is the provider's name")
        same((fact.started_at, fact.running_since), (0, 0), 1, "it never ran")
        expect(bool(fact.id), 1, "a container has an id", fact)

    def test_level_02_a_started_container_runs_at_an_address(self, runtime: RuntimeProvider, root: str) -> None:
        """A running container says since when, and where its ports are."""
        fact = self.start(runtime, self.create(runtime, root))
        expect(fact.started_at > 0, 1, "a running container has a start time", fact)
        expect(fact.running_since > 0, 1, "and a steady instant since which it runs", fact)
        wanted = {port.number for port in self.template().container.ports}
        seen = {port.number for port in fact.ports if port.address and port.port}
        same(seen, wanted, 1, "every declared port can be reached somewhere")

    def test_level_02_replicas_are_seen_together_each_in_its_place(self, runtime: RuntimeProvider, root: str) -> None:
        """Three replicas: three names, three ids, three places."""
        facts = [self.start(runtime, self.create(runtime, root, ordinal)) for ordinal in range(3)]
        seen = {fact.name: fact for fact in self.replicas(runtime)}
        same(sorted(seen), sorted(fact.name for fact in facts), 1, "a look shows every container")
        same(len({fact.id for fact in facts}), 3, 1, "ids are distinct")
        places = [(port.address, port.port) for fact in facts for port in fact.ports]
        same(len(set(places)), len(places), 1, "no two ports share a place")

    # --- level 3: repeat, nothing changes -----------------------------------------------------------------------

    def test_level_03_repeating_each_action_changes_nothing(self, runtime: RuntimeProvider, root: str) -> None:
        """Every action may come twice: after a crash its outcome is unknown."""
        creation = self.creation(runtime, root)
        fact = self.create(runtime, root)
        runtime.perform(creation)
        same(self.fact_of(runtime, fact.name), fact, 2, "creating again changes nothing")

        running = self.start(runtime, fact)
        runtime.perform(StartContainer(fact.node, fact.name, fact.generation))
        same(self.fact_of(runtime, fact.name).generation, running.generation, 2, "starting again keeps the generation")
        runtime.perform(creation)
        same(self.fact_of(runtime, fact.name).generation, running.generation, 2, "creating what runs changes nothing")

        partly = StopContainer(fact.node, fact.name, running.generation, GRACE, only="no-such-container")
        raises(lambda: runtime.perform(partly), Conflict, 2, "stopping a container that the replica does not have")
        same(self.fact_of(runtime, fact.name).generation, running.generation, 2, "which leaves it as it is")

        stopped = self.stop(runtime, running)
        runtime.perform(StopContainer(fact.node, fact.name, running.generation, GRACE))
        same(self.fact_of(runtime, fact.name), stopped, 2, "stopping again changes nothing")

        removal = RemoveContainer(fact.node, fact.name, stopped.generation)
        runtime.perform(removal)
        runtime.perform(removal)
        self.expect_gone(runtime, fact.name)

    def test_level_03_stopping_what_was_removed_is_done_already(self, runtime: RuntimeProvider, root: str) -> None:
        """A container that is gone does not run any more."""
        fact = self.create(runtime, root)
        runtime.perform(RemoveContainer(fact.node, fact.name, fact.generation))
        runtime.perform(StopContainer(fact.node, fact.name, fact.generation, GRACE))
        self.expect_gone(runtime, fact.name)

    # --- level 4: change ----------------------------------------------------------------------------------------

    def test_level_04_each_start_is_a_new_generation(self, runtime: RuntimeProvider, root: str) -> None:
        """Same container, new generation: the id stays, the start time does not."""
        first = self.start(runtime, self.create(runtime, root))
        second = self.start(runtime, self.stop(runtime, first))
        same(second.id, first.id, 1, "the container is the same")
        expect(second.generation != first.generation, 1, "the generation is new", second.generation)
        same((second.exit_code, second.exit_cause), (None, None), 1, "a running container has not exited")

    def test_level_04_a_stopped_container_says_who_stopped_it(self, runtime: RuntimeProvider, root: str) -> None:
        """A stop of ours is not a crash."""
        fact = self.stop(runtime, self.start(runtime, self.create(runtime, root)))
        same(fact.exit_cause, ExitCause.STOPPED_BY_US, 1, "we stopped it")
        same(fact.running_since, 0, 1, "it does not run")

    def test_level_04_a_crash_is_seen_as_one(self, runtime: RuntimeProvider, root: str) -> None:
        """A process that a signal killed was not stopped by us, and can be started again."""
        fact = self.start(runtime, self.create(runtime, root))
        self.crash(runtime, fact.name)
        self.wait_for(runtime, fact.name, ContainerState.EXITED)
        crashed = self.fact_of(runtime, fact.name)
        expect(
            crashed.exit_cause not in (None, ExitCause.STOPPED_BY_US), 1, "the crash has a cause", crashed.exit_cause
        )
        same(crashed.generation, fact.generation, 1, "a dead container keeps the generation that died")
        again = self.start(runtime, crashed)
        expect(again.generation != fact.generation, 2, "it can be started again", again.generation)

    def test_level_04_an_end_that_the_runtime_repaired_is_shown(self, runtime: RuntimeProvider, root: str) -> None:
        """A container that runs again says how its last run ended, and who ended it is not lost with the exit code."""
        before = self.revive(runtime, root)
        if before is None:
            pytest.skip("this runtime starts no container by itself")
        wait_until(
            lambda: (
                (now := self.fact_of(runtime, before.name)).generation != before.generation
                and now.state is ContainerState.RUNNING
            ),
            f"{before.name} runs again",
        )
        again = next(fact for fact in runtime.observe() if fact.name == before.name)
        same((again.exit_code, again.exit_cause), (None, None), 1, "it runs")
        same(again.restarts, before.restarts + 1, 1, "the restart is counted")
        end = again.last_end
        expect(end is not None and end.at > 0, 1, "its last end has an instant", again)
        if end is not None:
            expect(
                end.cause not in (ExitCause.STOPPED_BY_US, ExitCause.HOST_RESTARTED),
                1,
                "reconcile did not stop it",
                end,
            )
            expect(end.exit_code not in (None, 0), 1, "its exit code is known", end)
        same(self.fact_of(runtime, before.name).last_end, end, 1, "each look shows the same end")

    def test_level_04_a_process_killed_for_memory_is_shown(self, runtime: RuntimeProvider, root: str) -> None:
        """The container runs on: nothing else would show it."""
        fact = self.start(runtime, self.create(runtime, root))
        same(fact.oom_at, 0, 1, "nothing was killed yet")
        if not self.lose_child(runtime, fact.name):
            pytest.skip("this runtime does not tell")

        def seen() -> int:
            return next(now.oom_at for now in runtime.observe() if now.name == fact.name)

        wait_until(lambda: seen() > 0, "the kill is shown")
        same(self.fact_of(runtime, fact.name).generation, fact.generation, 1, "it is the same run")

    def test_level_04_an_exec_probe_keeps_its_arguments(self, runtime: RuntimeProvider, root: str) -> None:
        """An argument list, never a shell line: each argument comes through unchanged."""
        fact = self.start(runtime, self.create(runtime, root))
        arguments = ("/bin/echo", "one two", "$HOME", ";")
        target = runtime.exec_target(fact.name, arguments)
        same(target.argv[-3:], arguments[-3:], 1, "arguments are passed as they are")
        raises(lambda: runtime.exec_target("no-such-container", arguments), Gone, 3, "an exec in a missing container")
        expect(len(runtime.logs(fact.name, 5)) <= 5, 1, "at most the number of log lines asked for", "more")

    # --- level 5: delete ----------------------------------------------------------------------------------------

    def test_level_05_a_removed_container_is_gone_and_its_name_free(self, runtime: RuntimeProvider, root: str) -> None:
        """The next container of that name is another one."""
        fact = self.stop(runtime, self.start(runtime, self.create(runtime, root)))
        runtime.perform(RemoveContainer(fact.node, fact.name, fact.generation))
        self.expect_gone(runtime, fact.name)
        same(self.replicas(runtime), (), 1, "nothing is left")
        expect(self.create(runtime, root).id != fact.id, 1, "a new container has a new id", fact.id)

    def test_level_05_starting_what_is_gone_is_an_error(self, runtime: RuntimeProvider, root: str) -> None:
        """There is nothing to start."""
        fact = self.create(runtime, root)
        runtime.perform(RemoveContainer(fact.node, fact.name, fact.generation))
        action = StartContainer(fact.node, fact.name, fact.generation)
        raises(lambda: runtime.perform(action), Gone, 3, "starting a removed container")

    # --- level 6: containers of other owners stay -------------------------------------------------------------------------

    def test_level_06_another_instance_keeps_its_containers(
        self, runtime: RuntimeProvider, context: Context, root: str
    ) -> None:
        """With the ownership decorator around it, nothing without our mark is touched."""
        other = self.creation(runtime, root, instance=OTHER)
        self.make(context).perform(other)
        theirs = self.fact_of(runtime, other.name)
        mine = owned(self.make(context), INSTANCE)
        node, name, generation = theirs.node, theirs.name, theirs.generation
        for action in (
            StartContainer(node, name, generation),
            StopContainer(node, name, generation, GRACE),
            RemoveContainer(node, name, generation),
            other,
        ):
            raises(partial(mine.perform, action), Foreign, 5, f"{type(action).__name__} on another's")
        same(self.fact_of(runtime, name), theirs, 5, "it is untouched")

    def test_level_06_a_name_taken_with_another_mark_is_a_conflict(self, runtime: RuntimeProvider, root: str) -> None:
        """Names hold eight digits of the revision; the mark holds all of them."""
        fact = self.create(runtime, root)
        mark = self.mark()._replace(revision=self.mark().revision[:8] + "-another")
        action = CreateContainer(fact.node, fact.name, mark, self.template(), root)
        raises(lambda: runtime.perform(action), Conflict, 2, "creating under a taken name")
        same(self.fact_of(runtime, fact.name), fact, 2, "what was there stays as it was")

    def test_level_06_a_container_of_another_owner_is_changed_only_if_meant(
        self, runtime: RuntimeProvider, context: Context
    ) -> None:
        """A look shows it with its labels; an action must name exactly this container."""
        if not self.stranger(runtime, STRANGER, {"tier": "db"}):
            pytest.skip("this runtime has no containers but its own")
        try:
            before = self.fact_of(runtime, STRANGER)
            expect(STRANGER in {fact.name for fact in runtime.observe()}, 1, "a look shows all containers", STRANGER)
            same((before.mark, before.foreign_mark), (None, False), 1, "it carries no mark")
            expect(("tier", "db") in before.labels, 1, "its labels are in the fact", before.labels)
            same(tuple(sorted(before.labels)), before.labels, 1, "in their order")
            mine = owned(self.make(context), INSTANCE)
            node, generation = before.node, before.generation
            blind = StopContainer(node, STRANGER, generation, GRACE)
            raises(lambda: mine.perform(blind), Foreign, 5, "stopping a stranger's")
            another = replace(blind, expect=Generation("another-id", generation.started_at), adopted=True)
            raises(lambda: mine.perform(another), Foreign, 5, "stopping another than the one that was adopted")
            same(self.fact_of(runtime, STRANGER), before, 5, "it is untouched")
            mine.perform(replace(blind, adopted=True))
            self.wait_for(runtime, STRANGER, ContainerState.EXITED)
            stopped = self.fact_of(runtime, STRANGER)
            same(stopped.exit_cause, ExitCause.STOPPED_BY_US, 1, "we stopped it")
            mine.perform(StartContainer(node, STRANGER, stopped.generation, adopted=True))
            self.wait_for(runtime, STRANGER, ContainerState.RUNNING)
            after = self.fact_of(runtime, STRANGER)
            same((after.id, after.mark, after.labels), (before.id, None, before.labels), 5, "it stays as it was made")
            mine.close()
        finally:
            self.forget_stranger(runtime, STRANGER)

    def test_level_06_a_renamed_container_is_found_by_its_id(
        self, runtime: RuntimeProvider, context: Context, root: str
    ) -> None:
        """An operator may rename a container: its labels still say whose it is, and actions that mean its id reach it."""
        fact = self.start(runtime, self.create(runtime, root))
        other = f"{INSTANCE}-renamed"
        if not self.rename(runtime, fact.name, other):
            pytest.skip("names cannot change in this runtime")
        renamed = self.fact_of(runtime, other)
        same((renamed.id, renamed.generation), (fact.id, fact.generation), 1, "it is the same container, and runs on")
        same(
            (renamed.mark, renamed.claim), (None, self.mark()), 1, "its mark names another container, so it is a claim"
        )
        same((renamed.live, renamed.unjoined), (fact.live, ()), 1, "its settings and networks are those of a replica")
        same(runtime.observe([fact.id]), (renamed,), 1, "a look at its id shows it")
        same(runtime.observe([fact.name]), (), 1, "nothing has its old name")
        mine = owned(self.make(context), INSTANCE)
        node = fact.node
        blind = StopContainer(node, other, Generation("another-id", fact.started_at), GRACE)
        raises(lambda: mine.perform(blind), Foreign, 5, "stopping it without meaning its id")
        mine.perform(StopContainer(node, fact.name, fact.generation, GRACE))
        self.wait_for(runtime, other, ContainerState.EXITED)
        stopped = self.fact_of(runtime, other)
        same(stopped.exit_cause, ExitCause.STOPPED_BY_US, 1, "the stop that was planned under the old name reached it")
        mine.perform(StartContainer(node, other, stopped.generation))
        self.wait_for(runtime, other, ContainerState.RUNNING)
        target = mine.exec_target(fact.id, ("/bin/echo", "renamed"))
        same(target.argv[-1], "renamed", 1, "a probe runs in it by its id")
        again = self.fact_of(runtime, other)
        self.rename(runtime, other, fact.name)
        same(self.fact_of(runtime, fact.name).mark, self.mark(), 1, "with its own name again its mark is valid")
        self.rename(runtime, fact.name, other)
        mine.perform(StopContainer(node, other, again.generation, GRACE))
        mine.perform(RemoveContainer(node, other, again.generation))
        self.expect_gone(runtime, other)
        mine.close()

    # --- level 7: the reply is lost after success ---------------------------------------------------------------

    def test_level_07_a_lost_reply_then_look_and_repeat(self, runtime: RuntimeProvider, root: str) -> None:
        """Every action was done although its answer was lost: a look shows it, and repeating is harmless."""
        creation = self.creation(runtime, root)
        self._lose(runtime, creation)
        created = self.fact_of(runtime, creation.name)
        runtime.perform(creation)
        same(self.fact_of(runtime, creation.name), created, 2, "one container, not two")

        start = StartContainer(created.node, created.name, created.generation)
        self._lose(runtime, start)
        self.wait_for(runtime, created.name, ContainerState.RUNNING)
        running = self.fact_of(runtime, created.name)
        runtime.perform(start)
        same(self.fact_of(runtime, created.name).generation, running.generation, 2, "one start, not two")

        stop = StopContainer(created.node, created.name, running.generation, GRACE)
        self._lose(runtime, stop)
        self.wait_for(runtime, created.name, ContainerState.EXITED)
        runtime.perform(stop)

        removal = RemoveContainer(created.node, created.name, running.generation)
        self._lose(runtime, removal)
        runtime.perform(removal)
        self.expect_gone(runtime, created.name)

    def _lose(
        self, runtime: RuntimeProvider, action: CreateContainer | StartContainer | StopContainer | RemoveContainer
    ) -> None:
        lossy = faulty(runtime, sequence(Fault.LOST_REPLY))
        raises(lambda: lossy.perform(action), OutcomeUnknown, 3, "a lost reply")

    # --- level 8: the expectation is stale ----------------------------------------------------------------------

    def test_level_08_a_newer_generation_is_not_stopped(self, runtime: RuntimeProvider, root: str) -> None:
        """The plan saw an older generation; the present one is left alone."""
        first = self.start(runtime, self.create(runtime, root))
        second = self.start(runtime, self.stop(runtime, first))
        action = StopContainer(first.node, first.name, first.generation, GRACE)
        raises(lambda: runtime.perform(action), Conflict, 2, "stopping an older generation")
        now = self.fact_of(runtime, first.name)
        same((now.state, now.generation), (ContainerState.RUNNING, second.generation), 2, "it runs on")

    def test_level_08_what_runs_is_not_removed(self, runtime: RuntimeProvider, root: str) -> None:
        """Removing needs a container that is down."""
        fact = self.start(runtime, self.create(runtime, root))
        action = RemoveContainer(fact.node, fact.name, fact.generation)
        raises(lambda: runtime.perform(action), Conflict, 2, "removing a running container")
        same(self.fact_of(runtime, fact.name).state, ContainerState.RUNNING, 2, "it runs on")

    def test_level_08_another_container_of_the_name_is_not_removed(self, runtime: RuntimeProvider, root: str) -> None:
        """Same name, other id: the container was recreated."""
        fact = self.create(runtime, root)
        stale = Generation("another-id", fact.started_at)
        raises(
            lambda: runtime.perform(RemoveContainer(fact.node, fact.name, stale)), Conflict, 2, "removing another id"
        )
        same(self.fact_of(runtime, fact.name), fact, 2, "it stays")

    # --- level 9: unreadable is an error ------------------------------------------------------------------------

    def test_level_09_a_world_that_cannot_be_read_raises(
        self, runtime: RuntimeProvider, context: Context, root: str
    ) -> None:
        """An empty answer would look like: everything is gone."""
        self.create(runtime, root)
        self.break_reads(context)
        raises(runtime.observe, ProviderError, 1, "a look at an unreadable world")

    # --- level 10: the strongest law ----------------------------------------------------------------------------

    def test_level_10_a_new_provider_object_sees_the_same_world(
        self, runtime: RuntimeProvider, context: Context, root: str
    ) -> None:
        """Identity lives on the object: a kill -9 of the program loses nothing."""
        running = self.start(runtime, self.create(runtime, root, 0))
        self.create(runtime, root, 1)
        before = self.replicas(runtime)
        second = self.make(context)
        try:
            same(self.replicas(second), before, 1, "a new provider object sees the same facts")
            stopped = self.stop(second, running)
            same(self.fact_of(runtime, running.name), stopped, 1, "and both see what either did")
        finally:
            second.close()
