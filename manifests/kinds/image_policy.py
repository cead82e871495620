"""ImagePolicy: which newer images of a container are wanted. Part of `Workload`; followed where the local Instance allows it."""

import re
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from manifests.kinds.base import Model
from manifests.types.durations import MINUTE, Duration
from manifests.types.errors import bad_value
from manifests.types.fields import Name, PollInterval, Shown
from manifests.values.version_range import parse_range

TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_PATTERN = re.compile(r"[A-Za-z0-9_.*-]*\{value\}[A-Za-z0-9_.*-]*")


def _range(value: str) -> str:
    try:
        parse_range(value)
    except ValueError as error:
        raise bad_value(str(error), 'write a range such as ">=1.4 <2"') from None
    return value


def _pattern(value: str) -> str:
    if len(value) <= 128 and _PATTERN.fullmatch(value) and value.count("*") <= 1:
        return value
    cause = f"'{value[:80]}' is not a pattern of tags"
    raise bad_value(cause, "write one {value} for the part to compare, and at most one *, such as main-*-{value}")


def _tag(value: str) -> str:
    if TAG.fullmatch(value):
        return value
    raise bad_value(f"'{value[:80]}' is not a tag", "write the tag alone, such as stable")


class Newest(Model):
    """The newest tag of a pattern."""

    pattern: Annotated[str, AfterValidator(_pattern), Shown("pattern of tags")] = Field(
        description="Tags that count: letters as they are, `{value}` for the part to compare, and at most one `*` for any text, such as "
        "`main-*-{value}`."
    )
    order: Literal["numeric", "alphabetical"] = Field(
        "numeric", description="How `{value}` is compared: as a whole number, or as text, such as dates."
    )


class DigestOf(Model):
    """The digest that a tag names now."""

    tag: Annotated[str, AfterValidator(_tag), Shown("tag")] = Field(
        description="Tag whose digest is followed, such as `stable`."
    )


class ImagePolicy(Model):
    """The wanted image of a container: exactly one of `semver`, `newest` and `digest`. The repository is that of the container's image."""

    container: Name = Field(description="Name of the container.")
    semver: Annotated[str, AfterValidator(_range), Shown("range of versions")] | None = Field(
        None,
        description='The highest version in this range, such as `">=1.4 <2"`. Pre-releases only where the range names one of the same version.',
    )
    newest: Newest | None = Field(None, description="The newest tag of a pattern.")
    digest: DigestOf | None = Field(None, description="The digest that a tag names now.")
    interval: PollInterval = Field(Duration(5 * MINUTE), description="Time between two questions to the registry.")

    @model_validator(mode="after")
    def _one(self) -> Self:
        if sum(given is not None for given in (self.semver, self.newest, self.digest)) != 1:
            raise bad_value(
                "a policy has exactly one of semver, newest and digest", 'write one of them, such as semver: ">=1.4 <2"'
            )
        return self

    def expression(self) -> str:
        """The pattern as a regular expression whose first group is the part to compare. It has two open parts at most."""
        if self.newest is None:
            return ""
        value = "([0-9]{1,40})" if self.newest.order == "numeric" else "([A-Za-z0-9_.-]+)"
        head, _, tail = self.newest.pattern.partition("{value}")
        return _literal(head) + value + _literal(tail)


def _literal(text: str) -> str:
    return "[A-Za-z0-9_.-]*?".join(re.escape(part) for part in text.split("*"))
