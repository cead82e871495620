"""The keys whose signatures count, read from the files that local documents name, and made ready for git. Used by `verify.py`.

git gets them in a directory of their own, below the mirror: an allowed signers file and a key ring that hold these keys and no
other. The user's key ring, agent and configuration are never looked at, and the repository has no say.

SSH keys that are expired now, or not valid yet, are left out of the file: ssh-keygen itself judges them by the time that the commit
claims, which the holder of an old key can choose. gpg judges PGP keys by the present time by itself.
"""

import binascii
import os
import re
import shutil
from base64 import b64decode
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from tempfile import mkdtemp

from manifests.escape import escape
from manifests.source.local import UnsafeFile, read_safe
from manifests.values.verify import SignaturePolicy
from providers.lib.program import Missing, ProgramError, Ran, run
from reconciler.git.signature import SHOWN, fingerprint

TIMEOUT = 30.0
"""Seconds that one call of gpg may take."""

KEYS = 1_000
"""The most keys of one policy."""

_KEY_TYPE = re.compile(r"(ssh|ecdsa|sk-ssh|sk-ecdsa)-[A-Za-z0-9@.-]+")
_WORD = re.compile(r'\s*((?:[^\s"]|"(?:\\.|[^"\\])*")+)')
_OPTION = re.compile(r'([A-Za-z-]+)(?:="((?:[^"\\]|\\.)*)")?')
_SPLIT = re.compile(r',(?=(?:[^"]*"[^"]*")*[^"]*$)')
_TIME = re.compile(r"(\d{8})(\d{4}(?:\d{2})?)?(Z?)")


class UnusableKeys(Exception):
    """The keys cannot be used, so nothing can be verified. The cause, and the next step."""

    def __init__(self, cause: str, hint: str) -> None:
        super().__init__(cause)
        self.cause, self.hint = cause, hint

    def __str__(self) -> str:
        return f"{self.cause}; next step: {self.hint}"


@dataclass(frozen=True, slots=True)
class Key:
    """One key that may sign.

    Attributes:
        id: `SHA256:…` of an SSH key; the fingerprint of a PGP key or subkey, 40 or 64 hex digits.
        owner: for messages, escaped: principals, comment or user id.
        authority: an SSH key that signs certificates of other keys.
        begins, ends: wall-clock seconds from and until which it is valid; 0 = always.
        revoked: a PGP key that is revoked.
        primary: the PGP key that a subkey belongs to.
    """

    id: str
    owner: str
    authority: bool = False
    begins: int = 0
    ends: int = 0
    revoked: bool = False
    primary: str = ""

    def invalid(self, now: int) -> str:
        """Why it does not count at a wall-clock second; empty when it does."""
        if self.revoked:
            return "is revoked"
        if self.ends and now >= self.ends:
            return f"expired on {datetime.fromtimestamp(self.ends, UTC):%Y-%m-%d %H:%M}Z"
        if self.begins and now < self.begins:
            return f"is valid only from {datetime.fromtimestamp(self.begins, UTC):%Y-%m-%d %H:%M}Z on"
        return ""


@dataclass(frozen=True, slots=True)
class Trusted:
    """The keys of a policy as they are now.

    Attributes:
        ssh, pgp: the keys.
        state: differs when any key, or what counts at this moment, differs.
        directory: what git gets: `allowed_signers`, `revoked` (if there is one) and `gnupg`.
    """

    ssh: tuple[Key, ...]
    pgp: tuple[Key, ...]
    state: str
    directory: Path

    @property
    def revoked(self) -> Path | None:
        """The file of revoked SSH keys."""
        path = self.directory / "revoked"
        return path if path.exists() else None


def read_trusted(policy: SignaturePolicy, directory: Path, now: int) -> Trusted:
    """Read the keys of a policy, and make what git gets of them below a directory of ours. Raises UnusableKeys.

    Args:
        directory: created when it is missing; this process alone uses it. What an earlier state of the keys left there is removed.
        now: wall-clock second.
    """
    ssh: list[tuple[Key, str]] = []
    for path in policy.ssh:
        ssh += _ssh_keys(path, _read(path))
    if policy.ssh and shutil.which("ssh-keygen") is None:
        raise UnusableKeys("ssh-keygen: cannot be started: not found", "install openssh-client, which has ssh-keygen")
    lines = "".join(f"{line}\n" for key, line in ssh if not key.invalid(now))
    revoked = _read(policy.ssh_revoked) if policy.ssh_revoked else b""
    pgp = [(path, _read(path)) for path in policy.pgp]
    parts = [lines.encode(), revoked, *(data for _, data in pgp)]
    digest = sha256("".join(sha256(part).hexdigest() for part in parts).encode()).hexdigest()[:32]
    made = directory / digest
    try:
        if not (made / "complete").exists():
            _make(directory, digest, lines, revoked if policy.ssh_revoked else None, pgp)
    except OSError as error:
        reason = (error.strerror or type(error).__name__).lower()
        raise UnusableKeys(f"{directory}: the keys cannot be written: {reason}", "check the state directory") from error
    listed = _pgp_keys((made / "complete").read_text()) if pgp else ()
    if pgp and not listed:
        raise UnusableKeys(f"{policy.pgp[0]}: it has no PGP public key", "write it with gpg --export --armor")
    if len(ssh) + len(listed) > KEYS:
        raise UnusableKeys(f"source.verify names more than {KEYS} keys", "name fewer keys, or a certificate authority")
    counts = "".join("01"[not key.invalid(now)] for key in listed)
    return Trusted(tuple(key for key, _ in ssh), listed, f"{digest} {counts}", made)


def _read(path: str) -> bytes:
    try:
        return read_safe(path)
    except UnsafeFile as error:
        raise UnusableKeys(f"{path}: {error.message}", error.hint) from error


def _make(directory: Path, digest: str, lines: str, revoked: bytes | None, pgp: list[tuple[str, bytes]]) -> None:
    """Make the directory for git, complete or not at all. Raises OSError, UnusableKeys."""
    directory.mkdir(mode=0o700, exist_ok=True)
    directory.chmod(0o700)
    new = Path(mkdtemp(prefix="new-", dir=directory))
    _write(new / "allowed_signers", lines.encode())
    if revoked is not None:
        _write(new / "revoked", revoked)
    home = new / "gnupg"
    home.mkdir(mode=0o700)
    _write(home / "gpg.conf", b"batch\nno-autostart\nno-auto-key-retrieve\ntrust-model always\nno-auto-check-trustdb\n")
    for path, data in pgp:
        _import(home, path, data)
    listing = (
        _gpg(home, "--with-colons", "--fixed-list-mode", "--with-subkey-fingerprint", "--list-keys").out if pgp else b""
    )
    _write(new / "complete", listing)
    for entry in os.scandir(directory):
        if entry.path != str(new):
            shutil.rmtree(entry.path, ignore_errors=True)
    os.rename(new, directory / digest)


def _write(path: Path, data: bytes) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
        file.write(data)


# --- SSH ---------------------------------------------------------------------------------------------------------------


def _ssh_keys(path: str, data: bytes) -> list[tuple[Key, str]]:
    """The keys of a file, each with its line for git. Raises UnusableKeys."""
    keys: list[tuple[Key, str]] = []
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        hint = "name the file of public keys (.pub), not of private ones"
        raise UnusableKeys(f"{path}: it is not a text of SSH keys", hint) from error
    if "PRIVATE KEY-----" in text:
        raise UnusableKeys(f"{path}: it has a private key", "name the file of the public key (.pub)")
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip() and not line.lstrip().startswith("#"):
            try:
                keys.append(_ssh_key(line.strip()))
            except ValueError as error:
                hint = "write PRINCIPALS [OPTIONS] TYPE KEY as in an allowed signers file, or the line of a .pub file"
                raise UnusableKeys(f"{path}:{number}: {error}", hint) from error
    if not keys:
        raise UnusableKeys(f"{path}: it has no SSH key", "write the line of a .pub file to it")
    return keys


def _ssh_key(line: str) -> tuple[Key, str]:
    """The key of a line. Raises ValueError."""
    words = [word for word in _WORD.findall(line) if word]
    options = ""
    if words and _KEY_TYPE.fullmatch(words[0]):
        kind, rest, principals = words[0], words[1:], ""
        owner = " ".join(rest[1:])
    else:
        principals = words.pop(0) if words else ""
        if words and not _KEY_TYPE.fullmatch(words[0]):
            options = words.pop(0)
        kind, rest = (words[0], words[1:]) if words else ("", [])
        owner = principals.strip('"')
    if not _KEY_TYPE.fullmatch(kind) or not rest:
        raise ValueError("it is no SSH key")
    try:
        raw = b64decode(rest[0], validate=True)
    except binascii.Error:
        raise ValueError("its key is not Base64") from None
    if raw[4 : 4 + int.from_bytes(raw[:4], "big")] != kind.encode():
        raise ValueError(f"its key is not of the type {escape(kind[:SHOWN])}")
    authority, begins, ends = _options(options)
    key = Key(fingerprint(raw), escape(owner[:SHOWN]), authority, begins, ends)
    # A line of a public key has no principal, and git needs one.
    return key, " ".join(filter(None, (principals or "key", options, kind, rest[0])))


def _options(text: str) -> tuple[bool, int, int]:
    """Whether a key is an authority, and from and until when it counts. Raises ValueError."""
    authority, begins, ends = False, 0, 0
    for option in _SPLIT.split(text) if text else ():
        found = _OPTION.fullmatch(option)
        name, value = (found[1].lower(), found[2] or "") if found else (option, "")
        if name == "cert-authority":
            authority = True
        elif name == "valid-after":
            begins = _seconds(value)
        elif name == "valid-before":
            ends = _seconds(value)
        elif name != "namespaces":
            raise ValueError(f"its option {escape(name[:SHOWN])} is unknown")
    return authority, begins, ends


def _seconds(text: str) -> int:
    """The wall-clock second of `YYYYMMDD[HHMM[SS]][Z]`, which is local time without Z. Raises ValueError."""
    found = _TIME.fullmatch(text)
    if found is None:
        raise ValueError(f"'{escape(text[:SHOWN])}' is not a time such as 20270131 or 20270131120000Z")
    day, time, utc = found.groups()
    zone, form = ("+0000", "%z") if utc else ("", "")
    try:
        whole = f"{day}{(time or '').ljust(6, '0')}{zone}"
        moment = datetime.strptime(whole, f"%Y%m%d%H%M%S{form}")  # noqa: DTZ007  (local time without Z, as for ssh-keygen)
        return max(1, int(moment.timestamp()))
    except (ValueError, OverflowError):
        raise ValueError(f"'{escape(text[:SHOWN])}' is no date that exists") from None


# --- PGP ---------------------------------------------------------------------------------------------------------------


def _import(home: Path, path: str, data: bytes) -> None:
    """Add the public keys of a file to a key ring. Raises UnusableKeys."""
    shown = _gpg(home, "--with-colons", "--show-keys", stdin=data)
    if any(line.startswith((b"sec:", b"ssb:")) for line in shown.out.splitlines()):
        hint = "write only the public key, with gpg --export, and remove the private key from this host"
        raise UnusableKeys(f"{path}: it has a private key", hint)
    if _gpg(home, "--import", stdin=data).code != 0:
        raise UnusableKeys(f"{path}: gpg cannot read it as PGP public keys", "write it with gpg --export --armor")


def _gpg(home: Path, *arguments: str, stdin: bytes = b"") -> Ran:
    """Run gpg on a key ring of ours. Raises UnusableKeys, OSError."""
    # A short name: gpg looks for its agent beside the key ring, and the path of a socket has at most 107 bytes (unix(7)).
    descriptor = os.open(home, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    short = f"/proc/self/fd/{descriptor}"
    command = ["gpg", "--homedir", short, "--batch", "--no-tty", "--no-autostart", "--quiet", *arguments]
    env = {"GNUPGHOME": short, "HOME": "/nonexistent"}
    try:
        return run(command, timeout=TIMEOUT, env=env, stdin=stdin, pass_fds=(descriptor,))
    except Missing as error:
        raise UnusableKeys(str(error), "install gnupg, which has gpg") from error
    except ProgramError as error:
        raise UnusableKeys(str(error), "check the files of PGP keys in source.verify") from error
    finally:
        os.close(descriptor)


def _pgp_keys(listing: str) -> tuple[Key, ...]:
    """The keys of gpg's listing (doc/DETAILS of GnuPG)."""
    keys: list[Key] = []
    fields: list[str] = []
    primary = owner = ""
    owners: dict[str, str] = {}
    for line in listing.splitlines():
        values = line.split(":")
        if values[0] in {"pub", "sub"}:
            fields = values
        elif values[0] == "fpr" and fields:
            primary = values[9] if fields[0] == "pub" else primary
            ends = int(fields[6]) if fields[6].isdecimal() else 0
            keys.append(Key(values[9], "", ends=ends, revoked=fields[1] == "r", primary=primary))
            fields = []
        elif values[0] == "uid" and primary not in owners:
            owner = values[9].replace("\\x3a", ":")
            owners[primary] = escape(owner[:SHOWN])
    return tuple(
        Key(key.id, owners.get(key.primary, ""), ends=key.ends, revoked=key.revoked, primary=key.primary)
        for key in keys
    )


def remove_all(directory: Path) -> None:
    """Forget what was made for git: no signature is needed any more."""
    with suppress(OSError):
        shutil.rmtree(directory)
