"""What image policies chose for containers without a commit. Attached to what is read (`manifests/load.py`), kept by `reconciler/shell/store/image_choices.py`."""

from dataclasses import dataclass

IMAGE_POLICY = "image policy"
"""Takes the place of a file and line where a field has the value that an image policy chose."""


@dataclass(frozen=True, slots=True)
class TakenBack:
    """An image that is not chosen again: why, and since when (wall ns)."""

    image: str
    why: str
    at_wall: int


@dataclass(frozen=True, slots=True)
class ImageChoice:
    """The remembered state of one container with an image policy.

    Attributes:
        key: of the workload. container: the name of the container.
        declared: the image in the manifest. The choice counts only while the manifest has it.
        image: the image that takes its place; empty = none does.
        rule: the policy, for messages. why: what the registry had. at_wall: when it was chosen (wall ns).
        proved: the revision of the workload with which the image passed its bake first; empty = it has not yet.
        previous, previous_proved: the same of the image that it goes back to; empty = that of the manifest.
        seen: the image that was in force last, chosen or declared.
        taken_back: images that are not chosen again, oldest first.
    """

    key: str
    container: str
    declared: str = ""
    image: str = ""
    rule: str = ""
    why: str = ""
    at_wall: int = 0
    proved: str = ""
    previous: str = ""
    previous_proved: str = ""
    seen: str = ""
    taken_back: tuple[TakenBack, ...] = ()

    @property
    def field(self) -> str:
        """The field of the manifest whose value it takes."""
        return f"containers[{self.container}].image"

    @property
    def refused(self) -> frozenset[str]:
        """The images that are not chosen again."""
        return frozenset(taken.image for taken in self.taken_back)


def choices_digest(choices: tuple[ImageChoice, ...]) -> str:
    """One line for each image that is chosen; empty without one. Part of the revision of the manifests."""
    chosen = sorted((choice.key, choice.container, choice.image) for choice in choices if choice.image)
    return "\n".join(" ".join(row) for row in chosen)
