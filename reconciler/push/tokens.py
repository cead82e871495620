"""The credentials of a push, on both sides: what a container is given, and how a message is signed with it.

A generation is `NAME.NONCE`: the container's name and a nonce that is made when it is created; nonces sort by that time. Its
token is derived from the instance's key, so that nobody has to remember tokens, and one never fits another generation. Used by
`shell/credentials.py`, `web/push.py` and the client.
"""

import hashlib
import hmac
import re

SIGNATURE_HEADER = "reconciler-signature"
"""`sha256=HEX`: the HMAC-SHA256 of the whole body under the token, as GitHub signs its webhooks."""

PATH = "/v1/push"

_GENERATION = re.compile(r"([A-Za-z0-9][A-Za-z0-9_.-]{0,199})\.([0-9a-f]{24})")


def generation(name: str, made_at: int, chance: bytes) -> str:
    """The generation of a container that is about to be created.

    Args:
        name: the container's name.
        made_at: wall clock, ns.
        chance: four random bytes, so that two of the same instant differ.
    """
    return f"{name}.{made_at & (2**64 - 1):016x}{chance[:4].hex():0>8}"


def split(text: str) -> tuple[str, str] | None:
    """(container name, nonce) of a generation; None when it is none."""
    found = _GENERATION.fullmatch(text)
    return None if found is None else (found[1], found[2])


def token(key: bytes, of: str) -> str:
    """The token of a generation: 64 hex digits."""
    return hmac.new(key, b"push\0" + of.encode(), hashlib.sha256).hexdigest()


def sign(secret: str, body: bytes) -> str:
    """The value of the signature header for a body."""
    return "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
