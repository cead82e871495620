"""What a raw commit or tag says about itself: who wrote it, what it names, and which key its signature claims. Pure; used by `verify.py`.

Nothing here is a proof. Only git's own check is (`git verify-commit`, `git verify-tag`); these texts name the object and the key in
messages, and the key is compared with the accepted one.

Formats: gitformat-signature(5), PROTOCOL.sshsig and PROTOCOL.certkeys of OpenSSH.
"""

import binascii
import re
from base64 import b64decode, b64encode
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256

from manifests.escape import escape

SHOWN = 120
"""The most characters of a name in a message."""


class Kind(StrEnum):
    """The format of a signature."""

    NONE = "none"
    SSH = "SSH"
    PGP = "PGP"
    X509 = "X.509"
    UNKNOWN = "unknown"


_BEGINS = (
    (b"-----BEGIN SSH SIGNATURE-----", Kind.SSH),
    (b"-----BEGIN PGP SIGNATURE-----", Kind.PGP),
    (b"-----BEGIN PGP MESSAGE-----", Kind.PGP),
    (b"-----BEGIN SIGNED MESSAGE-----", Kind.X509),
)

_SIGNATURE_HEADERS = (b"gpgsig", b"gpgsig-sha256")
_WHEN = re.compile(rb" \d+ [+-]\d{4}$")


@dataclass(frozen=True, slots=True)
class Signed:
    """A commit or tag.

    Attributes:
        who: the author of a commit, the tagger of a tag, escaped: `NAME <ADDRESS>`; the name is whatever the author wrote.
        kind: the format of the signature.
        key: the fingerprint of the SSH key that the signature claims, `SHA256:…`; empty for other formats.
        certificate: the SSH key is one with a certificate.
        name: of a tag, without `refs/tags/`. target: the number of the object that a tag names. target_kind: its kind, `commit`.
        when: the wall-clock second that a tagger wrote; 0 without one.
    """

    who: str
    kind: Kind
    key: str = ""
    certificate: bool = False
    name: str = ""
    target: str = ""
    target_kind: str = ""
    when: int = 0


def read_commit(data: bytes) -> Signed:
    """A raw commit."""
    headers = _headers(data)
    who = next((value for name, value in headers if name == b"author"), b"")
    signature = next((value for name, value in headers if name in _SIGNATURE_HEADERS), b"")
    return _signed(who, signature)


def read_tag(data: bytes) -> Signed:
    """A raw annotated tag. Its signature is the end of its message, or a header in repositories with SHA-256."""
    headers = _headers(data)
    values = dict(reversed(headers))  # the first of each
    body = data.partition(b"\n\n")[2]
    starts = [body.rfind(b"\n" + begin) + 1 for begin, _ in _BEGINS if b"\n" + begin in body]
    starts += [0 for begin, _ in _BEGINS if body.startswith(begin)]
    signature = body[max(starts) :] if starts else next((values[n] for n in _SIGNATURE_HEADERS if n in values), b"")
    tagger = values.get(b"tagger", b"")
    when = re.search(rb" (\d{1,12}) [+-]\d{4}$", tagger)
    made = _signed(tagger, signature)
    return Signed(
        made.who,
        made.kind,
        made.key,
        made.certificate,
        values.get(b"tag", b"").decode("utf-8", "replace"),
        values.get(b"object", b"").decode("ascii", "replace"),
        values.get(b"type", b"").decode("ascii", "replace"),
        int(when[1]) if when else 0,
    )


def _headers(data: bytes) -> list[tuple[bytes, bytes]]:
    """The headers in order; continued lines are joined with line feeds."""
    headers: list[tuple[bytes, bytes]] = []
    for line in data.partition(b"\n\n")[0].split(b"\n"):
        if line.startswith(b" ") and headers:
            name, value = headers[-1]
            headers[-1] = name, value + b"\n" + line[1:]
        else:
            name, _, value = line.partition(b" ")
            headers.append((name, value))
    return headers


def _signed(who: bytes, signature: bytes) -> Signed:
    shown = escape(_WHEN.sub(b"", who).decode("utf-8", "replace").strip()[:SHOWN]) or "an unknown author"
    if not signature.strip():
        return Signed(shown, Kind.NONE)
    kind = next((kind for begin, kind in _BEGINS if signature.lstrip().startswith(begin)), Kind.UNKNOWN)
    key = _ssh_key(signature) if kind is Kind.SSH else None
    if key is None:
        return Signed(shown, kind)
    return Signed(shown, kind, fingerprint(key), _string(key, 0)[0].endswith(b"-cert-v01@openssh.com"))


def fingerprint(key: bytes) -> str:
    """The fingerprint of an SSH public key as ssh-keygen shows it."""
    return "SHA256:" + b64encode(sha256(key).digest()).decode("ascii").rstrip("=")


def _ssh_key(armored: bytes) -> bytes | None:
    """The public key in an SSH signature; None when it cannot be read."""
    lines = armored.strip().splitlines()
    text = b"".join(line.strip() for line in lines if not line.startswith(b"-----"))
    try:
        raw = b64decode(text, validate=True)
    except binascii.Error:
        return None
    if not raw.startswith(b"SSHSIG"):
        return None
    key, _ = _string(raw, 10)
    return key or None


def _string(data: bytes, at: int) -> tuple[bytes, int]:
    """The string at a position of the format of SSH (RFC 4251, 5), and the position after it; empty when it is cut off."""
    size = int.from_bytes(data[at : at + 4], "big")
    found = data[at + 4 : at + 4 + size]
    return (found, at + 4 + size) if len(found) == size and len(data) >= at + 4 else (b"", len(data))
