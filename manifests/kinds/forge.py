"""Forge: the server that hosts the repository of the manifests. Part of `Instance`, only in local documents."""

import re
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from manifests.kinds.base import Model
from manifests.kinds.secret_ref import HostSecretReference
from manifests.types.engine import AbsolutePath
from manifests.types.errors import bad_value
from manifests.types.fields import Shown
from manifests.types.web import ServerURL

_SEGMENT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")


def _project(value: str) -> str:
    parts = value.split("/")
    if 2 <= len(parts) <= 20 and all(_SEGMENT.fullmatch(part) for part in parts):
        return value
    raise bad_value(f"'{value[:80]}' is not a project", "write its path on the forge, such as owner/manifests")


Project = Annotated[str, AfterValidator(_project), Shown("path on the forge, owner/name")]


class Forge(Model):
    """Forge whose commits show whether they are applied: their status is set by `reconcile --watch`."""

    type: Literal["github", "gitlab", "gitea"] = Field(description="API of the forge; `gitea` also stands for Forgejo.")
    url: ServerURL = Field(description="Address of the forge's web pages, such as https://github.com.")
    project: Project = Field(description="Path of the repository there.")
    token: HostSecretReference = Field(
        description="Token that may set commit statuses: GitHub `statuses: write`, GitLab `api`, Gitea `write:repository`."
    )
    ca_file: AbsolutePath | None = Field(None, description="PEM certificates to trust instead of those of the system.")

    @model_validator(mode="after")
    def _depth(self) -> Self:
        if self.type == "gitlab" or self.project.count("/") == 1:
            return self
        raise bad_value("a project here is owner/name", "write owner/name", at=("project",))
