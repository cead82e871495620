"""Values of the Instance that say who is informed: channels of notices, and the forge of the repository."""

from dataclasses import dataclass
from enum import StrEnum

from manifests.values.secret_sources import SecretSource


class Topic(StrEnum):
    """What a notice is about. A channel lists those that it wants."""

    SOURCE = "source"
    """Manifests that cannot be read, or are refused."""
    ROLLOUT = "rollout"
    """Revisions that failed, expired or make no progress."""
    HEALTH = "health"
    """Workloads with too few available replicas, and restarts that are held because they do not help."""
    PROVIDER = "provider"
    """Nodes, pools and zones that cannot be read, and steps that a provider refuses."""
    CONFLICT = "conflict"
    """Another writer, another owner, or another program that restarts containers."""
    HOLD = "hold"
    """Other actions that wait for an operator."""
    SUSPENSION = "suspension"
    """Suspensions and orders of operators, as reminders."""
    PROGRAM = "program"
    """Faults of this program's own surroundings."""
    APPLIED = "applied"
    """A revision is applied and healthy."""


DEFAULT_TOPICS = tuple(topic for topic in Topic if topic is not Topic.APPLIED)
"""What a channel gets that lists nothing: all that is wrong or waits."""


class Security(StrEnum):
    """How a connection to a mail server is encrypted."""

    STARTTLS = "starttls"
    TLS = "tls"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Webhook:
    """Where a notice is posted as JSON. One of `url` and `url_from` is set."""

    url: str = ""
    url_from: SecretSource | None = None
    secret: SecretSource | None = None
    token: SecretSource | None = None
    ca_file: str = ""


@dataclass(frozen=True, slots=True)
class Mail:
    """A mail server and the addresses of a message."""

    host: str
    port: int
    security: Security
    sender: str
    to: tuple[str, ...]
    username: str = ""
    password: SecretSource | None = None
    ca_file: str = ""


@dataclass(frozen=True, slots=True)
class Apprise:
    """A service of Apprise; its URL is a secret."""

    url: SecretSource


@dataclass(frozen=True, slots=True)
class Channel:
    """One way to inform operators.

    `objects` are patterns of keys; empty = all. `remind` is the time (ns) between two reminders, 0 = none. `per_hour` is the most
    messages in an hour.
    """

    name: str
    via: Webhook | Mail | Apprise
    topics: tuple[Topic, ...] = DEFAULT_TOPICS
    objects: tuple[str, ...] = ()
    remind: int = 0
    per_hour: int = 20


class ForgeType(StrEnum):
    """The API that a forge speaks."""

    GITHUB = "github"
    GITLAB = "gitlab"
    GITEA = "gitea"


@dataclass(frozen=True, slots=True)
class Forge:
    """The forge of the repository: the address of its web pages, `owner/name` there, and a token for its API."""

    type: ForgeType
    url: str
    project: str
    token: SecretSource
    ca_file: str = ""


@dataclass(frozen=True, slots=True)
class Informed:
    """Who is informed by this instance."""

    channels: tuple[Channel, ...] = ()
    forge: Forge | None = None

    @property
    def secrets(self) -> tuple[SecretSource, ...]:
        """The references to secrets of all channels and the forge."""
        named: list[SecretSource | None] = []
        for channel in self.channels:
            via = channel.via
            if isinstance(via, Webhook):
                named += [via.url_from, via.secret, via.token]
            else:
                named.append(via.password if isinstance(via, Mail) else via.url)
        if self.forge is not None:
            named.append(self.forge.token)
        return tuple(source for source in named if source is not None)


NOT_INFORMED = Informed()
"""No channel and no forge."""
