"""Writes changed images to where the manifests come from: one commit that is pushed, a merge request, or a patch where neither is allowed.

Called by `reconcile deploy` with a git source, and by the daemon's `service.py`. A change is a level, "this container has that image": writing
it twice makes one commit, so a caller that does not know whether it was written writes again.

A branch that moves meanwhile is read again, and the change is made on its new head. A push whose answer was lost is looked for on the remote.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from pathlib import Path
from time import monotonic_ns

from manifests.kinds.source import Source
from manifests.load import Sources, declared_instance
from manifests.problems import ManifestErrors
from manifests.source.git_url import GitUrl
from manifests.values.desired import Desired
from manifests.values.secret_sources import SecretSource
from manifests.values.write_back import WriteBack, WriteMode
from manifests.yaml.text import Refused as TextRefused
from providers.errors import Rejected
from providers.lib.secrets import resolve
from reconciler.deployments.edit import Changed, Edited, ImageChange, NoSuchImage, edited
from reconciler.deployments.message import markdown, message, subject
from reconciler.deployments.patch import patch
from reconciler.forge.connect import connect
from reconciler.forge.protocol import MergeRequest
from reconciler.git.access import Access
from reconciler.git.commit import Author, commit_on
from reconciler.git.errors import Moved, NotThere, Refused, Unavailable, Unread
from reconciler.git.mirror import Mirror, parents_of, tree_of
from reconciler.git.reader import GitReader
from reconciler.git.signature import read_commit
from reconciler.shell.secrets import SECRETS
from reconciler.tree import Given, Location

TRIES = 3
"""How often a change is made on the new head of a branch that moved meanwhile."""

HEADS = "refs/heads/"
OURS = "reconcile/"
"""The beginning of the names of branches of merge requests."""


class Outcome(StrEnum):
    """What became of a change."""

    UNCHANGED = "unchanged"
    """The manifests have these images already."""
    COMMIT = "commit"
    MERGE_REQUEST = "merge request"
    PATCH = "patch"
    """Nothing was written; the patch says what to write."""


@dataclass(frozen=True, slots=True)
class Written:
    """The result of a change.

    Attributes:
        outcome: what became of it.
        images: the images that differ from before.
        edit: the manifests with the change.
        commit, ref: the commit that was pushed, and the full name of its branch; of an unchanged source the commit that has the images.
        url: of the merge request.
        patch: for `git apply` in the root of the repository, or of the directory. why: why nothing was written.
    """

    outcome: Outcome
    images: tuple[Changed, ...]
    edit: Edited
    commit: str = ""
    ref: str = ""
    url: str = ""
    patch: str = ""
    why: str = ""
    next_step: str = ""


class _NoRight(Exception):
    """The change may not be written: the cause, and the next step."""

    def __init__(self, cause: str, next_step: str) -> None:
        super().__init__(cause)
        self.cause, self.next_step = cause, next_step


@dataclass(frozen=True, slots=True)
class Writer:
    """Writes to one source.

    Attributes:
        path, instance_file, state, environment: of the command line, as in `Location`.
        wall: seconds since 1970.
    """

    path: Given
    instance_file: Path | None
    state: Path | None
    environment: str | None
    wall: Callable[[], float]

    def write(
        self,
        changes: Sequence[ImageChange],
        reason: str,
        who: str,
        branch: str = "",
        proposed: Sequence[ImageChange] = (),
    ) -> Written:
        """Write changes as one commit.

        Args:
            changes: of this source.
            reason, who: for the message.
            branch: the beginning of the name of a merge request's branch, below `reconcile/`; by default one for these images.
            proposed: earlier changes for the same branch. They are in the commit too while its merge request is open, so that it keeps them.

        Raises:
            ManifestErrors: the manifests are invalid, before or after the change.
            text.Refused: the change cannot be made in the text. NoSuchImage.
            Unread: the source cannot be read now, or is refused.
            GitError: it cannot be written now, or the branch moves all the time.
            ProviderError: a secret or the forge cannot be used now.
        """
        for _ in range(TRIES):
            try:
                return self._once(changes, reason, who, branch, proposed)
            except Moved:
                continue
        raise Unavailable(f"the branch moved {TRIES} times while the change was written", "try again")

    def _once(
        self, changes: Sequence[ImageChange], reason: str, who: str, branch: str, proposed: Sequence[ImageChange]
    ) -> Written:
        location = Location(self.path, self.instance_file, self.state, environment=self.environment)
        sources = location.read()
        reader = location.reader
        if reader is not None and reader.problem is not None:
            raise Unread(reader.problem)
        edit = edited(sources, changes)
        head = reader.head if reader is not None else None
        if branch:
            branch = f"{branch}-{self._set()}"
        if edit.files and proposed and head is not None and self._is_open(edit.desired, branch, head.ref):
            with suppress(ManifestErrors, TextRefused, NoSuchImage):  # then the earlier ones cannot be made any more
                edit = edited(sources, [*changes, *proposed])
        if not edit.files:
            commit, ref = (head.commit, head.ref) if head is not None else (location.commit(), "")
            return Written(Outcome.UNCHANGED, (), edit, commit, ref)
        try:
            return self._push(sources, reader, edit, message(edit.images, reason, who), branch)
        except _NoRight as error:
            below = f"{self.path.path}/" if isinstance(self.path, GitUrl) and self.path.path else ""
            text = patch({f"{below}{name}": data for name, data in edit.files.items()})
            return Written(Outcome.PATCH, edit.images, edit, patch=text, why=error.cause, next_step=error.next_step)

    def _push(self, sources: Sources, reader: GitReader | None, edit: Edited, text: str, branch: str) -> Written:
        """Write the edit with the rights of local documents. Raises _NoRight, Moved, GitError, ProviderError."""
        head = reader.head if reader is not None else None
        if reader is None or head is None:
            where = "the manifests are read from a directory"
            raise _NoRight(where, "apply the patch in a checkout, then commit and push it")
        desired, source = edit.desired, _source(sources, reader.url)
        right = desired.instance.writing.write_back
        if source is None or right is None:
            hint = "apply the patch in a checkout; or allow it with spec.source.writeBack in the Instance of the local documents"
            raise _NoRight("no local document allows to write to the source", hint)
        if not head.ref.startswith(HEADS):
            what = f"the tag {head.ref.removeprefix('refs/tags/')}" if head.ref else "a pinned commit"
            raise _NoRight(f"the source is {what} and no branch", "apply the patch on a branch, then move the source")
        signs = source.verify is not None and source.verify.mode == "head"
        if signs and right.signing_key is None and right.mode is WriteMode.COMMIT:
            cause = "source.verify asks for signed commits, and writeBack has no signingKey"
            raise _NoRight(cause, "apply the patch and sign the commit; or add signingKey")
        below = f"{reader.url.path}/" if reader.url.path else ""
        contents = {f"{below}{name}": after for name, (_, after) in edit.files.items()}
        author = Author(right.name, right.email, _reading(right.signing_key, "signing key of writeBack"))
        with reader.mirror() as mirror:
            mirror.fetch(head, reader.url.path)
            commit = commit_on(mirror, head.commit, contents, author, text, int(self.wall()))
            writing = _with_rights(mirror, source, right)
            try:
                if right.mode is WriteMode.COMMIT:
                    _pushed(writing, commit, head.ref, head.commit)
                    return Written(Outcome.COMMIT, edit.images, edit, commit, head.ref)
                name = f"{OURS}{branch or _branch(edit.images, contents)}"
                commit = _on_branch(writing, commit, f"{HEADS}{name}", reader.url.path, right)
            except Refused as error:
                raise _NoRight(error.cause, error.hint) from error
        request = self._request(desired, text, edit.images, name, head.ref.removeprefix(HEADS))
        return Written(Outcome.MERGE_REQUEST, edit.images, edit, commit, f"{HEADS}{name}", request.url)

    def _set(self) -> str:
        """A part of the name of a branch: the same for hosts that share a set of a repository, another one for each other set."""
        path = self.path.path if isinstance(self.path, GitUrl) else ""
        return sha256(f"{path}\n{self.environment or ''}".encode()).hexdigest()[:8]

    def _is_open(self, desired: Desired, branch: str, ref: str) -> bool:
        """Whether changes go into a merge request, and the one of this branch is open. Raises ProviderError."""
        settings, right = desired.instance.informed.forge, desired.instance.writing.write_back
        if settings is None or right is None or right.mode is not WriteMode.MERGE_REQUEST:
            return False
        forge = connect(settings, monotonic_ns, self.wall)
        try:
            wanted = (f"{OURS}{branch}", ref.removeprefix(HEADS), False)
            return any((found.branch, found.target, found.fork) == wanted for found in forge.open_requests())
        finally:
            forge.close()

    def _request(
        self, desired: Desired, text: str, images: Sequence[Changed], branch: str, target: str
    ) -> MergeRequest:
        """Open the merge request, or find it."""
        settings = desired.instance.informed.forge
        if settings is None:
            raise _NoRight("the Instance has no forge to open a merge request", "add forge to the Instance")
        forge = connect(settings, monotonic_ns, self.wall)
        try:
            return forge.open_request(subject(images), markdown(text), branch, target)
        except Rejected as error:
            cause = f"branch {branch} is pushed, and the merge request is refused: {error.cause}"
            raise _NoRight(cause, f"open a merge request of {branch}; {error.next_step}") from error
        finally:
            forge.close()


def _source(sources: Sources, url: GitUrl) -> Source | None:
    """What local documents say of this source; None when they are of another one: a credential goes only where the operator sends it."""
    if sources.local is None:
        return None
    try:
        spec = declared_instance(sources.local)
    except ManifestErrors:
        return None
    source = None if spec is None else spec.source
    return source if source is not None and source.parsed.remote == url.remote else None


def _reading(secret: SecretSource | None, what: str) -> Callable[[], str] | None:
    """Reads a secret when it is needed, masked from then on."""
    if secret is None:
        return None

    def read() -> str:
        text = resolve(secret, what).reveal()
        SECRETS.add(text)
        return text

    return read


def _with_rights(mirror: Mirror, source: Source, right: WriteBack) -> "Mirror":
    """The same mirror, in use, with the credentials that write."""
    key_file = right.ssh_key.file if right.ssh_key is not None else ""
    access = Access(
        username=right.username,
        token=_reading(right.token, "token of writeBack"),
        key=None if key_file else _reading(right.ssh_key, "ssh key of writeBack"),
        key_file=key_file,
        known_hosts=source.known_hosts or "",
        ca_file=source.ca_file or "",
    )
    return mirror.with_access(access)


def _pushed(mirror: Mirror, commit: str, ref: str, expected: str) -> None:
    """Push. A push without an answer counts as done when the remote has the commit. Raises GitError."""
    try:
        mirror.push(commit, ref, expected)
    except Unavailable:
        if mirror.head(ref).commit != commit:
            raise


def _on_branch(mirror: Mirror, commit: str, ref: str, path: str, right: WriteBack) -> str:
    """Let a branch of ours have a commit; returns the one that it has, which may be an equal one of before. Raises GitError.

    Raises Refused when its last commit is of another author: a reviewer's work is never replaced.
    """
    try:
        tip = mirror.head(ref)
    except NotThere:
        _pushed(mirror, commit, ref, "")
        return commit
    mirror.fetch(tip, path)
    there, ours = mirror.object(tip.commit).data, mirror.object(commit).data
    if tree_of(there) == tree_of(ours) and parents_of(there) == parents_of(ours):
        return tip.commit
    if f"<{right.email}>" not in read_commit(there).who:
        name = ref.removeprefix(HEADS)
        raise Refused(f"the last commit of branch {name} is of another author", "merge or delete the branch")
    _pushed(mirror, commit, ref, tip.commit)
    return commit


def _branch(images: Sequence[Changed], paths: Iterable[str]) -> str:
    """The name of a branch for these images in these files of the repository: the same for the same ones."""
    lines = [*(f"{changed.key} {changed.container} {changed.new}" for changed in images), *sorted(paths)]
    digest = sha256("\n".join(lines).encode(errors="surrogateescape")).hexdigest()
    return f"deploy-{images[0].key.partition('/')[2]}-{digest[:12]}"
