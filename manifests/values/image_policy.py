"""What an image policy of a workload looks for. Values of `desired.Workload.image_policies`, read by `reconciler/core/images`."""

import re
from dataclasses import dataclass
from enum import StrEnum

from manifests.values.image_ref import parse_image
from manifests.values.version_range import Range, parse_version


class Order(StrEnum):
    """How the marked part of tags is compared: as numbers, or as text."""

    NUMERIC = "numeric"
    ALPHABETICAL = "alphabetical"


@dataclass(frozen=True, slots=True)
class ImagePolicy:
    """One policy: exactly one of `versions`, `newest` and `tag` is set.

    Attributes:
        container: the name of the container.
        image: its image in force: that of the manifest, or the one that was chosen for it.
        registry: host of the registry of the image. repository: the path of the image there.
        interval: time (ns) between two questions to the registry.
        versions: the highest version in this range. newest: the newest of the tags that match this expression, by its first group and
            `order`. tag: the digest of this tag.
        shown: the rule as the manifest says it, for messages.
        declared: the image as the manifest says it.
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
    declared: str = ""

    def admits(self, image: str) -> bool:
        """Whether the policy may choose this image. The registry is not asked."""
        try:
            parsed = parse_image(image)
        except ValueError:
            return False
        if (parsed.domain, parsed.path) != (self.registry, self.repository):
            return False
        if self.tag:
            return parsed.tag == self.tag and bool(parsed.digest)
        if self.versions is not None:
            version = parse_version(parsed.tag)
            return version is not None and self.versions.has(version)
        return re.fullmatch(self.newest, parsed.tag) is not None
