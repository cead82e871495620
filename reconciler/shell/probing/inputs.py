"""Reads what manifests of probes only name: secrets in headers, and files of trusted authorities. Used by `targets.py`.

Inputs are read on threads, so a file system that hangs delays no tick. All inputs are read again every REFRESH, so a rotated
secret is used within a minute. A probe with an unreadable input cannot be run; that is never a failed probe. While an input
cannot be read, its last value stays in use.
"""

import asyncio
import os
import stat
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from manifests.values.desired import SECOND, Container, Desired, Probe
from manifests.values.secret_sources import SecretSource
from providers.errors import ProviderError, Rejected, Unreachable
from providers.lib.secrets import Secret, resolve
from reconciler.core.model.spec import Spec
from reconciler.probes.target import NO_INPUTS, ResolvedInputs
from reconciler.shell.clock import Clock
from reconciler.shell.looks.triggers import Wake
from reconciler.shell.providers import Runner
from reconciler.shell.secrets import learn, references_of

REFRESH = 30 * SECOND
"""How often (ns) all inputs are read again; the loop sleeps at most as long, so a change is used within a minute."""

RETRY = 5 * SECOND
"""Time (ns) until an input that could not be read is tried again."""

PATIENCE = 0.5
"""Seconds that one call waits in total for inputs that were never read before."""

MAX_BYTES = 1024 * 1024
"""The size limit of a file of authorities: that of a whole system has a quarter of it."""

Key = SecretSource | tuple[str, str]
"""A secret, or (root of the tree, path below it) of a file of authorities."""


@dataclass(slots=True)
class _Read:
    """The state of one input. `value` is None before the first success; `problem` says why the last read failed."""

    value: Secret | str | None = None
    problem: str = "not read yet"
    again_at: int = 0


class ProbeInputs:
    """All inputs, and the reads under way. `changed` is set when an input got another value."""

    def __init__(self, runner: Runner, clock: Clock, wake: Wake) -> None:
        self._runner, self._clock, self._wake = runner, clock, wake
        self._known: dict[Key, _Read] = {}
        self._reading: dict[Key, asyncio.Task[None]] = {}
        self._learned: Desired | None = None
        self._learning: asyncio.Task[None] | None = None
        self.changed = False

    async def learn(self, desired: Desired) -> None:
        """Resolve the secrets of containers once for these manifests, before the first probe may repeat one. Waits briefly."""
        if desired is self._learned:
            return
        self._learned = desired
        if any(references for key, references in references_of(desired) if key.startswith("workload/")):
            self._learning = asyncio.create_task(self._learn(desired))
            await asyncio.wait({self._learning}, timeout=PATIENCE)

    def learning(self) -> tuple[asyncio.Task[None], ...]:
        """The task that resolves secrets, while it runs."""
        return () if self._learning is None or self._learning.done() else (self._learning,)

    async def _learn(self, desired: Desired) -> None:
        with suppress(ProviderError):  # no thread can be started
            await self._runner.run(lambda: learn(desired))

    async def prepare(self, probes: Sequence[Probe], root: str) -> None:
        """Start the due reads for these probes; wait briefly for inputs that were never read. Forgets all other inputs."""
        if not probes and not self._known:
            return
        wanted = {key for probe in probes for key in _needs(probe, root)}
        self._known = {key: read for key, read in self._known.items() if key in wanted}
        now = self._clock.now().steady
        for key in wanted:
            if key not in self._reading and self._known.setdefault(key, _Read()).again_at <= now:
                self._reading[key] = asyncio.create_task(self._read(key))
        first = [task for key, task in self._reading.items() if key in wanted and self._known[key].again_at == 0]
        if first:
            await asyncio.wait(first, timeout=PATIENCE)

    def given(self, probe: Probe, root: str) -> ResolvedInputs:
        """The inputs of this probe as they are known now."""
        needs = _needs(probe, root)
        if not needs:
            return NO_INPUTS
        secrets: list[Secret] = []
        ca = ""
        for key in needs:
            read = self._known.get(key, _Read())
            if read.value is None:
                return ResolvedInputs(problem=read.problem)
            if isinstance(read.value, Secret):
                secrets.append(read.value)
            else:
                ca = read.value
        return ResolvedInputs(tuple(secrets), ca)

    async def _read(self, key: Key) -> None:
        value: Secret | str | None = None
        problem = ""
        try:
            value = await self._runner.run(lambda: _fetch(key))
        except Unreachable as error:
            known = self._known.get(key)
            value = known.value if known is not None else None
            problem = str(error)
        except ProviderError as error:
            problem = str(error)
        except ValueError:  # the name cannot be a variable's
            problem = "the header of a probe: the name of its secret is not valid for a variable or a file"
        finally:
            self._reading.pop(key, None)
        known = self._known.get(key)
        if known is None:
            return
        before = known.value, known.problem
        known.again_at = self._clock.now().steady + (RETRY if problem else REFRESH)
        known.value, known.problem = value, problem
        if _revealed(before[0]) != _revealed(value) or (value is None and before[1] != problem):
            self.changed = True
            self._wake.set("an input of a probe changed")


def probes_with_inputs(desired: Desired, specs: Iterable[Spec] = ()) -> tuple[Probe, ...]:
    """The probes of these manifests and of earlier revisions with inputs. They are few, so all others cost nothing at a tick."""
    sources: Iterable[Container | Spec] = (*(workload.template.container for workload in desired.workloads), *specs)
    probes = dict.fromkeys(probe for source in sources for probe in (source.startup, source.liveness, source.readiness))
    return tuple(probe for probe in probes if probe is not None and _needs(probe, desired.root))


def _needs(probe: Probe, root: str) -> list[Key]:
    keys: list[Key] = [value for _, value in probe.headers if isinstance(value, SecretSource)]
    if probe.tls is not None and probe.tls.verify and probe.tls.ca_file:
        keys.append((root, probe.tls.ca_file))
    return keys


def _revealed(value: Secret | str | None) -> str | None:
    return value.reveal() if isinstance(value, Secret) else value


def _fetch(key: Key) -> Secret | str:
    """Read one input. Raises `Rejected` or `Unreachable`; runs on a thread."""
    if isinstance(key, SecretSource):
        return resolve(key, "the header of a probe")
    root, path = key
    return _authorities(root, path)


def _authorities(root: str, path: str) -> str:
    """The text of a file of authorities. It must be in the manifests' tree: a manifest must not read any file of the host."""
    target = f"caFile {path}"
    home = os.path.realpath(root)
    real = os.path.realpath(os.path.join(home, path))
    if os.path.commonpath((home, real)) != home:
        raise Rejected(
            target, "it is a link to a file outside of the manifests' directory", "replace the link by the file"
        )
    try:
        descriptor = os.open(real, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
        try:
            info = os.fstat(descriptor)
            if not stat.S_ISREG(info.st_mode) or info.st_size > MAX_BYTES:
                raise Rejected(target, f"it is not a regular file of at most {MAX_BYTES} bytes", "use a PEM file")
            raw = os.read(descriptor, MAX_BYTES)
        finally:
            os.close(descriptor)
    except FileNotFoundError as error:
        raise Rejected(target, "it does not exist", "add it to the manifests' directory") from error
    except OSError as error:
        raise Unreachable(target, f"it cannot be read: {error.strerror}") from error
    text = raw.decode("ascii", errors="replace")
    if "-----BEGIN CERTIFICATE-----" not in text:
        raise Rejected(target, "it contains no certificate", "store the authorities in PEM format")
    return text
