"""One delivery of a webhook: is it genuine, and which ref was pushed? Pure. Called by `webhook.py`.

The signature is checked over the body as it was received, in constant time and before any of it is parsed. A genuine delivery still
decides nothing: it only makes the next poll come sooner, and the poll asks the repository itself. So a delivery that is sent
again, or whose text is wrong, costs at most one poll.

Sources of the headers: docs.github.com "Validating webhook deliveries", docs.gitlab.com "Webhooks", docs.gitea.com and forgejo.org
"Webhooks".
"""

import hmac
import json
import re
from collections.abc import Callable
from enum import StrEnum
from hashlib import sha256
from typing import NamedTuple
from urllib.parse import parse_qs

from manifests.escape import escape

Header = Callable[[str], list[str]]
"""Returns all values of the header with this name."""


class Provider(StrEnum):
    """The kind of a forge. Forgejo is `gitea`."""

    GITHUB = "github"
    GITLAB = "gitlab"
    GITEA = "gitea"


class _Headers(NamedTuple):
    """The headers of one kind of forge, by their meaning. The first name of each that a request has counts."""

    signature: tuple[str, ...]
    delivery: tuple[str, ...]
    event: tuple[str, ...]


_HEADERS = {
    # Gitea and Forgejo also send GitHub's headers, so their own are looked at first.
    Provider.GITEA: _Headers(
        ("x-forgejo-signature", "x-gitea-signature"),
        ("x-forgejo-delivery", "x-gitea-delivery"),
        ("x-forgejo-event", "x-gitea-event"),
    ),
    Provider.GITHUB: _Headers(("x-hub-signature-256",), ("x-github-delivery",), ("x-github-event",)),
    Provider.GITLAB: _Headers(("x-gitlab-token",), ("idempotency-key", "x-gitlab-event-uuid"), ("x-gitlab-event",)),
}

PUSHES = frozenset({"push", "Push Hook", "Tag Push Hook", "System Hook"})
"""The events that may move a ref. A delivery without the header of the event counts too."""

ID = re.compile(r"[A-Za-z0-9_.:-]{1,128}")
"""A delivery's id, where it has one: a UUID of each of these forges."""

_HEX = re.compile(r"[0-9a-fA-F]{64}")
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
SHOWN = 200
"""The most characters of a ref that an answer or an event shows."""


class Claimed(NamedTuple):
    """Who says to have sent a delivery, by its headers: nothing of it is proven.

    `event` is empty when the header is missing, `id` when it is missing or no id.
    """

    provider: Provider
    signature: str
    id: str
    event: str


def claimed(header: Header, only: str = "") -> Claimed | None:
    """The claim of a request; None when it has no signature of a known forge, or two of the same kind.

    Args:
        header: returns the values of a header.
        only: the one kind of forge whose signatures count; empty for all.
    """
    for provider, names in _HEADERS.items():
        if only and provider.value != only:
            continue
        signatures = _values(header, names.signature)
        if not signatures:
            continue
        if len(signatures) > 1:
            return None
        ids, events = _values(header, names.delivery), _values(header, names.event)
        id_ = ids[0] if ids and ID.fullmatch(ids[0]) else ""
        return Claimed(provider, signatures[0], id_, events[0] if events else "")
    return None


def _values(header: Header, names: tuple[str, ...]) -> list[str]:
    return next((values for values in map(header, names) if values), [])


def genuine(claim: Claimed, body: bytes, secret: str) -> bool:
    """Whether the sender of this body knows the secret. Takes the same time for every wrong signature of the right length.

    GitLab sends the secret itself; the others send an HMAC-SHA256 of the body.
    """
    if claim.provider is Provider.GITLAB:
        # A header arrives as bytes; the server reads them as Latin-1.
        return hmac.compare_digest(claim.signature.encode("latin-1", "replace"), secret.encode())
    digest = claim.signature
    if claim.provider is Provider.GITHUB:
        kind, _, digest = claim.signature.partition("=")
        if kind != "sha256":
            return False
    if not _HEX.fullmatch(digest):
        return False
    expected = hmac.new(secret.encode(), body, sha256).digest()
    return hmac.compare_digest(bytes.fromhex(digest), expected)


def key_of(claim: Claimed, body: bytes) -> str:
    """What makes a delivery the same one: its id, or the digest of its body where it has none."""
    return claim.id or sha256(body).hexdigest()


class NoRef(Exception):
    """The body of a push names no ref. The message says why."""


def ref_of(body: bytes, content_type: str) -> str:
    """The full name of the ref that was pushed, such as `refs/heads/main`. Raises NoRef.

    The body is JSON, or a form with the JSON in `payload` (GitHub and Gitea let the user choose).
    """
    text: bytes | str = body
    if content_type.partition(";")[0].strip().lower() == "application/x-www-form-urlencoded":
        try:
            text = parse_qs(body.decode(), max_num_fields=8)["payload"][0]
        except (ValueError, KeyError) as error:
            raise NoRef("the form has no payload") from error
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise NoRef("the body is not JSON") from error
    ref = raw.get("ref") if isinstance(raw, dict) else None
    if not isinstance(ref, str) or not ref:
        raise NoRef("the body names no ref")
    return ref


class Wanted(NamedTuple):
    """The ref of the source.

    Attributes:
        ref: as it is declared: a name such as `main` or `v1`, a full name such as `refs/heads/main`, or a commit; empty for the
            default branch.
        tags: every tag counts as well, because the source needs a signed one.
    """

    ref: str = ""
    tags: bool = False


def other(pushed: str, wanted: Wanted) -> str:
    """Why a push of a ref cannot concern the source; empty when it may."""
    shown = escape(pushed[:SHOWN])
    if _COMMIT.fullmatch(wanted.ref):
        return f"{shown} was pushed, but the source is fixed to commit {wanted.ref[:12]}"
    if wanted.tags and pushed.startswith("refs/tags/"):
        return ""
    if not wanted.ref:
        return "" if pushed.startswith("refs/heads/") else f"{shown} is not a branch"
    if pushed in (wanted.ref, f"refs/heads/{wanted.ref}", f"refs/tags/{wanted.ref}"):
        return ""
    return f"{shown} is not the ref of the source, {wanted.ref}"
