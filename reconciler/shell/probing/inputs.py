"""What probes need and manifests only name: secrets in headers, and files of trusted authorities. Used by `probing.py`.

Read on threads, never in the way of a tick: a file system that hangs holds up nobody. Everything is read again every
REFRESH, so that a rotated secret counts within a minute. What cannot be read is a reason why a probe cannot be run, and
never a failure; what was read before stays in use while it cannot be read just now.
"""

import asyncio
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass

from manifests.values.desired import SECOND, Desired, Probe
from manifests.values.pod import SecretSource
from providers.errors import ProviderError, Rejected, Unreachable
from providers.lib.secrets import Secret, SecretRef
from reconciler.probes.target import NO_INPUTS, ResolvedInputs
from reconciler.shell.clock import Clock
from reconciler.shell.looks.triggers import Wake
from reconciler.shell.providers import Runner

REFRESH = 30 * SECOND
"""How often everything is read again; the loop sleeps at most as long, so a change counts within a minute."""

RETRY = 5 * SECOND
"""How soon what could not be read is tried again."""

PATIENCE = 0.5
"""Seconds that one call waits for what was never read before, all of it together."""

MAX_BYTES = 1024 * 1024
"""A file of authorities above this size is refused: that of a whole system has a quarter of it."""

Key = SecretSource | tuple[str, str]
"""A secret, or (root of the tree, path below it) of a file of authorities."""


@dataclass(slots=True)
class _Read:
    """What is known of one input. `value` is None while there is none; `problem` says why the last try failed."""

    value: Secret | str | None = None
    problem: str = "not read yet"
    again_at: int = 0


class ProbeInputs:
    """Everything that was read, and what is being read. `changed` is set when something has another value than before."""

    def __init__(self, runner: Runner, clock: Clock, wake: Wake) -> None:
        self._runner, self._clock, self._wake = runner, clock, wake
        self._known: dict[Key, _Read] = {}
        self._reading: dict[Key, asyncio.Task[None]] = {}
        self.changed = False

    async def prepare(self, probes: Sequence[Probe], root: str) -> None:
        """Read what these probes need as far as it is due; wait, briefly, only for what was never read. Forgets the rest."""
        if not probes and not self._known:
            return
        wanted = {key for probe in probes for key in _needs(probe, root)}
        self._known = {key: one for key, one in self._known.items() if key in wanted}
        now = self._clock.now().steady
        for key in wanted:
            if key not in self._reading and self._known.setdefault(key, _Read()).again_at <= now:
                self._reading[key] = asyncio.create_task(self._read(key))
        first = [task for key, task in self._reading.items() if key in wanted and self._known[key].again_at == 0]
        if first:
            await asyncio.wait(first, timeout=PATIENCE)

    def given(self, probe: Probe, root: str) -> ResolvedInputs:
        """What this probe needs, as it is known now."""
        needs = _needs(probe, root)
        if not needs:
            return NO_INPUTS
        secrets: list[Secret] = []
        ca = ""
        for key in needs:
            one = self._known.get(key, _Read())
            if one.value is None:
                return ResolvedInputs(problem=one.problem)
            if isinstance(one.value, Secret):
                secrets.append(one.value)
            else:
                ca = one.value
        return ResolvedInputs(tuple(secrets), ca)

    async def _read(self, key: Key) -> None:
        found: Secret | str | None = None
        problem = ""
        try:
            found = await self._runner.run(lambda: _fetch(key))
        except Unreachable as error:
            known = self._known.get(key)
            found = known.value if known is not None else None
            problem = str(error)
        except ProviderError as error:
            problem = str(error)
        except ValueError:  # a name that is no variable's
            problem = "the header of a probe: its secret's name is not that of a variable or file"
        finally:
            self._reading.pop(key, None)
        known = self._known.get(key)
        if known is None:
            return
        before = known.value, known.problem
        known.again_at = self._clock.now().steady + (RETRY if problem else REFRESH)
        known.value, known.problem = found, problem
        if _shown(before[0]) != _shown(found) or (found is None and before[1] != problem):
            self.changed = True
            self._wake.set("what a probe needs has changed")


def needy(desired: Desired) -> tuple[Probe, ...]:
    """The probes of a set of manifests that need anything: few, so that the rest costs nothing at every tick."""
    containers = (workload.template.container for workload in desired.workloads)
    probes = (
        probe for container in containers for probe in (container.startup, container.liveness, container.readiness)
    )
    return tuple(probe for probe in probes if probe is not None and _needs(probe, desired.root))


def _needs(probe: Probe, root: str) -> list[Key]:
    keys: list[Key] = [value for _, value in probe.headers if isinstance(value, SecretSource)]
    if probe.tls is not None and probe.tls.verify and probe.tls.ca_file:
        keys.append((root, probe.tls.ca_file))
    return keys


def _shown(value: Secret | str | None) -> str | None:
    return value.reveal() if isinstance(value, Secret) else value


def _fetch(key: Key) -> Secret | str:
    """One input as it is now. Raises `Rejected` or `Unreachable`; runs on a thread."""
    if isinstance(key, SecretSource):
        ref = SecretRef(env=key.env) if key.env else SecretRef(file=key.file)
        return ref.resolve("the header of a probe")
    root, path = key
    return _authorities(root, path)


def _authorities(root: str, path: str) -> str:
    """The text of a file of authorities, which must lie in the tree: a manifest cannot have any file of this host read."""
    target = f"caFile {path}"
    home = os.path.realpath(root)
    real = os.path.realpath(os.path.join(home, path))
    if os.path.commonpath((home, real)) != home:
        raise Rejected(target, "it is a link that leads out of the manifests' directory", "put the file itself there")
    try:
        descriptor = os.open(real, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
        try:
            info = os.fstat(descriptor)
            if not stat.S_ISREG(info.st_mode) or info.st_size > MAX_BYTES:
                raise Rejected(target, f"it is no regular file of at most {MAX_BYTES} bytes", "name a PEM file")
            raw = os.read(descriptor, MAX_BYTES)
        finally:
            os.close(descriptor)
    except FileNotFoundError as error:
        raise Rejected(target, "it does not exist", "add it to the manifests' directory") from error
    except OSError as error:
        raise Unreachable(target, f"it cannot be read: {error.strerror}") from error
    text = raw.decode("ascii", errors="replace")
    if "-----BEGIN CERTIFICATE-----" not in text:
        raise Rejected(target, "it holds no certificate", "store the authorities in PEM form")
    return text
