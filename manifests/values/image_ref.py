"""References to container images: the grammar of the distribution project, in one place.

`types/engine.py` checks manifests with it, the Docker runtime gets full names from it. Engines disagree about short names
(Podman may ask, or refuse), so the program sends only full references.
"""

import re
from dataclasses import dataclass

DEFAULT_DOMAIN = "docker.io"
_OFFICIAL = "library"
_ALIASES = frozenset({"index.docker.io", "registry-1.docker.io"})
"""Other names of the default registry, which engines write as `docker.io`."""

_COMPONENT = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_PATH = re.compile(rf"{_COMPONENT}(?:/{_COMPONENT})*")
_LABEL = r"[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?"
_DOMAIN = re.compile(rf"(?:{_LABEL}(?:\.{_LABEL})*|\[[0-9a-fA-F:]+\])(?::[0-9]{{1,5}})?")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128}")

NAME_LENGTH = 255
"""Longest repository name, with its registry (distribution's `reference` package)."""


@dataclass(frozen=True, slots=True)
class ImageRef:
    """A parsed reference. `tag` and `digest` may both be empty: then the tag is `latest`."""

    domain: str
    path: str
    tag: str = ""
    digest: str = ""

    @property
    def repository(self) -> str:
        """Registry and path, without tag and digest."""
        return f"{self.domain}/{self.path}"

    def __str__(self) -> str:
        """The full name; with a digest the tag is omitted, because it has no effect then."""
        if self.digest:
            return f"{self.repository}@{self.digest}"
        return f"{self.repository}:{self.tag or 'latest'}"


def parse_image(text: str) -> ImageRef:
    """Parse a reference. Raises ValueError with the cause and the expected form."""
    name, at, digest = text.partition("@")
    if at and not _DIGEST.fullmatch(digest):
        raise ValueError("the digest must be sha256: and 64 hex digits in lower case (or sha512: and 128)")
    head, slash, last = name.rpartition("/")
    last, colon, tag = last.partition(":")
    if colon and not _TAG.fullmatch(tag):
        raise ValueError("the tag must have 1 to 128 letters, digits, '_', '.' and '-', and not begin with '.' or '-'")
    domain, path = _split_domain(f"{head}{slash}{last}")
    if not _DOMAIN.fullmatch(domain):
        raise ValueError(f"'{domain[:80]}' is not the host of a registry, such as registry.example.com:5000")
    if not _PATH.fullmatch(path):
        if path.lower() != path:
            raise ValueError("image names are lower case")
        raise ValueError("write [registry/]name[:tag][@digest], such as docker.io/library/nginx:1.27")
    if len(domain) + 1 + len(path) > NAME_LENGTH:
        raise ValueError(f"the name has more than {NAME_LENGTH} characters")
    return ImageRef(domain, path, tag, digest)


def _split_domain(name: str) -> tuple[str, str]:
    """Registry and path: the first part is a registry only when it cannot be part of a path."""
    first, slash, rest = name.partition("/")
    is_domain = "." in first or ":" in first or first == "localhost" or first.lower() != first
    if not slash or not is_domain:
        domain, path = DEFAULT_DOMAIN, name
    else:
        domain, path = first, rest
    if domain in _ALIASES:
        domain = DEFAULT_DOMAIN
    if domain == DEFAULT_DOMAIN and "/" not in path:
        path = f"{_OFFICIAL}/{path}"
    return domain, path
