"""Where the manifests come from when they are in a git repository, and how this host reaches it. Part of the local Instance.

Only local documents may say it: an author who can merge must not choose another source, or where a credential is sent.
"""

from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from manifests.kinds.base import Model
from manifests.kinds.secret_ref import HostSecretReference
from manifests.kinds.verify import Verify
from manifests.kinds.webhook import Webhook
from manifests.kinds.write_back import WriteBack
from manifests.source.directory import ENVIRONMENT_NAME, ENVIRONMENTS
from manifests.source.git_url import BadUrl, GitUrl, parse
from manifests.types.durations import Duration
from manifests.types.engine import AbsolutePath
from manifests.types.errors import bad_value
from manifests.types.fields import CallTimeout, PollInterval, Shown
from manifests.values.desired import SECOND


def _url(value: str) -> str:
    try:
        parse(value)
    except BadUrl as error:
        raise bad_value(error.cause, error.hint) from None
    return value


SourceUrl = Annotated[str, AfterValidator(_url), Shown("address of a git source")]


def _username(value: str) -> str:
    if 0 < len(value) <= 200 and value.isprintable() and " " not in value:
        return value
    raise bad_value("a user name has 1 to 200 printable characters and no space", "correct it")


UserName = Annotated[str, AfterValidator(_username), Shown("user name")]


def _environment(value: str) -> str:
    if ENVIRONMENT_NAME.fullmatch(value):
        return value
    raise bad_value(
        "an environment has 1 to 63 letters, digits, '-', '_' and '.'",
        f"write the name of a directory in {ENVIRONMENTS}",
    )


EnvironmentName = Annotated[str, AfterValidator(_environment), Shown("name of an environment")]


class Source(Model):
    """The git repository that the manifests are read from. Only in a local document (`--instance`)."""

    url: SourceUrl = Field(
        description="Repository, directory and ref, such as `git+https://HOST/REPOSITORY.git//DIRECTORY?ref=main`; also `git+ssh` and "
        "`git+file`. Without `ref` the default branch; a whole commit number pins that commit."
    )
    env: EnvironmentName | None = Field(
        None,
        description="Environment of this host: the documents of `environments/NAME/` are merged over the others. It counts for every "
        "PATH that is given with these local documents.",
    )
    interval: PollInterval = Field(
        Duration(60 * SECOND), description="Time between two questions to the remote, up to a tenth longer."
    )
    timeout: CallTimeout = Field(Duration(60 * SECOND), description="Longest time of one call of git over the network.")
    require_fast_forward: bool = Field(
        False,
        description="Holds a commit whose history does not contain the commit in force (a force-push) until an operator changes this "
        "or the branch; by default it is followed and reported.",
    )
    token: HostSecretReference | None = Field(None, description="Token or password for `git+https`.")
    username: UserName = Field("git", description="User name that is sent with the token; most servers ignore it.")
    ssh_key: HostSecretReference | None = Field(None, description="Private key for `git+ssh`, without a passphrase.")
    known_hosts: AbsolutePath | None = Field(
        None,
        description="File of the host keys that `git+ssh` accepts, as ssh-keyscan writes them. Required for `git+ssh`.",
    )
    ca_file: AbsolutePath | None = Field(
        None, description="Certificates that `git+https` trusts instead of the system's."
    )
    verify: Verify | None = Field(
        None,
        description="Signatures that a commit needs to be used. By default none: the server of the repository is trusted.",
    )
    webhook: Webhook | None = Field(
        None,
        description="Listener on which the forge reports pushes, so that the next poll comes at once. By default there is none.",
    )
    write_back: WriteBack | None = Field(
        None,
        description="How `deploy`, deployments and image policies write to the repository. By default they have no right to, and give a patch.",
    )

    @model_validator(mode="after")
    def _fits(self) -> Self:
        scheme = self.parsed.scheme
        if scheme == "ssh" and (self.ssh_key is None or self.known_hosts is None):
            missing = "sshKey" if self.ssh_key is None else "knownHosts"
            raise bad_value(f"git+ssh needs {missing}", f"add {missing}", at=(missing,))
        if scheme != "ssh":
            given = [name for name, value in (("sshKey", self.ssh_key), ("knownHosts", self.known_hosts)) if value]
            if given:
                raise bad_value(f"{given[0]} does nothing for git+{scheme}", "remove it", at=(given[0],))
        if scheme != "https":
            given = [name for name, value in (("token", self.token), ("caFile", self.ca_file)) if value]
            if given:
                raise bad_value(f"{given[0]} does nothing for git+{scheme}", "remove it", at=(given[0],))
        if self.write_back is not None:
            self.write_back.check(scheme)
        return self

    @property
    def parsed(self) -> GitUrl:
        """The set that `url` names."""
        return parse(self.url)
