"""Which image a policy wants, of the tags or the digest that a registry has. Called by `reconciler/deployments/service.py`.

A policy never goes back: neither to a version below the one that is written, nor to an image that was taken back before. What a registry did
not answer is unknown, and then nothing is asked here.
"""

import re
from collections.abc import Iterable, Set
from typing import NamedTuple

from manifests.values.image_policy import ImagePolicy, Order
from manifests.values.image_ref import parse_image
from manifests.values.version_range import Version, parse_version


class Choice(NamedTuple):
    """What a policy wants: an image, or none, and why."""

    image: str
    why: str


def of_tags(policy: ImagePolicy, image: str, tags: Iterable[str], taken_back: Set[str]) -> Choice:
    """The image for a policy of versions or of newest tags.

    Args:
        image: the one that is written now.
        tags: all tags of its repository.
        taken_back: images that are not tried again.
    """
    current = parse_image(image)
    known = tuple(tags)
    ranked = _versions(policy, known) if policy.versions is not None else _newest(policy, known)
    usable = [(rank, tag) for rank, tag in ranked if _with_tag(image, tag) not in taken_back]
    if not usable:
        refused = f", and {len(ranked)} were taken back" if ranked else ""
        return Choice("", f"no tag of {len(known)} fits {policy.shown}{refused}")
    rank, tag = max(usable)
    if tag == current.tag:
        return Choice("", f"{tag} is the newest for {policy.shown}")
    mine = _rank_of(policy, current.tag)
    if mine is not None and mine >= rank:
        return Choice("", f"{current.tag} is not older than {tag}, the newest for {policy.shown}")
    return Choice(_with_tag(image, tag), f"{tag} is the newest for {policy.shown}")


def of_digest(policy: ImagePolicy, image: str, digest: str, taken_back: Set[str]) -> Choice:
    """The image for a policy that follows the digest of a tag."""
    name = _with_tag(image, policy.tag)
    wanted = f"{name}@{digest}"
    if parse_image(image).digest == digest:
        return Choice("", f"{policy.tag} names the digest that is written")
    if wanted in taken_back:
        return Choice("", f"{policy.tag} names a digest that was taken back")
    return Choice(wanted, f"{policy.tag} names another digest now")


def _versions(policy: ImagePolicy, tags: Iterable[str]) -> list[tuple[tuple[object, ...], str]]:
    """The tags that are versions in the range, each with its rank. Of `1.5.0` and `v1.5.0` the later one as text wins, always the same."""
    found = []
    for tag in tags:
        version = parse_version(tag)
        if version is not None and policy.versions is not None and policy.versions.has(version):
            found.append((_key(version), tag))
    return found


def _newest(policy: ImagePolicy, tags: Iterable[str]) -> list[tuple[tuple[object, ...], str]]:
    expression = re.compile(policy.newest)
    matched = ((expression.fullmatch(tag), tag) for tag in tags)
    return [(_value(policy, match[1]), tag) for match, tag in matched if match is not None]


def _rank_of(policy: ImagePolicy, tag: str) -> tuple[object, ...] | None:
    """The rank of the written tag, whether or not the policy would choose it; None when it cannot be compared."""
    if policy.versions is not None:
        version = parse_version(tag)
        return None if version is None else _key(version)
    match = re.fullmatch(policy.newest, tag)
    return None if match is None else _value(policy, match[1])


def _key(version: Version) -> tuple[object, ...]:
    return version.order


def _value(policy: ImagePolicy, text: str) -> tuple[object, ...]:
    return (int(text),) if policy.order is Order.NUMERIC else (text,)


def _with_tag(image: str, tag: str) -> str:
    """The image as the manifest writes it, with this tag and without a digest."""
    name, old = image.partition("@")[0], parse_image(image).tag
    return f"{name.removesuffix(f':{old}') if old else name}:{tag}"
