"""Image policies that roll out without a commit: keeps what was chosen, asks registries for newer images, and takes back what failed.

A choice is on the disk before the loop reads it, so a killed process goes on with the same images. The rules are pure
(`reconciler/core/image_choices.py`). Called by `service.py` on its thread.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from manifests.load import with_choices
from manifests.problems import ManifestErrors
from manifests.values.desired import SECOND, Desired, Workload
from manifests.values.image_choice import IMAGE_POLICY, ImageChoice
from manifests.values.image_policy import ImagePolicy
from reconciler import tree
from reconciler.core import image_choices
from reconciler.core.image_choices import Judgement
from reconciler.deployments.edit import ImageChange
from reconciler.deployments.policies import Policies
from reconciler.deployments.records import Followed
from reconciler.shell.store import image_choices as file
from reconciler.shell.store import last_good
from reconciler.shell.store.audit import Event
from reconciler.shell.store.directory import StoreError

RETRY = 15.0
"""Seconds until the file is written again after a failure."""

Place = tuple[str, str]
"""The key of a workload, and the name of a container."""


class Links(NamedTuple):
    """The parts of the daemon that choices need; see `service.Links`."""

    report: Callable[[Event], None]
    hurry: Callable[[str], None]
    note: Callable[[str], None]


@dataclass(frozen=True, slots=True)
class ChoiceStore:
    """Where choices are kept, and what they are checked with. `state`: the state directory, whose lock this process holds."""

    state: Path

    def load(self, note: Callable[[str], None]) -> tuple[ImageChoice, ...]:
        """The remembered state of all containers with a policy."""
        return file.load(self.state, note)

    def save(self, choices: Iterable[ImageChoice]) -> None:
        """Write it to the disk. Raises StoreError."""
        file.save(self.state, choices)

    def refusal(self, choices: tuple[ImageChoice, ...]) -> str:
        """Why the manifests in force would be invalid with these choices, for example by the policy of the Guard; empty when they are valid."""
        try:
            good = last_good.load(self.state)
        except StoreError as error:
            return str(error)
        if good is None:
            return "no manifests are in force yet"
        try:
            tree.resolve(with_choices(good.sources, choices), strict=True)
        except ManifestErrors as error:
            wrong = (problem.message for problem in error.problems if not problem.is_warning)
            return next(wrong, "the manifests would be invalid")
        return ""


class Choices:
    """The images of one instance that policies chose without a commit.

    Args:
        store: keeps them.
        policies: asks the registries.
        links: to the daemon.
        wall: seconds since 1970.
    """

    def __init__(self, store: ChoiceStore, policies: Policies, links: Links, wall: Callable[[], float]) -> None:
        self._store, self._policies, self._links, self._wall = store, policies, links, wall
        self._known: dict[Place, ImageChoice] = {
            (choice.key, choice.container): choice for choice in store.load(links.note)
        }
        self._unsaved = ""

    @property
    def any(self) -> bool:
        """Whether an image is chosen."""
        return any(choice.image for choice in self._known.values())

    def drop(self) -> float:
        """End all choices: local documents do not allow them any more. Returns seconds until it is tried again, 0 for never."""
        if not self.any:
            return 0.0
        why = "local documents do not let policies roll out any more"
        after = {place: image_choices.without_choice(choice) for place, choice in self._known.items()}
        return 0.0 if self._keep(after, dict.fromkeys(after, why)) else RETRY

    def follow(self, desired: Desired, judgements: Iterable[Judgement]) -> float:
        """Take note of the manifests in force and of verdicts, then ask registries where a policy is due.

        Returns the seconds until the next question.
        """
        wall = int(self._wall() * SECOND)
        policies = {
            (workload.key, policy.container): (workload, policy)
            for workload in desired.workloads
            for policy in workload.image_policies
        }
        after, ended = dict(self._known), dict[Place, str]()
        for place, choice in self._known.items():
            if place not in policies:
                after[place] = image_choices.without_choice(choice)
                ended[place] = "its image policy is gone"
        for place, (workload, policy) in policies.items():
            choice = after.get(place, ImageChoice(*place))
            if _refused(choice, workload):
                choice = replace(choice, image="", proved="", previous="", previous_proved="")
                ended[place] = "the manifests do not allow it any more"
            after[place] = image_choices.seen(choice, policy, wall)
            ended.setdefault(place, "a commit changed the image or the policy")
        for judgement in judgements:
            place = (judgement.key, judgement.container)
            if place in after:
                after[place] = image_choices.follow(after[place], judgement, wall)
        if after != self._known and not self._keep(after, ended):
            return RETRY
        return self._ask(desired, policies)

    def _ask(self, desired: Desired, policies: Mapping[Place, tuple[Workload, ImagePolicy]]) -> float:
        """Ask registries for images that are newer than the chosen ones, and choose them."""

        def asked_for(workload: Workload) -> Workload:
            mine = tuple(
                replace(policy, image=image_choices.current(self._known[workload.key, policy.container], policy))
                for policy in workload.image_policies
            )
            return replace(workload, image_policies=mine)

        workloads = tuple(
            asked_for(workload) if workload.image_policies else workload for workload in desired.workloads
        )
        refused = {
            f"{key} {container}": Followed(taken_back=tuple(sorted(choice.refused)))
            for (key, container), choice in self._known.items()
        }
        found = self._policies.ask(replace(desired, workloads=workloads), refused)
        if found.changes:
            self._choose(found.changes, found.why, policies)
        return found.pause

    def _choose(
        self, changes: Sequence[ImageChange], why: str, policies: Mapping[Place, tuple[Workload, ImagePolicy]]
    ) -> None:
        wall = int(self._wall() * SECOND)
        after = dict(self._known)
        for change in changes:
            place = (change.key, change.container)
            after[place] = image_choices.chosen(after[place], policies[place][1], change.image, why, wall)
        refusal = self._store.refusal(tuple(after.values()))
        if refusal and len(changes) > 1:
            for change in changes:  # one that may not be used must not hold the others
                self._choose([change], why, policies)
            return
        if refusal:
            self._held(changes, why, f"may not be used: {refusal}")
            return
        if self._keep(after, {}):
            for change in changes:
                self._policies.written(None, change)

    def _held(self, changes: Sequence[ImageChange], why: str, cause: str) -> None:
        for change in self._policies.failed(changes, cause):
            self._event(change.key, f"use {change.image}", why, "held", f"{change.image} {cause}")

    # --- keeping --------------------------------------------------------------------------------------------------------

    def _keep(self, after: dict[Place, ImageChoice], ended: Mapping[Place, str]) -> bool:
        """Write what is remembered, then report what changed and let the loop read it. False when it cannot be written."""
        try:
            self._store.save(after[place] for place in sorted(after))
        except StoreError as error:
            if str(error) != self._unsaved:
                self._unsaved = str(error)
                self._links.note(f"images that policies chose stay as they are, because none can be stored: {error}")
            return False
        self._unsaved = ""
        before, self._known = self._known, after
        moved = False
        for place in sorted(after):
            was, now = before.get(place, ImageChoice(*place)), after[place]
            for taken in now.taken_back[len(was.taken_back) :]:
                message = f"container {place[1]}: {taken.image} is not chosen again"
                self._event(place[0], f"take back {taken.image}", taken.why, "taken back", message)
            if was.image == now.image:
                continue
            moved = True
            if now.image and now.image not in was.refused and now.image != was.previous:
                message = f"container {place[1]} gets {now.image}, without a commit; the manifest has {now.declared}"
                self._event(place[0], f"use {now.image}", now.why, "chosen", message)
            elif now.image:
                self._event(
                    place[0], f"use {now.image}", now.why, "chosen", f"container {place[1]} goes back to {now.image}"
                )
            elif was.image not in now.refused:
                why = ended.get(place, "")
                message = f"container {place[1]} goes back to the image of the manifest: {why}"
                self._event(place[0], f"use the image of the manifest, not {was.image}", why, "ended", message)
        if moved:
            self._links.hurry("an image policy chose another image")
        return True

    def _event(self, key: str, action: str, cause: str, outcome: str, message: str) -> None:
        wall = int(self._wall() * SECOND)
        text = f"{IMAGE_POLICY}: {message}"
        self._links.report(Event(wall, "deployment", key, action, cause, outcome, text, IMAGE_POLICY))


def _refused(choice: ImageChoice, workload: Workload) -> bool:
    """Whether the manifests in force were read with this choice and are used without its image."""
    attached = next((known for known in workload.image_choices if known.container == choice.container), None)
    return bool(choice.image) and attached is not None and not attached.image and attached.at_wall == choice.at_wall
