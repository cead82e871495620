"""What an image policy of a workload looks for. Values of `desired.Workload.image_policies`, read by `reconciler/core/images`."""

from dataclasses import dataclass
from enum import StrEnum

from manifests.values.version_range import Range


class Order(StrEnum):
    """How the marked part of tags is compared: as numbers, or as text."""

    NUMERIC = "numeric"
    ALPHABETICAL = "alphabetical"


@dataclass(frozen=True, slots=True)
class ImagePolicy:
    """One policy: exactly one of `versions`, `newest` and `tag` is set.

    Attributes:
        container: the name of the container.
        image: its image as the manifest says it.
        registry: host of the registry of the image. repository: the path of the image there.
        interval: time (ns) between two questions to the registry.
        versions: the highest version in this range. newest: the newest of the tags that match this expression, by its first group and
            `order`. tag: the digest of this tag.
        shown: the rule as the manifest says it, for messages.
    """

    container: str
    image: str
    registry: str
    repository: str
    interval: int
    versions: Range | None = None
    newest: str = ""
    order: Order = Order.NUMERIC
    tag: str = ""
    shown: str = ""
