"""What a host says about secrets that other programs give: commands, identities, and the environment of SOPS. Part of `Instance`.

These fields count only in local documents (`--instance`): an author who can merge must neither choose a program that runs here nor a key that
decrypts. `resolve/local.py` refuses them in a tree.
"""

from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from manifests.kinds.base import Command, Model, unique
from manifests.types.durations import Duration, between
from manifests.types.engine import AbsolutePath
from manifests.types.errors import bad_value
from manifests.types.fields import AnyDuration, Argument, EnvName, Items, Name, Shown
from manifests.values import secret_sources as values
from manifests.values.desired import SECOND

_MINUTE, _DAY = 60 * SECOND, 86_400 * SECOND

Timeout = Annotated[AnyDuration, AfterValidator(between(SECOND, _MINUTE)), Shown("duration, 1s to 1m")]
Refresh = Annotated[AnyDuration, AfterValidator(between(10 * SECOND, _DAY)), Shown("duration, 10s to 1d")]


def _program(command: tuple[str, ...]) -> tuple[str, ...]:
    if "/" in command[0] and not command[0].startswith("/"):
        raise bad_value(f"'{command[0][:80]}' is a relative path", "write an absolute path", at=(0,))
    return command


class SecretCommand(Model):
    """A program that prints a secret."""

    name: Name = Field(description="Name that references use: `{command: NAME}`.")
    command: Annotated[Command, AfterValidator(_program)] = Field(
        description="Program and arguments, run without a shell; exit code 0 means that the output is the secret. Other users of "
        "the host can read arguments, so they must hold no secret."
    )
    timeout: Timeout = Field(
        Duration(10 * SECOND), description="Time after which the program and its children are killed."
    )
    refresh: Refresh = Field(
        Duration(5 * _MINUTE), description="How long an output is used before the program runs again."
    )
    env: dict[EnvName, Argument] = Field(
        default_factory=dict,
        description="Variables of the program. It inherits HOME, LANG, LC_ALL, PATH and USER only.",
    )
    pass_env: Annotated[Items[EnvName], unique("variable")] = Field(
        (), description="Variables of the reconciler's own environment that the program gets too."
    )

    def value(self) -> values.SecretCommand:
        """The value that providers get."""
        env = tuple(sorted(self.env.items()))
        return values.SecretCommand(
            self.name, self.command, int(self.timeout), int(self.refresh), env, tuple(self.pass_env)
        )


class AgeIdentity(Model):
    """A file of age identities."""

    name: Name = Field(description="Name that references use.")
    file: AbsolutePath = Field(description="File with the identities. It must not be readable by all users.")


class Sops(Model):
    """How SOPS runs."""

    identity: Name | None = Field(
        None, description="Identity for age recipients; by default the only one of `identities`, if there is one."
    )
    env: dict[EnvName, Argument] = Field(
        default_factory=dict,
        description="Variables of SOPS, such as `GNUPGHOME` or `AWS_PROFILE`. It inherits HOME, LANG, LC_ALL, PATH and USER, and without "
        "an identity SOPS_AGE_KEY, SOPS_AGE_KEY_FILE and GNUPGHOME.",
    )
    pass_env: Annotated[Items[EnvName], unique("variable")] = Field(
        (), description="Variables of the reconciler's own environment that SOPS gets too."
    )
    key_services: Annotated[Items[str], unique("address")] = Field(
        (),
        description="Addresses of key services (HashiCorp Vault, Azure Key Vault) that encrypted files may name, such as "
        "`https://vault.example.com:8200`: SOPS sends its token there. By default none.",
    )


class Decryption(Model):
    """Identities and settings for files that SOPS or age has encrypted."""

    identities: Annotated[Items[AgeIdentity], unique("identity", "name")] = Field(
        (), description="Files of age identities, by name."
    )
    sops: Sops = Field(default_factory=Sops, description="How SOPS runs.")
    timeout: Timeout = Field(
        Duration(10 * SECOND), description="Time after which SOPS or age and their children are killed."
    )

    @model_validator(mode="after")
    def _known(self) -> Self:
        names = [identity.name for identity in self.identities]
        if self.sops.identity is not None and self.sops.identity not in names:
            raise bad_value(
                f"identities has no '{self.sops.identity}'", "add it to identities", at=("sops", "identity")
            )
        return self

    def value(self) -> values.Decryption:
        """The value that providers get."""
        identities = {identity.name: identity.file for identity in self.identities}
        only = next(iter(identities.values())) if len(identities) == 1 else ""
        return values.Decryption(
            tuple(sorted(identities.items())),
            identities[self.sops.identity] if self.sops.identity is not None else only,
            tuple(sorted(self.sops.env.items())),
            tuple(self.sops.pass_env),
            tuple(address.rstrip("/") for address in self.sops.key_services),
            int(self.timeout),
        )
