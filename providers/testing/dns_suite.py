"""The conformance suite for DNS providers, in levels: each level needs the ones before it.

For authors of providers: subclass `DNSConformance` in a test module, name the class `Test...`, and write the hooks of
`DNSHooks`. Start with level 1 and work down.
"""

from functools import partial

import pytest

from manifests.types import record_types
from providers.capabilities import Alias
from providers.dns.common.ownership import marked_key
from providers.errors import Conflict, Foreign, OutcomeUnknown, ProviderError, Rejected
from providers.facts import RecordKey, RecordSet
from providers.spi import Context, DNSProvider
from providers.testing.checks import expect, raises, same
from providers.testing.dns_hooks import INSTANCE, OTHER, DNSHooks
from providers.testing.faults import Fault, faulty, sequence
from providers.wrappers.owned import owned


class DNSConformance(DNSHooks):
    """Levels 1 to 10 for every DNS provider, 11 to 14 for declared capabilities and for those that are not declared.

    Levels 15 to 18 are for what a real zone has: all record types, delegations, long sets, and other zones that are broken.
    """

    # --- level 1: see nothing -----------------------------------------------------------------------------------

    def test_level_01_a_new_zone_shows_nothing_of_ours(self, names: DNSProvider) -> None:
        """Nothing there is an answer, not an error."""
        self.holds(names, {}, "an empty zone")
        same(self.look(names).owners, {}, 1, "no owners in it")

    def test_level_01_each_look_says_what_the_provider_declares(self, names: DNSProvider) -> None:
        """The capabilities of a zone are those of its provider."""
        same(self.look(names).capabilities, names.capabilities, 1, "the capabilities of the zone")

    # --- level 2: create and see it -----------------------------------------------------------------------------

    def test_level_02_a_created_set_is_seen_exactly(self, names: DNSProvider) -> None:
        """Name, type, TTL and values as asked for."""
        self.change(names, (self.key("app"), None, A1))
        self.holds(names, {self.key("app"): A1}, "the set as asked for")

    @pytest.mark.parametrize(
        ("kind", "values"),
        [
            ("A", ("192.0.2.1", "192.0.2.2")),
            ("AAAA", ("2001:db8::1",)),
            ("CNAME", ("target.example.net.",)),
            ("TXT", ('"one \\"quoted\\" text; with a semicolon" "and a second part"',)),
        ],
    )
    @pytest.mark.parametrize("label", ["app", "*.apps", "_service", "a-b.c"])
    def test_level_02_common_types_and_odd_names(
        self, names: DNSProvider, label: str, kind: str, values: tuple[str, ...]
    ) -> None:
        """Wildcards, underscores and texts with quotes come back as they went in."""
        record = RecordSet(300, values)
        self.change(names, (self.key(label, kind), None, record))
        self.holds(names, {self.key(label, kind): record}, f"{kind} at {label}")

    @pytest.mark.parametrize(
        ("label", "kind", "values"),
        [
            ("", "MX", ("10 mail.example.net.", "20 mail2.example.net.")),
            ("_sip._tcp", "SRV", ("1 2 5060 sip.example.net.",)),
            ("", "CAA", ('0 issue "ca.example.net"',)),
            ("child", "NS", ("ns1.example.net.", "ns2.example.net.")),
            ("4.3", "PTR", ("host.example.net.",)),
            ("long", "TXT", ('"' + "x" * 255 + '" "' + "y" * 45 + '"',)),
            ("octets", "TXT", ('"\\195\\188 \\\\ \\009"',)),
        ],
    )
    def test_level_02_other_types(self, names: DNSProvider, label: str, kind: str, values: tuple[str, ...]) -> None:
        """Each type that the provider declares comes back as it went in; any other is refused."""
        record = RecordSet(300, values)
        change = (self.key(label, kind), None, record)
        if names.capabilities.types and kind not in names.capabilities.types:
            raises(partial(self.change, names, change), Rejected, 3, f"a type that is not declared: {kind}")
            return
        self.change(names, change)
        self.holds(names, {self.key(label, kind): record}, f"{kind} at {label}")

    def test_level_02_addresses_at_the_top_of_the_zone(self, names: DNSProvider) -> None:
        """The zone's own name is a name like others."""
        self.change(names, (self.key(""), None, A1))
        self.holds(names, {self.key(""): A1}, "addresses at the zone's own name")

    # --- level 3: repeat, nothing changes -----------------------------------------------------------------------

    def test_level_03_repeating_a_change_changes_nothing(self, names: DNSProvider) -> None:
        """Not even the serial."""
        action = self.change(names, (self.key("app"), None, A1), (self.key("www"), None, A2))
        before = self.look(names)
        names.perform(action)
        same(self.look(names), before, 2, "the zone after repeating")

    # --- level 4: change ----------------------------------------------------------------------------------------

    def test_level_04_values_and_ttl_change_and_the_serial_rises(self, names: DNSProvider) -> None:
        """Each effective change is a new version of the zone."""
        self.change(names, (self.key("app"), None, A1), (self.key("www"), None, A1))
        serial = self.look(names).serial
        self.change(names, (self.key("app"), A1, A2))
        self.holds(names, {self.key("app"): A2, self.key("www"): A1}, "new values, the other set as it was")
        if self.counts:
            expect(self.look(names).serial > serial, 1, f"a serial above {serial}", self.look(names).serial)
        slow = RecordSet(3600, A2.values)
        self.change(names, (self.key("app"), A2, slow))
        self.holds(names, {self.key("app"): slow, self.key("www"): A1}, "a new TTL")

    def test_level_04_another_type_replaces_one_in_one_request(self, names: DNSProvider) -> None:
        """Addresses become a CNAME without a moment in which the name has neither or both."""
        cname = RecordSet(60, ("target.example.net.",))
        self.change(names, (self.key("app"), None, A1))
        self.change(names, (self.key("app"), A1, None), (self.key("app", "CNAME"), None, cname))
        self.holds(names, {self.key("app", "CNAME"): cname}, "the CNAME alone")

    # --- level 5: delete ----------------------------------------------------------------------------------------

    def test_level_05_a_deleted_set_is_gone(self, names: DNSProvider) -> None:
        """Twice is as once, and what is beside it stays."""
        self.change(
            names, (self.key("app"), None, A1), (self.key("app", "AAAA"), None, AAAA), (self.key("www"), None, A1)
        )
        action = self.change(names, (self.key("app"), A1, None))
        names.perform(action)
        self.holds(names, {self.key("app", "AAAA"): AAAA, self.key("www"): A1}, "only the deleted set is gone")

    # --- level 6: record sets of other owners stay -------------------------------------------------------------------------

    def test_level_06_another_instances_set_is_never_touched(self, context: Context, theirs: DNSProvider) -> None:
        """With the ownership decorator: the mark is beside the data, and the error names the other owner."""
        theirs.perform(self.action(theirs, (self.key("app"), None, A1), instance=OTHER))
        mine = owned(self.make(context), INSTANCE)
        before = self.look(mine)
        same(dict(before.owners), {self.key("app"): f"{OTHER}/DNSPolicy/app"}, 5, "the owner mark of the set")
        for after in (A2, None):
            error = raises(
                partial(mine.perform, self.action(mine, (self.key("app"), A1, after))), Foreign, 5, f"{after} on theirs"
            )
            expect(OTHER in str(error), 5, "the refusal names the other owner", error)
        same(self.look(mine), before, 5, "it is untouched")
        mine.close()

    def test_level_06_a_set_without_a_mark_is_never_touched(self, context: Context) -> None:
        """It was written by hand. It is not adopted even if its content is the same."""
        bare = self.make(context)
        self.change(bare, (self.key("by-hand"), None, A1))
        mine = owned(bare, INSTANCE)
        for after in (A1, A2, None):
            action = self.action(mine, (self.key("by-hand"), A1, after), (self.key("app"), None, A1))
            raises(partial(mine.perform, action), Foreign, 5, f"{after} on an unmarked set")
        self.holds(mine, {self.key("by-hand"): A1}, "nothing of the request was done")
        mine.close()

    def test_level_06_a_set_without_a_mark_can_be_adopted(self, context: Context) -> None:
        """An equal set only gets its mark, another one also its new values; what changed meanwhile stays as it is."""
        bare = self.make(context)
        self.change(bare, (self.key("equal"), None, A1), (self.key("other"), None, A1), (self.key("late"), None, A2))
        mine = owned(bare, INSTANCE)
        for name, after in (("equal", A1), ("other", A2)):
            mine.perform(self.adopting(mine, self.key(name), A1, after))
        raises(partial(mine.perform, self.adopting(mine, self.key("late"), A1, A1)), Conflict, 5, "a set that changed")
        fact = self.look(mine)
        owner = f"{INSTANCE}/DNSPolicy/app"
        same(dict(fact.owners), {self.key("equal"): owner, self.key("other"): owner}, 5, "the owner marks")
        expected = {self.key("equal"): A1, self.key("other"): A2, self.key("late"): A2}
        self.holds(mine, expected, "the values that were asked for")
        mine.close()

    # --- level 7: the reply is lost after success ---------------------------------------------------------------

    def test_level_07_a_lost_reply_then_look_and_repeat(self, names: DNSProvider) -> None:
        """The change was done although its answer was lost: a look shows it, and repeating is harmless."""
        for before, after in ((None, A1), (A1, A2), (A2, None)):
            lossy = faulty(names, sequence(Fault.LOST_REPLY))
            action = self.action(lossy, (self.key("app"), before, after))
            raises(partial(lossy.perform, action), OutcomeUnknown, 3, "a lost reply")
            seen = self.look(lossy)
            lossy.perform(action)
            same(self.look(lossy), seen, 2, "repeating after a lost reply changes nothing")
            self.holds(lossy, {} if after is None else {self.key("app"): after}, "the change was done once")

    # --- level 8: the expectation is stale ----------------------------------------------------------------------

    def test_level_08_a_stale_expectation_changes_nothing_at_all(self, names: DNSProvider) -> None:
        """One stale set stops the whole request."""
        self.change(names, (self.key("app"), None, A1))
        for key, before in ((self.key("app"), A2), (self.key("app"), None), (self.key("gone"), A1)):
            action = self.action(names, (self.key("new"), None, A1), (key, before, AOTHER))
            raises(partial(names.perform, action), Conflict, 2, f"{key.name} was {before} for the plan")
        self.holds(names, {self.key("app"): A1}, "nothing changed")

    def test_level_08_what_dns_forbids_is_rejected(self, names: DNSProvider) -> None:
        """A CNAME beside other types, two CNAMEs, a name of another zone."""
        cname = RecordSet(60, ("target.example.net.",))
        self.change(names, (self.key("app"), None, A1))
        for key, after in (
            (self.key("app", "CNAME"), cname),
            (self.key("", "CNAME"), cname),
            (self.key("two", "CNAME"), RecordSet(60, ("a.example.net.", "b.example.net."))),
            (RecordKey("app.example.net.", "A"), A1),
            (self.key("none"), RecordSet(60, ())),
        ):
            raises(partial(names.perform, self.action(names, (key, None, after))), Rejected, 3, f"{after} at {key}")
        self.holds(names, {self.key("app"): A1}, "nothing changed")

    # --- level 9: unreadable is an error ------------------------------------------------------------------------

    def test_level_09_a_zone_that_cannot_be_read_raises(self, context: Context, names: DNSProvider) -> None:
        """An empty answer would look like: every name is gone."""
        self.change(names, (self.key("app"), None, A1))
        self.break_reads(context)
        raises(partial(names.observe, [self.zone]), ProviderError, 1, "a look at an unreadable zone")

    # --- level 10: the strongest law ----------------------------------------------------------------------------

    def test_level_10_after_each_change_the_zone_is_exactly_as_asked(
        self, context: Context, names: DNSProvider, theirs: DNSProvider
    ) -> None:
        """A long walk against a model, looked at by a new provider object after each step, as after a kill -9."""
        theirs.perform(self.action(theirs, (self.key("theirs"), None, A1), instance=OTHER))
        model = {self.key("theirs"): A1}
        values = (A1, A2, None, AOTHER, A2)
        for step in range(24):
            first, second = self.key(f"n{step % 4}"), self.key(f"n{step * 5 % 7}", "TXT")
            one, two = values[step % 5], (T1, None, T2)[step % 3]
            self.change(names, (first, model.get(first), one), (second, model.get(second), two))
            for key, after in ((first, one), (second, two)):
                model.pop(key, None)
                model |= {} if after is None else {key: after}
            again = owned(self.make(context), INSTANCE)
            self.holds(again, model, f"the zone after step {step}, seen by a new provider object")
            again.close()

    # --- level 11: weights --------------------------------------------------------------------------------------

    def test_level_11_weighted_members_live_side_by_side(self, names: DNSProvider) -> None:
        """Each member is created, changed and deleted alone. A provider that declares no weights refuses them."""
        one, two = self.key("app", "A", "suite-one"), self.key("app", "A", "suite-two")
        if names.capabilities.weight is None:
            action = self.action(names, (one, None, A1._replace(weight=1)))
            raises(partial(names.perform, action), Rejected, 3, "a weight")
            self.holds(names, {}, "nothing was written")
            return
        least, most = names.capabilities.weight
        low, high = A1._replace(weight=least), AOTHER._replace(weight=most)
        self.change(names, (one, None, low), (two, None, high))
        self.holds(names, {one: low, two: high}, "two weighted members")
        action = self.change(names, (one, low, low._replace(weight=most)))
        names.perform(action)
        self.holds(names, {one: low._replace(weight=most), two: high}, "one with another weight")
        for wrong in (least - 1, most + 1):
            action = self.action(names, (two, high, high._replace(weight=wrong)))
            raises(partial(names.perform, action), Rejected, 3, f"a weight of {wrong}")
        plain = self.action(names, (self.key("app"), None, A2))
        raises(partial(names.perform, plain), Rejected, 3, "a plain set beside weighted ones")
        self.change(names, (one, low._replace(weight=most), None))
        self.holds(names, {two: high}, "the other one alone")
        self.change(names, (two, high, None), (self.key("app"), None, A2))
        self.holds(names, {self.key("app"): A2}, "a plain set instead, in one request")

    def test_level_11_another_instances_member_is_never_touched(
        self, context: Context, names: DNSProvider, theirs: DNSProvider
    ) -> None:
        """Each member has an owner mark of its own."""
        if names.capabilities.weight is None:
            return
        member = A1._replace(weight=1)
        one, two = self.key("app", "A", "suite-one"), self.key("app", "A", "suite-two")
        theirs.perform(self.action(theirs, (one, None, member), instance=OTHER))
        mine = owned(self.make(context), INSTANCE)
        self.change(mine, (two, None, member))
        owners = {one: f"{OTHER}/DNSPolicy/app", two: f"{INSTANCE}/DNSPolicy/app"}
        same(dict(self.look(mine).owners), owners, 5, "an owner for each member")
        error = raises(partial(mine.perform, self.action(mine, (one, member, None))), Foreign, 5, "their member")
        expect(OTHER in str(error), 5, "the refusal names the other owner", error)
        self.change(mine, (two, member, None))
        same(dict(self.look(mine).owners), {one: f"{OTHER}/DNSPolicy/app"}, 5, "theirs alone")
        mine.close()

    # --- level 12: places ---------------------------------------------------------------------------------------

    @pytest.mark.parametrize("geo", ["EU", "DE", "NAM", "US-CA", "DE-BY"])
    def test_level_12_members_for_places(self, names: DNSProvider, geo: str) -> None:
        """A place that the provider declares comes back as it went in; any other is refused."""
        here, rest = self.key("app", "CNAME", "suite-here"), self.key("app", "CNAME", "suite-rest")
        near, far = RecordSet(60, ("near.example.net.",), geo=geo), RecordSet(60, ("far.example.net.",), geo="*")
        change = ((here, None, near), (rest, None, far))
        if not (names.capabilities.places(geo) and names.capabilities.places("*")):
            raises(partial(self.change, names, *change), Rejected, 3, f"the place {geo}")
            self.holds(names, {}, "nothing was written")
            return
        self.change(names, *change)
        self.holds(names, {here: near, rest: far}, f"a member for {geo} and one for all other places")
        twice = self.action(names, (self.key("app", "CNAME", "suite-more"), None, far))
        raises(partial(names.perform, twice), Rejected, 3, "two members for one place")
        self.change(names, (here, near, None), (rest, far, None))
        self.holds(names, {}, "nothing")

    # --- level 13: aliases --------------------------------------------------------------------------------------

    def test_level_13_an_alias_stands_where_a_cname_cannot(self, names: DNSProvider) -> None:
        """At the top of the zone, beside other types. A provider that declares no aliases refuses them."""
        alias = RecordSet(0, (self.key("app").name,), alias=True)
        change = ((self.key("app"), None, A1), (self.key(""), None, alias))
        if names.capabilities.alias is Alias.NONE:
            raises(partial(self.change, names, *change), Rejected, 3, "an alias")
            self.holds(names, {}, "nothing was written")
            return
        action = self.change(names, *change)
        names.perform(action)
        self.holds(names, {self.key("app"): A1, self.key(""): alias}, "an alias at the top")
        outside = RecordSet(0, ("lb.example.net.",), alias=True)
        if names.capabilities.alias is Alias.ZONE:
            action = self.action(names, (self.key("", "AAAA"), None, outside))
            raises(partial(names.perform, action), Rejected, 3, "an alias of a name outside")
        self.change(names, (self.key(""), alias, A2))
        self.holds(names, {self.key("app"): A1, self.key(""): A2}, "addresses instead")

    # --- level 14: TTLs -----------------------------------------------------------------------------------------

    def test_level_14_the_declared_range_of_ttls_holds(self, names: DNSProvider) -> None:
        """Both ends can be written, and what lies beyond is refused."""
        can = names.capabilities
        for label, ttl in (("low", can.ttl_min), ("high", can.ttl_max)):
            record = RecordSet(ttl, A1.values)
            self.change(names, (self.key(label), None, record))
            same(self.records(names).get(self.key(label)), record, 3, f"a TTL of {ttl}")
        for ttl in (can.ttl_min - 1, can.ttl_max + 1):
            action = self.action(names, (self.key("odd"), None, RecordSet(ttl, A1.values)))
            raises(partial(names.perform, action), Rejected, 3, f"a TTL of {ttl}")

    # --- level 15: record types ---------------------------------------------------------------------------------

    @pytest.mark.parametrize("kind", [*record_types.TYPES, "TYPE65280"])
    def test_level_15_each_type_of_manifests_comes_back_as_it_went_in(self, names: DNSProvider, kind: str) -> None:
        """Every type that manifests may declare, with the example of the documentation. A type that is not declared is refused."""
        row = record_types.record_type(kind)
        record = RecordSet(300, (record_types.value(kind, row.example),))
        key, present = self.key("typed", kind), {}
        types = names.capabilities.types
        if kind == "DS" and not (types and "NS" not in types):  # belongs to a delegation
            present = {self.key("typed", "NS"): RecordSet(300, ("ns1.example.net.",))}
            self.change(names, *((other, None, value) for other, value in present.items()))
        if names.capabilities.types and kind not in names.capabilities.types:
            raises(
                partial(self.change, names, (key, None, record)), Rejected, 3, f"a type that is not declared: {kind}"
            )
            return
        self.change(names, (key, None, record))
        self.holds(names, {**present, key: record}, f"{kind} as asked for")
        self.change(names, (key, record, None))
        self.holds(names, present, f"no {kind} any more")

    # --- level 16: delegations ----------------------------------------------------------------------------------

    @pytest.mark.parametrize("delegation_first", [True, False])
    def test_level_16_a_delegation_has_glue(self, context: Context, delegation_first: bool) -> None:
        """Addresses of name servers below the delegated name: created in any order, changed, and removed, each with its mark."""
        mine = owned(self.make(context), INSTANCE)
        self.needs_types(mine, "NS", "A", "AAAA")
        cut, glue, second = self.key("sub", "NS"), self.key("ns1.sub"), self.key("ns2.sub", "AAAA")
        one = RecordSet(300, (glue.name,))
        both = RecordSet(300, (glue.name, second.name))
        first, then = ((cut, None, one), (glue, None, A1)) if delegation_first else ((glue, None, A1), (cut, None, one))
        self.change(mine, first)
        self.change(mine, then)
        self.holds(mine, {cut: one, glue: A1}, "the delegation and its glue")
        self.owns(mine, cut, glue)
        self.change(mine, (cut, one, both), (second, None, AAAA))
        self.change(mine, (glue, A1, A2))
        self.holds(mine, {cut: both, glue: A2, second: AAAA}, "a second name server, and another address of the first")
        self.owns(mine, cut, glue, second)
        again = owned(self.make(context), INSTANCE)
        self.change(again, (cut, both, one), (second, AAAA, None))
        self.holds(again, {cut: one, glue: A2}, "one name server again")
        self.change(again, (cut, one, None))
        self.change(again, (glue, A2, None))
        self.holds(again, {}, "no delegation")
        again.close()
        mine.close()
        bare = self.make(context)
        marks = [key for key in self.look(bare).records if marked_key(key) is not None]
        same(marks, [], 2, "no mark is left")
        bare.close()

    def test_level_16_below_a_delegation_there_is_only_glue(self, names: DNSProvider) -> None:
        """Resolvers would not see anything else there."""
        self.needs_types(names, "NS", "A", "AAAA")
        delegation = RecordSet(300, (self.key("ns1.sub").name,))
        self.change(names, (self.key("sub", "NS"), None, delegation))
        for key, after in (
            (self.key("www.sub"), A1),
            (self.key("ns2.sub"), A1),
            (self.key("ns1.sub", "TXT"), T1),
            (self.key("sub"), A1),
            (self.key("sub", "TXT"), T1),
        ):
            raises(partial(names.perform, self.action(names, (key, None, after))), Rejected, 3, f"{key} is no glue")
        self.holds(names, {self.key("sub", "NS"): delegation}, "the delegation alone")

    def test_level_16_another_writers_glue_is_never_touched(self, context: Context, theirs: DNSProvider) -> None:
        """The delegation is ours and the address is not: neither it nor its mark changes."""
        self.needs_types(theirs, "NS", "A", "AAAA")
        glue, cut = self.key("ns1.sub"), self.key("sub", "NS")
        theirs.perform(self.action(theirs, (glue, None, A1), instance=OTHER))
        mine = owned(self.make(context), INSTANCE)
        mine_now = self.look(mine)
        delegation = RecordSet(300, (glue.name,))
        self.change(mine, (cut, None, delegation))
        if glue in mine_now.records:  # a provider that reads by names may not know sets of others
            self.holds(mine, {cut: delegation, glue: A1}, "their address and our delegation")
            # Queries do not show a mark below a delegation.
            owner = self.look(mine).owners.get(glue, OTHER)
            expect(owner.startswith(OTHER), 5, "their address is not ours", owner)
        for after in (A2, None):
            raises(partial(mine.perform, self.action(mine, (glue, A1, after))), Conflict, 5, f"{after} on theirs")
        mine.close()

    # --- level 17: long sets ------------------------------------------------------------------------------------

    def test_level_17_a_long_set_is_created_changed_and_removed(self, context: Context) -> None:
        """More values than fit into one DNS update twice, and a mark that stays theirs all along."""
        mine = owned(self.make(context), INSTANCE)
        key, beside = self.key("long", "AAAA"), self.key("beside")
        self.change(mine, (beside, None, A1))
        before: RecordSet | None = None
        count = self.long_set
        steps = (
            (0, count, 60),
            (1, count + 1, 60),
            (1, count + 1, 120),
            (count // 2, count + count // 2, 60),
            (0, 2, 60),
        )
        for low, high, ttl in steps:
            after = RecordSet(ttl, tuple(sorted(f"2001:db8::{number + 1:x}" for number in range(low, high))))
            action = self.change(mine, (key, before, after))
            mine.perform(action)
            self.holds(mine, {key: after, beside: A1}, f"values {low} to {high}, TTL {ttl}")
            self.owns(mine, key)
            before = after
        self.change(mine, (key, before, None))
        self.holds(mine, {beside: A1}, "the other set alone")
        mine.close()

    # --- level 18: other zones ----------------------------------------------------------------------------------

    def test_level_18_a_zone_that_cannot_be_read_hides_no_other(self, context: Context, names: DNSProvider) -> None:
        """Asked alone, a zone is read and written whatever the other zones of the provider are like."""
        self.change(names, (self.key("app"), None, A1))
        broken = self.unreadable_zone(context)
        if not broken:
            pytest.skip("this provider cannot have a zone that is broken alone (hook `unreadable_zone`)")
        raises(partial(names.observe, [broken]), ProviderError, 1, "a look at the broken zone")
        self.holds(names, {self.key("app"): A1}, "the zone beside it")
        self.change(names, (self.key("app"), A1, A2))
        self.holds(names, {self.key("app"): A2}, "a change of the zone beside it")


A1 = RecordSet(60, ("192.0.2.1",))
A2 = RecordSet(60, ("192.0.2.1", "192.0.2.2"))
AOTHER = RecordSet(30, ("192.0.2.3",))
AAAA = RecordSet(60, ("2001:db8::1",))
T1 = RecordSet(60, ('"one"',))
T2 = RecordSet(60, ('"one"', '"two"'))
