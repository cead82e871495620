"""The address of a git source, as operators write it on the command line or in the local Instance.

    git+https://git.example.com/ops/hosts.git//deploy/prod?ref=main
    git+ssh://git@git.example.com/ops/hosts.git//deploy/prod
    git+file:///srv/git/hosts.git?ref=refs/tags/v1.4

The part before the second `//` is the repository, the part after it the directory of the set, `ref` a branch, a tag, or a whole commit
number; without it the repository's default branch. Everything else is refused here, before git sees it: git would run a program for some
addresses (`ext::…`), and take others as an option. Called by the command line and by the check of the Instance.
"""

import re
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import unquote

from manifests.source.identity import without_credentials

SCHEMES = ("git+https", "git+ssh", "git+file")
LONGEST = 2_048
"""Most characters of an address."""

_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?")
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
_REPOSITORY = re.compile(r"/[A-Za-z0-9._~+@%/ -]*", re.ASCII)
COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
"""A whole commit number, SHA-1 or SHA-256."""
_NOT_IN_REFS = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//|\.lock(/|$)|(^|/)\.|\.$|/$|^/")
_LOOKS_LIKE = re.compile(r"(git::|git@|(git\+)?[a-z]+://|git\+|ext::|[A-Za-z0-9._-]+@[A-Za-z0-9.-]+:)", re.IGNORECASE)


class BadUrl(ValueError):
    """An address that is refused: the cause, and what to write instead. Neither holds a password."""

    def __init__(self, cause: str, hint: str) -> None:
        super().__init__(cause)
        self.cause, self.hint = cause, hint

    def __str__(self) -> str:
        return f"{self.cause}; next step: {self.hint}"


@dataclass(frozen=True, slots=True)
class GitUrl:
    """The set of manifests in a directory of a repository, at a branch, tag or commit.

    Attributes:
        remote: the address for git, without `git+` and without a password.
        path: the directory of the set in the repository; empty = its top level.
        ref: branch, tag, full name of a ref (`refs/…`), or commit; empty = the repository's default branch.
    """

    remote: str
    path: str = ""
    ref: str = ""

    @property
    def scheme(self) -> str:
        """`https`, `ssh` or `file`."""
        return self.remote.partition("://")[0]

    @property
    def commit(self) -> str:
        """The commit that the address pins; empty when it names a branch or tag."""
        return self.ref if COMMIT.fullmatch(self.ref) else ""

    @property
    def identity(self) -> str:
        """The identity of the set, as `manifests/source/identity.py` gives it for a checkout of the same repository and path."""
        return f"{without_credentials(self.remote)}//{self.path}"

    def __str__(self) -> str:
        below = f"//{self.path}" if self.path else ""
        return f"git+{self.remote}{below}{f'?ref={self.ref}' if self.ref else ''}"


def looks_like_url(text: str) -> bool:
    """Whether a PATH is meant as an address, so that it must be a good one: no directory is looked for then."""
    return _LOOKS_LIKE.match(text) is not None


def parse(text: str) -> GitUrl:
    """The set that an address names. Raises BadUrl."""
    if len(text) > LONGEST:
        raise BadUrl(f"the address has {len(text)} characters, at most {LONGEST} are allowed", "write a shorter one")
    if any(not c.isprintable() for c in text) or "\\" in text:
        raise BadUrl("the address has a control character or a backslash", "write it without them")
    scheme, separator, rest = text.partition("://")
    if not separator or scheme not in SCHEMES:
        raise _unknown_scheme(text, scheme if separator else "")
    rest, _, query = rest.partition("?")
    if "#" in rest or "#" in query:
        raise BadUrl("the address has a fragment ('#')", "name the branch, tag or commit with ?ref=")
    authority, slash, path = rest.partition("/")
    repository, _, below = (slash + path).partition("//")
    if repository.strip("/") == "":
        raise BadUrl("the address names no repository", "write git+https://HOST/REPOSITORY.git//DIRECTORY")
    kind = scheme.removeprefix("git+")
    remote = f"{kind}://{_authority(kind, authority)}{_repository(kind, repository)}"
    return GitUrl(remote, _below(below), _query(query))


def _unknown_scheme(text: str, scheme: str) -> BadUrl:
    lowered = scheme.lower()
    plain = {"https": "git+https", "ssh": "git+ssh", "file": "git+file"}.get(lowered)
    if plain is not None or lowered in SCHEMES:
        return BadUrl(f"'{scheme}://' is not the scheme of a git source", f"write {plain or lowered}://")
    if lowered in {"http", "git+http", "git", "git+git"}:
        return BadUrl(f"'{scheme}://' is neither encrypted nor authenticated", "write git+https:// or git+ssh://")
    if "@" in text.partition(":")[0]:
        return BadUrl(
            "this is an address in the form of scp", "write git+ssh://USER@HOST/REPOSITORY.git//DIRECTORY?ref=BRANCH"
        )
    return BadUrl(
        "this is not the address of a git source", f"begin it with one of {', '.join(s + '://' for s in SCHEMES)}"
    )


def _authority(kind: str, authority: str) -> str:
    """User, host and port, checked."""
    user, at, place = authority.rpartition("@")
    if ":" in user:
        raise BadUrl(
            "the address has a password", "put it into a file and name the file in spec.source of the Instance"
        )
    if kind == "file":
        if authority not in {"", "localhost"}:
            raise BadUrl("git+file:// names a host", "write git+file:///ABSOLUTE/PATH")
        return ""
    if at and kind == "https":
        raise BadUrl(
            "the address has a user, which may be a token",
            "put the token into a file and name the file in spec.source of the Instance",
        )
    if at and not _USER.fullmatch(user):
        raise BadUrl(
            "the user in the address has characters other than letters, digits, '.', '_' and '-'", "correct it"
        )
    if place.startswith("["):
        host, bracket, port = place[1:].partition("]")
        if not bracket or not _is_ipv6(host):
            raise BadUrl("the address in brackets is not an IPv6 address", "write it as in [2001:db8::1]")
        shown = f"[{host}]"
    else:
        shown, colon, port = place.partition(":")
        port = colon + port
        if not _HOST.fullmatch(shown):
            raise BadUrl("the host of the address is not a host name", "write letters, digits, '-' and '.'")
    if port and not (port[0] == ":" and port[1:].isascii() and port[1:].isdecimal() and 1 <= int(port[1:]) <= 65_535):
        raise BadUrl("the port of the address is not a number from 1 to 65535", "correct it")
    return f"{user}{at}{shown.lower()}{port}"


def _is_ipv6(text: str) -> bool:
    try:
        return ip_address(text).version == 6
    except ValueError:
        return False


def _repository(kind: str, path: str) -> str:
    """The path of the repository, checked."""
    path = path.rstrip("/")
    parts = path.split("/")[1:]
    if not _REPOSITORY.fullmatch(path) or (kind == "ssh" and " " in path) or (kind != "https" and "%" in path):
        raise BadUrl(
            "the path of the repository has characters that are not allowed", "use letters, digits, and . _ ~ + @ -"
        )
    if any(part in {".", ".."} for part in parts):
        raise BadUrl("the path of the repository has '.' or '..'", "write the path without them")
    return path


def _below(path: str) -> str:
    """The directory of the set, without slashes at both ends."""
    text = unquote(path, errors="strict") if _decodes(path) else ""
    parts = text.strip("/").split("/") if text.strip("/") else []
    for part in parts:
        if part in {"", ".", ".."}:
            raise BadUrl(
                "the directory of the set has an empty part, '.' or '..'",
                "write its path from the top of the repository",
            )
        if part.casefold() == ".git" or any(not c.isprintable() for c in part) or "\\" in part:
            raise BadUrl("the directory of the set has a name that git does not allow", "correct it")
    return "/".join(parts)


def _decodes(path: str) -> bool:
    try:
        unquote(path, errors="strict")
    except UnicodeDecodeError:
        raise BadUrl("the directory of the set is not UTF-8", "write it without %-escapes") from None
    return True


def _query(query: str) -> str:
    """The ref of a query."""
    if not query:
        return ""
    fields = [field.partition("=") for field in query.split("&")]
    unknown = sorted({name for name, _, _ in fields} - {"ref"})
    if unknown:
        raise BadUrl(f"the address has the unknown parameter '{unknown[0][:60]}'", "only ?ref=BRANCH|TAG|COMMIT exists")
    if len(fields) > 1:
        raise BadUrl("the address has ref twice", "write one")
    return ref_name(unquote(fields[0][2], errors="replace"))


def ref_name(ref: str) -> str:
    """A branch, tag, full ref or commit, checked by the rules of `git check-ref-format`. Raises BadUrl."""
    if not ref:
        raise BadUrl("the ref is empty", "name a branch, a tag or a commit, or leave ?ref= out for the default branch")
    if ref.startswith("-") or _NOT_IN_REFS.search(ref) or ref == "@" or not ref.isprintable() or len(ref) > 250:
        raise BadUrl(
            "the ref is not a name that git allows for a branch or tag",
            "write a branch, a tag, or a whole commit number",
        )
    return ref
