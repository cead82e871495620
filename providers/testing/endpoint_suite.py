"""The conformance suite for endpoint providers, in levels: each level needs the ones before it.

For authors of providers: subclass `EndpointConformance` in a test module, name the class `Test...`, and write the hooks at
its top. Start with level 1 and work down.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from providers.actions import CutSessions, EndpointAction, RemoveEndpoint, SetWeight
from providers.errors import Conflict, Foreign, OutcomeUnknown, ProviderError, Rejected
from providers.facts import Endpoint, MemberFact
from providers.spi import Context, EndpointProvider
from providers.testing.checks import perform_one, raises, same
from providers.testing.faults import Fault, faulty, sequence
from providers.wrappers.owned import owned

INSTANCE = "suite"
OTHER = "other"


class EndpointConformance:
    """Levels 1 to 12 for an endpoint provider."""

    pool = "web"
    """The pool of the suite. It must be empty at the start of each test."""

    places = (Endpoint("192.0.2.10", 8080), Endpoint("192.0.2.9", 8080), Endpoint("192.0.2.9", 9090))
    """Three endpoints the provider can hold."""

    cuts_sessions = True
    """Whether the provider can end the sessions of an endpoint. If not, level 12 expects `Rejected`."""

    # --- hooks: what an author writes ---------------------------------------------------------------------------

    def make(self, context: Context) -> EndpointProvider:
        """A new provider object on the same world for the same state directory. The instance may differ. No I/O."""
        raise NotImplementedError(f"{type(self).__name__}: write the hook `make`; its docstring says what it must do")

    def break_reads(self, context: Context) -> None:
        """Make the world unreadable: a corrupt file, a dead socket, missing permissions."""
        raise NotImplementedError(
            f"{type(self).__name__}: write the hook `break_reads`; its docstring says what it must do"
        )

    def wrap(self, endpoints: EndpointProvider, context: Context) -> EndpointProvider:
        """Put decorators around the provider under test; by default none."""
        del context
        return endpoints

    # --- fixtures and helpers -------------------------------------------------------------------------------

    @pytest.fixture
    def context(self, tmp_path: Path) -> Context:
        """This instance, with a private state directory."""
        state = tmp_path / "state"
        state.mkdir(mode=0o700)
        return Context(INSTANCE, str(state))

    @pytest.fixture
    def endpoints(self, context: Context) -> Iterator[EndpointProvider]:
        """The provider under test."""
        provider = self.wrap(self.make(context), context)
        yield provider
        provider.close()

    @pytest.fixture
    def theirs(self, context: Context) -> Iterator[EndpointProvider]:
        """The same world for another instance."""
        provider = self.make(Context(OTHER, context.state_dir))
        yield provider
        provider.close()

    def put(
        self, provider: EndpointProvider, place: Endpoint, weight: int, before: int | None = None, name: str = "web-0"
    ) -> SetWeight:
        """Set a weight; returns the action, to repeat it."""
        action = SetWeight(provider.name, self.pool, place, name, weight, before)
        perform_one(provider, action)
        return action

    def removal(self, provider: EndpointProvider, place: Endpoint) -> RemoveEndpoint:
        """The action that takes an endpoint out."""
        return RemoveEndpoint(provider.name, self.pool, place, "web-0")

    def members(self, provider: EndpointProvider) -> tuple[MemberFact, ...]:
        """The members of the suite's pool in one look."""
        facts = [fact for fact in provider.observe([self.pool]) if fact.pool == self.pool]
        same(len(facts), 1, 1, "one fact for a pool that was asked for")
        return facts[0].members

    def weights(self, provider: EndpointProvider) -> dict[Endpoint, int]:
        """The weights of the suite's pool."""
        return {member.endpoint: member.weight for member in self.members(provider)}

    # --- level 1: see nothing -----------------------------------------------------------------------------------

    def test_level_01_a_pool_without_members_is_empty(self, endpoints: EndpointProvider) -> None:
        """Nothing there is an answer, not an error."""
        same(self.members(endpoints), (), 1, "an empty pool has no members")
        same(len(endpoints.observe([])), 0, 1, "and no pool without members of ours")

    # --- level 2: create and see it -----------------------------------------------------------------------------

    def test_level_02_an_added_endpoint_is_seen_with_its_weight(self, endpoints: EndpointProvider) -> None:
        """It is ours, and keeps its name if the other side can store one."""
        self.put(endpoints, self.places[0], 10)
        (member,) = self.members(endpoints)
        same((member.endpoint, member.weight, member.ours), (self.places[0], 10, True), 2, "the member as asked for")
        same(member.name in ("web-0", ""), True, 1, "its name is the one given, or none")

    def test_level_02_members_are_seen_in_the_order_of_their_endpoints(self, endpoints: EndpointProvider) -> None:
        """The order of writing does not matter."""
        for place in self.places:
            self.put(endpoints, place, 10)
        seen = [member.endpoint for member in self.members(endpoints)]
        same(seen, sorted(self.places), 1, "members in the order of their endpoints")

    def test_level_02_a_pool_with_a_member_of_ours_is_always_shown(self, endpoints: EndpointProvider) -> None:
        """So that a pool which no manifest names any more can be cleaned up."""
        self.put(endpoints, self.places[0], 10)
        same([fact.pool for fact in endpoints.observe([])], [self.pool], 1, "a pool with a member of ours")

    # --- level 3: repeat, nothing changes -----------------------------------------------------------------------

    def test_level_03_repeating_a_weight_changes_nothing(self, endpoints: EndpointProvider) -> None:
        """Also when what it saw before is long past."""
        action = self.put(endpoints, self.places[0], 10)
        before = self.members(endpoints)
        perform_one(endpoints, action)
        same(self.members(endpoints), before, 2, "the same members after repeating")

    # --- level 4: change ----------------------------------------------------------------------------------------

    def test_level_04_a_weight_is_changed_and_may_be_zero(self, endpoints: EndpointProvider) -> None:
        """Weight 0 keeps the member."""
        self.put(endpoints, self.places[0], 10)
        self.put(endpoints, self.places[1], 20)
        self.put(endpoints, self.places[0], 50, before=10)
        same(
            self.weights(endpoints), {self.places[0]: 50, self.places[1]: 20}, 2, "the new weight, the other as it was"
        )
        self.put(endpoints, self.places[0], 0, before=50)
        same(self.weights(endpoints), {self.places[0]: 0, self.places[1]: 20}, 2, "weight 0 keeps the member")

    # --- level 5: delete ----------------------------------------------------------------------------------------

    def test_level_05_an_endpoint_of_weight_zero_is_removed(self, endpoints: EndpointProvider) -> None:
        """Twice is as once."""
        self.put(endpoints, self.places[0], 0)
        self.put(endpoints, self.places[1], 20)
        perform_one(endpoints, self.removal(endpoints, self.places[0]))
        perform_one(endpoints, self.removal(endpoints, self.places[0]))
        same(self.weights(endpoints), {self.places[1]: 20}, 2, "only the other one is left")

    def test_level_05_an_endpoint_with_weight_is_not_removed(self, endpoints: EndpointProvider) -> None:
        """It may carry traffic."""
        self.put(endpoints, self.places[0], 10)
        action = self.removal(endpoints, self.places[0])
        raises(partial(perform_one, endpoints, action), Conflict, 2, "removing an endpoint of weight 10")
        same(self.weights(endpoints), {self.places[0]: 10}, 2, "it stays")

    # --- level 6: members of other owners stay -------------------------------------------------------------------------

    def test_level_06_a_member_of_another_instance_is_seen_as_not_ours(
        self, endpoints: EndpointProvider, theirs: EndpointProvider
    ) -> None:
        """And our own writes beside it leave it alone."""
        self.put(theirs, self.places[0], 30)
        self.put(endpoints, self.places[1], 10)
        seen = {member.endpoint: (member.weight, member.ours) for member in self.members(endpoints)}
        same(seen, {self.places[0]: (30, False), self.places[1]: (10, True)}, 1, "theirs and ours")

    def test_level_06_a_member_of_another_instance_is_never_touched(
        self, context: Context, endpoints: EndpointProvider, theirs: EndpointProvider
    ) -> None:
        """With the ownership decorator around it, nothing without our mark is changed."""
        self.put(theirs, self.places[0], 0)
        before = self.members(endpoints)
        mine = owned(self.make(context), INSTANCE)
        actions: list[EndpointAction] = [
            SetWeight(mine.name, self.pool, self.places[0], "web-0", 10, 0),
            SetWeight(mine.name, self.pool, self.places[0], "web-0", 10, None),
            self.removal(mine, self.places[0]),
        ]
        for action in actions:
            raises(partial(perform_one, mine, action), Foreign, 5, f"{type(action).__name__} on another's member")
        same(self.members(endpoints), before, 5, "it is untouched")
        mine.close()

    # --- level 7: the reply is lost after success ---------------------------------------------------------------

    def test_level_07_a_lost_reply_then_look_and_repeat(self, endpoints: EndpointProvider) -> None:
        """The write was done although its answer was lost: a look shows it, and repeating is harmless."""
        lossy = faulty(endpoints, sequence(Fault.LOST_REPLY, Fault.NONE, Fault.LOST_REPLY))
        action = SetWeight(lossy.name, self.pool, self.places[0], "web-0", 0, None)
        raises(partial(perform_one, lossy, action), OutcomeUnknown, 3, "a lost reply")
        same(self.weights(lossy), {self.places[0]: 0}, 2, "a look shows that it was done")
        perform_one(lossy, action)
        same(self.weights(lossy), {self.places[0]: 0}, 2, "one member, not two")
        removal = self.removal(lossy, self.places[0])
        raises(partial(perform_one, lossy, removal), OutcomeUnknown, 3, "a lost reply")
        perform_one(lossy, removal)
        same(self.weights(lossy), {}, 2, "removed, once")

    # --- level 8: the expectation is stale ----------------------------------------------------------------------

    def test_level_08_a_stale_expectation_changes_nothing(self, endpoints: EndpointProvider) -> None:
        """Another writer changed the weight, added the endpoint or removed it after the plan was made."""
        self.put(endpoints, self.places[0], 10)
        for before, place in ((20, self.places[0]), (None, self.places[0]), (10, self.places[1])):
            action = SetWeight(endpoints.name, self.pool, place, "web-0", 77, before)
            raises(partial(perform_one, endpoints, action), Conflict, 2, f"a weight that was {before} for the plan")
        same(self.weights(endpoints), {self.places[0]: 10}, 2, "nothing changed")

    # --- level 9: unreadable is an error ------------------------------------------------------------------------

    def test_level_09_a_world_that_cannot_be_read_raises(self, context: Context, endpoints: EndpointProvider) -> None:
        """An empty answer would look like: every endpoint is gone."""
        self.put(endpoints, self.places[0], 10)
        self.break_reads(context)
        raises(partial(endpoints.observe, [self.pool]), ProviderError, 1, "a look at an unreadable world")
        raises(partial(endpoints.observe, []), ProviderError, 1, "a look for pools with members of ours")

    # --- level 10: the strongest law ----------------------------------------------------------------------------

    def test_level_10_after_each_action_the_world_is_exactly_as_asked(
        self, context: Context, endpoints: EndpointProvider, theirs: EndpointProvider
    ) -> None:
        """A long walk against a model, looked at by a new provider object after each step, as after a kill -9."""
        foreign = Endpoint("198.51.100.1", 80)
        self.put(theirs, foreign, 5)
        model: dict[Endpoint, int] = {foreign: 5}
        for step in range(30):
            place = self.places[step % 3]
            self._walk(endpoints, model, place, step * 7 % 4 * 10)
            again = self.make(context)
            same(self.weights(again), model, 1, f"the world after step {step}, seen by a new provider object")
            again.close()

    def _walk(self, endpoints: EndpointProvider, model: dict[Endpoint, int], place: Endpoint, weight: int) -> None:
        if model.get(place) == 0:
            perform_one(endpoints, self.removal(endpoints, place))
            del model[place]
            return
        self.put(endpoints, place, weight, before=model.get(place))
        model[place] = weight

    # --- level 11: many actions in one call ------------------------------------------------------------

    def test_level_11_many_at_once_come_out_as_one_by_one(self, endpoints: EndpointProvider) -> None:
        """Adding, changing, repeating and removing together; twice on one endpoint is in the order given."""
        first, second, third = self.places
        same(endpoints.perform([]).errors, (), 2, "nothing asked, nothing done")
        added = [SetWeight(endpoints.name, self.pool, place, "web-0", 10, None) for place in self.places]
        same(endpoints.perform(added).errors, (None, None, None), 2, "three endpoints added in one call")
        same(endpoints.perform(added).errors, (None, None, None), 2, "the same again is harmless")
        same(self.weights(endpoints), dict.fromkeys(self.places, 10), 2, "the weights of all")
        outcomes = endpoints.perform(
            [
                SetWeight(endpoints.name, self.pool, first, "web-0", 20, 10),
                SetWeight(endpoints.name, self.pool, second, "web-0", 0, 10),
                SetWeight(endpoints.name, self.pool, third, "web-0", 10, 10),
                self.removal(endpoints, second),
            ]
        ).errors
        same(outcomes, (None, None, None, None), 2, "raised, lowered and removed, left alone")
        same(self.weights(endpoints), {first: 20, third: 10}, 2, "as after the same actions one by one")

    def test_level_11_one_that_fails_does_not_stop_the_others(self, endpoints: EndpointProvider) -> None:
        """The answers are in the order of the actions, each of the kind that it would have had alone."""
        first, second, third = self.places
        self.put(endpoints, first, 10)
        outcomes = endpoints.perform(
            [
                SetWeight(endpoints.name, self.pool, second, "web-0", 50, 40),
                SetWeight(endpoints.name, self.pool, third, "web-0", 30, None),
                self.removal(endpoints, first),
                SetWeight(endpoints.name, self.pool, first, "web-0", 20, 10),
            ]
        ).errors
        kinds = [type(outcome) for outcome in outcomes]
        same([issubclass(kind, Conflict) for kind in kinds], [True, False, True, False], 2, f"who fails, of {kinds}")
        same((outcomes[1], outcomes[3]), (None, None), 2, "the others are done")
        same(self.weights(endpoints), {first: 20, third: 30}, 2, "and what failed changed nothing")

    def test_level_11_what_is_not_ours_is_refused_alone(
        self, context: Context, endpoints: EndpointProvider, theirs: EndpointProvider
    ) -> None:
        """With the ownership decorator around it."""
        first, second, _ = self.places
        self.put(theirs, first, 0)
        mine = owned(self.make(context), INSTANCE)
        outcomes = mine.perform(
            [
                SetWeight(mine.name, self.pool, first, "web-0", 10, 0),
                SetWeight(mine.name, self.pool, second, "web-0", 10, None),
                self.removal(mine, first),
            ]
        ).errors
        same([type(outcome) for outcome in outcomes], [Foreign, type(None), Foreign], 5, "another's member is refused")
        same(self.weights(endpoints), {first: 0, second: 10}, 5, "it is untouched, and ours is written")
        mine.close()

    def test_level_11_a_lost_reply_is_of_its_action_alone(self, endpoints: EndpointProvider) -> None:
        """The write was done: a look shows it, and repeating the whole call is harmless."""
        lossy = faulty(endpoints, sequence(Fault.LOST_REPLY, Fault.LOST_REQUEST))
        added = [SetWeight(lossy.name, self.pool, place, "web-0", 10, None) for place in self.places]
        kinds = [type(error) for error in lossy.perform(added).errors]
        same(kinds, [OutcomeUnknown, OutcomeUnknown, type(None)], 3, "two lost answers of three")
        same(self.weights(lossy), {self.places[0]: 10, self.places[2]: 10}, 2, "only the lost request was not done")
        same(lossy.perform(added).errors, (None, None, None), 2, "repeating does what is left")
        same(self.weights(lossy), dict.fromkeys(self.places, 10), 2, "all of them, once")

    def test_level_11_what_is_known_after_writing_is_as_a_look_says_it(self, endpoints: EndpointProvider) -> None:
        """Pools that were read back save a look, so they must equal one."""
        added = [SetWeight(endpoints.name, self.pool, place, "web-0", 10, None) for place in self.places]
        performed = endpoints.perform(added)
        same(performed.errors, (None, None, None), 2, "three endpoints added in one call")
        looked = {fact.pool: fact for fact in endpoints.observe([self.pool])}
        read_back = {fact.pool: fact for fact in performed.pools}
        same(read_back, {pool: looked[pool] for pool in read_back}, 1, "pools that were read back")
        same(self.weights(endpoints), dict.fromkeys(self.places, 10), 2, "the weights of all")

    # --- level 12: traffic ----------------------------------------------------------------------------------------

    def test_level_12_an_unused_endpoint_has_no_or_unknown_requests_in_flight(
        self, endpoints: EndpointProvider
    ) -> None:
        """Unknown is None, and never 0: who waits for the end of requests would stop too early."""
        self.put(endpoints, self.places[0], 0)
        (member,) = self.members(endpoints)
        same(member.in_flight in (0, None), True, 1, "requests under way are none, or not known")
        same(
            (member.operational in ("", "up", "checking", "down"), member.writer),
            (True, ""),
            1,
            "no result of a check, no other writer",
        )

    def test_level_12_the_epoch_stays_while_the_process_does(self, endpoints: EndpointProvider) -> None:
        """Writing is no reason for another one, where weights are written to a running process."""
        before = [fact.epoch for fact in endpoints.observe([self.pool])]
        same([fact.epoch for fact in endpoints.observe([self.pool])], before, 1, "the epoch of two looks")

    def test_level_12_cutting_sessions_needs_weight_0_and_keeps_the_endpoint(
        self, context: Context, endpoints: EndpointProvider, theirs: EndpointProvider
    ) -> None:
        """What has weight gets new requests at once; what is not ours is not ours to cut."""
        first, second, third = self.places
        self.put(endpoints, first, 0)
        self.put(endpoints, second, 10)
        self.put(theirs, third, 0)
        mine = owned(self.make(context), INSTANCE)
        cuts = [CutSessions(mine.name, self.pool, place, "web-0") for place in self.places]
        before = self.members(endpoints)
        if not self.cuts_sessions:
            raises(partial(perform_one, mine, cuts[0]), Rejected, 2, "a provider that cannot end sessions")
        else:
            perform_one(mine, cuts[0])
            perform_one(mine, cuts[0])
            raises(partial(perform_one, mine, cuts[1]), Conflict, 2, "cutting an endpoint of weight 10")
            raises(partial(perform_one, mine, cuts[2]), Foreign, 5, "cutting another's member")
            perform_one(mine, CutSessions(mine.name, self.pool, Endpoint("192.0.2.99", 1), "web-0"))
        same(self.members(endpoints), before, 2, "the members are as before")
        mine.close()
