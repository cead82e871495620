"""Push credentials: generations, tokens, and signatures. Used by `shell/pushing/credentials.py`, `web/push.py` and the client.

A generation is `NAME.NONCE`: the container's name, and a nonce that is made when the container is created. Nonces sort by that
time. The token of a generation is derived from the instance's key, so tokens need not be stored.
"""

import hashlib
import hmac
import re

SIGNATURE_HEADER = "reconciler-signature"
"""`sha256=HEX`: the HMAC-SHA256 of the whole body with the token as key, like GitHub's webhooks."""

PATH = "/v1/push"

_GENERATION = re.compile(r"([A-Za-z0-9][A-Za-z0-9_.-]{0,199})\.([0-9a-f]{24})")


def generation(name: str, made_at: int, chance: bytes) -> str:
    """The generation of a container to be created.

    Args:
        name: the container's name.
        made_at: wall clock, ns.
        chance: four random bytes, so that two containers created at the same instant differ.
    """
    return f"{name}.{made_at & (2**64 - 1):016x}{chance[:4].hex():0>8}"


def split(text: str) -> tuple[str, str] | None:
    """(container name, nonce) of a generation; None when the text is not a generation."""
    match = _GENERATION.fullmatch(text)
    return None if match is None else (match[1], match[2])


def token(key: bytes, of: str) -> str:
    """The token of a generation: 64 hex digits."""
    return hmac.new(key, b"push\0" + of.encode(), hashlib.sha256).hexdigest()


def sign(secret: str, body: bytes) -> str:
    """The value of the signature header for a body."""
    return "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
