"""The ledger's rows of names are stored and read again, and those of an earlier version do no harm."""

import json

from manifests.values.desired import SECOND
from reconciler.core.model.approval import Approval
from reconciler.core.model.dns_memory import Flap, HeldTTL, Written
from reconciler.core.model.instant import instant
from reconciler.core.model.ledger import Ledger
from reconciler.core.model.ledger_codec import from_rows, to_rows
from tests.builders import NOW

AT = instant(NOW)


def test_every_row_of_names_is_read_as_it_was_written():
    ledger = Ledger(
        approvals={"a": Approval(AT, ("x", "y")), "b": Approval(AT), "c": Approval(AT, ("z",), approved=False)},
        flaps={"dnspolicy/app/t/192.0.2.1": Flap(3, AT), "dnspolicy/app/t/192.0.2.2": Flap(1)},
        held_ttls={"dns/a.test./app.a.test.": HeldTTL(300 * SECOND, AT), "dns/a.test./192.0.2.1": HeldTTL(SECOND)},
        pointers_known={"dns/a.test./": AT},
        written={"dns/a.test./www.a.test. A ": Written("d1", True, (AT, AT), "old", "new")},
    )
    assert from_rows(to_rows(ledger)) == ledger


def test_a_hash_that_an_earlier_version_stored_approves_nothing():
    rows = {("approvals", "0123456789abcdef"): json.dumps(True)}
    assert from_rows(rows) == Ledger()
