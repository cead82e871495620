"""Which secret variables of a container have another value now than when it was created, without keeping any value.

At creation a label gets, for each such variable, the source of its secret (never the value), a salt and a scrypt digest. A look
resolves the secret again and computes the digest of the value; the result is remembered under a keyed hash of the value, so
the slow digest is computed once per change and not per look. A secret that cannot be resolved now is unknown, which is not a
change. Called by `create.py` and `observe.py`.
"""

import hashlib
import hmac
import json
import os
import threading
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from manifests.values.secret_sources import SecretSource
from providers.lib.secrets import present
from providers.runtime.docker.container import EngineContainer, Pod

LABEL_SECRETS = "reconciler.secrets"

N, R, P = 2**14, 8, 1
"""Cost of a digest: RFC 7914's parameters for interactive use, some 50 ms and 16 MiB."""

DIGESTS_PER_LOOK = 8
"""Digests that one look computes at most; further ones stay unknown until the next looks, so that no look takes long."""

REMEMBERED = 20_000
"""Variables remembered at most: several times those of one engine."""


class Entry(NamedTuple):
    """One variable of a label: `container/VARIABLE`, the source of its secret, and salt and digest of its value."""

    name: str
    source: SecretSource
    salt: bytes
    digest: bytes


def secrets_label(container: str, sources: tuple[tuple[str, SecretSource], ...], values: Mapping[str, str]) -> str:
    """The label's text for one container; empty when it has no secrets.

    Args:
        container: its name in the template.
        sources: the source of the secret of each variable.
        values: the revealed values by variable.
    """
    entries = {}
    for variable, source in sources:
        salt = os.urandom(16)
        entries[variable] = {**source.fields(), "salt": salt.hex(), "scrypt": _scrypt(values[variable], salt).hex()}
    return json.dumps({"container": container, "variables": entries}, sort_keys=True) if entries else ""


def _scrypt(value: str, salt: bytes) -> bytes:
    return hashlib.scrypt(value.encode(), salt=salt, n=N, r=R, p=P, dklen=32)


@lru_cache(maxsize=4096)
def read_label(text: str) -> tuple[Entry, ...]:
    """The entries of a label; none when this program did not write it."""
    try:
        label = json.loads(text)
        return tuple(
            Entry(
                f"{label['container']}/{variable}",
                SecretSource(**{name: str(entry.get(name, "")) for name in SecretSource.__slots__}),
                bytes.fromhex(entry["salt"]),
                bytes.fromhex(entry["scrypt"]),
            )
            for variable, entry in sorted(label["variables"].items())
        )
    except (ValueError, TypeError, KeyError, AttributeError):
        return ()


class Secrets:
    """Compared values of the secrets of one node's containers. Thread-safe."""

    def __init__(self) -> None:
        self._key = os.urandom(32)
        self._lock = threading.Lock()
        self._known: dict[tuple[str, str], tuple[bytes, bool]] = {}

    def look(self) -> "SecretLook":
        """A look that resolves each secret once."""
        return SecretLook(self)

    def known(self, container: EngineContainer, entry: Entry, value: str) -> bool | None:
        """Whether the value differs from the one at creation; None when its digest has not been computed yet."""
        with self._lock:
            known = self._known.get((container.id, entry.name))
        return known[1] if known is not None and hmac.compare_digest(known[0], self._tag(value)) else None

    def compute(self, container: EngineContainer, entry: Entry, value: str) -> bool:
        """Compute the digest: whether the value differs from the one at creation."""
        stale = not hmac.compare_digest(_scrypt(value, entry.salt), entry.digest)
        with self._lock:
            if len(self._known) >= REMEMBERED:
                self._known.clear()
            self._known[container.id, entry.name] = (self._tag(value), stale)
        return stale

    def _tag(self, value: str) -> bytes:
        return hashlib.blake2b(value.encode(), key=self._key, digest_size=16).digest()


class SecretLook:
    """One look at the secrets of many containers."""

    def __init__(self, secrets: Secrets) -> None:
        self._secrets = secrets
        self._values: dict[SecretSource, str | None] = {}
        self._digests_left = DIGESTS_PER_LOOK

    def stale(self, pod: Pod) -> tuple[str, ...]:
        """The variables (`container/VARIABLE`) of one of our replicas that have another value now, sorted."""
        if pod.main.owner is None:
            return ()
        return tuple(
            sorted(
                entry.name
                for container in (pod.main, *pod.members)
                for entry in read_label(container.labels.get(LABEL_SECRETS, ""))
                if self._is_stale(container, entry)
            )
        )

    def _is_stale(self, container: EngineContainer, entry: Entry) -> bool:
        value = self._resolve(entry.source)
        if value is None:
            return False
        known = self._secrets.known(container, entry, value)
        if known is not None:
            return known
        if self._digests_left <= 0:
            return False
        self._digests_left -= 1
        return self._secrets.compute(container, entry, value)

    def _resolve(self, source: SecretSource) -> str | None:
        """The present value; None while it is not known. A look waits for no program: the loop runs them beside it."""
        if source not in self._values:
            try:
                secret = present(source)
            except ValueError:  # another program wrote the label
                secret = None
            self._values[source] = None if secret is None else secret.reveal()
        return self._values[source]
