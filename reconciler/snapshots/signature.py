"""The file of a snapshot, and its signature by an SSH key. Used by `reconcile snapshot` and `reconcile plan --observed`.

The first line says how the second one is signed; the second one is the snapshot. ssh-keygen signs and verifies (`-Y`, OpenSSH 8.1 or newer), in a
namespace of its own, so that no signature of a commit or a file counts as one of a snapshot. Nothing of a file is read before its
signature was verified.
"""

import json
import os
from pathlib import Path
from tempfile import TemporaryDirectory

from providers.lib.program import ProgramError, run
from reconciler.snapshots.snapshot import SnapshotRefused

NAMESPACE = "reconcile-snapshot"
PRINCIPAL = "reconcile"
TIMEOUT = 30.0
"""Seconds that ssh-keygen may take."""
LARGEST = 256 * 1024 * 1024
"""Bytes of a file."""
KEYS = 1024 * 1024
"""Bytes of a file of public keys."""


class CannotSign(Exception):
    """The snapshot cannot be signed: the cause, and the next step."""

    def __init__(self, cause: str, next_step: str) -> None:
        super().__init__(cause, next_step)
        self.cause, self.next_step = cause, next_step

    def __str__(self) -> str:
        return f"{self.cause}; next step: {self.next_step}"


def file_of(text: str, key: Path | None) -> bytes:
    """The content of a file with this snapshot, signed by a private key if one is given. Raises CannotSign."""
    body = f"{text}\n".encode()
    signature = "" if key is None else _sign(body, key)
    return f"{json.dumps({'signature': signature})}\n".encode() + body


def _sign(body: bytes, key: Path) -> str:
    command = ["ssh-keygen", "-Y", "sign", "-q", "-f", str(key.absolute()), "-n", NAMESPACE]
    hint = "name a private SSH key without a passphrase, as ssh-keygen -t ed25519 -N '' -f FILE makes it"
    try:
        ran = run(command, timeout=TIMEOUT, stdin=body, env={"SSH_ASKPASS_REQUIRE": "never"})
    except ProgramError as error:
        raise CannotSign(str(error), "install openssh-client, which has ssh-keygen") from error
    signature = ran.out.decode("ascii", "replace")
    if ran.code != 0 or not signature.startswith("-----BEGIN SSH SIGNATURE-----"):
        raise CannotSign(f"{key}: ssh-keygen cannot sign with it", hint)
    return signature


def text_of(path: Path, keys: Path | None) -> tuple[str, bool]:
    """The snapshot in a file, and whether its signature by one of the public keys was verified; without keys nothing is verified.

    Raises:
        SnapshotRefused: the file cannot be read or is no snapshot, or with keys: it is not signed by one of them.
    """
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST + 1)
    except OSError as error:
        reason = (error.strerror or type(error).__name__).lower()
        raise SnapshotRefused(
            f"{path}: it cannot be read: {reason}", "give the file that reconcile snapshot wrote"
        ) from error
    if len(data) > LARGEST:
        raise SnapshotRefused(f"{path}: it is larger than {LARGEST // 2**20} MiB", "check which file this is")
    head, _, body = data.partition(b"\n")
    try:
        signature = str(json.loads(head)["signature"])
        text = body.decode()
    except (ValueError, TypeError, LookupError, RecursionError) as error:
        cause = f"{path}: it is not a file of reconcile snapshot"
        raise SnapshotRefused(cause, "give the file that reconcile snapshot wrote") from error
    if keys is None:
        return text, False
    if not signature:
        raise SnapshotRefused(f"{path}: it is not signed", "take it with reconcile snapshot --key")
    _verify(path, body, signature, keys)
    return text, True


def _verify(path: Path, body: bytes, signature: str, keys: Path) -> None:
    lines = _public(keys)
    with TemporaryDirectory(prefix="reconciler-") as place:
        allowed, signed = Path(place, "allowed"), Path(place, "signature")
        for file, content in ((allowed, lines), (signed, signature)):
            with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "w") as opened:
                opened.write(content)
        command = ["ssh-keygen", "-Y", "verify", "-q", "-f", str(allowed), "-I", PRINCIPAL, "-n", NAMESPACE]
        try:
            ran = run([*command, "-s", str(signed)], timeout=TIMEOUT, stdin=body)
        except ProgramError as error:
            raise SnapshotRefused(str(error), "install openssh-client, which has ssh-keygen") from error
    if ran.code != 0:
        cause = f"{path}: its signature is not one of a key in {keys}, or the file was changed after it was signed"
        raise SnapshotRefused(cause, "take it again, and check that --observed-key is the public key of --key")


def _public(keys: Path) -> str:
    """The lines of public keys as an allowed signers file that is valid for snapshots alone. Raises SnapshotRefused."""
    hint = "name the .pub file of the key that signs"
    try:
        with keys.open("rb") as file:
            lines = file.read(KEYS).decode("ascii").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise SnapshotRefused(f"{keys}: it cannot be read as public SSH keys", hint) from error
    found = [line.split() for line in lines if line.strip() and not line.lstrip().startswith("#")]
    if not found or any(len(words) < 2 or not words[0].startswith(("ssh-", "ecdsa-", "sk-")) for words in found):
        raise SnapshotRefused(f"{keys}: it has a line that is no public SSH key, or none at all", hint)
    return "".join(f'{PRINCIPAL} namespaces="{NAMESPACE}" {words[0]} {words[1]}\n' for words in found)
