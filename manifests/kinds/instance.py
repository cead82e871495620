"""Instance: this installation of the program."""

from ipaddress import ip_address, ip_network
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from manifests.kinds.base import Manifest, Model, unique
from manifests.kinds.forge import Forge
from manifests.kinds.notifications import Channel
from manifests.kinds.reviews import Reviews
from manifests.kinds.secret_programs import Decryption, SecretCommand
from manifests.kinds.secret_ref import SecretReference
from manifests.kinds.secret_rule import SecretRule
from manifests.kinds.source import Source
from manifests.kinds.write_back import Deployer, ImagePolicies
from manifests.types.durations import Duration
from manifests.types.errors import bad_value
from manifests.types.fields import InstanceId, Interval, Items, Name, Shown
from manifests.types.listen import SPELLING, ListenAny, split_address
from manifests.values.desired import SECOND


def split_listen(value: str) -> tuple[str, int]:
    """As `split_address`, for an address that containers can push to."""
    address, port = split_address(value)
    parsed = ip_address(address)
    if parsed.is_unspecified or parsed.is_multicast:
        hint = "write an address of this host that containers can reach, such as that of their network's bridge"
        raise bad_value(f"'{address}' is not an address that containers can push to", hint)
    return address, port


def _listen(value: str) -> str:
    split_listen(value)
    return value


Listen = Annotated[
    str,
    AfterValidator(_listen),
    SPELLING,
    Shown("IP address and port"),
]


def _network(value: str) -> str:
    hint = "write a network such as 127.0.0.0/8, or one address such as 127.0.0.1"
    try:
        return str(ip_network(value))
    except ValueError as error:
        raise bad_value(f"'{value[:60]}' is not a network: {str(error)[:80]}", hint) from None


Network = Annotated[str, AfterValidator(_network), Shown("network in CIDR form, or an IP address")]


class PushTCP(Model):
    """A TCP listener for pushes. Every push over TCP is signed with the token of its container."""

    listen: Listen = Field(description="Address and port to listen on; containers push to the same address.")


class PushListener(Model):
    """Listener for pushes of replicas about their own state, while `reconcile --watch` runs. Needs the extra `serve`."""

    socket: bool = Field(
        True, description="Listens on a unix socket, which containers that push have at /run/reconciler."
    )
    tcp: PushTCP | None = Field(None, description="Also listens on TCP.")

    @model_validator(mode="after")
    def _listens(self) -> Self:
        if self.socket or self.tcp is not None:
            return self
        raise bad_value("push has neither a socket nor tcp", "remove `socket: false`, or add tcp", at=("socket",))


class MetricsListener(Model):
    """Listener for metrics and health, while `reconcile --watch` runs. Needs the extra `serve`."""

    listen: ListenAny = Field(
        description="Address and port of `/metrics`, `/healthz` and `/readyz`; without a token a loopback address."
    )
    token: SecretReference | None = Field(
        None, description="Token that requests for `/metrics` must send as `Authorization: Bearer`."
    )

    @model_validator(mode="after")
    def _guarded(self) -> Self:
        address, _ = split_address(self.listen)
        if self.token is not None or ip_address(address).is_loopback:
            return self
        hint = "listen on 127.0.0.1 or '[::1]', or add token: {file: /path} or token: {env: NAME}"
        raise bad_value(f"other hosts can reach '{address}', and metrics has no token", hint, at=("listen",))


class Intervals(Model):
    """Time between two looks at each kind of provider."""

    runtime: Interval = Field(Duration(15 * SECOND), description="Time between looks at containers.")
    endpoints: Interval = Field(Duration(SECOND), description="Time between looks at pools.")
    dns: Interval = Field(Duration(30 * SECOND), description="Time between looks at zones.")


class InstanceSpec(Model):
    """Identity and settings of this installation."""

    id: InstanceId = Field(description="Owner mark on all objects of this installation; unique among installations.")
    prune: bool = Field(False, description="Deletes owned objects that no manifest declares any more.")
    intervals: Intervals = Field(default_factory=Intervals, description="Time between two looks at providers.")
    enhanced_liveness: bool = Field(
        False,
        description="Restarts failing foreign containers whose labels have "
        "`reconciler.enhanced-liveness: true` and a probe context.",
    )
    allow_addresses: Annotated[Items[Network], unique("network")] = Field(
        (),
        description="Loopback, link-local, metadata and other special addresses that health checks of DNS names may probe. By "
        "default none of them.",
    )
    secrets: Annotated[Items[SecretRule], unique("rule")] = Field(
        (),
        description="Secrets that manifests of the tree may refer to, each with the one place where. Only in a local document "
        "(`--instance`); by default none. Local documents need no rule.",
    )
    source: Source | None = Field(
        None,
        description="Git repository of the manifests, which takes the place of PATH. Only in a local document (`--instance`).",
    )
    secret_commands: Annotated[Items[SecretCommand], unique("command", "name")] = Field(
        (),
        description="Programs that print secrets, for references `{command: NAME}`. Only in a local document (`--instance`).",
    )
    decryption: Decryption | None = Field(
        None,
        description="Identities and settings for files that SOPS or age has encrypted. Only in a local document (`--instance`).",
    )
    allow_process: Annotated[Items[Name], unique("workload")] = Field(
        (),
        description="Workloads of the tree that may have local processes as replicas. Only in a local document (`--instance`); by default "
        "none. An author who can change such a workload can run any program as the user of `reconcile`.",
    )
    push: PushListener | None = Field(
        None, description="Receives pushes of replicas about their own state; by default there is no listener."
    )
    metrics: MetricsListener | None = Field(
        None, description="Serves metrics for Prometheus and the health of the daemon; by default there is no listener."
    )
    notifications: Annotated[Items[Channel], unique("channel", "name")] = Field(
        (), description="Channels that inform operators. Only in a local document (`--instance`); by default none."
    )
    forge: Forge | None = Field(
        None, description="Forge whose commits show whether they are applied. Only in a local document (`--instance`)."
    )
    reviews: Reviews | None = Field(
        None,
        description="Plans open merge requests into the branch of `source`, and comments on them through `forge`. Only in a local document "
        "(`--instance`); by default none are planned.",
    )

    @model_validator(mode="after")
    def _reviewed(self) -> Self:
        missing = [name for name, value in (("source", self.source), ("forge", self.forge)) if value is None]
        if self.reviews is None or not missing:
            return self
        raise bad_value(f"reviews need {missing[0]}", f"add {missing[0]}, or remove reviews", at=("reviews",))

    deployments: Annotated[Items[Deployer], unique("deployment", "workload", "container")] = Field(
        (),
        description="Tokens for `POST /v1/deployments` on the push listener, each for one workload. Only in a local document "
        "(`--instance`); by default none.",
    )
    image_policies: ImagePolicies | None = Field(
        None,
        description="Allows `imagePolicies` of workloads. Only in a local document (`--instance`); by default no registry is asked.",
    )

    @model_validator(mode="after")
    def _written(self) -> Self:
        write_back = None if self.source is None else self.source.write_back
        if write_back is not None and write_back.mode == "mergeRequest" and self.forge is None:
            cause = "writeBack: {mode: mergeRequest} needs a forge to open merge requests"
            raise bad_value(cause, "add forge", at=("source", "writeBack", "mode"))
        if self.deployments and self.push is None:
            hint = "write push: {} for the socket, or push: {tcp: {listen: ADDRESS:PORT}}"
            raise bad_value("deployments need the push listener", hint, at=("deployments",))
        return self


class Instance(Manifest):
    """This installation of the program. Exactly one."""

    kind: Literal["Instance"] = Field(description="Kind of the object.")
    spec: InstanceSpec = Field(description="Desired state of the object.")
