"""What a commit and a merge request of a changed image say: the workload, the images, the reason and who asked. Used by `writer.py`."""

from collections.abc import Sequence

from manifests.escape import escape
from manifests.values.image_ref import parse_image
from reconciler.deployments.edit import Changed

SUBJECT = 100
"""Most characters of the first line."""

REASON = 500
"""Most characters of a reason."""

NAMED = 3
"""How many images the first line names; of more it gives the number."""


def message(images: Sequence[Changed], reason: str, who: str) -> str:
    """The message of a commit: a first line, and one paragraph with everything."""
    lines = [f"{change.key}, container {change.container}: {change.old} -> {change.new}" for change in images]
    if reason:
        lines.append(f"reason: {one_line(reason)}")
    lines.append(f"requested by: {one_line(who)}")
    return "\n".join([subject(images), "", *lines])


def subject(images: Sequence[Changed]) -> str:
    """The first line: the workloads with the part of their images that differs."""
    named = ", ".join(f"{change.key.partition('/')[2]} {_short(change)}" for change in images[:NAMED])
    text = f"deploy {named}" if len(images) <= NAMED else f"deploy {len(images)} images"
    return text if len(text) <= SUBJECT else f"{text[: SUBJECT - 1]}…"


def markdown(text: str) -> str:
    """A message as the description of a merge request: a block of code, in which no mention, link or markup counts."""
    return "\n".join(f"    {line}" for line in text.split("\n"))


def one_line(text: str) -> str:
    """A text of a sender in one visible line of bounded length."""
    return escape(" ".join(text.split())[:REASON])


def _short(change: Changed) -> str:
    """`1.4 -> 1.5`, or the whole names when the repository differs."""
    old, new = parse_image(change.old), parse_image(change.new)
    if old.repository != new.repository:
        return f"{change.old} -> {change.new}"
    return f"{_version(change.old)} -> {_version(change.new)}"


def _version(image: str) -> str:
    """The tag and the beginning of the digest of an image."""
    parsed = parse_image(image)
    digest = f"@{parsed.digest.partition(':')[2][:12]}" if parsed.digest else ""
    return f"{parsed.tag}{digest}" if parsed.tag or digest else "latest"
