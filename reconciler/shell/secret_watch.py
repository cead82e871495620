"""Looks at the secrets that containers need, beside the loop: which cannot be used, and which changed. Used by the loop.

A file is looked at (one `stat`) every CHECK, and read only when it changed; a program runs again only when its input changed, its time is
over, or it failed. So a secret that is set or replaced counts within seconds, an idle daemon reads none, and no tick waits for one.
"""

import asyncio
import os
from collections.abc import Iterable, Mapping
from functools import partial
from hashlib import blake2b

from manifests.values.desired import SECOND, Desired, Role
from manifests.values.secret_sources import SecretSource
from providers.errors import ProviderError, Unreachable
from providers.lib.secrets import define, resolve
from reconciler.core.model.instant import FOREVER
from reconciler.core.model.secret_problem import SecretProblem
from reconciler.shell.clock import Clock
from reconciler.shell.looks.facts import Looks
from reconciler.shell.looks.triggers import Wake
from reconciler.shell.providers import Runner
from reconciler.shell.secrets import secrets_of

CHECK = 10 * SECOND
"""Time (ns) between two looks at all secrets."""

PATIENCE = 1.0
"""Seconds that a tick waits for the first look at the secrets of new manifests; files take some ms."""

ANSWER = 2 * CHECK
"""Time (ns) in which a secret that could not be read is asked for again and answers or fails: the next look, and a program's time-out."""

_NOT_READ = "has not been read yet"


class SecretWatch:
    """The state of the secrets of all containers of the manifests in force.

    Attributes:
        resolves_nothing: no secret is resolved: for a plan whose author is not trusted.
        other_environment: containers are created by a process beside this one, whose variables and credentials are not known here.
    """

    def __init__(self, runner: Runner, clock: Clock, wake: Wake, looks: Looks) -> None:
        self._runner, self._clock, self._wake, self._looks = runner, clock, wake, looks
        self._nonce = os.urandom(32)
        self._desired: Desired | None = None
        self._sources: tuple[SecretSource, ...] = ()
        self._problems: dict[SecretSource, SecretProblem] = {}
        self._digests: dict[SecretSource, bytes] = {}
        self._under_way: dict[SecretSource | None, asyncio.Task[None]] = {}
        self.resolves_nothing = self.other_environment = False
        self.due = FOREVER

    @property
    def problems(self) -> Mapping[SecretSource, SecretProblem]:
        """What is wrong with which secret, as far as it is known now."""
        return self._problems

    async def follow(self, desired: Desired, patience: float = PATIENCE) -> None:
        """Look at the secrets of these manifests from now on. Waits for the first look at them, at most so many seconds."""
        if desired is self._desired or self.resolves_nothing:
            return
        first = self._desired is None or desired.instance.secret_programs != self._desired.instance.secret_programs
        self._desired = desired
        define(desired.instance.secret_programs, desired.root)
        needed = dict.fromkeys(source for item in desired.workloads for source in secrets_of(item.template))
        sources = tuple(
            source for source in needed if not (self.other_environment and (source.env or source.credential))
        )
        known = set() if first else set(self._sources)
        self._sources = sources
        until = self._clock.now().steady + ANSWER
        self._problems = {source: problem for source, problem in self._problems.items() if source in sources}
        self._problems |= {
            source: SecretProblem(f"the secret's {source} {_NOT_READ}", until=until)
            for source in sources
            if source not in known
        }
        self._digests = {source: digest for source, digest in self._digests.items() if source in sources}
        self.due = FOREVER
        if sources:
            self._begin(sources)
            await asyncio.wait(tuple(self._under_way.values()), timeout=patience)

    def start(self, now: int) -> None:
        """Start a look at this steady instant (ns) if it is due. It wakes the loop when it finds news."""
        if now >= self.due:
            self._begin(self._sources)

    def _begin(self, sources: Iterable[SecretSource]) -> None:
        """Look at the files on one thread, and at each that needs a program on one of its own: none waits for a slow one."""
        self.due = self._clock.now().steady + CHECK
        groups: dict[SecretSource | None, tuple[SecretSource, ...]] = {
            None: tuple(source for source in sources if not source.runs_program)
        }
        groups |= {source: (source,) for source in sources if source.runs_program}
        for key, group in groups.items():
            if group and key not in self._under_way:  # a file system that hangs is not asked twice
                task = asyncio.create_task(self._look(group))
                self._under_way[key] = task
                task.add_done_callback(partial(self._ended, key))

    def _ended(self, key: SecretSource | None, _: asyncio.Task[None]) -> None:
        self._under_way.pop(key, None)

    async def _look(self, sources: tuple[SecretSource, ...]) -> None:
        desired = self._desired
        try:
            found = await self._runner.run(lambda: [self._judged(source) for source in sources])
        except ProviderError:  # no thread can be started
            return
        if desired is not self._desired:
            self.due = self._clock.now().steady  # those of the new manifests that waited for this look are next
            self._wake.end_sleep()
        news = False
        for source, (problem, digest) in zip(sources, found, strict=True):
            if source not in self._sources:
                continue
            news |= _differs(self._problems.get(source), problem)
            if problem is None:
                self._problems.pop(source, None)
                news |= self._digests.get(source, digest) != digest
                self._digests[source] = digest
            else:
                self._problems[source] = problem
        if news:
            self._problems = dict(self._problems)
            for node in self._looks.providers.runtimes:
                self._looks.look_soon(Role.RUNTIME, node)  # a look compares the values with those of the containers
            self._wake.set("a secret changed")

    def _judged(self, source: SecretSource) -> tuple[SecretProblem | None, bytes]:
        """What is wrong with a secret, and a keyed digest of its value. Runs on a thread."""
        try:
            value = resolve(source, "secret").reveal()
        except Unreachable as error:
            return SecretProblem(error.cause, error.next_step, self._clock.now().steady + CHECK + ANSWER), b""
        except ProviderError as error:
            return SecretProblem(error.cause, error.next_step), b""
        except ValueError:
            return SecretProblem(f"the secret's {source} has a name that is not valid", "correct the reference"), b""
        return None, blake2b(value.encode(errors="surrogateescape"), key=self._nonce, digest_size=16).digest()

    async def settle(self) -> None:
        """End the looks under way, at the end of a run."""
        tasks = tuple(self._under_way.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


def _differs(before: SecretProblem | None, after: SecretProblem | None) -> bool:
    """Whether a problem began, ended or has another cause. A new instant of the next try is no news, but it counts."""
    if before is None or after is None:
        return before is not after
    return before.cause != after.cause
