"""How changes of images are written into the repository of the manifests, and who may ask for them. Part of the local Instance.

Only local documents may say it: an author who can merge must not choose where a token that can write is sent, or who may deploy.
"""

import re
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from manifests.kinds.base import Model, unique
from manifests.kinds.secret_ref import HostSecretReference
from manifests.types.engine import AbsolutePath
from manifests.types.errors import bad_value
from manifests.types.fields import Items, Name, Shown
from manifests.types.web import is_loopback
from manifests.values import write_back as values
from manifests.values.image_ref import parse_image
from manifests.values.secret_sources import SecretSource

_EMAIL = re.compile(r"[^\s<>@]{1,64}@[^\s<>@]{1,190}")


def _person(value: str) -> str:
    if 0 < len(value) <= 100 and value.isprintable() and not set(value) & set("<>") and value.strip() == value:
        return value
    raise bad_value("a name has 1 to 100 printable characters, and no '<' or '>'", "correct it")


def _email(value: str) -> str:
    if _EMAIL.fullmatch(value) and value.isprintable():
        return value
    raise bad_value(f"'{value[:80]}' is not a mail address", "write an address such as deploy@example.com")


def _server(value: str) -> str:
    try:
        parsed = parse_image(f"{value}/name")
    except ValueError:
        parsed = None
    if parsed is None or parsed.path != "name" or parsed.domain != value:
        hint = "write it as in names of images, such as registry.example.com:5000, or docker.io"
        raise bad_value(f"'{value[:80]}' is not the host of a registry", hint)
    return value


PersonName = Annotated[str, AfterValidator(_person), Shown("name")]
Email = Annotated[str, AfterValidator(_email), Shown("mail address")]
Server = Annotated[str, AfterValidator(_server), Shown("host of a registry")]
UserName = Annotated[str, AfterValidator(_person), Shown("user name")]


class Author(Model):
    """Author and committer of commits."""

    name: PersonName = Field("reconcile", description="Name of the author.")
    email: Email = Field("reconcile@localhost", description="Mail address of the author.")


class WriteBack(Model):
    """How a change of an image reaches the repository. Its credentials are separate from those that read."""

    mode: Literal["commit", "mergeRequest"] = Field(
        description="`commit` pushes one commit to the branch of the source; `mergeRequest` pushes it to a branch of its own and opens a merge "
        "request, which needs `forge`."
    )
    author: Author = Field(default_factory=Author, description="Author and committer of the commits.")
    token: HostSecretReference | None = Field(
        None,
        description="Token or password that may push, for `git+https`. The token of the source is not used to write.",
    )
    username: UserName = Field("git", description="User name that is sent with the token.")
    ssh_key: HostSecretReference | None = Field(
        None, description="Private key that may push, for `git+ssh`. The key of the source is not used to write."
    )
    signing_key: HostSecretReference | None = Field(
        None, description="Private SSH key, without a passphrase, that signs the commits. By default they are unsigned."
    )

    def value(self) -> values.WriteBack:
        """The value that the program reads."""

        def source(given: HostSecretReference | None) -> SecretSource | None:
            return None if given is None else given.source()

        return values.WriteBack(
            values.WriteMode(self.mode),
            self.author.name,
            self.author.email,
            self.username,
            source(self.token),
            source(self.ssh_key),
            source(self.signing_key),
        )

    def check(self, scheme: str) -> None:
        """Raise for credentials that do not fit the scheme of the source: the push would be refused, or they would do nothing."""
        needed = {"https": "token", "ssh": "ssh_key"}.get(scheme, "")
        for field, name in (("token", "token"), ("ssh_key", "sshKey")):
            given = getattr(self, field) is not None
            if given and field != needed:
                raise bad_value(f"writeBack.{name} does nothing for git+{scheme}", "remove it", at=("writeBack", name))
            if not given and field == needed:
                cause = f"writeBack needs {name} to push by git+{scheme}"
                raise bad_value(cause, f"add {name}, with the right to write", at=("writeBack",))


class Deployer(Model):
    """A token that may change the image of one workload by `POST /v1/deployments`. Needs `push` in the Instance."""

    workload: Name = Field(description="Name of the workload.")
    container: Name | None = Field(
        None, description="Container whose image may change; needed when the workload has several."
    )
    token: HostSecretReference = Field(
        description="Token that requests send as `Authorization: Bearer`: at least 16 characters, and different for each workload."
    )


class Registry(Model):
    """A registry that image policies may ask for tags and digests."""

    server: Server = Field(description="Host of the registry as in names of images, such as registry.example.com:5000.")
    username: UserName | None = Field(None, description="User name of the login; needs `password`.")
    password: HostSecretReference | None = Field(None, description="Password or token of the login; needs `username`.")
    ca_file: AbsolutePath | None = Field(None, description="PEM certificates to trust instead of those of the system.")
    insecure: bool = Field(
        False, description="Asks over plain HTTP, without encryption. Not with a login beyond loopback."
    )

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if (self.username is None) != (self.password is None):
            raise bad_value("username and password belong together", "add the other one, or remove both")
        host = self.server.rpartition(":")[0] or self.server
        if self.insecure and self.password is not None and not is_loopback(host.strip("[]")):
            raise bad_value("a password would be sent in clear over plain HTTP", "remove insecure", at=("insecure",))
        if self.insecure and self.ca_file is not None:
            raise bad_value("caFile does nothing without TLS", "remove caFile, or insecure", at=("caFile",))
        return self


class ImagePolicies(Model):
    """What local documents allow the `imagePolicies` of workloads."""

    apply: Literal["commit", "rollout"] = Field(
        "commit",
        description="`commit` writes what a policy finds into the repository, as `writeBack` of the source says; `rollout` uses it on this "
        "host without a commit, and takes it back when its rollout fails.",
    )
    registries: Annotated[Items[Registry], unique("registry", "server")] = Field(
        (), description="Registries that policies may ask. A policy of another registry is refused."
    )

    def value(self) -> values.ImageSettings:
        """The value that the program reads."""
        return values.ImageSettings(
            tuple(
                values.Registry(
                    registry.server,
                    registry.username or "",
                    None if registry.password is None else registry.password.source(),
                    registry.ca_file or "",
                    registry.insecure,
                )
                for registry in self.registries
            ),
            values.ImageApply(self.apply),
        )
