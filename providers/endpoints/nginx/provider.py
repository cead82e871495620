"""Pools in nginx (`type: nginx`): a file for each, tested before it is put in place, then loaded by a signal to the master.

    http {
        include /etc/nginx/reconciler/*.conf;
        server { location / { proxy_pass http://web; } }
    }

Only servers between our markers are ours; see `text.py`. nginx has no interface at run time: the file has the desired weights, and
the age of the workers says whether it is loaded. Until it is (during a reload, after a kill between write and reload, or after an
edit), the weights are those of the content that the same workers have loaded, which `loaded.py` remembers. Without that they are
unknown. Sessions are never known and cannot be ended: old workers finish theirs.

Changes that wait for each other go together: one test and one reload, and at most one reload in `reloadInterval`.
"""

import os
import re
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import ClassVar

from pydantic import BaseModel

from manifests.values.desired import SECOND, Role
from providers.actions import CutSessions, EndpointAction, SetWeight
from providers.endpoints.nginx import config_test, process
from providers.endpoints.nginx.config_test import Sources
from providers.endpoints.nginx.loaded import LoadedFiles
from providers.endpoints.nginx.process import Running, Signal
from providers.endpoints.nginx.settings import NginxSettings
from providers.endpoints.nginx.text import PLACEHOLDER, Member, Upstream, empty, parse, render
from providers.errors import Conflict, Foreign, Gone, OutcomeUnknown, ProviderError, Rejected, Unreachable
from providers.facts import Endpoint, MemberFact, PoolFact
from providers.lib.files import locked, read, replace
from providers.naming import object_of
from providers.spi import Context, Performed

POOL_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}")
"""Names that are one word in a configuration and a file name that is not hidden."""

SUFFIX = ".conf"
MAX_WEIGHT = 65_535
"""Largest weight that we write; nginx takes any positive number."""

MAX_PORT = 65_535

READ_TRIES = 5
"""How often a file is read again that changes during the read."""


@dataclass(slots=True)
class _Draft:
    """One pool's file. `before`: its present bytes, None without a file. `in_force`: what the workers have loaded, if known."""

    pool: str
    path: Path
    before: bytes | None
    upstream: Upstream
    loaded: bool
    in_force: Upstream | None
    members: dict[Endpoint, Member]
    actions: list[int] = field(default_factory=list)

    def bytes(self, instance: str) -> bytes:
        """The new content of the file."""
        if self.members == self.upstream.ours and self.before is not None:
            return self.before
        return render(self.upstream, self.members, instance).encode("utf-8", "surrogateescape")


@dataclass(slots=True, eq=False)
class _Job:
    """The actions of one call, which may go together with those of other calls; and their outcome."""

    actions: Sequence[EndpointAction]
    errors: tuple[ProviderError | None, ...] = ()
    failure: ProviderError | None = None
    done: threading.Event = field(default_factory=threading.Event)


class NginxEndpoints:
    """Pools in files of nginx; see the module."""

    role: ClassVar[Role] = Role.ENDPOINTS
    Settings: ClassVar[type[BaseModel]] = NginxSettings
    checks_ownership: ClassVar[bool] = True

    def __init__(self, name: str, settings: NginxSettings, context: Context) -> None:
        self.name = name
        self._settings = settings
        self._context = context
        self._directory = Path(settings.directory)
        self._target = f"provider {name}"
        self._writing = threading.Lock()
        self._jobs: list[_Job] = []
        self._loaded = LoadedFiles(Path(context.state_dir, f"nginx-{name}.json"))
        self._signal: Signal | None = None
        self._reloaded = -float("inf")
        self._refused: Sources | None = None

    def observe(self, pools: Collection[str]) -> tuple[PoolFact, ...]:
        """The named pools, plus those with members of ours. No file: empty. A pool whose loaded members are not known says so.

        Raises:
            Unreachable: nginx does not run, or a file cannot be read or parsed.
            Rejected: a pool's name is invalid.
        """
        wanted = {pool: self._path(pool) for pool in set(pools)}
        running = process.running(self._target, self._settings.pid_file)
        drafts = {pool: self._read(pool, path, running) for pool, path in wanted.items()}
        for pool in set(self._present()) - wanted.keys():
            draft = self._read(pool, self._path(pool), running)
            if draft.members or (draft.in_force is not None and draft.in_force.ours):
                drafts[pool] = draft
        refused = self._refused
        changed = 0 if refused is None else refused.changed()
        return tuple(self._fact(drafts[pool], running, changed) for pool in sorted(drafts))

    def perform(self, actions: Sequence[EndpointAction]) -> Performed:
        """Set weights and remove endpoints, with one test and one reload; wait for a new worker.

        Returns:
            Rejected: an address, weight or pool is invalid, nginx does not include the file, or permissions are missing; also for
                `CutSessions`.
            Conflict, Gone, Foreign: the member is not as the plan saw it, or has another owner.
            Unreachable: something cannot be read, or nginx refuses the configuration for now; nothing was changed.
            OutcomeUnknown: the file was written, but no new worker has loaded it yet.

        Raises:
            Unreachable: nginx does not run, or another writer holds the lock; nothing was begun.
            Rejected: the directory cannot be used.
        """
        limit = self._settings.timeout / SECOND
        job = _Job(actions)
        self._jobs.append(job)
        if not self._writing.acquire(timeout=limit):
            with suppress(ValueError):
                self._jobs.remove(job)
                raise Unreachable(self._target, "an earlier write has not returned; nothing was changed")
            # An earlier call has taken these actions along.
            if not job.done.wait(limit):
                raise OutcomeUnknown(self._target, "an earlier write has not returned", "retried automatically")
        else:
            try:
                if not job.done.is_set():
                    self._perform_jobs()
            finally:
                self._writing.release()
        if job.failure is not None:
            raise job.failure
        return Performed(job.errors)

    def check(self, pools: Collection[str]) -> tuple[str, ...]:
        """The reasons why these pools do not work, each with what to do; read-only.

        Raises:
            Rejected: a pool's name is invalid.
        """
        problems: list[str] = []
        deadline = time.monotonic() + self._settings.timeout / SECOND
        texts: dict[Path, bytes] = {}
        try:
            running = process.running(self._target, self._settings.pid_file)
            for pool in sorted(set(pools)):
                draft = self._read(pool, self._path(pool), running)
                texts[draft.path] = draft.bytes(self._context.instance)
            if self._context.local:
                self._test(texts, deadline)
        except (Unreachable, Rejected) as error:
            problems.append(str(error))
        if not os.access(self._directory if self._directory.exists() else self._directory.parent, os.W_OK):
            problems.append(f"no permission to write in {self._directory}; give this user write permission there")
        return tuple(problems)

    def warnings(self, _pools: Collection[str]) -> tuple[str, ...]:
        """What `check` does not do: nginx loads modules that a configuration names, so only an operator's file is tested."""
        if self._context.local:
            return ()
        cause = f"nginx -t was not run: the tree names {self._settings.configuration}, and nginx runs code that this file names"
        return (f"{cause}; declare the Provider in a local document and pass it with --instance",)

    def close(self) -> None:
        """Nothing to close."""

    # --- reading --------------------------------------------------------------------------------------------------

    def _path(self, pool: str) -> Path:
        if not POOL_NAME.fullmatch(pool):
            rule = "use letters, digits, '.', '_' and '-', at most 200"
            raise Rejected(f"pool {pool!r}", "not a name for an upstream and a file", rule)
        return self._directory / (pool + SUFFIX)

    def _present(self) -> list[str]:
        try:
            names = [
                entry.name.removesuffix(SUFFIX) for entry in self._directory.iterdir() if entry.name.endswith(SUFFIX)
            ]
        except FileNotFoundError:
            return []
        except OSError as error:
            cause = f"cannot list {self._directory}: {error.strerror}"
            raise Unreachable(self._target, cause, "give this user read permission") from error
        # A file without our marker may be anything, such as a server block: it is left alone.
        return [name for name in names if POOL_NAME.fullmatch(name) and self._is_marked(name)]

    def _is_marked(self, pool: str) -> bool:
        data = read(f"pool {pool}", self._path(pool)) or b""
        return f"# reconciler begin {self._context.instance}\n".encode() in data

    def _read(self, pool: str, path: Path, running: Running) -> _Draft:
        target = f"pool {pool}"
        data, changed = _unchanged(target, path)
        text = empty(pool) if data is None else data.decode("utf-8", "surrogateescape")
        try:
            upstream = parse(text, pool, self._context.instance)
        except ValueError as error:
            raise Unreachable(target, f"{path}: {error}", "correct the file, or move it away") from None
        loaded = not self._is_loading(pool, running) and (
            data is None or (changed is not None and running.has_loaded(changed))
        )
        if loaded:
            self._loaded.put(pool, text, running)
            return _Draft(pool, path, data, upstream, True, upstream, dict(upstream.ours))
        before = self._loaded.text(pool, running)
        if before is not None:
            with suppress(ValueError):  # it was parsed when it was put there; the stored copy may be damaged
                return _Draft(
                    pool, path, data, upstream, False, parse(before, pool, self._context.instance), dict(upstream.ours)
                )
        # A file without a member of ours is the operator's, written before our first change: nothing of ours is loaded.
        in_force = None if upstream.ours or self._is_loading(pool, running) else upstream
        return _Draft(pool, path, data, upstream, False, in_force, dict(upstream.ours))

    def _is_loading(self, pool: str, running: Running) -> bool:
        """Whether the file was written, and the reload that loads it is not over, whatever the age of the workers says."""
        signal = self._signal
        if signal is None:
            return False
        if signal.is_over(running):
            if self._signal is signal:
                self._signal = None
            return False
        return pool in signal.pools

    def _fact(self, draft: _Draft, running: Running, changed: int) -> PoolFact:
        pace = self._settings.reload_interval
        if draft.in_force is None:
            cause = f"{draft.path} has changed since nginx loaded its configuration"
            unknown = f"pool {draft.pool}: {cause}; run nginx -s reload, if nginx is not reloading now"
            return PoolFact(draft.pool, (), running.epoch, unknown=unknown, pace=pace, changed=changed)
        ours = draft.in_force.ours
        facts = [MemberFact(member.endpoint, member.weight, True, member.name) for member in ours.values()]
        facts += [
            MemberFact(place, member.weight, False, "")
            for place, member in draft.in_force.foreign.items()
            if place not in ours
        ]
        return PoolFact(draft.pool, tuple(sorted(facts)), running.epoch, pace=pace, changed=changed)

    # --- writing --------------------------------------------------------------------------------------------------

    def _perform_jobs(self) -> None:
        """Do the actions of all calls that wait, after the pause that is left since the latest reload. Only under `_writing`."""
        pause = self._reloaded + self._settings.reload_interval / SECOND - time.monotonic()
        jobs: list[_Job] = []
        try:
            jobs = self._take()
            deadline = time.monotonic() + self._settings.timeout / SECOND
            with locked(self._target, self._directory, self._settings.timeout / SECOND):
                running, drafts, errors = self._prepare(jobs)
                if pause <= 0 or not drafts:
                    self._write(drafts, running, errors, deadline)
                    self._share(jobs, errors)
                    return
            # Calls that come meanwhile add their actions and share the reload; the pause is `reloadInterval` at most.
            time.sleep(pause)
            jobs += self._take()
            deadline = time.monotonic() + self._settings.timeout / SECOND
            with locked(self._target, self._directory, self._settings.timeout / SECOND):
                running, drafts, errors = self._prepare(jobs)
                self._write(drafts, running, errors, deadline)
                self._share(jobs, errors)
        except ProviderError as error:
            for job in jobs:
                job.failure = error
        finally:
            for job in jobs:
                if not job.done.is_set() and job.failure is None:
                    job.failure = OutcomeUnknown(self._target, "the call was interrupted", "retried automatically")
                job.done.set()

    def _take(self) -> list[_Job]:
        jobs: list[_Job] = []
        while self._jobs:
            jobs.append(self._jobs.pop(0))
        return jobs

    def _share(self, jobs: Sequence[_Job], errors: Sequence[ProviderError | None]) -> None:
        """Give each call the outcomes of its actions."""
        at = 0
        for job in jobs:
            job.errors = tuple(errors[at : at + len(job.actions)])
            at += len(job.actions)
            job.done.set()

    def _prepare(self, jobs: Sequence[_Job]) -> tuple[Running, list[_Draft], list[ProviderError | None]]:
        """nginx, the files to write or load, and the outcome of each action so far. Reads only."""
        running = process.running(self._target, self._settings.pid_file)
        actions = [action for job in jobs for action in job.actions]
        errors: list[ProviderError | None] = [None] * len(actions)
        drafts: dict[str, _Draft] = {}
        for index, action in enumerate(actions):
            try:
                _check(action)
                draft = drafts.get(action.pool) or self._read(action.pool, self._path(action.pool), running)
                drafts[action.pool] = draft
                _apply(draft, action, self._context.instance)
                draft.actions.append(index)
            except ProviderError as error:
                errors[index] = error
        due = [
            draft
            for draft in drafts.values()
            if draft.actions and (draft.bytes(self._context.instance) != draft.before or not draft.loaded)
        ]
        return running, due, errors

    def _write(
        self, due: Sequence[_Draft], running: Running, errors: list[ProviderError | None], deadline: float
    ) -> None:
        """Test the files, put them in place and load them."""
        if not due:
            return
        texts = {draft.path: draft.bytes(self._context.instance) for draft in due}
        under_way = self._signal
        if (
            under_way is not None
            and under_way.is_fresh()
            and all(draft.pool in under_way.pools and texts[draft.path] == draft.before for draft in due)
        ):
            # nginx still loads these very files; another signal would make it begin again.
            self._await(due, under_way, errors, deadline)
            return
        try:
            self._test(texts, deadline)
        except ProviderError as error:
            _fail(errors, due, error)
            return
        # From here on no age of a worker says that these files are loaded, until the signal is over. A kill leaves the record.
        self._loaded.save()
        self._signal = signal = Signal(frozenset(draft.pool for draft in due), running)
        running.settle()
        put = [draft for draft in due if self._put(draft, texts[draft.path], errors)]
        if put:
            self._load(put, signal, errors, deadline)
        else:
            self._signal = None

    def _test(self, texts: Mapping[Path, bytes], deadline: float) -> None:
        scratch = Path(self._context.state_dir, f"nginx-test-{self.name}")
        sources = Sources()
        try:
            config_test.test(self._target, Path(self._settings.configuration), texts, scratch, deadline, sources)
        except ProviderError:
            sources.ended = time.time_ns()
            self._refused = sources
            raise
        self._refused = None

    def _put(self, draft: _Draft, data: bytes, errors: list[ProviderError | None]) -> bool:
        """Replace a file, or mark it as changed now: it is loaded once all workers are newer. False: its actions have an error."""
        target = f"pool {draft.pool}"
        try:
            if data != draft.before:
                replace(target, draft.path, data, draft.before)
            else:
                os.utime(draft.path)
        except ProviderError as error:
            _fail(errors, [draft], error)
        except OSError as error:
            _fail(errors, [draft], Unreachable(target, f"cannot touch {draft.path}: {error.strerror}"))
        return errors[draft.actions[0]] is None

    def _load(
        self, drafts: Sequence[_Draft], signal: Signal, errors: list[ProviderError | None], deadline: float
    ) -> None:
        """Reload nginx and check that the files are loaded."""
        try:
            process.send(self._target, signal)
        except ProviderError as error:
            if not signal.pending:
                self._signal = None  # nothing was sent: the age of the workers is right
            _fail(errors, drafts, _written(error))
            return
        self._await(drafts, signal, errors, deadline)

    def _await(
        self, drafts: Sequence[_Draft], signal: Signal, errors: list[ProviderError | None], deadline: float
    ) -> None:
        """Wait until the new workers have taken over, and check that they have loaded the files."""
        try:
            now = process.await_workers(self._target, signal, self._settings.pid_file, deadline)
        except ProviderError as error:
            _fail(errors, drafts, _written(error))
            return
        finally:
            self._reloaded = time.monotonic()
        self._signal = None
        for draft in drafts:
            if not self._read(draft.pool, draft.path, now).loaded:
                cause = f"another writer changed {draft.path} while nginx loaded it"
                _fail(errors, [draft], OutcomeUnknown(f"pool {draft.pool}", cause, "retried automatically"))
        self._loaded.save()


def _written(error: ProviderError) -> OutcomeUnknown:
    """The files are in place in any case, and the next reload of nginx loads them."""
    return OutcomeUnknown(error.target, f"the files are written, but: {error.cause}", error.next_step)


def _unchanged(target: str, path: Path) -> tuple[bytes | None, int | None]:
    """A file's bytes and when it changed last, consistent with each other."""
    for _ in range(READ_TRIES):
        changed = _changed(target, path)
        data = read(target, path)
        if _changed(target, path) == changed:
            return data, changed
    raise Unreachable(target, f"{path} changes during each of {READ_TRIES} reads", "find the program that writes there")


def _changed(target: str, path: Path) -> int | None:
    """When a file's inode changed last (wall-clock ns), because a rename counts too. None without a file."""
    try:
        return path.lstat().st_ctime_ns
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Unreachable(target, f"cannot read {path}: {error.strerror}", "give this user read permission") from error


def _fail(errors: list[ProviderError | None], drafts: Sequence[_Draft], error: ProviderError) -> None:
    for draft in drafts:
        for index in draft.actions:
            errors[index] = errors[index] or error


def _check(action: EndpointAction) -> None:
    target = object_of(action)
    if isinstance(action, CutSessions):
        raise Rejected(target, "nginx cannot end the sessions of one server", "wait until they end")
    try:
        usual = str(ip_address(action.endpoint.address))
    except ValueError:
        cause = f"{action.endpoint.address[:80]!r} is not an IP address"
        raise Rejected(target, cause, "use an address: nginx resolves names only when it loads them") from None
    if usual != action.endpoint.address or "%" in usual:
        raise Rejected(
            target, f"{action.endpoint.address!r} is not the usual spelling", f"write {usual.split('%', maxsplit=1)[0]}"
        )
    if not 1 <= action.endpoint.port <= MAX_PORT:
        raise Rejected(target, f"{action.endpoint.port} is not a port", f"use a port from 1 to {MAX_PORT}")
    if action.endpoint == PLACEHOLDER:
        raise Rejected(target, "this address marks an empty pool", "use another port")
    if isinstance(action, SetWeight) and not 0 <= action.weight <= MAX_WEIGHT:
        raise Rejected(target, f"weight {action.weight} is not from 0 to {MAX_WEIGHT}", "use another weight")


def _apply(draft: _Draft, action: EndpointAction, instance: str) -> None:
    """Compare an action with the draft and apply it. Before the file is loaded, a plan may also rest on what the workers have."""
    target = object_of(action)
    member = draft.members.get(action.endpoint)
    if member is None and (other := draft.upstream.foreign.get(action.endpoint)) is not None:
        owner = f"belongs to instance {other.owner}" if other.owner else "belongs to no instance"
        raise Foreign(target, owner, f"remove it from {draft.path}, or use another pool")
    current = None if member is None else member.weight
    untouched = member == draft.upstream.ours.get(action.endpoint)
    in_force = current
    if not draft.loaded and untouched and draft.in_force is not None:
        served = draft.in_force.ours.get(action.endpoint)
        in_force = None if served is None else served.weight
    if isinstance(action, SetWeight):
        if action.before not in (current, in_force) and current != action.weight:
            kind = Gone if current is None else Conflict
            raise kind(target, f"the plan saw weight {action.before}, now it is {current}", "retried automatically")
        if current != action.weight:  # a changed name alone needs no reload
            draft.members[action.endpoint] = Member(action.endpoint, action.weight, action.name, instance)
        return
    if in_force or current or (draft.in_force is None and untouched and current is not None):
        weight = f"weight {in_force or current}" if in_force or current else "a weight that nginx may not have loaded"
        raise Conflict(target, f"still has {weight}", "set its weight to 0 first")
    draft.members.pop(action.endpoint, None)
