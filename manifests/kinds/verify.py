"""Verify: whose signature the commits of the source need. Part of `source` of a local `Instance`; used by `reconciler/git/verify.py`."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from manifests.kinds.base import Model, unique
from manifests.types.engine import AbsolutePath
from manifests.types.errors import bad_value
from manifests.types.fields import Items
from manifests.values.verify import SignaturePolicy, VerifyMode


class SigningKeys(Model):
    """A file of keys: exactly one of `ssh` and `pgp`. No other user may be able to write it."""

    ssh: AbsolutePath | None = Field(
        None,
        description="File of SSH keys: lines of an allowed signers file of ssh-keygen(1), with `valid-after`, `valid-before`, `namespaces` "
        "and `cert-authority`, or lines of public keys.",
    )
    pgp: AbsolutePath | None = Field(None, description="File of PGP public keys, as `gpg --export` writes it.")

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.ssh is None) == (self.pgp is None):
            raise bad_value("keys need exactly one of ssh and pgp", "write {ssh: /path} or {pgp: /path}")
        return self


class Verify(Model):
    """Signatures that the source needs. A commit without one is not used: the last good commit stays in force."""

    mode: Literal["none", "head", "tag"] = Field(
        description="What must be signed: `none`, nothing; `head`, the commit itself; `tag`, an annotated tag that names the commit: the tag "
        "of `ref`, or any tag at the commit when `ref` is a branch."
    )
    keys: Annotated[Items[SigningKeys], unique("file of keys", "ssh", "pgp")] = Field(
        (),
        description="Files of the keys whose signatures count. They are read at each poll, so that a changed file counts at once.",
    )
    revoked: AbsolutePath | None = Field(
        None,
        description="File of revoked SSH keys: public keys, or a key revocation list of ssh-keygen(1). A revoked PGP key is exported again, "
        "with its revocation.",
    )

    @model_validator(mode="after")
    def _usable(self) -> Self:
        if self.mode != "none" and not self.keys:
            raise bad_value(
                f"mode {self.mode} needs keys", "add keys: [{ssh: /path}] or keys: [{pgp: /path}]", at=("mode",)
            )
        if self.revoked is not None and not any(key.ssh for key in self.keys):
            raise bad_value(
                "revoked is for SSH keys, and keys has none",
                "add a file of SSH keys, or remove revoked",
                at=("revoked",),
            )
        return self

    def policy(self) -> SignaturePolicy:
        """The value for the check."""
        return SignaturePolicy(
            VerifyMode(self.mode),
            tuple(key.ssh for key in self.keys if key.ssh is not None),
            tuple(key.pgp for key in self.keys if key.pgp is not None),
            self.revoked or "",
        )
