"""Pools as JSON files in a directory (`type: file`): the default for endpoints, without a server.

A balancer, proxy or script that reads JSON and watches a file can follow it. Files are replaced atomically and have mode 0644,
because other programs read them and they hold only addresses. Several instances may share a file: each writes under a lock and
changes only members with its own id.
"""

import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field

from manifests.values.desired import Role
from providers.actions import CutSessions, EndpointAction, SetWeight
from providers.endpoints.file.text import MAX_PORT, Member, Pool, parse, render
from providers.errors import Conflict, Foreign, Gone, ProviderError, Rejected, Unreachable
from providers.facts import Endpoint, MemberFact, PoolFact
from providers.lib.files import directory_of, locked, read, replace
from providers.naming import object_of
from providers.spi import Context, Performed

POOL_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}")
"""Names that are one file name on every system and not hidden."""

SUFFIX = ".json"


class FileSettings(BaseModel):
    """Settings of `type: file`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    directory: str = Field(
        default="pools",
        min_length=1,
        description="Directory of the pool files. Absolute, or relative to the instance's state directory.",
    )


class FileEndpoints:
    """Pools in files `<directory>/<pool>.json`. A missing file is an empty pool; an unreadable file is an error."""

    role: ClassVar[Role] = Role.ENDPOINTS
    checks_ownership: ClassVar[bool] = True
    Settings: ClassVar[type[BaseModel]] = FileSettings

    def __init__(self, name: str, settings: FileSettings, context: Context) -> None:
        self.name = name
        self._settings = settings
        self._context = context

    def observe(self, pools: Collection[str]) -> tuple[PoolFact, ...]:
        """The named pools, plus every pool that holds a member of ours.

        Raises:
            Unreachable: a file cannot be read or is not a pool file. A partial result might hide members of ours.
            Rejected: a pool's name is not a file name.
        """
        directory = self._directory()
        named = {name: self._load(directory, name) for name in set(pools)}
        others = {name: self._load(directory, name) for name in self._present(directory) if name not in named}
        mine = {name: pool for name, pool in others.items() if self._holds_ours(pool)}
        return tuple(self._fact(pool) for _, pool in sorted((named | mine).items()))

    def perform(self, actions: Sequence[EndpointAction]) -> Performed:
        """Set weights and remove endpoints, comparing under the lock; each pool's file is replaced once.

        A reader never sees a pool between two actions of one call.

        Returns:
            Conflict, Gone, Foreign: the member is not as the plan saw it, or has another owner.
            Rejected: a name, address, port or weight is invalid, or there is no permission to write in the directory.
            Unreachable: a file cannot be read or written; nothing was changed.
            OutcomeUnknown: see `providers.lib.files.replace`.

        Raises:
            Rejected: the directory cannot be used.
            Unreachable: another writer holds the lock; nothing was begun.
        """
        by_pool: dict[str, list[int]] = {}
        for index, action in enumerate(actions):
            by_pool.setdefault(action.pool, []).append(index)
        directory = self._directory()
        errors: list[ProviderError | None] = [None] * len(actions)
        with locked(f"provider {self.name}", directory):
            for pool, indexes in by_pool.items():
                answers = self._rewrite(directory, pool, [actions[index] for index in indexes])
                for index, answer in zip(indexes, answers, strict=True):
                    errors[index] = answer
        return Performed(tuple(errors))

    def close(self) -> None:
        """Nothing to close."""

    def _rewrite(self, directory: Path, name: str, actions: Sequence[EndpointAction]) -> Sequence[ProviderError | None]:
        """Do the actions on one pool with one replacement of its file, under the lock. Returns the error of each."""
        target = f"pool {name}"
        try:
            path = self._path(directory, name)
            before = read(target, path)
            pool = Pool(name) if before is None else parse(name, str(path), before)
        except ProviderError as error:
            return [error] * len(actions)
        members = dict(pool.members)
        answers = [self._answer(members, action) for action in actions]
        if members == pool.members:
            return answers
        try:
            replace(target, path, render(Pool(name, members, pool.extra)), before)
        except ProviderError as error:
            return [answer or error for answer in answers]
        return answers

    def _answer(self, members: dict[Endpoint, Member], action: EndpointAction) -> ProviderError | None:
        """Do one action on these members. Returns its error; the members are then unchanged."""
        try:
            _check(action)
            self._apply(members, action)
        except ProviderError as error:
            return error
        return None

    def _apply(self, members: dict[Endpoint, Member], action: EndpointAction) -> None:
        member = members.get(action.endpoint)
        target = object_of(action)
        if member is not None and member.owner != self._context.instance:
            owner = f"belongs to instance {member.owner}" if member.owner else "belongs to no instance"
            raise Foreign(target, owner, "remove it from the file, or use another pool")
        if isinstance(action, SetWeight):
            current = None if member is None else member.weight
            if current not in (action.weight, action.before):
                kind = Gone if current is None else Conflict
                raise kind(target, f"the plan saw weight {action.before}, now it is {current}", "retried automatically")
            extra = {} if member is None else member.extra
            members[action.endpoint] = Member(action.weight, action.name, self._context.instance, extra)
            return
        if member is None:
            return
        if member.weight > 0:
            raise Conflict(target, f"still has weight {member.weight}", "set its weight to 0 first")
        del members[action.endpoint]

    def _directory(self) -> Path:
        return directory_of(f"provider {self.name}", self._settings.directory, self._context.state_dir)

    def _path(self, directory: Path, pool: str) -> Path:
        if not POOL_NAME.fullmatch(pool):
            raise Rejected(f"pool {pool!r}", "not a file name", "use letters, digits, '.', '_' and '-', at most 200")
        return directory / (pool + SUFFIX)

    def _load(self, directory: Path, pool: str) -> Pool:
        path = self._path(directory, pool)
        data = read(f"pool {pool}", path)
        return Pool(pool) if data is None else parse(pool, str(path), data)

    def _present(self, directory: Path) -> list[str]:
        try:
            names = [path.name.removesuffix(SUFFIX) for path in directory.iterdir() if path.name.endswith(SUFFIX)]
        except FileNotFoundError:
            return []
        except OSError as error:
            cause = f"cannot list {directory}: {error.strerror}"
            raise Unreachable(f"provider {self.name}", cause, "give this user read permission") from error
        return [name for name in names if POOL_NAME.fullmatch(name)]

    def _holds_ours(self, pool: Pool) -> bool:
        return any(member.owner == self._context.instance for member in pool.members.values())

    def _fact(self, pool: Pool) -> PoolFact:
        facts = (
            MemberFact(endpoint, member.weight, member.owner == self._context.instance, member.name)
            for endpoint, member in sorted(pool.members.items())
        )
        return PoolFact(pool.name, tuple(facts))


def _check(action: EndpointAction) -> None:
    target = object_of(action)
    if isinstance(action, CutSessions):
        raise Rejected(target, "a file has no sessions to end", "wait until they end")
    if not action.endpoint.address or not 1 <= action.endpoint.port <= MAX_PORT:
        raise Rejected(target, "not an address and port", f"use an address and a port from 1 to {MAX_PORT}")
    if isinstance(action, SetWeight) and action.weight < 0:
        raise Rejected(target, f"weight {action.weight} is below 0", "use 0 or more")
