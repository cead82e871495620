"""Whose signature the commits of the source need. Made by `manifests/kinds/verify.py`, used by `reconciler/git/verify.py`."""

from dataclasses import dataclass
from enum import StrEnum


class VerifyMode(StrEnum):
    """What must be signed: nothing, the commit itself, or a tag that names it."""

    NONE = "none"
    HEAD = "head"
    TAG = "tag"


@dataclass(frozen=True, slots=True)
class SignaturePolicy:
    """Whose signatures count.

    Attributes:
        mode: what must be signed.
        ssh: files of SSH keys, absolute: allowed signers of ssh-keygen(1), or public keys.
        pgp: files of PGP public keys, absolute.
        ssh_revoked: the file of revoked SSH keys, absolute; empty for none.
    """

    mode: VerifyMode = VerifyMode.NONE
    ssh: tuple[str, ...] = ()
    pgp: tuple[str, ...] = ()
    ssh_revoked: str = ""

    @property
    def wanted(self) -> bool:
        """Whether anything must be signed."""
        return self.mode is not VerifyMode.NONE
