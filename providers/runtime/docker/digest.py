"""Which image a container is made from: a tag may move to another image, a digest never does.

`observe.py` reads the digests and the setup of images, `create.py` chooses the name under which it asks for an image.
"""

from collections.abc import Callable, Collection
from typing import NamedTuple

from manifests.values.image_ref import parse_image
from manifests.values.pod import PullPolicy
from providers.errors import Gone, ProviderError
from providers.facts import Mark, Setup, labelled_mark
from providers.runtime.docker.client import EngineClient
from providers.runtime.docker.inspection import read_setup


class _Image(NamedTuple):
    """What is asked of an image: its digests, what it gives to its containers, and the owner mark in its labels."""

    digests: tuple[str, ...] = ()
    setup: Setup | None = None
    mark: Mark | None = None


class Digests:
    """The digests of the images of one node. An image's id is computed from its content, so each is inspected once."""

    def __init__(self, client: EngineClient) -> None:
        self._client = client
        self._known: dict[str, _Image] = {}

    def of(self, image_id: str, image: str) -> str:
        """The digest of an image, `registry/name@sha256:…`, or its id `sha256:…` where it is not from that registry.

        Args:
            image_id: the image's id on this node; empty if the engine does not say it.
            image: the name that the manifest gives; its repository selects the digest.

        Returns:
            Empty when the engine cannot say it now; the next look asks again.
        """
        inspected = self._inspected(image_id)
        return "" if inspected is None else digest_in_repository(inspected.digests, image) or image_id

    def setup_of(self, image_id: str) -> Setup | None:
        """What an image gives to its containers; None when the engine cannot say it."""
        inspected = self._inspected(image_id)
        return None if inspected is None else inspected.setup

    def mark_of(self, image_id: str) -> Mark | None:
        """The owner mark that an image passes on: it was committed from a container of ours. None when the engine cannot say it."""
        inspected = self._inspected(image_id)
        return None if inspected is None else inspected.mark

    def _inspected(self, image_id: str) -> _Image | None:
        """An image; None when the engine cannot describe it now."""
        if not image_id:
            return None
        known = self._known.get(image_id)
        if known is None:
            try:
                image = self._client.get(f"/images/{image_id}/json", image_id)
                digests = tuple(sorted(str(digest) for digest in image.get("RepoDigests") or ()))
                labels = (image.get("Config") or {}).get("Labels") or {}
                known = _Image(digests, read_setup(image), labelled_mark(labels))
            except (Gone, AttributeError, TypeError, ValueError):
                known = _Image()  # removed by force under a running container; or the answer cannot be read
            except ProviderError:
                return None
            self._known[image_id] = known
        return known

    def keep(self, image_ids: Collection[str]) -> None:
        """Forget all other images."""
        if len(self._known) > len(image_ids):
            self._known = {key: value for key, value in self._known.items() if key in image_ids}


def digest_in_repository(digests: Collection[str], image: str) -> str:
    """The digest of an image in the repository of its name, as a full name; empty if it is not from there.

    Digests of other repositories do not count: a pin must not lead to a repository that the manifest does not name.
    """
    try:
        repository = parse_image(image).repository
    except ValueError:
        return ""
    for digest in digests:
        try:
            ref = parse_image(digest)
        except ValueError:  # `<none>@<none>`, or left by another tool
            continue
        if ref.digest and ref.repository == repository:
            return str(ref)
    return ""


def source_of(
    image: str, policy: PullPolicy, pin: str, present: Callable[[str], bool], loaded: Callable[[str], bool]
) -> tuple[str, PullPolicy]:
    """The name and the pull policy with which an image is asked for when its replica is created.

    All replicas of a revision are made from the image of its first: a pinned image on this node is used without asking the
    registry, another one is pulled by its digest. A pin that is a bare id means nothing on another node, or once the image
    is removed; then the name counts. So does it on a node where the image was loaded and its engine gave it no digest, while
    another node's engine did (Podman gives one to every image, Docker only to those from a registry): they cannot be compared.

    Args:
        image: full name, as the template has it.
        policy: when to ask its registry.
        pin: the digest or id that the revision is made from; empty = none yet.
        present: whether an image is on this node.
        loaded: whether the image of a name is on this node without any digest of its repository.
    """
    if not pin:
        return image, policy
    if "@" not in pin:
        return (pin, PullPolicy.NEVER) if present(pin) else (image, policy)
    if policy is not PullPolicy.NEVER:
        return pin, PullPolicy.IF_NOT_PRESENT
    return (image if not present(pin) and loaded(image) else pin), PullPolicy.NEVER
