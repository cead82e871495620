"""Addresses of servers that this program calls on its own: URLs, and addresses of mail. Used by `kinds/notifications.py` and `kinds/forge.py`."""

import re
from ipaddress import ip_address
from typing import Annotated
from urllib.parse import SplitResult, urlsplit

from pydantic import AfterValidator, WithJsonSchema

from manifests.types.errors import bad_value
from manifests.types.fields import Shown

_PRINTABLE = re.compile(r"[\x21-\x7e]{1,2000}")
_ATOM = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
_MAIL = re.compile(rf"(?=.{{3,254}}$){_ATOM}(?:\.{_ATOM})*@[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?")


def is_loopback(host: str) -> bool:
    """Whether a host of a URL is this host itself, as an address or as `localhost`."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _parts(value: str, hint: str) -> SplitResult:
    try:
        parts = urlsplit(value)
        usable = bool(_PRINTABLE.fullmatch(value) and parts.hostname and parts.scheme in {"http", "https"})
        usable = usable and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        # The value is not shown: a URL that is written wrong may hold a token.
        raise bad_value("this is not an http or https URL", hint)
    if "@" in parts.netloc or parts.fragment:
        raise bad_value("a URL here has no user, password or fragment", "pass a secret by reference")
    return parts


def call_url(value: str) -> str:
    """The URL of one request."""
    _parts(value, "write a URL such as https://hooks.example.com/notices")
    return value


def server_url(value: str) -> str:
    """The URL of a server, without a slash at its end. Plain HTTP is for this host only, because a token is sent there."""
    parts = _parts(value, "write a URL such as https://git.example.com")
    if parts.query:
        raise bad_value("the URL of a server has no query", "write the address of its start page")
    if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
        raise bad_value("a token would be sent in clear over plain HTTP", "write https://")
    return value.rstrip("/")


def mail_address(value: str) -> str:
    """The address of a mailbox (RFC 5321), without a name and without quotes: nothing in it can begin another header."""
    if _MAIL.fullmatch(value):
        return value
    raise bad_value(f"'{value[:80]}' is not a mail address", "write it without a name, such as ops@example.com")


CallURL = Annotated[
    str,
    AfterValidator(call_url),
    WithJsonSchema({"type": "string", "format": "uri", "pattern": "^https?://"}),
    Shown("URL, http or https"),
]
ServerURL = Annotated[
    str,
    AfterValidator(server_url),
    WithJsonSchema({"type": "string", "format": "uri", "pattern": "^https?://"}),
    Shown("URL, https; http only for this host"),
]
MailAddress = Annotated[
    str, AfterValidator(mail_address), WithJsonSchema({"type": "string", "format": "email"}), Shown("mail address")
]
