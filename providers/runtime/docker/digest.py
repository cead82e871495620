"""Which image a container really is made from: a tag may point to another one tomorrow, a digest never does.

Reads digests and what images say of their containers for looks, and chooses by which name an image is asked for when a replica is created. Called by `docker_look.py`
and `docker_create.py`.
"""

from collections.abc import Callable, Collection

from manifests.values.image_ref import parse_image
from manifests.values.pod import PullPolicy
from providers.errors import Gone, ProviderError
from providers.facts import Setup
from providers.runtime.docker.client import Link
from providers.runtime.docker.setup import read_setup

LABEL_IMAGE = "reconciler.image"
"""The image as the manifest has it: what a container is created from may be the digest behind that name."""


class Digests:
    """The digests of the images of one node. An image's id is made from its content, so each is asked for once."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._known: dict[str, tuple[tuple[str, ...], Setup | None]] = {}

    def of(self, image_id: str, image: str) -> str:
        """The digest of an image, `registry/name@sha256:…`, or its id `sha256:…` where it is not from that registry.

        Args:
            image_id: the image's id on this node; empty if the engine does not tell.
            image: the name it was asked for by, which says whose digest is meant.

        Returns:
            Empty when the engine cannot tell: this is asked again at the next look.
        """
        found = self._inspected(image_id)
        return "" if found is None else chosen(found[0], image) or image_id

    def setup_of(self, image_id: str) -> Setup | None:
        """What an image says of the containers that are made from it; None when the engine cannot tell."""
        found = self._inspected(image_id)
        return None if found is None else found[1]

    def _inspected(self, image_id: str) -> tuple[tuple[str, ...], Setup | None] | None:
        """Digests and setup of an image; None when the engine cannot tell now."""
        if not image_id:
            return None
        found = self._known.get(image_id)
        if found is None:
            try:
                told = self._link.get(f"/images/{image_id}/json", image_id)
                found = tuple(sorted(str(one) for one in told.get("RepoDigests") or ())), read_setup(told)
            except (Gone, AttributeError, TypeError, ValueError):
                found = (), None  # it was taken away by force under a container that still runs; or it makes no sense
            except ProviderError:
                return None
            self._known[image_id] = found
        return found

    def keep(self, image_ids: Collection[str]) -> None:
        """Forget all other images."""
        if len(self._known) > len(image_ids):
            self._known = {key: value for key, value in self._known.items() if key in image_ids}


def chosen(digests: Collection[str], image: str) -> str:
    """The digest of an image in the repository that it was asked of, as a full name; empty if it is not from there.

    What other repositories call it does not count: they were never asked for, and a pin must not lead to them.
    """
    try:
        repository = parse_image(image).repository
    except ValueError:
        return ""
    for digest in digests:
        try:
            ref = parse_image(digest)
        except ValueError:  # `<none>@<none>`, or what another tool has left
            continue
        if ref.digest and ref.repository == repository:
            return str(ref)
    return ""


def source_of(image: str, policy: PullPolicy, pin: str, present: Callable[[str], bool]) -> tuple[str, PullPolicy]:
    """By which name, and under which policy, an image is asked for when its replica is created.

    What a revision was first made from counts for all its replicas: a pinned image that is here is taken without asking its
    registry, one that is not is pulled by its digest. A pin that is a bare id means nothing on another node, or once the image
    is gone; then the name counts.

    Args:
        image: full name, as the template has it.
        policy: when to ask its registry.
        pin: the digest or id that the revision has been made from so far; empty = nothing yet.
        present: whether an image is on this node.
    """
    if not pin:
        return image, policy
    if "@" not in pin:
        return (pin, PullPolicy.NEVER) if present(pin) else (image, policy)
    return pin, PullPolicy.NEVER if policy is PullPolicy.NEVER else PullPolicy.IF_NOT_PRESENT
