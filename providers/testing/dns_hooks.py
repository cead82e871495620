"""The base of the DNS suite: the hooks that an author writes, fixtures, and helpers.

`dns_suite.py` has the levels. Authors subclass its `DNSConformance` and find the hooks to write here. Records that every new zone
has (NS and SOA at its top) are left out.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from providers.actions import ChangeRecords, RecordChange
from providers.facts import RecordKey, RecordSet, ZoneFact
from providers.spi import Context, DNSProvider, capabilities_of
from providers.testing.checks import same
from providers.wrappers.owned import owned

INSTANCE = "suite"
OTHER = "other"


class DNSHooks:
    """Everything but the levels."""

    zone = "example.test."
    """The zone of the suite. At the start of each test it has only the records that every new zone has."""

    counts = True
    """Whether the zone has a serial that increases with each change."""

    long_set = 1200
    """Values of the longest set that the suite writes. Set it lower, with the reason, where the other side allows fewer."""

    # --- hooks: what an author writes ---------------------------------------------------------------------------

    def make(self, context: Context) -> DNSProvider:
        """A new provider object on the same world for the same state directory, without decorators. No I/O."""
        raise NotImplementedError(f"{type(self).__name__}: write the hook `make`; its docstring says what it must do")

    def break_reads(self, context: Context) -> None:
        """Make the zone unreadable: a corrupt file, a dead server, missing permissions."""
        raise NotImplementedError(
            f"{type(self).__name__}: write the hook `break_reads`; its docstring says what it must do"
        )

    def wrap(self, names: DNSProvider, context: Context) -> DNSProvider:
        """Put decorators around the provider under test; by default none."""
        del context
        return names

    # --- fixtures and helpers -------------------------------------------------------------------------------

    @pytest.fixture
    def context(self, tmp_path: Path) -> Context:
        """This instance, with a private state directory."""
        state = tmp_path / "state"
        state.mkdir(mode=0o700)
        return Context(INSTANCE, str(state))

    @pytest.fixture
    def names(self, context: Context) -> Iterator[DNSProvider]:
        """The provider under test."""
        provider = self.wrap(self.make(context), context)
        yield provider
        provider.close()

    @pytest.fixture
    def theirs(self, context: Context) -> Iterator[DNSProvider]:
        """The same world for another instance, with ownership."""
        provider = owned(self.make(Context(OTHER, context.state_dir)), OTHER)
        yield provider
        provider.close()

    def unreadable_zone(self, context: Context) -> str:
        """Make a zone beside `zone` that cannot be read, and return its name; empty where there can be none. Optional."""
        del context
        return ""

    def needs_types(self, provider: DNSProvider, *kinds: str) -> None:
        """Skip the test, with the reason, where the provider declares that it cannot hold one of these types."""
        types = capabilities_of(provider).types
        lacking = [kind for kind in kinds if types and kind not in types]
        if lacking:
            pytest.skip(f"the provider declares no type {', '.join(lacking)}")

    def owns(self, provider: DNSProvider, *keys: RecordKey) -> None:
        """Check that sets have the owner mark of this instance."""
        owners = self.look(provider).owners
        same([key for key in keys if owners.get(key) != f"{INSTANCE}/DNSPolicy/app"], [], 5, "every set has our mark")

    def key(self, label: str, kind: str = "A", set_id: str = "") -> RecordKey:
        """A name in the suite's zone; the zone's own name for an empty label."""
        return RecordKey(f"{label}.{self.zone}" if label else self.zone, kind, set_id)

    def look(self, provider: DNSProvider) -> ZoneFact:
        """The suite's zone as one look sees it."""
        facts = provider.observe([self.zone])
        same([fact.zone for fact in facts], [self.zone], 1, "one fact for the zone that was asked for")
        return facts[0]

    def records(self, provider: DNSProvider) -> dict[RecordKey, RecordSet]:
        """The zone's record sets without those of every new zone."""
        always = (self.key("", "NS"), self.key("", "SOA"))
        return {key: record for key, record in self.look(provider).records.items() if key not in always}

    def change(
        self, provider: DNSProvider, *changes: tuple[RecordKey, RecordSet | None, RecordSet | None]
    ) -> ChangeRecords:
        """Change sets, each (key, before, after), in one request; returns the action, to repeat it."""
        action = self.action(provider, *changes)
        provider.perform(action)
        return action

    def action(
        self,
        provider: DNSProvider,
        *changes: tuple[RecordKey, RecordSet | None, RecordSet | None],
        instance: str = INSTANCE,
    ) -> ChangeRecords:
        """The action for some changes, each (key, before, after)."""
        owner = f"{instance}/DNSPolicy/app"
        return ChangeRecords(provider.name, self.zone, tuple(RecordChange(*change, owner) for change in changes))

    def adopting(
        self, provider: DNSProvider, key: RecordKey, before: RecordSet, after: RecordSet | None
    ) -> ChangeRecords:
        """The action that takes over a set without a mark."""
        change = RecordChange(key, before, after, f"{INSTANCE}/DNSPolicy/app", adopts=True)
        return ChangeRecords(provider.name, self.zone, (change,))

    def holds(self, provider: DNSProvider, expected: Mapping[RecordKey, RecordSet], what: str) -> None:
        """Check that the zone has exactly these sets."""
        same(self.records(provider), dict(expected), 2, what)
