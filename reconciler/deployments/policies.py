"""Asks registries what image policies want, and remembers what became of it. Called by `service.py` on its thread.

When one policy finds a newer image, all policies are asked once more after GATHER seconds, so that the images of one release become one commit.
A registry that does not answer changes nothing: its tags are unknown.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import NamedTuple, Protocol

from manifests.values.desired import SECOND, Desired
from manifests.values.image_policy import ImagePolicy
from manifests.values.write_back import ImageSettings, Registry
from providers.errors import ProviderError, Unreachable
from reconciler.core.images import of_digest, of_tags
from reconciler.deployments.edit import ImageChange
from reconciler.deployments.records import IMAGES, Followed

GATHER = 10.0
"""Seconds from the first newer image until all are written together."""

IDLE = 3_600.0
"""Seconds until the next pass without a policy. Other manifests wake the thread."""

JITTER = 0.1
"""A question comes up to this part of the interval later, always the same on one host, so that hosts do not ask together."""


class Client(Protocol):
    """A registry; see `reconciler/registry/client.py`. Both raise ProviderError."""

    def tags(self, repository: str) -> tuple[str, ...]:
        """All tags of a repository."""

    def digest(self, repository: str, tag: str) -> str:
        """The digest that a tag names now."""

    def close(self) -> None:
        """Close connections."""


class Asked(NamedTuple):
    """What one pass found.

    Attributes:
        followed: what is remembered of containers, by `KEY CONTAINER`.
        changes: to write. why: the reasons.
        pause: seconds until the next pass.
        proposed: changes that were written before and are not in force yet.
    """

    followed: Mapping[str, Followed]
    changes: tuple[ImageChange, ...]
    why: str
    pause: float
    proposed: tuple[ImageChange, ...] = ()


class Policies:
    """Follows the image policies of all workloads.

    Args:
        connect: makes the client of a registry.
        steady: seconds of a steady clock.
        note: reports registries that cannot be asked and images that cannot be written, each once until it changes.
    """

    def __init__(
        self,
        connect: Callable[[Registry], Client],
        steady: Callable[[], float],
        note: Callable[[str], None],
        gather: float = GATHER,
    ) -> None:
        self._connect, self._steady, self._note, self._gather = connect, steady, note, gather
        self._settings: ImageSettings | None = None
        self._clients: dict[str, Client] = {}
        self._due: dict[str, float] = {}
        self._gathering: float | None = None
        self._noted: dict[str, str] = {}

    def ask(self, desired: Desired, followed: Mapping[str, Followed]) -> Asked:
        """Ask where a policy is due. `followed` is what is remembered."""
        self._configure(desired.instance.writing.images)
        if self._settings is None:
            return Asked({}, (), "", IDLE)
        policies = {
            f"{workload.key} {policy.container}": (workload.key, policy)
            for workload in desired.workloads
            for policy in workload.image_policies
        }
        self._due = {name: at for name, at in self._due.items() if name in policies}
        now = self._steady()
        gathered = self._gathering is not None and now >= self._gathering
        seen: dict[str, Followed] = {}
        changes, reasons, proposed = [], [], []
        for name, (key, policy) in sorted(policies.items()):
            before = followed.get(name, Followed())
            seen[name] = _seen(before, policy.image)
            if seen[name].chosen not in {"", policy.image, *seen[name].taken_back}:
                earlier = ImageChange(key, policy.container, seen[name].chosen, expected=policy.image)
                proposed.append(earlier)
            if not gathered and now < self._due.get(name, 0.0):
                continue
            self._due[name] = now + self._interval(name, policy)
            image, why = self._wanted(name, policy, seen[name])
            if image:
                changes.append(ImageChange(key, policy.container, image, expected=policy.image))
                reasons.append(f"{policy.container}: {why}")
        if changes and not gathered and self._gathering is None:
            self._gathering = self._steady() + self._gather
        if gathered:
            self._gathering = None
        ready = tuple(changes) if gathered else ()
        replaced = {(change.key, change.container) for change in ready}
        kept = tuple(earlier for earlier in proposed if (earlier.key, earlier.container) not in replaced)
        return Asked(seen, ready, "; ".join(reasons) if ready else "", self._pause(), kept)

    def written(self, before: Followed | None, change: ImageChange) -> Followed:
        """What is remembered of a container once its image was written: it is not written again."""
        self._noted.pop(f"{change.key} {change.container}", None)
        return replace(before or Followed(), chosen=change.image)

    def failed(self, changes: Sequence[ImageChange], why: str) -> tuple[ImageChange, ...]:
        """These changes were not written; they are tried again at the next question. Returns those of which that is new."""
        return tuple(
            change
            for change in changes
            if self._say(f"{change.key} {change.container}", f"{change.key}: {change.image} of its image policy {why}")
        )

    def close(self) -> None:
        """Close connections."""
        for client in self._clients.values():
            client.close()
        self._clients = {}

    def _configure(self, settings: ImageSettings | None) -> None:
        """Follow local documents: other settings mean other clients, and a question at once."""
        if settings != self._settings:
            self.close()
            self._settings, self._due, self._gathering = settings, {}, None

    def _wanted(self, name: str, policy: ImagePolicy, followed: Followed) -> tuple[str, str]:
        """The image that a policy wants and that was not written before, and why; empty texts for none."""
        refused = frozenset((*followed.taken_back, *([followed.chosen] if followed.chosen else [])))
        try:
            client = self._client(policy.registry)
            if client is None:
                return "", ""
            if policy.tag:
                choice = of_digest(policy, policy.image, client.digest(policy.repository, policy.tag), refused)
            else:
                choice = of_tags(policy, policy.image, client.tags(policy.repository), refused)
        except ProviderError as error:
            self._due[name] = max(self._due[name], self._steady() + error.wait / SECOND)
            self._unknown(name, policy, error)
            return "", ""
        self._noted.pop(f"registry {policy.registry}", None)
        if not choice.image:
            self._noted.pop(name, None)
        return choice.image, choice.why

    def _unknown(self, name: str, policy: ImagePolicy, error: ProviderError) -> None:
        """Report what a registry did not answer: one that is down once for all policies, and once until it answers again."""
        if isinstance(error, Unreachable):
            down = f"registry {policy.registry}"
            if down not in self._noted:
                self._say(
                    down, f"image policies change nothing for images of {down}: {error.cause}; retried automatically"
                )
            return
        self._say(name, f"image policy of {name.replace(' ', ', container ')} changes nothing: {error}")

    def _client(self, server: str) -> Client | None:
        known = self._clients.get(server)
        if known is None and self._settings is not None:
            settings = next((given for given in self._settings.registries if given.server == server), None)
            if settings is None:
                return None  # a problem of the manifests, which was reported
            known = self._clients[server] = self._connect(settings)
        return known

    def _interval(self, name: str, policy: ImagePolicy) -> float:
        part = int.from_bytes(sha256(f"{os.uname().nodename}\n{name}".encode()).digest()[:4]) / 2**32
        return policy.interval / SECOND * (1 + JITTER * part)

    def _pause(self) -> float:
        times = [*self._due.values(), *([self._gathering] if self._gathering is not None else [])]
        return max(0.0, min(times, default=self._steady() + IDLE) - self._steady())

    def _say(self, name: str, text: str) -> bool:
        """Report a text, unless it was reported last. Whether it is new."""
        if self._noted.get(name) == text:
            return False
        self._noted[name] = text
        self._note(text)
        return True


def _seen(followed: Followed, image: str) -> Followed:
    """What is remembered, now that the manifests in force have this image: one that was written, came into force and is gone was taken back."""
    last = followed.written[-1] if followed.written else ""
    if followed.chosen and image == followed.chosen and last != image:
        followed = replace(followed, written=(*followed.written, image)[-IMAGES:])
        last = image
    if last and last != image and last not in followed.taken_back:
        return replace(followed, taken_back=(*followed.taken_back, last)[-IMAGES:])
    return followed
