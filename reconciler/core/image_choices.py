"""Images that policies chose without a commit: which one comes next, which one failed, and which one is not chosen again.

A choice is a level: the file says which image takes the place of the manifest's, and everything else follows from it as from a commit. The image
that passed its bake last is the one to go back to. What failed before it passed, and what an operator or a commit replaced, is not chosen again.
Called by `reconciler/deployments/choices.py`, and by the rules of commits, which must not blame a commit for such an image.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from enum import StrEnum
from typing import NamedTuple

from manifests.values.desired import Desired, Workload
from manifests.values.image_choice import ImageChoice, TakenBack
from manifests.values.image_policy import ImagePolicy
from manifests.values.rollouts import STAGED
from reconciler.core.model.instant import Now, elapsed
from reconciler.core.model.revision import Rollout, Standing

GIVEN_UP = frozenset({Standing.FAILED, Standing.EXPIRED})
"""Revisions that are not tried again: they failed, were rolled back, or were not verified in time."""


class Verdict(StrEnum):
    """The verdict of a rollout on the image that was chosen for its workload."""

    PROVED = "proved"
    """Its revision has the traffic, and its bake is over."""
    FAILING = "failing"
    """Its revision failed, and still has traffic to give back."""
    FAILED = "failed"
    """Its revision failed and has no traffic."""


class Judgement(NamedTuple):
    """A verdict about the chosen image of one container, with the revision of the workload, and why."""

    key: str
    container: str
    image: str
    verdict: Verdict
    revision: str
    why: str = ""


def judged(workloads: Iterable[Workload], rollouts: Mapping[str, Rollout], now: Now) -> tuple[Judgement, ...]:
    """The verdicts on chosen images. An image whose rollout is under way has none."""
    found = []
    for workload in workloads:
        choices = [choice for choice in workload.image_choices if choice.image]
        rollout = rollouts.get(workload.key) if choices else None
        if rollout is None:
            continue
        revision = workload.template.revision
        for choice in choices:
            seen = _verdict(workload, rollout, choice, now)
            if seen is not None:
                found.append(Judgement(workload.key, choice.container, choice.image, seen[0], revision, seen[1]))
    return tuple(found)


def _verdict(workload: Workload, rollout: Rollout, choice: ImageChoice, now: Now) -> tuple[Verdict, str] | None:
    """The verdict on one choice, by the row of the declared revision.

    A revision that fails after its image was proved with an earlier one fails for something else: for a commit.
    """
    row = rollout.of(workload.template.revision)
    if row is None:
        return None
    if row.standing in GIVEN_UP and choice.proved in ("", row.revision):
        traffic = rollout.active == row.revision or bool(rollout.back)
        return (Verdict.FAILING if traffic else Verdict.FAILED), row.why
    if row.standing is Standing.ACTIVE and row.activated is not None and rollout.active == row.revision:
        bake = workload.rollout.bake if workload.strategy in STAGED else 0
        if elapsed(row.activated, now) >= bake:
            return Verdict.PROVED, ""
    return None


def blamed(desired: Desired | None, rollouts: Mapping[str, Rollout]) -> dict[str, str]:
    """The workloads whose declared revision failed because of an image that a policy chose, each with the image."""
    failed = {}
    for workload in () if desired is None else desired.workloads:
        rollout = rollouts.get(workload.key) if workload.image_choices else None
        row = None if rollout is None else rollout.of(workload.template.revision)
        if row is not None and row.standing in GIVEN_UP:
            for choice in workload.image_choices:
                if choice.image and choice.proved in ("", row.revision):
                    failed[workload.key] = choice.image
    return failed


def current(choice: ImageChoice, policy: ImagePolicy) -> str:
    """The image that a newer one must be newer than: the chosen one, also before it is in force."""
    counts = choice.image and choice.declared == policy.declared and policy.admits(choice.image)
    return choice.image if counts else policy.declared


def chosen(choice: ImageChoice, policy: ImagePolicy, image: str, why: str, wall: int) -> ImageChoice:
    """The state after an image was chosen. An image that did not pass its bake is no image to go back to."""
    proved = bool(choice.image and choice.proved)
    return replace(
        choice,
        declared=policy.declared,
        image=image,
        rule=policy.shown,
        why=why,
        at_wall=wall,
        proved="",
        previous=choice.image if proved else choice.previous,
        previous_proved=choice.proved if proved else choice.previous_proved,
    )


def seen(choice: ImageChoice, policy: ImagePolicy, wall: int) -> ImageChoice:
    """The state once manifests with this policy are in force.

    A commit that changes the image of the manifest ends the choice, and the image that it replaced is not chosen again. A policy that
    does not allow the chosen image any more ends the choice only.
    """
    after = choice
    if choice.declared and choice.declared != policy.declared and choice.seen not in ("", policy.image):
        after = taken_back(after, choice.seen, "a commit replaced it", wall)
    if after.declared != policy.declared or (after.image and not policy.admits(after.image)):
        after = _ended(after)
    return replace(after, declared=policy.declared, rule=policy.shown, seen=policy.image)


def follow(choice: ImageChoice, judgement: Judgement, wall: int) -> ImageChoice:
    """The state after a verdict on this image; unchanged when the verdict is about another image."""
    if judgement.image != choice.image:
        return choice
    if judgement.verdict is not Verdict.PROVED and choice.proved not in ("", judgement.revision):
        return choice  # proved with an earlier revision meanwhile
    if judgement.verdict is Verdict.PROVED:
        return choice if choice.proved else replace(choice, proved=judgement.revision)
    after = taken_back(choice, choice.image, judgement.why, wall)
    if judgement.verdict is Verdict.FAILING:
        return after
    return replace(
        after,
        image=choice.previous,
        proved=choice.previous_proved,
        previous="",
        previous_proved="",
        why=f"{choice.image} was taken back" if choice.previous else "",
        at_wall=wall,
    )


def taken_back(choice: ImageChoice, image: str, why: str, wall: int) -> ImageChoice:
    """With an image that is not chosen again."""
    if image in choice.refused:
        return choice
    return replace(choice, taken_back=(*choice.taken_back, TakenBack(image, why, wall)))


def _ended(choice: ImageChoice) -> ImageChoice:
    return replace(choice, image="", why="", proved="", previous="", previous_proved="")


def without_choice(choice: ImageChoice) -> ImageChoice:
    """The state after local documents stopped allowing choices, or after the policy was removed: the images that were taken back."""
    return replace(_ended(choice), declared="", seen="")
