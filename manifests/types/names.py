"""Names in manifests: of objects, containers, pools and variables, and labels."""

import re
from collections.abc import Callable

from manifests.types.errors import bad_value, out_of_range

NAME_LENGTH = 40
INSTANCE_LENGTH = 20
FOREIGN_NAME = "[a-zA-Z0-9][a-zA-Z0-9_.-]+"
"""Container names that Docker allows (its `RestrictedNameChars`)."""
_LABEL = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?")
_FOREIGN = re.compile(FOREIGN_NAME)
_CONTAINER_KEY = re.compile(rf"container/[-a-z0-9]+/{FOREIGN_NAME}(/[0-9]+)?")
_POOL = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
_QUALIFIED = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_ENV_NAME = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]{0,255}")


def name_up_to(limit: int) -> Callable[[str], str]:
    """A check for an RFC 1123 label of at most `limit` characters."""

    def check(value: str) -> str:
        if len(value) > limit:
            raise out_of_range(f"'{value[:60]}' has {len(value)} characters, at most {limit} are allowed")
        if _LABEL.fullmatch(value):
            return value
        fixed = re.sub(r"[^a-z0-9]+", "-", value.lower()).strip("-")
        hint = f"write '{fixed}'" if fixed else ""
        raise bad_value(f"'{value}' is not a name: use a-z, 0-9 and '-', with a letter or digit at both ends", hint)

    return check


def foreign_name(value: str) -> str:
    """The name of a container that another tool created."""
    if len(value) <= 255 and _FOREIGN.fullmatch(value):
        return value
    raise bad_value(
        f"'{value[:80]}' is not the name of a container",
        "write it as `docker ps` shows it: letters, digits, '_', '.' and '-'",
    )


def key_ref(value: str) -> str:
    """The key of an object: kind in lower case, slash, name."""
    kind, slash, name = value.partition("/")
    if slash and kind.islower() and _LABEL.fullmatch(name):
        return value
    if _CONTAINER_KEY.fullmatch(value):
        return value
    raise bad_value(
        f"'{value[:80]}' is not the key of an object", "write <kind>/<name> in lower case, such as workload/web"
    )


def pool_name(value: str) -> str:
    """The name of a pool in a balancer."""
    if _POOL.fullmatch(value):
        return value
    raise bad_value(
        f"'{value[:80]}' is not the name of a pool", "use at most 63 letters, digits, '_', '-' and '.', such as be_web"
    )


def label_key(value: str) -> str:
    """A label key with Kubernetes' syntax: a name, optionally after a domain and a slash."""
    prefix, slash, name = value.rpartition("/")
    prefix_ok = not slash or (len(prefix) <= 253 and all(_LABEL.fullmatch(part) for part in prefix.split(".")))
    if prefix_ok and _QUALIFIED.fullmatch(name):
        return value
    raise bad_value(
        f"'{value[:80]}' is not a label key",
        "use at most 63 letters, digits, '_', '-' and '.', optionally after <domain>/",
    )


def label_value(value: str) -> str:
    """A label value with Kubernetes' syntax; may be empty."""
    if not value or _QUALIFIED.fullmatch(value):
        return value
    raise bad_value(
        f"'{value[:80]}' is not a label value",
        "use at most 63 letters, digits, '_', '-' and '.', with a letter or digit at both ends",
    )


def env_name(value: str) -> str:
    """The name of an environment variable, with Kubernetes' syntax."""
    if _ENV_NAME.fullmatch(value):
        return value
    raise bad_value(
        f"'{value[:80]}' is not the name of a variable", "use letters, digits, '_', '-' and '.', with no digit first"
    )


_CREDENTIAL = re.compile(r"[A-Za-z0-9_.@:-]{1,255}")


def credential_name(value: str) -> str:
    """The name of a systemd credential: a file name, so neither a path nor `.` or `..`."""
    if _CREDENTIAL.fullmatch(value) and value.strip("."):
        return value
    raise bad_value(f"'{value[:80]}' is not the name of a credential", "write the name of LoadCredential= in the unit")
