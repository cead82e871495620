"""The manifests at a path, and the state directory of their instance. Light: every command needs both first.

With `wire.py` the only module that knows the registry of providers. Called by `wire.py` and the command line.
"""

import atexit
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from manifests.load import Sources, chooses_images, declared_instance, read_sources, resolve_sources, with_choices
from manifests.problems import ManifestErrors, Problem
from manifests.source.directory import SUFFIXES, with_contents
from manifests.source.git_url import GitUrl
from manifests.source.identity import commit_of
from manifests.source.local import read_local
from manifests.values.desired import Desired
from providers import registry

if TYPE_CHECKING:
    from reconciler.git.reader import GitReader
    from reconciler.shell.clock import HostClock

Given = Path | GitUrl
"""What PATH of a command line may be: a directory or file, or the address of a git source."""

MIRRORS = ".git-sources"
"""The directory of our mirrors; no id of an instance begins with a dot."""


class AmbiguousInstance(Exception):
    """The manifests at a path are invalid, and several instances have run with them.

    Attributes:
        instances: ids of the instances.
        error: the problems of the manifests.
    """

    def __init__(self, path: Given, instances: tuple[str, ...], error: ManifestErrors) -> None:
        super().__init__(path, instances, error)
        self.path, self.instances, self.error = path, instances, error

    def lines(self) -> list[str]:
        """The first problem of the manifests, the ids, and the next step."""
        cause = next((problem.lines()[0] for problem in self.error.problems if not problem.is_warning), "")
        return [
            cause,
            f"the manifests at {self.path} are invalid, and several instances have run with them: {', '.join(self.instances)}",
            "next step: add --instance-id with one of them, or --state-dir",
        ]

    def __str__(self) -> str:
        return "\n".join(self.lines())


@dataclass(frozen=True, slots=True)
class Location:
    """Where a run reads its manifests and keeps its state.

    path: a directory or file, or the address of a git source. instance_file: the file or directory of local documents. state: the state
    directory, None for the default one. environment: as in `read_sources`. reader: of the git source; made here.
    """

    path: Given
    instance_file: Path | None = None
    state: Path | None = None
    reader: "GitReader | None" = field(default=None, compare=False, repr=False)
    environment: str | None = None

    def __post_init__(self) -> None:
        if isinstance(self.path, GitUrl) and self.reader is None:
            object.__setattr__(self, "reader", _reader(self))

    def read(self) -> Sources:
        """The files as they are now, not checked. Never raises."""
        if self.reader is not None:
            return self._with_choices(self.reader.read())
        return self._with_choices(read_sources(str(self.path), self.instance_file, self.environment))

    def _with_choices(self, sources: Sources) -> Sources:
        """With the images that policies chose without a commit, where local documents allow that."""
        instance = chooses_images(sources.local)
        if not instance:
            return sources
        from reconciler.shell.store import image_choices  # noqa: PLC0415  (few instances need it)

        try:
            return with_choices(sources, image_choices.load(self.state_of(instance)))
        except NoHome:
            return sources

    def commit(self) -> str:
        """The commit at the source now; empty outside of git."""
        return self.reader.commit() if self.reader is not None else commit_of(Path(os.path.realpath(str(self.path))))

    def at_work(self, desired: Desired, state: Path) -> Desired:
        """The manifests as a run with this state directory uses them: by a path that stays the same for all commits of a git source."""
        return desired if self.reader is None else replace(desired, root=self.reader.root(state))

    @property
    def watched(self) -> Path | None:
        """The directory whose changes may be changes of the manifests; None for a git source."""
        if isinstance(self.path, GitUrl):
            return None
        real = Path(os.path.realpath(self.path))
        return real.parent if real.is_file() or real.suffix in SUFFIXES else Path(os.path.abspath(self.path))

    def known_state(
        self, sources: Sources, error: ManifestErrors, clock: "HostClock", *, newest: bool = False
    ) -> Path | None:
        """The state directory of the instance whose manifests are here, when they are invalid; None when it is not known.

        Args:
            sources: the files as they were read. error: their problems.
            clock: gives the time.
            newest: of several instances the one that read valid manifests here last, if it keeps its state where a run with this
                location does; for a run, whose manifests name one instance at a time.

        Raises:
            AmbiguousInstance: several instances have run with the manifests here; not with `newest`.
        """
        from reconciler.shell.store.instance_index import find, place_of  # noqa: PLC0415  (only for invalid manifests)

        if self.state is not None:
            return self.state.absolute()
        try:
            base = state_base()
        except NoHome:
            return None
        place = place_of(self.path, self.instance_file, sources.tree.environment)
        found = find(base, place, sources.tree.identity, clock)
        found = {state: instance for state, instance in found.items() if not instance.removed} or found
        default = {state: instance for state, instance in found.items() if state == state_dir(instance.instance)}
        if newest:
            return max(default, key=lambda state: default[state].used, default=None)
        ids = {instance.instance for instance in found.values()}
        if len(ids) > 1:
            raise AmbiguousInstance(self.path, tuple(sorted(ids)), error)
        return next(iter(default or found), None)

    def load(self) -> Desired:
        """The manifests, checked and resolved. Raises `ManifestErrors`."""
        return resolve(self.read())

    def state_of(self, instance: str) -> Path:
        """The state directory of the instance with this id. Raises NoHome."""
        return state_dir(instance, self.state)


def _reader(location: Location) -> "GitReader":
    """The reader of a location whose path is a git source. Its mirror is in the state directory that was given, else beside the default ones."""
    from reconciler.git.reader import GitReader  # noqa: PLC0415  (only for git sources)
    from reconciler.git.verify import SignatureCheck  # noqa: PLC0415
    from reconciler.shell.clock import SystemClock  # noqa: PLC0415

    url, instance_file, state = location.path, location.instance_file, location.state
    assert isinstance(url, GitUrl)  # noqa: S101  (asked by the caller)
    try:
        base = (state.absolute() if state is not None else state_base()) / MIRRORS
    except NoHome:
        from tempfile import TemporaryDirectory  # noqa: PLC0415  (rarely needed)

        kept = TemporaryDirectory(prefix="reconciler-")
        atexit.register(kept.cleanup)
        base = Path(kept.name)
    checks = (SignatureCheck(instance_file, SystemClock()),)
    return GitReader(url, instance_file, base, checks, environment=location.environment)


def source_of_instance(instance_file: Path) -> GitUrl | None:
    """The git source that the Instance of local documents declares; None without one. Raises `ManifestErrors` when they are invalid."""
    spec = declared_instance(read_local(instance_file, os.devnull))
    return None if spec is None or spec.source is None else spec.source.parsed


def load(path: Given, instance_file: Path | None = None, environment: str | None = None) -> Desired:
    """The manifests at a path, checked and resolved. Raises `ManifestErrors` with every problem."""
    return Location(path, instance_file, environment=environment).load()


def resolve(sources: Sources, *, confined: bool = True, enforce: bool = True, strict: bool = False) -> Desired:
    """The manifests in files that were read before, checked and resolved. Raises `ManifestErrors` with every problem.

    `confined` as in `resolve_sources`.
    `enforce`: whether violations of the Guard's policy are problems. False for manifests that were in force before the policy: then
    they only mark the workloads (`Workload.forbidden`), which are kept as they run.

    Images that policies chose are left out when the manifests refuse them, for example by a new policy of the Guard: a commit never fails for
    them. With `strict` that is a problem.
    """
    try:
        return resolve_sources(
            sources,
            settings_model=registry.settings_model,
            known_types=registry.known_types,
            template_support=registry.template_support,
            confined=confined,
            enforce=enforce,
        ).desired
    except ManifestErrors:
        if strict or not any(choice.image for choice in sources.choices):
            raise
    without = tuple(replace(choice, image="") for choice in sources.choices)
    return replace(
        resolve(replace(sources, choices=without), confined=confined, enforce=enforce), revision=sources.revision
    )


def load_with_warnings(
    path: Given,
    instance_file: Path | None = None,
    edited: Mapping[str, bytes] | None = None,
    *,
    environment: str | None = None,
    check_files: bool = False,
) -> tuple[Desired, tuple[Problem, ...]]:
    """As `load`, with warnings about manifests that are valid but probably a mistake.

    Args:
        edited: contents that replace those of the files of these names.
        environment: as in `read_sources`.
        check_files: check encrypted files of the tree that references name, without decrypting them.
    """
    sources = Location(path, instance_file, environment=environment).read()
    return resolve_with_warnings(
        replace(sources, tree=with_contents(sources.tree, edited or {})), check_files=check_files
    )


def resolve_with_warnings(sources: Sources, *, check_files: bool = False) -> tuple[Desired, tuple[Problem, ...]]:
    """As `resolve`, with warnings; see `load_with_warnings`."""
    resolved = resolve_sources(
        sources,
        settings_model=registry.settings_model,
        known_types=registry.known_types,
        template_support=registry.template_support,
        check_files=check_files,
    )
    return resolved.desired, tuple(resolved.warnings)


class NoHome(Exception):
    """The default state directory is unknown: XDG_STATE_HOME and HOME are not set, and the user is not in the passwd database."""

    def __str__(self) -> str:
        user = os.geteuid()
        return (
            f"the default state directory is unknown: HOME is not set, and user {user} is not in the passwd database; "
            "next step: give --state-dir DIR, or set XDG_STATE_HOME"
        )


def state_dir(instance: str, override: Path | None = None) -> Path:
    """Where an instance keeps its state: `override`, else below $XDG_STATE_HOME or ~/.local/state. Raises NoHome."""
    if override is not None:
        return override.absolute()
    return state_base() / instance


def state_base() -> Path:
    """The directory that holds the default state directories of all instances of this user."""
    base = os.environ.get("XDG_STATE_HOME", "")
    if base and Path(base).is_absolute():
        return Path(base) / "reconciler"
    try:
        home = Path.home()
    except RuntimeError as error:
        raise NoHome from error
    return home / ".local" / "state" / "reconciler"


@contextmanager
def state_to_read(instance: str, override: Path | None = None) -> Iterator[Path]:
    """As `state_dir`, for a run that writes no state: without a home directory an empty directory, removed at the end."""
    try:
        state = state_dir(instance, override)
    except NoHome:
        from tempfile import TemporaryDirectory  # noqa: PLC0415  (rarely needed)

        with TemporaryDirectory(prefix="reconciler-") as empty:
            yield Path(empty, instance)
        return
    yield state
