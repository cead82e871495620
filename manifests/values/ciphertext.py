"""Texts that are not what a program needs: ciphertext that was not decrypted, and placeholders that stand for a removed secret.

An encrypted value that reaches a container is a wrong password at best; a placeholder copied out of a log is one too. `marker` finds both
by the marks that the tools themselves write, never by how random a text looks. Pure. Called by `resolve/ciphertext.py` for texts in
manifests, by `files` of a tree, and by `providers/lib/secrets.py` for what a reference resolves to.
"""

import re
from typing import NamedTuple


class Marker(NamedTuple):
    """What a text was recognized as: `name` for messages, and the next step in the imperative. The text itself is in neither."""

    name: str
    next_step: str


_SOPS = Marker("SOPS ciphertext (ENC[AES256_GCM,…])", "refer to it with valueFrom.secret.sops, or decrypt it with sops")
_EYAML = Marker("eyaml ciphertext (ENC[PKCS7,…])", "decrypt it with eyaml")
_AGE = Marker("an age file", "refer to it with valueFrom.secret.age, or decrypt it with age")
_PGP = Marker("a PGP message", "decrypt it with gpg")
_VAULT = Marker("an Ansible Vault file ($ANSIBLE_VAULT)", "decrypt it with ansible-vault")
_GIT_CRYPT = Marker("a file that git-crypt has locked", "run git-crypt unlock")
SEALED = Marker("a SealedSecret", "only its cluster can decrypt it: store the secret in another way")
"""A secret that the controller of one Kubernetes cluster decrypts."""
_PLACEHOLDER = Marker("a placeholder that stands for a removed secret", "write the secret itself there")

_TEXT: tuple[tuple[re.Pattern[str], Marker], ...] = (
    (re.compile(r"ENC\[AES256_GCM,\s*data:"), _SOPS),
    (re.compile(r"ENC\[(?:PKCS7|GPG|KMS),"), _EYAML),
    (re.compile(r"-----BEGIN AGE ENCRYPTED FILE-----"), _AGE),
    (re.compile(r"^\s*age-encryption\.org/v1\r?\n"), _AGE),
    (re.compile(r"-----BEGIN PGP MESSAGE-----"), _PGP),
    (re.compile(r"^[^\S\n]*\$ANSIBLE_VAULT;\d", re.MULTILINE), _VAULT),
    (re.compile(r"^\0GITCRYPT\0"), _GIT_CRYPT),
    (re.compile(r"(?:^[^\S\n]*|[{,]\s*)[\"']?kind[\"']?\s*:\s*[\"']?SealedSecret\b", re.MULTILINE), SEALED),
)
"""Marks that tools write around ciphertext. They count anywhere in a text where they cannot be a part of plain text. What follows the begin of a
line stays in that line: a text of empty lines would take time with the square of its length."""

_HINTS = ("ENC[", "-----BEGIN ", "age-encryption", "$ANSIBLE_VAULT", "\0GITCRYPT", "SealedSecret")
"""One of these is in every text with a mark: most texts are done after six searches for a fixed text."""

_WORDS = r"(?:redacted|masked|sensitive(?:[ _-]value)?|filtered|hidden|scrubbed|secret|removed)"
_HIDDEN = (
    r"(?:\*{3,}|[•●]{3,}"  # stars of CI systems and of this program, dots of consoles
    rf"|[<\[(]{{1,2}}\s*{_WORDS}\s*[>\])]{{1,2}}|\*+{_WORDS}\*+)"  # <redacted>, [MASKED], (sensitive value), ***REDACTED***
)
_PLACEHOLDERS = re.compile(
    rf"\s*(?:(?:bearer|basic|token|apikey)\s+)?{_HIDDEN}\s*|[^\s]*://[^\s/@]*:{_HIDDEN}@[^\s]*", re.IGNORECASE
)
"""A whole text, what follows the scheme of an Authorization header, or the password in a URL."""

_LONGEST_PLACEHOLDER = 4096
"""Longest text in which a placeholder is searched for."""


def may_have(text: str) -> bool:
    """Whether ciphertext may be in a text: a quick look at a whole file before its parts are searched."""
    return any(hint in text for hint in _HINTS)


def ciphertext(text: str) -> Marker | None:
    """What kind of ciphertext is in a text; None when it has no mark of any."""
    if not may_have(text):
        return None
    return next((marker for pattern, marker in _TEXT if pattern.search(text)), None)


def marker(text: str) -> Marker | None:
    """As `ciphertext`, and also a placeholder of a removed secret in place of the whole text, a token or a URL's password."""
    found = ciphertext(text)
    if found is None and len(text) <= _LONGEST_PLACEHOLDER and _PLACEHOLDERS.fullmatch(text):
        return _PLACEHOLDER
    return found


def marker_of_bytes(data: bytes) -> Marker | None:
    """As `marker`, for the content of a file, which need not be text: git-crypt's and age's own files are not."""
    return marker(data.decode("utf-8", "replace"))
