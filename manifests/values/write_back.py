"""Values of the Instance that say how images are written into the manifests: by whom, with which rights, and from which registries."""

from dataclasses import dataclass
from enum import StrEnum

from manifests.values.secret_sources import SecretSource


class WriteMode(StrEnum):
    """What becomes of a change: a commit on the branch of the source, or a merge request."""

    COMMIT = "commit"
    MERGE_REQUEST = "mergeRequest"


@dataclass(frozen=True, slots=True)
class WriteBack:
    """How a change reaches the repository of the source. `name` and `email` are of the author and committer of a commit."""

    mode: WriteMode
    name: str
    email: str
    username: str = "git"
    token: SecretSource | None = None
    ssh_key: SecretSource | None = None
    signing_key: SecretSource | None = None


@dataclass(frozen=True, slots=True)
class Deployer:
    """A token that may change the image of one workload. `workload` is its name, `container` empty for the only one."""

    workload: str
    token: SecretSource
    container: str = ""


@dataclass(frozen=True, slots=True)
class Registry:
    """A registry that image policies may ask. `server` is its host as in names of images; `insecure`: over plain HTTP."""

    server: str
    username: str = ""
    password: SecretSource | None = None
    ca_file: str = ""
    insecure: bool = False


class ImageApply(StrEnum):
    """How an image that a policy finds comes into force: by a commit, or by a rollout without one."""

    COMMIT = "commit"
    ROLLOUT = "rollout"


@dataclass(frozen=True, slots=True)
class ImageSettings:
    """What local documents allow image policies."""

    registries: tuple[Registry, ...] = ()
    apply: ImageApply = ImageApply.COMMIT


@dataclass(frozen=True, slots=True)
class Writing:
    """How this instance changes its manifests. `write_back` None: it has no right to. `images` None: no policy is followed."""

    write_back: WriteBack | None = None
    deployers: tuple[Deployer, ...] = ()
    images: ImageSettings | None = None

    @property
    def secrets(self) -> tuple[SecretSource, ...]:
        """All credentials: of the repository, of deployments and of registries."""
        right = self.write_back
        own = () if right is None else (right.token, right.ssh_key, right.signing_key)
        tokens = (deployer.token for deployer in self.deployers)
        passwords = (registry.password for registry in (() if self.images is None else self.images.registries))
        return tuple(secret for secret in (*own, *tokens, *passwords) if secret is not None)


NOT_WRITING = Writing()
"""No right to write, and no token or policy that asks for it."""
