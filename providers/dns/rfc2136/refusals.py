"""What a name server's refusal means for the caller, and which line of its configuration would change it.

Used by the `rfc2136_*` modules that read and write, and by the read-only check of the provider. The lines are those of BIND
and of Knot; other servers have the same under other names.
"""

import dns.rcode

from providers.dns.rfc2136.connection import BadSignature
from providers.dns.rfc2136.settings import KeySettings
from providers.errors import Conflict, ProviderError, Rejected, Unreachable

NOERROR, FORMERR, SERVFAIL, NXDOMAIN, NOTIMP, REFUSED, YXDOMAIN, YXRRSET, NXRRSET, NOTAUTH, NOTZONE = range(11)
"""Response codes (RFC 1035 section 4.1.1, RFC 2136 section 2.2)."""

PREREQUISITES = frozenset({NXDOMAIN, YXDOMAIN, YXRRSET, NXRRSET})
"""Codes that say that a prerequisite does not hold (RFC 2136 section 3.2.5)."""


def code_text(rcode: int) -> str:
    """The mnemonic of a response code."""
    return dns.rcode.to_text(dns.rcode.Rcode.make(rcode))


def allow_update(zone: str, key: KeySettings | None) -> str:
    """The configuration that lets this key update the zone."""
    if key is None:
        return f"give the provider an updateKey, and let the server take updates of {zone} signed with it"
    return (
        f"in BIND's zone {zone}: update-policy {{ grant {key.name} zonesub ANY; }}; in Knot: an acl with key: {key.name}"
        " and action: update, named in the zone's acl"
    )


def allow_transfer(zone: str, key: KeySettings | None) -> str:
    """The configuration that lets this key transfer the zone, or the setting that does without."""
    otherwise = "or set readBack: queries, which sees only the names that this instance publishes"
    if key is None:
        return f"give the provider a transferKey that the server lets transfer {zone}, {otherwise}"
    return (
        f'in BIND\'s zone {zone}: allow-transfer {{ key "{key.name}"; }}; in Knot: an acl with key: {key.name} and'
        f" action: transfer, named in the zone's acl; {otherwise}"
    )


def read_refused(zone: str, what: str, rcode: int, key: KeySettings | None) -> ProviderError:
    """The error for a transfer or a query that was answered with `rcode`."""
    target, code = f"zone {zone}", code_text(rcode)
    if rcode == SERVFAIL:
        cause = f"the server cannot serve the zone now: it answers {what} with {code}"
        return Unreachable(target, cause, "see the server's log: the zone may have expired or not been loaded")
    if rcode in (REFUSED, NOTAUTH):
        cause = f"the server refuses {what} ({code})"
        return Rejected(target, cause, allow_transfer(zone, key) if what == "a transfer" else not_served(zone))
    if rcode == NXDOMAIN:
        return Rejected(target, f"the server does not serve this zone: it answers {what} with {code}", not_served(zone))
    return Rejected(target, f"the server answers {what} with {code}", "see the server's log")


def not_served(zone: str) -> str:
    """What to do about a zone that the server does not have, or not for us."""
    return (
        f"configure {zone} on this server as a primary zone that may be queried from here, or correct server and zone"
    )


def bad_signature(zone: str, error: BadSignature, key: KeySettings | None, rights: str) -> Rejected:
    """The error for a signature that one of both sides does not accept. Trying again cannot help.

    `rights` is the configuration that gives the key its rights: Knot says BADKEY for keys without rights, too.
    """
    name = key.name if key else "none"
    algorithm = key.algorithm if key else "none"
    step = f"name, algorithm and secret of key {name} ({algorithm}) must be the same here and on the server"
    if error.code == "BADTIME":
        step = "set the clocks of both machines; signatures hold for five minutes"
    elif error.code == "BADKEY":
        step = f"add key {name} with algorithm {algorithm} to the server, or correct its name here; or give it rights: {rights}"
    return Rejected(f"zone {zone}", f"key {name}: {error}", step)


def update_refused(zone: str, rcode: int, done: str, key: KeySettings | None) -> ProviderError:
    """The error for an update that was answered with `rcode`. `done` says what was already written, if anything."""
    target, code = f"zone {zone}", code_text(rcode)
    if rcode in PREREQUISITES:
        cause = f"a record set was changed by somebody else while it was being written ({code}); {done}"
        return Conflict(target, cause, "look again")
    if rcode == SERVFAIL:
        cause = f"the server could not write the zone ({code}); {done}"
        return Unreachable(target, cause, "see the server's log: its zone or journal file may not be writable")
    if rcode == REFUSED:
        return Rejected(target, f"the server refuses updates ({code}); {done}", allow_update(zone, key))
    if rcode in (NOTAUTH, NOTZONE):
        # BIND says so about zones it has no primary copy of, Knot also when the right to update is missing.
        cause = f"the server does not take this update for the zone ({code}); {done}"
        return Rejected(target, cause, f"{not_served(zone)}; or {allow_update(zone, key)}")
    return Rejected(target, f"the server refuses the update ({code}); {done}", "see the server's log")
