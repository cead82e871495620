"""Names, the result of the names stage: differences, holds and waits of all names, and what other stages need to know of them.

`dns/compare` makes one in each decision; policies, records and record lists add to it. Values only.
"""

from dataclasses import dataclass, field

from providers.facts import RecordKey
from reconciler.core.dns.capabilities_fit import Note
from reconciler.core.dns.publication import Answer
from reconciler.core.dns.records import RecordDiff, Sets, ZoneKey
from reconciler.core.dns.targets import TargetAddress
from reconciler.core.model.dns_memory import Flap, NameRow
from reconciler.core.model.instant import FOREVER
from reconciler.core.model.reasons import Hold, Wait


@dataclass(slots=True)
class PolicyOutcome:
    """One policy: its target addresses, the decision about them, and what the provider does not support.

    `published` are the addresses and outside names that clients of the host get, None while the zone cannot be read; `wanted` are
    those that they should get.
    """

    target_addresses: tuple[TargetAddress, ...]
    answer: Answer
    published: frozenset[str] | None
    wanted: frozenset[str] = frozenset()
    notes: tuple[Note, ...] = ()


@dataclass(slots=True)
class Names:
    """The result for all names. Filled while the stage runs, read-only after it.

    By container id: `named` is the TTL (ns) of names that publish the container's address and should withdraw it, now or when
    it leaves; `kept` are containers whose address a name keeps because it is the last; `hidden` is the unreadable zone.
    `wanted`: all record sets that names should have. `strays`: owned record sets that no manifest wants, to be pruned.
    `own` are the names published in a zone, `taken` the record sets there that were taken over from another owned object.
    By policy: `rows` are to be remembered, `policies` are for status. `flaps` are the rows of target addresses, to be remembered. `until`: the steady instant until which the result holds.
    """

    changes: list[RecordDiff] = field(default_factory=list)
    strays: list[RecordDiff] = field(default_factory=list)
    holds: list[Hold] = field(default_factory=list)
    waits: list[Wait] = field(default_factory=list)
    named: dict[str, int] = field(default_factory=dict)
    kept: set[str] = field(default_factory=set)
    hidden: dict[str, str] = field(default_factory=dict)
    wanted: list[Sets] = field(default_factory=list)
    own: dict[ZoneKey, set[str]] = field(default_factory=dict)
    taken: dict[ZoneKey, set[RecordKey]] = field(default_factory=dict)
    rows: dict[str, NameRow] = field(default_factory=dict)
    flaps: dict[str, Flap] = field(default_factory=dict)
    until: int = FOREVER
    policies: dict[str, PolicyOutcome] = field(default_factory=dict)
