"""Channel: one way to inform operators. Part of `Instance`, only in local documents."""

import re
from typing import Annotated, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from manifests.kinds.base import Model, unique
from manifests.kinds.secret_ref import HostSecretReference
from manifests.types.durations import DAY, Duration
from manifests.types.engine import AbsolutePath
from manifests.types.errors import bad_value
from manifests.types.fields import Items, Name, PortNumber, Shown, Span
from manifests.types.probe import ServerName
from manifests.types.web import CallURL, MailAddress, is_loopback

FORGE = "forge"
"""The channel of commit statuses in metrics and logs."""

_PATTERN = re.compile(r"[a-z*?][-a-zA-Z0-9_./*?]{0,199}")


def _pattern(value: str) -> str:
    if _PATTERN.fullmatch(value):
        return value
    raise bad_value(f"'{value[:80]}' is not a pattern of keys", "write a key with * and ?, such as workload/web-*")


Pattern = Annotated[str, AfterValidator(_pattern), Shown("key with * and ?")]

TopicName = Literal["source", "rollout", "health", "provider", "conflict", "hold", "suspension", "program", "applied"]


class Channel(Model):
    """One way to inform operators, while `reconcile --watch` runs. It gets one notice for each cause, and one when the cause is over."""

    name: Name = Field(description="Name of the channel.")
    type: Literal["webhook", "smtp", "apprise"] = Field(
        description="`webhook` posts JSON, `smtp` sends mail, `apprise` uses a service of Apprise (extra `notify`)."
    )
    topics: Annotated[Items[TopicName], unique("topic"), Field(min_length=1)] = Field(
        ("source", "rollout", "health", "provider", "conflict", "hold", "suspension", "program"),
        description="Topics of the notices. By default all but `applied`.",
    )
    objects: Annotated[Items[Pattern], unique("pattern")] = Field(
        (),
        description="Only causes that concern one of these objects; by default all. Causes without an object always count.",
    )
    remind_every: Span = Field(
        Duration(DAY), description="Time until a cause that waits for an operator is reported again; 0s never does."
    )
    max_per_hour: Annotated[int, Field(ge=1, le=1000), Shown("number, 1 to 1000")] = Field(
        20, description="Messages in one hour. What is beyond waits; a summary takes the place of what waits too long."
    )
    url: CallURL | None = Field(None, description="`webhook`: address of the request.")
    url_from: HostSecretReference | None = Field(
        None,
        description="`webhook`, `apprise`: secret that is the whole address, such as that of a chat's incoming webhook.",
    )
    secret: HostSecretReference | None = Field(
        None, description="`webhook`: key of the HMAC-SHA256 signature in the header `X-Reconciler-Signature`."
    )
    token: HostSecretReference | None = Field(
        None, description="`webhook`: token of the header `Authorization: Bearer`."
    )
    host: ServerName | None = Field(None, description="`smtp`: mail server.")
    port: PortNumber | None = Field(
        None, description="`smtp`: port; by default 587, with `security: tls` 465, with `security: none` 25."
    )
    security: Literal["starttls", "tls", "none"] | None = Field(
        None, description="`smtp`: encryption, by default `starttls`; with `none` a password is sent to this host only."
    )
    sender: MailAddress | None = Field(None, alias="from", description="`smtp`: address of the sender.")
    to: Annotated[Items[MailAddress], unique("address")] = Field((), description="`smtp`: addresses of the recipients.")
    username: Annotated[str, Field(min_length=1, max_length=256), Shown("text")] | None = Field(
        None, description="`smtp`: name to log in with; needs `password`."
    )
    password: HostSecretReference | None = Field(None, description="`smtp`: password; needs `username`.")
    ca_file: AbsolutePath | None = Field(
        None, description="`webhook`, `smtp`: PEM certificates to trust instead of those of the system."
    )

    OF_TYPE: ClassVar = {
        "webhook": {"url", "url_from", "secret", "token", "ca_file"},
        "smtp": {"host", "port", "security", "sender", "to", "username", "password", "ca_file"},
        "apprise": {"url_from"},
    }
    """The fields of each type beside those that all have."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.name == FORGE:
            raise bad_value("'forge' names the statuses of commits in metrics", "choose another name", at=("name",))
        others = set().union(*self.OF_TYPE.values()) - self.OF_TYPE[self.type]
        for field in sorted(others & self.model_fields_set):
            if getattr(self, field) not in (None, ()):
                alias = type(self).model_fields[field].alias or field
                raise bad_value(f"a channel of type {self.type} has no {alias}", "remove it", at=(alias,))
        if self.type == "webhook":
            self._check_webhook()
        elif self.type == "smtp":
            self._check_mail()
        elif self.url_from is None:
            raise bad_value("urlFrom is missing", "write urlFrom: {file: /path} with the Apprise URL in the file")
        return self

    def _check_webhook(self) -> None:
        if (self.url is None) == (self.url_from is None):
            raise bad_value("a webhook has exactly one of url and urlFrom", "write url: https://…, or urlFrom")
        plain = self.url is not None and self.url.startswith("http:")
        host = (self.url or "").removeprefix("http://").partition("/")[0].rpartition(":")
        if plain and self.token is not None and not is_loopback((host[0] or host[2]).strip("[]")):
            raise bad_value("a token would be sent in clear over plain HTTP", "write https://", at=("url",))

    def _check_mail(self) -> None:
        for field, value in (("host", self.host), ("from", self.sender), ("to", self.to)):
            if not value:
                raise bad_value(f"a channel of type smtp needs {field}", f"add {field}")
        if (self.username is None) != (self.password is None):
            raise bad_value("username and password belong together", "add the other one, or remove both")
        if self.security == "none" and self.password is not None and not is_loopback(self.host or ""):
            raise bad_value("a password would be sent in clear", "write security: starttls or tls", at=("security",))
