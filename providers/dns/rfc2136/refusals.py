"""Turns a name server's refusal into an error, with the line of its configuration that would allow the request.

Used by `read.py`, `queries.py`, `transfer.py` and `update.py`. The lines are those of BIND and of Knot; other servers have similar
ones.
"""

import dns.rcode

from providers.dns.rfc2136.connection import BadSignature
from providers.dns.rfc2136.settings import KeySettings
from providers.errors import Conflict, ProviderError, Rejected, Unreachable

NOERROR, FORMERR, SERVFAIL, NXDOMAIN, NOTIMP, REFUSED, YXDOMAIN, YXRRSET, NXRRSET, NOTAUTH, NOTZONE = range(11)
"""Response codes (RFC 1035 section 4.1.1, RFC 2136 section 2.2)."""

PREREQUISITES = frozenset({NXDOMAIN, YXDOMAIN, YXRRSET, NXRRSET})
"""Codes for a prerequisite that does not hold (RFC 2136 section 3.2.5)."""


def code_text(rcode: int) -> str:
    """The mnemonic of a response code."""
    return dns.rcode.to_text(dns.rcode.Rcode.make(rcode))


def allow_update(zone: str, key: KeySettings | None) -> str:
    """The configuration that allows this key to update the zone."""
    if key is None:
        return f"set updateKey of the provider, and allow that key to update {zone} on the server"
    return (
        f"in BIND's zone {zone}: update-policy {{ grant {key.name} zonesub ANY; }}; in Knot: an acl with key: {key.name}"
        " and action: update, named in the zone's acl"
    )


def allow_transfer(zone: str, key: KeySettings | None) -> str:
    """The configuration that allows this key to transfer the zone, or the setting that needs no transfer."""
    otherwise = "or set readBack: queries, which reads only the names that this instance publishes"
    if key is None:
        return f"set transferKey of the provider to a key that may transfer {zone}, {otherwise}"
    return (
        f'in BIND\'s zone {zone}: allow-transfer {{ key "{key.name}"; }}; in Knot: an acl with key: {key.name} and'
        f" action: transfer, named in the zone's acl; {otherwise}"
    )


def read_refused(zone: str, request: str, rcode: int, key: KeySettings | None) -> ProviderError:
    """The error for a request (`a transfer` or `a query`) that the server answered with `rcode`."""
    target, code = f"zone {zone}", code_text(rcode)
    if rcode == SERVFAIL:
        cause = f"the server cannot serve the zone now: it answers {request} with {code}"
        return Unreachable(target, cause, "check the server's log: the zone may be expired or not loaded")
    if rcode in (REFUSED, NOTAUTH):
        cause = f"the server refuses {request} ({code})"
        return Rejected(target, cause, allow_transfer(zone, key) if request == "a transfer" else not_served(zone))
    if rcode == NXDOMAIN:
        return Rejected(
            target, f"the server does not serve this zone: it answers {request} with {code}", not_served(zone)
        )
    return Rejected(target, f"the server answers {request} with {code}", "check the server's log")


def not_served(zone: str) -> str:
    """The next step for a zone that the server does not serve, or not to this host."""
    return f"configure {zone} on this server as a primary zone that this host may query, or correct server and zone"


def bad_signature(zone: str, error: BadSignature, key: KeySettings | None, rights: str) -> Rejected:
    """The error for a signature that one side does not accept. A retry cannot solve it.

    `rights` is the configuration that gives the key its rights: Knot answers BADKEY also for keys without rights.
    """
    name = key.name if key else "none"
    algorithm = key.algorithm if key else "none"
    step = f"set the same name, algorithm and secret of key {name} ({algorithm}) here and on the server"
    if error.code == "BADTIME":
        step = "set the clocks of both machines; signatures are valid for five minutes"
    elif error.code == "BADKEY":
        step = f"add key {name} with algorithm {algorithm} to the server, or correct its name here; or give it rights: {rights}"
    return Rejected(f"zone {zone}", f"key {name}: {error}", step, whole=True)


MANY_VALUES = 100
"""Values of a set that BIND allows by default (`max-records-per-type`, since 9.18.28 and 9.20)."""


REFUSED_TEXT = "refuses updates (REFUSED)"
"""In the cause of the error for this code."""


def limit_reached(error: Rejected, largest: tuple[int, str]) -> Rejected:
    """The error for an update that the server refuses although the key may update the zone: Knot says so at a limit."""
    cause = error.cause.replace(REFUSED_TEXT, "refuses this update (REFUSED), although the key may update the zone")
    count, name = largest
    shown = f"; its largest set is {name} with {count} value{'s' if count != 1 else ''}" if count > 1 else ""
    next_step = (
        "check the server's log: the zone may have reached a limit, such as Knot's zone-max-size, or a rule of the server may"
        " not allow one of these names or types"
    )
    return Rejected(error.target, cause + shown, next_step)


def update_refused(
    zone: str, rcode: int, done: str, key: KeySettings | None, largest: tuple[int, str] = (0, "")
) -> ProviderError:
    """The error for an update that the server answered with `rcode`.

    `done` names the messages that were carried out; `largest` is the largest set of the update, with its number of values.
    """
    target, code = f"zone {zone}", code_text(rcode)
    count, name = largest
    if rcode == SERVFAIL and count > MANY_VALUES:
        # BIND says no more than this code; its log has the reason. Rejected: without this set the rest may be accepted.
        cause = f"the server could not write {name} with {count} values ({code}); {done}"
        next_step = (
            f"check the server's log; BIND allows {MANY_VALUES} values in a set unless max-records-per-type in its zone"
            f" {zone} says otherwise (0: any number), or publish fewer values"
        )
        return Rejected(target, cause, next_step)
    if rcode in PREREQUISITES:
        cause = f"another writer changed a record set during the update ({code}); {done}"
        return Conflict(target, cause, "retried automatically")
    if rcode == SERVFAIL:
        cause = f"the server could not write the zone ({code}); {done}"
        next_step = (
            "check the server's log: its zone or journal file may not be writable, or a limit of the zone is reached, such as"
            " BIND's max-records or max-types-per-name"
        )
        return Unreachable(target, cause, next_step)
    if rcode == REFUSED:
        return Rejected(target, f"the server {REFUSED_TEXT}; {done}", allow_update(zone, key))
    if rcode in (NOTAUTH, NOTZONE):
        # BIND answers so for zones it is not primary for, Knot also without the right to update.
        cause = f"the server does not accept the update of this zone ({code}); {done}"
        return Rejected(target, cause, f"{not_served(zone)}; or {allow_update(zone, key)}", whole=True)
    return Rejected(target, f"the server refuses the update ({code}); {done}", "check the server's log")
