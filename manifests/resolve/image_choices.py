"""Puts the images that policies chose into the checked manifests, before anything is made of these. Called by `resolver.py` and `load.py`.

Only the image of a container changes, only where a policy of the same workload names the container, and only while local documents allow it.
A choice counts as long as the manifest has the image that it was made for, and the policy still allows the chosen one.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from manifests import kinds
from manifests.kinds.validate import Declared
from manifests.resolve.image_policies import policy_value
from manifests.values.image_choice import ImageChoice

Choices = Mapping[str, tuple[ImageChoice, ...]]
"""The remembered state of containers with a policy, by the key of their workload."""


def allowed(local: Iterable[Declared]) -> bool:
    """Whether local documents let policies roll out without a commit."""
    for item in local:
        if isinstance(item.manifest, kinds.Instance):
            settings = item.manifest.spec.image_policies
            return settings is not None and settings.apply == "rollout"
    return False


def fitting(declared: Iterable[Declared], choices: Iterable[ImageChoice]) -> tuple[ImageChoice, ...]:
    """The choices of policies that the manifests have. One that does not count has no image any more, only what was taken back."""
    known = {(choice.key, choice.container): choice for choice in choices}
    found = []
    for item in declared if known else ():
        manifest = item.manifest
        if not isinstance(manifest, kinds.Workload):
            continue
        images = {container.name: container.image for container in manifest.spec.template.spec.containers}
        for policy in manifest.spec.image_policies:
            choice, image = known.get((item.key, policy.container)), images.get(policy.container)
            if choice is None or not image:
                continue
            counts = choice.declared == image and policy_value(policy, image, image).admits(choice.image)
            found.append(choice if counts else replace(choice, image=""))
    return tuple(sorted(found, key=lambda choice: (choice.key, choice.container)))


def applied(declared: Sequence[Declared], choices: Iterable[ImageChoice]) -> tuple[list[Declared], Choices]:
    """The objects with the images that were chosen for them, and the choices by workload."""
    by_key: dict[str, tuple[ImageChoice, ...]] = {}
    for choice in fitting(declared, choices):
        by_key[choice.key] = (*by_key.get(choice.key, ()), choice)
    return [_with_images(item, by_key[item.key]) if item.key in by_key else item for item in declared], by_key


def _with_images(item: Declared, choices: tuple[ImageChoice, ...]) -> Declared:
    manifest = item.manifest
    chosen = {choice.container: choice.image for choice in choices if choice.image}
    if not isinstance(manifest, kinds.Workload) or not chosen:
        return item
    pod = manifest.spec.template.spec
    containers = tuple(
        container.model_copy(update={"image": chosen[container.name]}) if container.name in chosen else container
        for container in pod.containers
    )
    template = manifest.spec.template.model_copy(update={"spec": pod.model_copy(update={"containers": containers})})
    spec = manifest.spec.model_copy(update={"template": template})
    return replace(item, manifest=manifest.model_copy(update={"spec": spec}))
