"""Digests of what references resolve to: with a failure of a step they say whether a secret has changed since.

The key of the digests is random and never stored, so nothing about a secret can be found out from a state file; after a restart of
the program every digest is another one, and steps that need a secret are tried at once. Used by the loop.
"""

import asyncio
import os
from collections.abc import Mapping
from hashlib import blake2b

from manifests.values.desired import SECOND, Desired
from manifests.values.secret_sources import SecretSource
from providers.errors import ProviderError
from providers.lib.secrets import resolve
from reconciler.core.model.instant import FOREVER
from reconciler.shell.clock import Clock
from reconciler.shell.providers import Runner
from reconciler.shell.secrets import references_of

PATIENCE = 0.2
"""Seconds that a tick waits for the references; files take some ms."""

REFRESH = 5 * SECOND
"""How often (ns) references are resolved again while a step fails."""


class References:
    """The digests of all references. Nothing is read while no step fails.

    Attributes:
        digests: by the key of the provider or workload that has the references; empty before the first failure.
    """

    def __init__(self, runner: Runner, clock: Clock) -> None:
        self._runner, self._clock = runner, clock
        self._nonce = os.urandom(32)
        self._desired: Desired | None = None
        self._again_at = 0
        self._reading: asyncio.Task[dict[str, str]] | None = None
        self.digests: dict[str, str] = {}

    async def refresh(self, desired: Desired) -> bool:
        """Resolve the references of these manifests, if that is due. Called while a step fails. Whether one changed.

        Waits for at most PATIENCE seconds: the loop must not wait for a file system that hangs. The earlier digests stay until then.
        """
        now = self._clock.now().steady
        if self._reading is None:
            if desired is self._desired and now < self._again_at:
                return False
            self._desired, self._again_at = desired, now + REFRESH
            sources = {key: tuple(refs) for key, refs in references_of(desired) if refs}
            self._reading = asyncio.create_task(self._read(sources))
        await asyncio.wait({self._reading}, timeout=PATIENCE)
        if not self._reading.done():
            return False
        digests, self._reading = self._reading.result(), None
        changed, self.digests = digests != self.digests, digests
        return changed

    async def _read(self, sources: Mapping[str, tuple[SecretSource, ...]]) -> dict[str, str]:
        try:
            return await self._runner.run(lambda: _digests(sources, self._nonce)) if sources else {}
        except ProviderError:  # no thread can be started
            return self.digests

    async def settle(self) -> None:
        """End a read that is under way, at the end of a run."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait({self._reading})

    def due_at(self, failing: bool) -> int:
        """The steady instant of the next refresh."""
        return self._again_at if failing and self.digests else FOREVER


def _digests(sources: Mapping[str, tuple[SecretSource, ...]], nonce: bytes) -> dict[str, str]:
    """The digests, by key. Runs on a thread."""
    digests: dict[str, str] = {}
    for key, refs in sources.items():
        total = blake2b(key=nonce, digest_size=16)
        for ref in refs:
            try:
                value = resolve(ref, key).reveal()
            except ProviderError as error:
                value = f"\x00{error.cause}"
            except ValueError:
                value = "\x00invalid name"
            total.update(f"{len(value)}:{value}".encode(errors="surrogateescape"))
        digests[key] = total.hexdigest()
    return digests
