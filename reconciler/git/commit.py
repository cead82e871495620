"""Writes one commit on top of a head of the mirror, without a work tree: other contents of files that exist. Called by `reconciler/deployments/`.

The mirror has the trees on the way to these files and no others, so git's index cannot be used: it needs all trees of a commit. Each tree on
the way is written again with one entry replaced, and the rest of the commit is never fetched.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from manifests.escape import escape
from providers.lib.program import ProgramError, run
from reconciler.git.errors import SHOWN, Refused, Unusable
from reconciler.git.mirror import Mirror, parsed_tree, tree_of

SIGN_SECONDS = 20.0
"""Seconds that a signature may take."""

_FILES = frozenset({"100644", "100755"})
_TREE = "40000"


@dataclass(frozen=True, slots=True)
class Author:
    """Author and committer of a commit. `key` returns the private SSH key that signs it, and may raise ProviderError; None = unsigned."""

    name: str
    email: str
    key: Callable[[], str] | None = None


def tree_with(mirror: Mirror, tree: str, contents: Mapping[str, bytes]) -> str:
    """The number of a tree like this one, with other contents in files of these paths; it is in the mirror.

    Raises:
        Unusable: a path is no regular file of the tree.
        GitError
    """
    own = {name: data for name, data in contents.items() if "/" not in name}
    below: dict[str, dict[str, bytes]] = {}
    for name, data in contents.items():
        head, slash, rest = name.partition("/")
        if slash:
            below.setdefault(head, {})[rest] = data
    entries = {os.fsdecode(entry.name): entry for entry in parsed_tree(mirror.object(tree).data, len(tree) // 2)}
    for name, data in own.items():
        if name not in entries or entries[name].mode not in _FILES:
            raise Unusable(f"'{escape(name)}' is no regular file of the commit", "edit the file by hand")
        entries[name] = entries[name]._replace(oid=mirror.store("blob", data))
    for name, inner in below.items():
        if name not in entries or entries[name].mode != _TREE:
            raise Unusable(f"'{escape(name)}' is no directory of the commit", "edit the file by hand")
        entries[name] = entries[name]._replace(oid=tree_with(mirror, entries[name].oid, inner))
    # The names are those of the old tree, so the order is too.
    raw = b"".join(
        b"%s %s\0%s" % (entry.mode.encode(), entry.name, bytes.fromhex(entry.oid)) for entry in entries.values()
    )
    return mirror.store("tree", raw)


def commit_on(
    mirror: Mirror, parent: str, contents: Mapping[str, bytes], author: Author, message: str, second: int
) -> str:
    """Make a commit whose only change to its parent are the contents of these files; returns its number. Nothing is pushed.

    Args:
        parent: a commit in the mirror, with the trees on the way to the files.
        contents: by path in the repository.
        message: subject, empty line, body.
        second: wall-clock second, for both dates; always in UTC.

    Raises:
        Unusable: a path is no regular file.
        Refused: the key cannot sign.
        GitError, ProviderError
    """
    tree = tree_with(mirror, tree_of(mirror.object(parent).data), contents)
    who = f"{author.name} <{author.email}> {second} +0000"
    head = f"tree {tree}\nparent {parent}\nauthor {who}\ncommitter {who}\n"
    body = f"\n{message.rstrip()}\n"
    if author.key is None:
        return mirror.store("commit", (head + body).encode())
    signature = _signature((head + body).encode(), author.key())
    field = "gpgsig-sha256" if len(parent) == 64 else "gpgsig"
    signed = f"{field} " + "\n ".join(signature.rstrip("\n").split("\n")) + "\n"
    return mirror.store("commit", (head + signed + body).encode())


def _signature(payload: bytes, key: str) -> str:
    """The SSH signature of a commit. The key goes to ssh-keygen through a file of this process that has no name."""
    descriptor = os.memfd_create("signing-key", os.MFD_CLOEXEC)
    try:
        os.fchmod(descriptor, 0o600)
        os.write(descriptor, key.rstrip("\n").encode() + b"\n")
        path = f"/proc/{os.getpid()}/fd/{descriptor}"
        command = ["ssh-keygen", "-Y", "sign", "-n", "git", "-f", path]
        ran = run(command, timeout=SIGN_SECONDS, env={"SSH_ASKPASS": "false", "SSH_AUTH_SOCK": ""}, stdin=payload)
    except ProgramError as error:
        raise Refused(f"the commit cannot be signed: {error}", "install ssh-keygen, or remove signingKey") from error
    finally:
        os.close(descriptor)
    text = ran.out.decode("utf-8", "replace")
    if ran.code != 0 or not text.startswith("-----BEGIN SSH SIGNATURE-----"):
        said = " ".join(ran.err_text.replace(path, "the key").split())[:SHOWN]
        hint = "name a private SSH key without a passphrase, in the format of OpenSSH, in writeBack.signingKey"
        raise Refused(f"the commit cannot be signed ({escape(said)})", hint)
    return text
