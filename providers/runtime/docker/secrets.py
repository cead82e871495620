"""Which secret variables of a container have another value now than when it was created, without keeping any value.

At creation a label gets, for each such variable, where its secret is (never what it is), a salt and a scrypt digest. A look
resolves the secret again and computes the digest of what it finds; how that came out is remembered under a keyed hash of the
value, so the slow digest is computed once per change and not per look. A secret that cannot be resolved now is unknown, which
is not a change. Called by `docker_create.py` and `docker_look.py`.
"""

import hashlib
import hmac
import json
import os
import threading
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from manifests.values.pod import SecretSource
from providers.errors import ProviderError
from providers.lib.secrets import SecretRef
from providers.runtime.docker.life import Life, Pod

LABEL_SECRETS = "reconciler.secrets"

N, R, P = 2**14, 8, 1
"""Cost of a digest: RFC 7914's figures for interactive use, some 50 ms and 16 MiB."""

DIGESTS_PER_LOOK = 8
"""Digests that one look computes at most; further ones count as unknown until the next looks, so that none takes long."""

REMEMBERED = 20_000
"""Variables remembered at most: several times what one engine runs."""


class Entry(NamedTuple):
    """What a label says about one variable: `container/VARIABLE`, where its secret is, and salt and digest of its value."""

    name: str
    source: SecretSource
    salt: bytes
    digest: bytes


def secret_ref(source: SecretSource) -> SecretRef:
    """The reference in the words of those who resolve it."""
    return SecretRef(env=source.env) if source.env else SecretRef(file=source.file)


def secrets_label(container: str, sources: tuple[tuple[str, SecretSource], ...], values: Mapping[str, str]) -> str:
    """The label's text for one container; empty when it has no secrets.

    Args:
        container: its name in the template.
        sources: where the secret of each variable is.
        values: the revealed values by variable.
    """
    entries = {}
    for variable, source in sources:
        salt = os.urandom(16)
        where = {"env": source.env} if source.env else {"file": source.file}
        entries[variable] = {**where, "salt": salt.hex(), "scrypt": _scrypt(values[variable], salt).hex()}
    return json.dumps({"container": container, "variables": entries}, sort_keys=True) if entries else ""


def _scrypt(value: str, salt: bytes) -> bytes:
    return hashlib.scrypt(value.encode(), salt=salt, n=N, r=R, p=P, dklen=32)


@lru_cache(maxsize=4096)
def read_label(text: str) -> tuple[Entry, ...]:
    """What a label says; nothing where it is not one of ours."""
    try:
        found = json.loads(text)
        return tuple(
            Entry(
                f"{found['container']}/{variable}",
                SecretSource(env=str(one.get("env", "")), file=str(one.get("file", ""))),
                bytes.fromhex(one["salt"]),
                bytes.fromhex(one["scrypt"]),
            )
            for variable, one in sorted(found["variables"].items())
        )
    except (ValueError, TypeError, KeyError, AttributeError):
        return ()


class Secrets:
    """What is known of the secrets of one node's containers. Thread-safe."""

    def __init__(self) -> None:
        self._key = os.urandom(32)
        self._lock = threading.Lock()
        self._known: dict[tuple[str, str], tuple[bytes, bool]] = {}

    def look(self) -> "SecretLook":
        """A look, in which each secret is resolved once."""
        return SecretLook(self)

    def known(self, life: Life, entry: Entry, value: str) -> bool | None:
        """Whether the value differs from the one at creation; None when its digest has not been computed yet."""
        with self._lock:
            found = self._known.get((life.id, entry.name))
        return found[1] if found is not None and hmac.compare_digest(found[0], self._tag(value)) else None

    def learn(self, life: Life, entry: Entry, value: str) -> bool:
        """Compute that."""
        stale = not hmac.compare_digest(_scrypt(value, entry.salt), entry.digest)
        with self._lock:
            if len(self._known) >= REMEMBERED:
                self._known.clear()
            self._known[life.id, entry.name] = (self._tag(value), stale)
        return stale

    def _tag(self, value: str) -> bytes:
        return hashlib.blake2b(value.encode(), key=self._key, digest_size=16).digest()


class SecretLook:
    """One look at the secrets of many containers."""

    def __init__(self, secrets: Secrets) -> None:
        self._secrets = secrets
        self._values: dict[SecretSource, str | None] = {}
        self._left = DIGESTS_PER_LOOK

    def stale(self, pod: Pod) -> tuple[str, ...]:
        """The variables (`container/VARIABLE`) of one replica of ours that have another value now, sorted."""
        if pod.main.mark[0] is None:
            return ()
        lives = (pod.main, *pod.members)
        found = ((life, entry) for life in lives for entry in read_label(life.labels.get(LABEL_SECRETS, "")))
        return tuple(sorted(entry.name for life, entry in found if self._is_stale(life, entry)))

    def _is_stale(self, life: Life, entry: Entry) -> bool:
        value = self._resolve(entry.source)
        if value is None:
            return False
        known = self._secrets.known(life, entry, value)
        if known is not None:
            return known
        if self._left <= 0:
            return False
        self._left -= 1
        return self._secrets.learn(life, entry, value)

    def _resolve(self, source: SecretSource) -> str | None:
        """The value as it is now; None while it cannot be told."""
        if source not in self._values:
            try:
                self._values[source] = secret_ref(source).resolve("secret").reveal()
            except (ProviderError, ValueError):  # the latter: a label that somebody else wrote
                self._values[source] = None
        return self._values[source]
