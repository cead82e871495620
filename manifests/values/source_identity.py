"""Whether two identities of sources name the same set of manifests. Used by the rules about pruning, and to find an instance.

An identity is `REMOTE//DIRECTORY` in git, else an absolute path (`manifests/source/identity.py`); with an environment, `?env=NAME` follows. A checkout of a repository and a git source
of it, by whatever protocol, are the same set: moving from one to the other must not look like a change of the source.
"""

import re

_SCP = re.compile(r"(?:[^/@:]+@)?([^/@:]+):(?!/?/)(.*)", re.DOTALL)
_DEFAULT_PORTS = {"https": ":443", "http": ":80", "ssh": ":22", "git": ":9418"}


_ENVIRONMENT = "?env="


def with_environment(identity: str, environment: str) -> str:
    """The identity of a set with an environment: two environments of one directory are two sets. Without one, the identity as it is."""
    return f"{identity}{_ENVIRONMENT}{environment}" if environment else identity


def environment_of(identity: str) -> str:
    """The environment of an identity; empty when it has none."""
    return identity.rpartition(_ENVIRONMENT)[2] if _ENVIRONMENT in identity else ""


def same_set(one: str, other: str) -> bool:
    """Whether two identities name the same directory of the same repository, or the same path."""
    return one == other or _canonical(one) == _canonical(other)


def _canonical(identity: str) -> tuple[str, str]:
    """Host and path of the repository, and the directory in it. The protocol, the user and a default port do not count."""
    begin = identity.find("://") + 3 if "://" in identity else 0
    at = identity.rfind("//")
    if at < begin:
        return identity, ""
    remote, below = identity[:at], identity[at + 2 :]
    scheme, separator, rest = remote.partition("://")
    if separator and scheme == "file":
        return rest.removeprefix("localhost").rstrip("/").removesuffix(".git"), below
    if separator:
        authority, _, path = rest.partition("/")
        host = authority.rpartition("@")[2].lower().removesuffix(_DEFAULT_PORTS.get(scheme, ":"))
        return f"{host}/{path.strip('/')}", below
    scp = _SCP.fullmatch(remote)
    if scp is not None:
        return f"{scp[1].lower()}/{scp[2].strip('/')}", below
    return remote, below
