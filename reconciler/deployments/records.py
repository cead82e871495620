"""The file that remembers deployments over HTTP and what image policies wrote: `deployments.json` in the state directory, mode 0600.

A deployment is on the disk before it is accepted, so a killed process goes on with it. What a policy wrote is kept so that it is not written a
second time: an image that is not in the manifests any more was taken back. Without the file, such an image may be written once more.
"""

import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from reconciler.shell.store.directory import StoreError, open_private, write_durable

FILE = "deployments.json"
LARGEST = 64 * 1024 * 1024
KEPT = 256
"""Deployments that are remembered. The oldest ones that are over are forgotten; one that waits never is."""

PATCH_LENGTH = 32 * 1024
"""Characters of a patch that is remembered: KEPT of them stay far below LARGEST, also where each is escaped."""

IMAGES = 64
"""Images that are remembered for one container."""


class State(StrEnum):
    """Where a deployment is."""

    PENDING = "pending"
    WRITTEN = "written"
    """A commit or a merge request has it, or the manifests had it already."""
    PATCH = "patch"
    """It may not be written: the patch says what to write."""
    REFUSED = "refused"
    """The manifests would be invalid, or cannot be edited."""
    FAILED = "failed"
    """The source could not be written for too long."""
    SUPERSEDED = "superseded"
    """A newer deployment of the container was accepted before it was written."""

    @property
    def over(self) -> bool:
        """Whether nothing more happens."""
        return self is not State.PENDING


@dataclass(frozen=True, slots=True)
class Deployment:
    """One deployment. `key` is the sender's Idempotency-Key; `at` the wall-clock second when it was accepted."""

    id: str
    workload: str
    container: str
    image: str
    reason: str
    key: str
    at: int
    state: State = State.PENDING
    message: str = ""
    outcome: str = ""
    commit: str = ""
    ref: str = ""
    url: str = ""
    patch: str = ""
    next_step: str = ""


@dataclass(frozen=True, slots=True)
class Followed:
    """What policies did for one container: the images that they wrote, oldest first, and the one that is wanted now."""

    written: tuple[str, ...] = ()
    chosen: str = ""
    taken_back: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Remembered:
    """Everything in the file. `followed` is by `KEY CONTAINER`."""

    deployments: tuple[Deployment, ...] = ()
    followed: dict[str, Followed] = field(default_factory=dict)

    def with_deployment(self, deployment: Deployment) -> "Remembered":
        """With this deployment in place of the one with its id, or as the newest one."""
        if any(known.id == deployment.id for known in self.deployments):
            changed = tuple(deployment if known.id == deployment.id else known for known in self.deployments)
            return replace(self, deployments=changed)
        over = [known.id for known in self.deployments if known.state.over]
        gone = set(over[: max(0, len(self.deployments) + 1 - KEPT)])
        kept = (known for known in self.deployments if known.id not in gone)
        return replace(self, deployments=(*kept, deployment))

    def newer(self, deployment: Deployment) -> Deployment | None:
        """The newest one of the same container after this one, of those that were not refused and did not fail."""
        for known in reversed(self.deployments):
            if known.id == deployment.id:
                return None
            same = (known.workload, known.container) == (deployment.workload, deployment.container)
            if same and known.state not in {State.REFUSED, State.FAILED}:
                return known
        return None

    def with_followed(self, name: str, followed: Followed) -> "Remembered":
        """With this of one container."""
        return replace(self, followed={**self.followed, name: followed})


class RecordFile:
    """Reads once, then writes. `note` reports what is wrong with the file."""

    def __init__(self, state: Path, note: Callable[[str], None]) -> None:
        self._path, self._note = state / FILE, note

    def load(self) -> Remembered:
        """What an earlier process remembered. A file that cannot be read counts as empty."""
        try:
            self._path.lstat()  # opening a private file would make it
            with os.fdopen(open_private(self._path, os.O_RDONLY), "rb") as file:
                return _from_json(json.loads(file.read(LARGEST)))
        except FileNotFoundError:
            return Remembered()
        except (OSError, StoreError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            self._note(
                f"{self._path} is damaged and is not used: {error}; an image that was taken back may be written again"
            )
            return Remembered()

    def save(self, remembered: Remembered) -> None:
        """Write it to the disk. Raises StoreError."""
        document = {
            "version": 1,
            "deployments": [asdict(deployment) for deployment in remembered.deployments],
            "followed": {name: asdict(followed) for name, followed in remembered.followed.items()},
        }
        write_durable(self._path, json.dumps(document).encode())


def _from_json(document: Any) -> Remembered:
    deployments = tuple(Deployment(**{**known, "state": State(known["state"])}) for known in document["deployments"])
    followed = {
        str(name): Followed(
            tuple(map(str, known["written"])), str(known["chosen"]), tuple(map(str, known["taken_back"]))
        )
        for name, known in document["followed"].items()
    }
    return Remembered(deployments, followed)
