"""Pools in nginx (`type: nginx`): a file for each, tested before it is put in place, then loaded by a signal to the master.

    http {
        include /etc/nginx/reconciler/*.conf;
        server { location / { proxy_pass http://web; } }
    }

Only servers between our markers are ours; see `text.py`. nginx has no interface at run time: the file has the desired weights, and
the age of the workers says whether it is loaded. Members of a file that is not loaded (after a kill between write and reload, or
an edit) have the weight `NOT_LOADED`, which no manifest can ask for: so the next step loads the file. Sessions are never known
and cannot be ended: old workers finish theirs.
"""

import os
import re
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import ClassVar

from pydantic import BaseModel

from manifests.values.desired import SECOND, Role
from providers.actions import CutSessions, EndpointAction, SetWeight
from providers.endpoints.nginx import config_test, process
from providers.endpoints.nginx.process import Running
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

NOT_LOADED = MAX_WEIGHT + 1
"""The weight of a member in a file that is not loaded: its weight in the running nginx is unknown."""

MAX_PORT = 65_535

READ_TRIES = 5
"""How often a file is read again that changes during the read."""


@dataclass(slots=True)
class _Draft:
    """One pool's file during a change. `before`: its present bytes, None without a file."""

    pool: str
    path: Path
    before: bytes | None
    upstream: Upstream
    loaded: bool
    members: dict[Endpoint, Member]
    actions: list[int] = field(default_factory=list)

    def bytes(self, instance: str) -> bytes:
        """The new content of the file."""
        if self.members == self.upstream.ours and self.before is not None:
            return self.before
        return render(self.upstream, self.members, instance).encode("utf-8", "surrogateescape")


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

    def observe(self, pools: Collection[str]) -> tuple[PoolFact, ...]:
        """The named pools, plus those with members of ours. No file: empty.

        Raises:
            Unreachable: nginx does not run, or a file cannot be read or parsed.
            Rejected: a pool's name is invalid.
        """
        wanted = {pool: self._path(pool) for pool in set(pools)}
        running = process.running(self._target, self._settings.pid_file)
        drafts = {pool: self._read(pool, path, running) for pool, path in wanted.items()}
        for pool in set(self._present()) - wanted.keys():
            draft = self._read(pool, self._path(pool), running)
            if draft.members:
                drafts[pool] = draft
        return tuple(self._fact(drafts[pool], running) for pool in sorted(drafts))

    def perform(self, actions: Sequence[EndpointAction]) -> Performed:
        """Set weights and remove endpoints, with one test and one reload; wait for a new worker.

        Returns:
            Rejected: an address, weight or pool is invalid, nginx refuses the configuration or does not include the file, or
                permissions are missing; also for `CutSessions`.
            Conflict, Gone, Foreign: the member is not as the plan saw it, or has another owner.
            Unreachable: something cannot be read; nothing was changed.
            OutcomeUnknown: the file was written, but no new worker has loaded it yet.

        Raises:
            Unreachable: nginx does not run, or another writer holds the lock; nothing was begun.
            Rejected: the directory cannot be used.
        """
        deadline = time.monotonic() + self._settings.timeout / SECOND
        if not self._writing.acquire(timeout=self._settings.timeout / SECOND):
            raise Unreachable(self._target, "an earlier write has not returned; nothing was changed")
        try:
            with locked(self._target, self._directory, max(0.0, deadline - time.monotonic())):
                return Performed(self._perform_locked(actions, deadline))
        finally:
            self._writing.release()

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
            self._test(texts, deadline)
        except (Unreachable, Rejected) as error:
            problems.append(str(error))
        if not os.access(self._directory if self._directory.exists() else self._directory.parent, os.W_OK):
            problems.append(f"no permission to write in {self._directory}; give this user write permission there")
        return tuple(problems)

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
        loaded = data is None or (changed is not None and running.has_loaded(changed))
        return _Draft(pool, path, data, upstream, loaded, dict(upstream.ours))

    def _fact(self, draft: _Draft, running: Running) -> PoolFact:
        facts = [
            MemberFact(member.endpoint, member.weight if draft.loaded else NOT_LOADED, True, member.name)
            for member in draft.members.values()
        ]
        facts += [
            MemberFact(place, member.weight, False, "")
            for place, member in draft.upstream.foreign.items()
            if place not in draft.members
        ]
        return PoolFact(draft.pool, tuple(sorted(facts)), running.epoch)

    # --- writing --------------------------------------------------------------------------------------------------

    def _perform_locked(self, actions: Sequence[EndpointAction], deadline: float) -> tuple[ProviderError | None, ...]:
        running = process.running(self._target, self._settings.pid_file)
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
        texts = {draft.path: draft.bytes(self._context.instance) for draft in drafts.values() if draft.actions}
        due = [
            draft
            for draft in drafts.values()
            if draft.path in texts and (texts[draft.path] != draft.before or not draft.loaded)
        ]
        if not due:
            return tuple(errors)
        try:
            self._test({draft.path: texts[draft.path] for draft in due}, deadline)
        except ProviderError as error:
            _fail(errors, due, error)
            return tuple(errors)
        running.settle()
        put = [draft for draft in due if self._put(draft, texts[draft.path], errors)]
        if put:
            self._load(put, running, errors, deadline)
        return tuple(errors)

    def _test(self, texts: Mapping[Path, bytes], deadline: float) -> None:
        scratch = Path(self._context.state_dir, f"nginx-test-{self.name}")
        config_test.test(self._target, Path(self._settings.configuration), texts, scratch, deadline)

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
        self, drafts: Sequence[_Draft], running: Running, errors: list[ProviderError | None], deadline: float
    ) -> None:
        """Reload nginx and check that the files are loaded."""
        try:
            now = process.reload(self._target, running, self._settings.pid_file, deadline)
        except ProviderError as error:
            # The files are in place in any case, and the next reload of nginx loads them.
            _fail(
                errors,
                drafts,
                OutcomeUnknown(error.target, f"the files are written, but: {error.cause}", error.next_step),
            )
            return
        for draft in drafts:
            changed = _changed(f"pool {draft.pool}", draft.path)
            if changed is None or not now.has_loaded(changed):
                cause = f"another writer changed {draft.path} while nginx loaded it"
                _fail(errors, [draft], OutcomeUnknown(f"pool {draft.pool}", cause, "retried automatically"))


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
    """Compare an action with the draft and apply it. A member that is not loaded also matches the weight `NOT_LOADED`."""
    target = object_of(action)
    member = draft.members.get(action.endpoint)
    if member is None and (other := draft.upstream.foreign.get(action.endpoint)) is not None:
        owner = f"belongs to instance {other.owner}" if other.owner else "belongs to no instance"
        raise Foreign(target, owner, f"remove it from {draft.path}, or use another pool")
    current = None if member is None else member.weight
    unloaded = member is not None and not draft.loaded and member == draft.upstream.ours.get(action.endpoint)
    if isinstance(action, SetWeight):
        if current not in (action.weight, action.before) and not (unloaded and action.before == NOT_LOADED):
            kind = Gone if current is None else Conflict
            raise kind(target, f"the plan saw weight {action.before}, now it is {current}", "retried automatically")
        if current != action.weight:  # a changed name alone needs no reload
            draft.members[action.endpoint] = Member(action.endpoint, action.weight, action.name, instance)
        return
    if current or unloaded:
        weight = "a weight that nginx may not have loaded" if unloaded else f"weight {current}"
        raise Conflict(target, f"still has {weight}", "set its weight to 0 first")
    draft.members.pop(action.endpoint, None)
