"""Saved plans: `reconcile plan --out FILE` writes one, `reconcile apply --plan FILE` compares it with what is there, `show` prints it.

A saved plan is data and never a list of steps to be executed: the run that applies it decides again, and goes on only when the outcome,
the manifests, the commit and the limits are those of the plan. The file has references and salted digests, no value of a secret. Its
checksum finds damage; who may write the file is what protects it, so it has mode 0600 and no other user may own or change it.
"""

import errno
import hashlib
import hmac
import json
import os
import stat
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from secrets import token_hex
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from manifests.load import Sources
from manifests.source.directory import SUFFIXES, SourceFile
from manifests.values.desired import SECOND, Desired
from manifests.values.image_choice import IMAGE_POLICY
from providers.facts import Known, RecordKey, fingerprint
from reconciler.core.decision import Plan
from reconciler.core.limits.approval_classes import policy_digest
from reconciler.core.model.observed import Observed
from reconciler.core.model.reasons import Rule
from reconciler.core.outcome import Outcome

FORMAT = 1
"""Version of the file; a larger one may mean what this program does not know."""

KIND = "reconcile-plan"
"""The first thing in the file, by which one of ours is recognized."""

LARGEST = 64 << 20
"""Bytes. A plan has at most 1,000 steps; one that changes 100,000 record sets takes about 30 MB."""

EXPIRES = 3600 * SECOND
"""How long a plan counts by the wall clock, unless `--expires` says otherwise (ns)."""

SKEW = 300 * SECOND
"""How much the clocks of the hosts that make and apply a plan may differ (ns)."""

NEXT_STEP = "next step: make a new plan with 'reconcile plan PATH --out FILE', and review it"

_HEALTH = frozenset({Rule.BUDGET, Rule.RESTART_IN_PROGRESS, Rule.LAST_MEMBER, Rule.LAST_RECORD, Rule.PANIC, Rule.BUSY})
"""Holds by which health delays a planned change. The run does less than was planned, or waits; that makes no plan stale."""

_SHOWN = 20
"""Most lines that say what moved."""


class PlanFileError(Exception):
    """A file cannot be used as a saved plan, or cannot be written.

    Attributes:
        file, cause, next_step: the file, what is wrong with it, and what the operator can do.
    """

    def __init__(self, file: Path, cause: str, next_step: str) -> None:
        super().__init__(str(file), cause, next_step)
        self.file, self.cause, self.next_step = file, cause, next_step

    def __str__(self) -> str:
        return f"{self.file}: {self.cause}; next step: {self.next_step}"


class StalePlan(Exception):
    """The plan is not about what is there now. `moved`: what has moved since it was made, a line each."""

    def __init__(self, moved: Sequence[str]) -> None:
        super().__init__(*moved)
        self.moved = tuple(moved)

    def lines(self) -> list[str]:
        """The plan is stale, what moved, and the next step."""
        more = len(self.moved) - _SHOWN
        listed = [*self.moved[:_SHOWN], *([f"and {more} more"] if more > 0 else [])]
        return ["the plan is stale, so no action was taken", *(f"  moved: {line}" for line in listed), NEXT_STEP]

    def __str__(self) -> str:
        return "; ".join(self.moved)


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class SavedChange(_Strict):
    """One change of the outcome, as in `core/outcome`."""

    object: str
    text: str
    item: str
    compared: bool


class SavedApproval(_Strict):
    """One change of a class of the Guard, which the operator who applies the plan approves."""

    object: str
    class_: str
    text: str
    item: str


class SavedPlan(_Strict):
    """The content of a file.

    Attributes:
        made_wall, expires_wall: wall-clock instants (ns).
        tool: the version of the program that made it.
        instance, lineage: the instance, and its ledger; no lineage for an instance that has never run.
        salt: of the digests of files, policy and fingerprints (hex).
        plan: the hash of the whole plan as it is shown.
        source, revision, commit: the manifests. `commit` ends in `-dirty` when files differed from it; empty outside of git.
        manifests, local: salted digests of the files by name; `local` are the local documents.
        policy: salted digest of the Guard's limits.
        prune, take_over: what the planned run may do.
        fingerprints: object -> salted digest of what was observed of it.
        outcome, approvals, text: what changes, what is approved with it, and the plan as text.
    """

    made_wall: int
    expires_wall: int
    tool: str
    instance: str
    lineage: str
    salt: str
    plan: str
    source: str
    revision: str
    commit: str
    manifests: dict[str, str]
    local: dict[str, str]
    policy: str
    prune: bool
    take_over: bool
    fingerprints: dict[str, str]
    outcome: tuple[SavedChange, ...]
    approvals: tuple[SavedApproval, ...]
    text: tuple[str, ...]

    @property
    def items(self) -> frozenset[str]:
        """The items that a run with this plan may remove or disrupt."""
        return frozenset(change.item for change in self.outcome)

    def compared(self) -> dict[str, SavedChange]:
        """The changes that a plan made again must have, by item."""
        return {change.item: change for change in self.outcome if change.compared}


# --- what a plan is compared by ---------------------------------------------------------------------------------------


def salted(salt: str, *parts: str | bytes) -> str:
    """A keyed digest of some parts: without the file's salt, equal values of two files cannot be found."""
    digest = hmac.new(salt.encode(), digestmod=hashlib.sha256)
    for part in parts:
        data = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
        digest.update(hashlib.sha256(data).digest())
    return digest.hexdigest()[:32]


def file_digests(salt: str, files: Sequence[SourceFile]) -> dict[str, str]:
    """The digests of manifests by their names."""
    return {file.name: salted(salt, file.name, file.data) for file in files}


def tree_files(sources: Sources) -> Sequence[SourceFile]:
    """The manifests of one read, the files that they refer to, and the images that policies chose."""
    named = [
        SourceFile(f"{found.path}/{file.name}".rstrip("/"), file.data)
        for found in sources.tree.sets
        for file in found.files
    ]
    chosen = [
        SourceFile(f"{IMAGE_POLICY} of {choice.key}, container {choice.container}", choice.image.encode())
        for choice in sources.choices
        if choice.image
    ]
    return (*sources.tree.files, *named, *chosen)


def local_files(sources: Sources) -> Sequence[SourceFile]:
    """The local documents of one read."""
    return () if sources.local is None else sources.local.files


def fingerprints(salt: str, outcome: Sequence[Outcome], observed: Observed, desired: Desired) -> dict[str, str]:
    """What is observed of each object that the plan touches: containers by node, name and revision, and the sets of its names.

    Ids, starts, states, probes and weights are left out: health changes them, and what a plan removes is in its outcome by id.
    """
    prefixes = {change.object.rpartition("/")[0] for change in outcome if change.object.startswith("workload/")}
    touched = prefixes | {change.object for change in outcome if not change.object.startswith("workload/")}
    parts: dict[str, list[str]] = {obj: [] for obj in touched}
    for node, known in sorted(observed.runtimes.items()):
        for fact in known.value if isinstance(known, Known) else ():
            mark = fact.mark
            if mark is not None and mark.instance == desired.instance.id:
                of_workload = parts.get(f"workload/{mark.workload}")
                if of_workload is not None:
                    of_workload.append(f"{node} {fact.name} {mark.revision}")
    for key, zone in sorted(observed.zones.items()):
        if not isinstance(zone, Known):
            continue
        for name, owner in zone.value.owners.items():
            instance, _, obj = owner.partition("/")
            of_owner = parts.get(obj) if instance == desired.instance.id else None
            if of_owner is not None and not obj.startswith("dnspolicy/"):
                of_owner.append(f"{'/'.join(key)} {_set(name)} {zone.value.records.get(name)}")
    return {obj: salted(salt, *sorted(lines)) for obj, lines in sorted(parts.items())}


def _set(key: RecordKey) -> str:
    return " ".join(key)


def policy_of(salt: str, desired: Desired) -> str:
    """The salted digest of the limits of the Guard."""
    return salted(salt, policy_digest(desired.guard))


def make(
    plan: Plan,
    desired: Desired,
    observed: Observed,
    sources: Sources,
    *,
    text: Sequence[str],
    digest: str,
    commit: str,
    lineage: str,
    tool: str,
    wall: int,
    expires: int,
) -> SavedPlan:
    """The content for a plan.

    Args:
        sources: the files that the plan was made from.
        text: the plan as lines, with secrets masked already. digest: its hash.
        commit: as `commit_of`. lineage: of the instance's ledger, empty when it has never run.
        tool: the version of this program.
        wall: now (ns). expires: how long the plan counts (ns).
    """
    salt = token_hex(16)
    return SavedPlan(
        made_wall=wall,
        expires_wall=wall + expires,
        tool=tool,
        instance=desired.instance.id,
        lineage=lineage,
        salt=salt,
        plan=digest,
        source=desired.source,
        revision=desired.revision,
        commit=commit,
        manifests=file_digests(salt, tree_files(sources)),
        local=file_digests(salt, local_files(sources)),
        policy=policy_of(salt, desired),
        prune=desired.prune,
        take_over=desired.take_over,
        fingerprints=fingerprints(salt, plan.outcome, observed, desired),
        outcome=tuple(
            SavedChange(object=change.object, text=change.text, item=change.item, compared=change.compared)
            for change in plan.outcome
        ),
        approvals=tuple(
            SavedApproval(object=change.object, class_=change.class_.value, text=change.text, item=change.item)
            for change in plan.approves
        ),
        text=tuple(text),
    )


# --- what moved -------------------------------------------------------------------------------------------------------


def moved_sources(
    saved: SavedPlan, desired: Desired, sources: Sources, commit: str, lineage: str, wall: int
) -> list[str]:
    """What has moved since the plan was made, as far as manifests, limits, instance and time say. Arguments as for `make`."""
    moved: list[str] = []
    if wall >= saved.expires_wall:
        moved.append(f"the plan expired {(wall - saved.expires_wall) // SECOND}s ago")
    elif wall < saved.made_wall - SKEW:
        moved.append(f"the clock of this host is {(saved.made_wall - wall) // SECOND}s before the time of the plan")
    if saved.instance != desired.instance.id:
        return [
            *moved,
            f"the plan is for instance '{saved.instance}', and the manifests declare '{desired.instance.id}'",
        ]
    if saved.lineage and saved.lineage != lineage:
        moved.append(
            f"the plan was made with another state directory of instance '{saved.instance}': of another host, or lost since"
        )
    before, after = (name.removesuffix("-dirty") for name in (saved.commit, commit))
    if before != after:
        moved.append(f"the commit moved from {before[:12] or 'none'} to {after[:12] or 'none'}")
    if saved.source != desired.source:
        moved.append(f"the plan was made from {saved.source}, and the manifests are from {desired.source}")
    if saved.revision != desired.revision:
        moved += _moved_files(saved.manifests, file_digests(saved.salt, tree_files(sources)), "manifest")
        moved += _moved_files(saved.local, file_digests(saved.salt, local_files(sources)), "local document")
    if saved.policy != policy_of(saved.salt, desired):
        moved.append("the limits of the Guard changed")
    return moved or ([] if saved.revision == desired.revision else ["the revision of the manifests changed"])


def _moved_files(before: Mapping[str, str], after: Mapping[str, str], word: str) -> Iterator[str]:
    for name in sorted({*before, *after}):
        if before.get(name) != after.get(name):
            how = "is new" if name not in before else "is gone" if name not in after else "changed"
            yield f"{word} {name} {how}"


def moved_outcome(saved: SavedPlan, plan: Plan, observed: Observed, desired: Desired) -> list[str]:
    """What has moved, as far as a plan says that was made again: its changes, and what is observed of what it touches."""
    before, after = saved.compared(), {change.item: change for change in plan.outcome if change.compared}
    moved = [f"{change.object}: not in the plan: {change.text}" for item, change in after.items() if item not in before]
    for item, change in before.items():
        if item not in after:
            holds = [
                hold
                for hold in plan.holds
                if change.object == hold.object or change.object.startswith(f"{hold.object}/")
            ]
            if any(hold.rule in _HEALTH for hold in holds):
                continue
            why = f" ({holds[0].rule.value}: {holds[0].message})" if holds else ""
            moved.append(f"{change.object}: planned, and not due any more: {change.text}{why}")
    now = fingerprints(saved.salt, plan.outcome, observed, desired)
    named = {line.partition(":")[0] for line in moved}
    for obj, digest in saved.fingerprints.items():
        if obj in now and now[obj] != digest and not any(name == obj or name.startswith(f"{obj}/") for name in named):
            moved.append(f"{obj}: its containers or record sets are other ones than when the plan was made")
    return moved


# --- the file ---------------------------------------------------------------------------------------------------------


def _checksum(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def check_target(file: Path, tree: Path | None) -> None:
    """Refuse, before a plan is made, a file that cannot take one or would be read as a manifest. Raises PlanFileError.

    `tree` is where the manifests are; None for a git source.
    """
    real = Path(os.path.realpath(file.parent)) / file.name
    if tree is not None and real.suffix.casefold() in SUFFIXES and Path(os.path.realpath(tree)) in real.parents:
        raise PlanFileError(
            file, "it would be read as a manifest", "choose a file outside of the directory of manifests"
        )
    if not file.parent.is_dir():
        raise PlanFileError(file, f"there is no directory {file.parent}", "make it, or choose another file")
    if not os.path.lexists(file):
        return
    if file.is_symlink() or not file.is_file():
        raise PlanFileError(file, "it is a link or no regular file", "remove it, or choose another file")
    with file.open("rb") as opened:
        if opened.read(len(_HEAD)) not in (_HEAD, b""):
            raise PlanFileError(file, "it exists and is no saved plan", "remove it, or choose another file")


_HEAD = f'{{\n "kind": "{KIND}"'.encode()


def write(file: Path, saved: SavedPlan) -> None:
    """Write a plan with mode 0600; an earlier one is replaced at once or not at all. Raises PlanFileError."""
    content = saved.model_dump(mode="json")
    body = {"kind": KIND, "format": FORMAT, "checksum": _checksum(content), "content": content}
    try:
        descriptor, name = tempfile.mkstemp(prefix=f".{file.name}.", suffix=".tmp", dir=file.parent)
        try:
            with open(descriptor, "w", encoding="utf-8") as opened:
                json.dump(body, opened, indent=1)
                opened.write("\n")
                opened.flush()
                os.fsync(opened.fileno())
            os.replace(name, file)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        cause = (error.strerror or type(error).__name__).lower()
        raise PlanFileError(file, f"it cannot be written: {cause}", "choose another file") from error


def read(file: Path) -> SavedPlan:
    """Read a plan.

    Raises:
        PlanFileError: it is a link, of another user, changeable by others, too large, damaged, or no plan.
        StalePlan: a newer version of the program wrote it.
    """
    text = _text(file)
    again = "make a new plan: reconcile plan PATH --out FILE"
    try:
        body = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise PlanFileError(file, "it is no saved plan, or a part of one", again) from error
    if not isinstance(body, dict) or body.get("kind") != KIND or not isinstance(body.get("format"), int):
        raise PlanFileError(file, "it is no saved plan", again)
    if body["format"] > FORMAT:
        raise StalePlan([f"the file has format {body['format']}, and this version of reconcile knows {FORMAT} at most"])
    content = body.get("content")
    try:
        intact = hmac.compare_digest(str(body.get("checksum")).encode(), _checksum(content).encode())
    except (ValueError, RecursionError):
        intact = False
    if not intact:
        raise PlanFileError(file, "its checksum does not fit: it was changed after it was written", again)
    try:
        return SavedPlan.model_validate_json(json.dumps(content))
    except ValidationError as error:
        raise PlanFileError(file, "it lacks a part of a plan, or has a part of another kind", again) from error


def _text(file: Path) -> bytes:
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise PlanFileError(file, "it is a symbolic link", "give the path of the file itself") from error
        cause = (error.strerror or type(error).__name__).lower()
        raise PlanFileError(file, f"it cannot be read: {cause}", "check the path, and who owns the file") from error
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise PlanFileError(file, "it is no regular file", "give the file that 'reconcile plan --out' wrote")
    with open(descriptor, "rb") as opened:
        if status.st_uid != os.geteuid():
            cause = f"it belongs to user {status.st_uid}, and this is user {os.geteuid()}"
            raise PlanFileError(file, cause, "make the plan as the user who applies it")
        if status.st_mode & 0o022:
            raise PlanFileError(file, "other users may write to it", f"check it, then run: chmod 600 {file}")
        if status.st_size > LARGEST:
            cause = f"it has {status.st_size >> 20} MiB, and a saved plan has at most {LARGEST >> 20}"
            raise PlanFileError(file, cause, "give the file that 'reconcile plan --out' wrote")
        text = opened.read(LARGEST + 1)
    if len(text) > LARGEST:
        raise PlanFileError(
            file, f"it grows while it is read, beyond {LARGEST >> 20} MiB", "give a plan that is complete"
        )
    return text


def approvals_hash(saved: SavedPlan) -> str:
    """The hash of the approvals in a plan, as the audit names it; empty without any."""
    items = sorted(approval.item for approval in saved.approvals)
    return fingerprint(*items) if items else ""
