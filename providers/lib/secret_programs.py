"""Secrets that other programs give: commands of the host, and SOPS and age, which decrypt files. Called by `secrets.py`.

Plain text exists in memory only: a program gets the encrypted file on its standard input, and its output is read from a pipe. What it
writes to its error output is dropped, because it may hold values and paths; its exit code says what went wrong.
"""

import json
import os
import stat
from collections.abc import Mapping
from typing import Any

from manifests.source.encrypted_file import Format, SopsFile, Unusable, is_age, read_sops, single_value
from manifests.values.desired import SECOND
from manifests.values.secret_sources import Decryption, SecretCommand, SecretSource
from providers.errors import ProviderError, Rejected, Unreachable
from providers.lib import program

MAX_OUTPUT = 64 * 1024
"""Most bytes that a command, or age, may print: that of any secret."""

MAX_DECRYPTED = 4 * 1024 * 1024
"""Most bytes of a decrypted SOPS file: four times the largest encrypted one."""

_SOPS_KEYS = ("SOPS_AGE_KEY", "SOPS_AGE_KEY_FILE", "GNUPGHOME")
"""Variables by which SOPS finds keys, passed on where local documents name no identity for it."""

_SOPS_EXITS = {
    24: "its message authentication code cannot be decrypted: the file was changed without sops",
    25: "a value in it cannot be decrypted: the file was changed without sops",
    51: "its message authentication code does not match: the file was changed without sops",
    52: "it has no message authentication code",
    111: "it has no encryption key",
    128: "no identity or key service gives its key",
}
"""Exit codes of SOPS (`cmd/sops/codes` in its source)."""

_SOPS_FINAL = frozenset({24, 25, 51, 52, 111})
"""Codes that only a change of the file ends."""

_SPELLINGS = (("--decrypt",), ("decrypt",))
"""How SOPS is asked to decrypt: by an option in all versions so far, by a command since 3.9."""


def passed_on(names: tuple[str, ...]) -> dict[str, str]:
    """Variables of this process that a program gets."""
    return {name: os.environ[name] for name in names if name in os.environ}


def run_command(command: SecretCommand, source: SecretSource, target: str) -> bytes:
    """The output of a command. Raises Unreachable, Rejected."""
    ran = _run(
        source,
        target,
        list(command.argv),
        {**passed_on(command.pass_env), **dict(command.env)},
        b"",
        command.timeout,
        MAX_OUTPUT,
    )
    if ran.code:
        cause = f"the secret's {source} cannot be read: the program ended with {_ended(ran.code)}"
        raise Unreachable(target, cause, f"run it as the user of reconcile to see why: {command.argv[0]}")
    return ran.out


def _run(
    source: SecretSource,
    target: str,
    argv: list[str],
    env: Mapping[str, str],
    given: bytes,
    timeout: int,
    limit: int,
) -> program.Ran:
    try:
        return program.run(argv, timeout=timeout / SECOND, env=env, stdin=given, output=limit)
    except program.Missing as error:
        cause = f"the secret's {source} cannot be read: {error}"
        raise Rejected(target, cause, f"install {error.program}, or correct its path", whole=True) from None
    except program.TimedOut as error:
        cause = f"the secret's {source} cannot be read: {error}, and was killed"
        raise Unreachable(target, cause, "find out what it waits for, or raise its timeout") from None
    except program.TooMuch as error:
        cause = f"the secret's {source} cannot be read: {error}"
        raise Rejected(target, cause, "print the secret alone", whole=True) from None


def _ended(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"signal {-code}"


# --- SOPS ------------------------------------------------------------------------------------------------------------


class Sops:
    """Decrypts files of SOPS. Remembers which spelling the installed version understands."""

    def __init__(self) -> None:
        self._spelling = 0

    def decrypt(self, source: SecretSource, target: str, data: bytes, settings: Decryption) -> "Decrypted":
        """The decrypted file. Raises Unreachable, Rejected."""
        try:
            file = read_sops(source.sops_file, data)
        except Unusable as error:
            raise _rejected(target, source, error.cause, error.next_step) from None
        _check_services(file, source, target, settings)
        identity = settings.sops_identity
        if identity:
            check_identity(identity, source, target)
        env = passed_on(settings.sops_pass_env if identity else (*_SOPS_KEYS, *settings.sops_pass_env))
        env |= dict(settings.sops_env) | ({"SOPS_AGE_KEY_FILE": identity} if identity else {})
        output = Format.BINARY if file.format is Format.BINARY else Format.JSON
        types = ["--input-type", file.format.value, "--output-type", output.value]
        parsed = self._call(types, source, target, data, settings, env)
        if file.format is Format.BINARY:
            return Decrypted(file.format, parsed, None)
        # A file is given as a whole in its own format, which only another call prints.
        try:
            values = json.loads(parsed, parse_int=str, parse_float=str)
        except (ValueError, RecursionError):
            raise Rejected(
                target, f"the secret's {source}: sops printed no JSON", "install SOPS 3", whole=True
            ) from None
        whole = None
        if not source.sops_key:
            types = ["--input-type", file.format.value, "--output-type", file.format.value]
            whole = self._call(types, source, target, data, settings, env)
        return Decrypted(file.format, whole, values)

    def _call(
        self,
        types: list[str],
        source: SecretSource,
        target: str,
        data: bytes,
        settings: Decryption,
        env: Mapping[str, str],
    ) -> bytes:
        code = 0
        for spelling in (self._spelling, 1 - self._spelling):
            argv = ["sops", *_SPELLINGS[spelling], *types, "/dev/stdin"]
            ran = _run(source, target, argv, env, data, settings.timeout, MAX_DECRYPTED)
            if ran.code == 0:
                self._spelling = spelling
                return ran.out
            if code == 0 or ran.code in _SOPS_EXITS:
                code = ran.code
            if ran.code in _SOPS_EXITS:
                break  # it understood the command
        cause = _SOPS_EXITS.get(code, f"sops ended with {_ended(code)}")
        next_step = f"run sops decrypt {source.sops_file} as the user of reconcile to see why"
        if code in _SOPS_FINAL:
            raise _rejected(target, source, cause, "restore the file, or encrypt it again")
        raise Unreachable(target, f"the secret's {source} cannot be decrypted: {cause}", next_step)


class Decrypted:
    """A decrypted SOPS file in memory: as a whole, where a reference asks for that, and its values. It has no printed form."""

    __slots__ = ("_form", "_values", "_whole")

    def __init__(self, form: Format, whole: bytes | None, values: Any) -> None:
        self._form, self._whole, self._values = form, whole, values

    def __repr__(self) -> str:
        return "Decrypted(***)"

    def serves(self, source: SecretSource) -> bool:
        """Whether the value of a reference is here."""
        return bool(source.sops_key) or self._whole is not None

    def value(self, source: SecretSource, target: str) -> bytes:
        """The secret of a reference. Raises Rejected."""
        if not source.sops_key:
            assert self._whole is not None  # noqa: S101  (`serves` was asked)
            return self._whole
        try:
            value = single_value(source.sops_file, self._form, self._values, source.sops_key)
        except Unusable as error:
            raise _rejected(target, source, error.cause, error.next_step) from None
        return (str(value).lower() if isinstance(value, bool) else str(value)).encode()


def _check_services(file: SopsFile, source: SecretSource, target: str, settings: Decryption) -> None:
    """Refuse a file whose metadata would make SOPS send credentials to an address that no local document allows."""
    if settings.key_services is None:
        return
    foreign = [address for address in file.services if address not in settings.key_services]
    if foreign:
        next_step = f"if SOPS may send its credentials there, add it to decryption.sops.keyServices: {foreign[0]}"
        raise _rejected(target, source, "it names a key service that no local document allows", next_step)


# --- age -------------------------------------------------------------------------------------------------------------


def decrypt_age(source: SecretSource, target: str, data: bytes, settings: Decryption) -> bytes:
    """The decrypted file. Raises Unreachable, Rejected."""
    identity = identity_of(source, settings, target)
    if not is_age(data):
        next_step = "encrypt it: age -r RECIPIENT; if it was committed in plain text, replace the secret"
        raise _rejected(target, source, "it is not encrypted with age", next_step)
    check_identity(identity, source, target)
    argv = ["age", "--decrypt", "--identity", identity]
    ran = _run(source, target, argv, {}, data, settings.timeout, MAX_OUTPUT)
    if ran.code:
        next_step = "encrypt it for the recipient of its identity, or name another identity"
        cause = f"the secret's {source} cannot be decrypted: age ended with {_ended(ran.code)}"
        raise Rejected(target, cause, next_step, whole=True)
    return ran.out


def identity_of(source: SecretSource, settings: Decryption, target: str) -> str:
    """The path of the identity of a reference. Raises Rejected."""
    known = dict(settings.identities)
    if source.identity in known:
        return known[source.identity]
    if not source.identity and len(known) == 1:
        return next(iter(known.values()))
    missing = f"there is no identity '{source.identity}'" if source.identity else f"{len(known)} identities are defined"
    next_step = "define it in decryption.identities of the Instance in a local document (--instance), and name it"
    raise _rejected(target, source, missing, next_step)


def check_identity(path: str, source: SecretSource, target: str) -> None:
    """Raise Rejected for an identity that is missing, or that every user of the host can read."""
    try:
        info = os.stat(path)
    except OSError as error:
        cause = f"identity {path} cannot be read: {(error.strerror or '').lower()}"
        raise _rejected(target, source, cause, f"create {path} with age-keygen, mode 0600") from None
    if not stat.S_ISREG(info.st_mode):
        raise _rejected(target, source, f"identity {path} is not a regular file", "set the path of the file itself")
    if info.st_mode & stat.S_IROTH:
        raise _rejected(target, source, f"identity {path} is world-readable", f"run chmod o-rwx {path}")


def _rejected(target: str, source: SecretSource, cause: str, next_step: str) -> ProviderError:
    return Rejected(target, f"the secret's {source}: {cause}", next_step, whole=True)
