"""How git reaches a remote: its environment, its options, and the credentials of the operator. Used by `mirror.py` only.

git runs with no configuration but the one here: no hooks, helpers, filters, file-system monitor or submodules of any repository or
user, and only the one protocol of the address. No credential is in an argument, in the environment or in a file that we write:
a token goes to git through a pipe, an ssh key that is not in a file through a file of this process that has no name.
"""

import os
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from manifests.escape import escape
from reconciler.git.errors import Refused

SSH_CONNECT = 15
"""Seconds until ssh gives up a connection that does not come up, or does not answer any more."""

_FIXED = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.askPass=",
    "core.fsync=committed",
    "credential.helper=",
    "credential.interactive=false",
    "fetch.fsckObjects=true",
    "transfer.fsckObjects=true",
    "fetch.recurseSubmodules=false",
    "fetch.writeCommitGraph=false",
    "fetch.parallel=1",
    "gc.auto=0",
    "gc.autoDetach=false",
    "maintenance.auto=false",
    "pack.threads=1",
    "protocol.version=2",
    "http.followRedirects=false",
    "http.sslVerify=true",
    "http.lowSpeedLimit=100",
    "http.lowSpeedTime=30",
    "advice.detachedHead=false",
    "protocol.allow=never",
)

ENVIRONMENT = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_SYSTEM": "/dev/null",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "false",
    "SSH_ASKPASS": "false",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_LITERAL_PATHSPECS": "1",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "HOME": "/nonexistent",
    "XDG_CONFIG_HOME": "/nonexistent",
}
"""Variables of every git process."""

_PROXY = ("https_proxy", "HTTPS_PROXY", "no_proxy", "NO_PROXY", "all_proxy", "ALL_PROXY")
"""Variables of this process that say how https reaches other hosts."""


@dataclass(frozen=True, slots=True)
class Access:
    """What an operator gave for one remote.

    Attributes:
        username: for https, with `token`.
        token: reads the token or password of https; it may raise ProviderError.
        key: reads the private ssh key; it may raise ProviderError.
        key_file: the file of the private ssh key, where it is in one; ssh reads it itself.
        known_hosts: the file of the host keys that ssh accepts.
        ca_file: the certificates that https trusts instead of the system's.
    """

    username: str = "git"
    token: Callable[[], str] | None = None
    key: Callable[[], str] | None = None
    key_file: str = ""
    known_hosts: str = ""
    ca_file: str = ""


def offline() -> list[str]:
    """The first words of a git command that reaches no remote."""
    return ["git", *_settings(_FIXED)]


def _settings(settings: tuple[str, ...]) -> list[str]:
    return [word for setting in settings for word in ("-c", setting)]


@dataclass(frozen=True, slots=True)
class Online:
    """The first words, the variables and the descriptors of a git command that reaches a remote."""

    words: list[str]
    env: dict[str, str]
    fds: tuple[int, ...]


@contextmanager
def online(scheme: str, access: Access, empty: str | os.PathLike[str]) -> Iterator[Online]:
    """What a command needs to reach a remote of this scheme. Raises Refused, ProviderError.

    `empty` is a directory without certificates: libcurl trusts those in its own directory beside those of `ca_file` else, and reads
    all of them for each call.
    """
    own = [f"protocol.{scheme}.allow=always"]
    env = dict(ENVIRONMENT)
    descriptors: list[int] = []
    try:
        if scheme == "https":
            env |= {name: os.environ[name] for name in _PROXY if name in os.environ}
            env |= {"GIT_TRACE_CURL": "1", "GIT_TRACE_CURL_NO_DATA": "1", "GIT_TRACE_REDACT": "1"}
            if access.ca_file:
                own += [f"http.sslCAInfo={access.ca_file}", f"http.sslCAPath={os.fspath(empty)}"]
            if access.token is not None:
                descriptors.append(_piped(f"username={access.username}\npassword={_one_line(access.token())}\n"))
                # Once for a question; git's other calls (store, erase) read the end of the pipe.
                own.append(f"credential.helper=!cat /proc/self/fd/{descriptors[0]}; :")
        if scheme == "ssh":
            env["GIT_SSH_VARIANT"] = "ssh"
            env["GIT_SSH_COMMAND"] = shlex.join(_ssh(access, descriptors))
        yield Online([*offline(), *_settings(tuple(own))], env, tuple(descriptors))
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def _one_line(secret: str) -> str:
    if not secret or any(c in secret for c in "\n\r\0"):
        raise Refused("the token of the source is empty or has several lines", "write the token in one line")
    return secret


def _piped(text: str) -> int:
    """The reading end of a pipe that holds a text."""
    reading, writing = os.pipe2(os.O_CLOEXEC)
    data = text.encode()
    try:
        os.set_blocking(writing, False)
        written = os.write(writing, data)
    except BlockingIOError:
        written = 0
    finally:
        os.close(writing)
    if written != len(data):
        os.close(reading)
        raise Refused("the token of the source is longer than a pipe holds", "check which file it names")
    return reading


def _ssh(access: Access, descriptors: list[int]) -> list[str]:
    """The ssh command: no configuration of the user or the host, no agent, no question."""
    if not access.known_hosts or (access.key is None and not access.key_file):
        raise Refused(
            "git+ssh needs a key and known hosts",
            "name sshKey and knownHosts in spec.source of the local Instance, and give it with --instance",
        )
    key = access.key_file
    if not key and access.key is not None:
        descriptor = os.memfd_create("ssh-key", os.MFD_CLOEXEC)
        descriptors.append(descriptor)
        os.fchmod(descriptor, 0o600)
        os.write(descriptor, access.key().rstrip("\n").encode() + b"\n")
        # ssh closes descriptors that it inherits, and opens the file more than once.
        key = f"/proc/{os.getpid()}/fd/{descriptor}"
    options = {
        "BatchMode": "yes",
        "StrictHostKeyChecking": "yes",
        "UserKnownHostsFile": _quoted(access.known_hosts),
        "GlobalKnownHostsFile": "/dev/null",
        "UpdateHostKeys": "no",
        "IdentityFile": _quoted(key),
        "IdentitiesOnly": "yes",
        "IdentityAgent": "none",
        "PreferredAuthentications": "publickey",
        "ForwardAgent": "no",
        "ClearAllForwardings": "yes",
        "PermitLocalCommand": "no",
        "ControlMaster": "no",
        "ControlPath": "none",
        "ProxyCommand": "none",
        "ConnectTimeout": str(SSH_CONNECT),
        "ServerAliveInterval": str(SSH_CONNECT),
        "ServerAliveCountMax": "2",
        "LogLevel": "ERROR",
    }
    return ["ssh", "-F", "none", *(word for name, value in options.items() for word in ("-o", f"{name}={value}"))]


def _quoted(path: str) -> str:
    """A path as a value of an option of ssh."""
    if '"' in path or not path.isprintable():
        raise Refused(f"the path {escape(path)} cannot be given to ssh", "rename the file")
    return '"' + path.replace("%", "%%") + '"'
