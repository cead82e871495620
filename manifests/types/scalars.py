"""What a single value in a manifest may look like, and what to say when it does not.

Each function takes a value out of YAML and returns it in canonical form or raises a pydantic error; `fields.py` makes the
types of them that the models in `kinds/` use. Messages quote the value only where it cannot be a secret.
"""

import ipaddress
import posixpath
import re
from collections.abc import Callable

from pydantic_core import PydanticCustomError

from manifests.values.desired import SECOND

MILLISECOND = SECOND // 1000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR

NAME_LENGTH = 40
INSTANCE_LENGTH = 20

_LABEL = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?")
_SERVICE_NAME = re.compile(r"(?=.*[a-z])[a-z0-9](?:-?[a-z0-9])*")
_DURATION = re.compile(r"(?:(\d{1,9})d)?(?:(\d{1,9})h)?(?:(\d{1,9})m)?(?:(\d{1,9})s)?(?:(\d{1,9})ms)?", re.ASCII)
_PERCENT = re.compile(r"(\d{1,3})%", re.ASCII)
_QUALIFIED = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_POOL = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
_ENV_NAME = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]{0,255}")
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}")
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e]{0,4096}")
_URL_PATH = re.compile(r"/[\x21-\x7e]{0,4095}")
_UNITS = (DAY, HOUR, MINUTE, SECOND, MILLISECOND)
_IDNA_DEVIATIONS = frozenset("\u00df\u03c2\u200c\u200d")
"""Characters that the older and the newer IDNA standard (RFC 3490, RFC 5891) turn into different names."""


class Duration(int):
    """Nanoseconds that print as they are written in manifests: `1h30m`."""

    __slots__ = ()

    def __str__(self) -> str:
        return format_duration(self)

    __repr__ = __str__


class Percent(int):
    """A percentage that prints as it is written: `30%`."""

    __slots__ = ()

    def __str__(self) -> str:
        return f"{int(self)}%"

    __repr__ = __str__


def bad_value(message: str, hint: str = "", at: tuple[str | int, ...] = ()) -> PydanticCustomError:
    """The error of a value of the right type that does not fit. `at` leads from the validated value to the culprit."""
    return PydanticCustomError("bad_value", "{message}", {"message": message, "hint": hint, "at": at})


def wrong_type(expected: str, value: object, hint: str = "") -> PydanticCustomError:
    """The error of a value of another type than `expected`."""
    message = f"expected {expected}, found {type_name(value)}"
    return PydanticCustomError("wrong_type", "{message}", {"message": message, "hint": hint, "at": ()})


def out_of_range(message: str, hint: str = "", at: tuple[str | int, ...] = ()) -> PydanticCustomError:
    """The error of a number or length outside its limits."""
    return PydanticCustomError("out_of_range", "{message}", {"message": message, "hint": hint, "at": at})


def type_name(value: object) -> str:
    """What a person calls the type of a value that came out of YAML."""
    if value is None:
        return "nothing"
    names = {
        bool: "true or false",
        int: "a whole number",
        float: "a number",
        str: "a string",
        dict: "a mapping",
        list: "a list",
    }
    return names.get(type(value), "something else")


# --- durations and percentages ------------------------------------------------------------------------------------


def parse_duration(value: object) -> Duration:
    """`500ms`, `30s`, `1h30m` as nanoseconds. A plain number is refused: its unit would be a guess."""
    if isinstance(value, Duration):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        raise wrong_type(
            "a duration with a unit", value, f'write {value}s for seconds, or another unit such as "{value}m"'
        )
    if not isinstance(value, str):
        raise wrong_type("a duration such as 30s", value)
    match = _DURATION.fullmatch(value)
    if match is None or not value:
        guess = (
            f"write {value}s"
            if value.isascii() and value.isdigit()
            else "units are d, h, m, s and ms, largest first: 1h30m"
        )
        raise bad_value(f"'{value[:40]}' is not a duration", guess)
    parts = (int(count) * unit for count, unit in zip(match.groups(default="0"), _UNITS, strict=True))
    return Duration(sum(parts))


def format_duration(nanoseconds: int) -> str:
    """The shortest text that `parse_duration` reads back as the same number of whole milliseconds."""
    rest, text = nanoseconds, ""
    for unit, letter in zip(_UNITS, ("d", "h", "m", "s", "ms"), strict=True):
        count, rest = divmod(rest, unit)
        text += f"{count}{letter}" if count else ""
    return text or "0s"


def between(low: int, high: int) -> Callable[[Duration], Duration]:
    """A check that a duration lies within these limits (nanoseconds, inclusive)."""

    def check(value: Duration) -> Duration:
        if low <= value <= high:
            return value
        raise out_of_range(f"must be between {format_duration(low)} and {format_duration(high)}")

    return check


def whole_seconds(value: Duration) -> Duration:
    """A duration that has no fraction of a second."""
    if value % SECOND:
        raise bad_value(f"'{value}' is not a whole number of seconds")
    return value


def int_or_percent(value: object) -> int:
    """A count, or a percentage as `Percent`."""
    if isinstance(value, Percent):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        if 0 <= value <= 1000:
            return value
        raise out_of_range("must be between 0 and 1000")
    return percent(value, "a whole number or a percentage such as 25%")


def percent(value: object, expected: str = "a percentage such as 30%") -> Percent:
    """A percentage from 0% to 100%."""
    if isinstance(value, Percent):
        return value
    if not isinstance(value, str):
        hint = f'write "{value}%"' if isinstance(value, int) and not isinstance(value, bool) else ""
        raise wrong_type(expected, value, hint)
    match = _PERCENT.fullmatch(value)
    if match is None:
        raise bad_value(f"'{value[:40]}' is not {expected}")
    if int(match[1]) > 100:
        raise out_of_range("must be between 0% and 100%")
    return Percent(match[1])


# --- names --------------------------------------------------------------------------------------------------------


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


FOREIGN_NAME = "[a-zA-Z0-9][a-zA-Z0-9_.-]+"
"""Names that Docker gives to containers (its `RestrictedNameChars`)."""

_FOREIGN = re.compile(FOREIGN_NAME)
_CONTAINER_KEY = re.compile(rf"container/[-a-z0-9]+/{FOREIGN_NAME}(/[0-9]+)?")


def foreign_name(value: str) -> str:
    """The name of a container that somebody else made."""
    if len(value) <= 255 and _FOREIGN.fullmatch(value):
        return value
    raise bad_value(
        f"'{value[:80]}' is not the name of a container",
        "write it as `docker ps` shows it: letters, digits, '_', '.', '-'",
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


def port_name(value: str) -> str:
    """A service name as in RFC 6335, section 5.1: at most 15 characters, at least one letter."""
    if len(value) <= 15 and _SERVICE_NAME.fullmatch(value):
        return value
    raise bad_value(
        f"'{value[:40]}' is not a port name", "at most 15 of a-z, 0-9 and single '-', at least one letter, such as http"
    )


def port_ref(value: object) -> int | str:
    """A port number, or the name of a port."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise wrong_type("a port number or the name of a port", value)
    if isinstance(value, str):
        if value.isascii() and value.isdigit():
            raise wrong_type("a port number or the name of a port", value, f"write {value} without quotes")
        return port_name(value)
    if 1 <= value <= 65535:
        return value
    raise out_of_range("must be between 1 and 65535")


def pool_name(value: str) -> str:
    """The name of a pool in a balancer."""
    if _POOL.fullmatch(value):
        return value
    raise bad_value(
        f"'{value[:80]}' is not the name of a pool", "use letters, digits, '_', '-' and '.', at most 63, such as be_web"
    )


def label_key(value: str) -> str:
    """A label key with Kubernetes' syntax: a name, optionally after a domain and a slash."""
    prefix, slash, name = value.rpartition("/")
    prefix_ok = not slash or (len(prefix) <= 253 and all(_LABEL.fullmatch(part) for part in prefix.split(".")))
    if prefix_ok and _QUALIFIED.fullmatch(name):
        return value
    raise bad_value(
        f"'{value[:80]}' is not a label key", "at most 63 letters, digits, '_', '-', '.', optionally after <domain>/"
    )


def label_value(value: str) -> str:
    """A label value with Kubernetes' syntax; may be empty."""
    if not value or _QUALIFIED.fullmatch(value):
        return value
    raise bad_value(f"'{value[:80]}' is not a label value", "at most 63 letters, digits, '_', '-' and '.'")


# --- addresses ----------------------------------------------------------------------------------------------------


def ip_address(value: str) -> str:
    """An IPv4 or IPv6 address in its canonical form (RFC 5952), without a scope."""
    try:
        address = ipaddress.ip_address(value)
    except ValueError:
        raise bad_value(
            f"'{value[:80]}' is not an IP address", "write an address such as 203.0.113.10 or 2001:db8::10"
        ) from None
    if address.is_unspecified or address.is_multicast or "%" in value:
        raise bad_value(f"'{value}' is not an address that clients can reach")
    return str(address)


def _ascii_label(label: str, whole: str) -> str:
    if not label.isascii():
        if not _IDNA_DEVIATIONS.isdisjoint(label):
            raise bad_value(
                f"'{whole[:80]}' means different names in two standards", "write that label in its xn-- form"
            )
        try:
            label = label.encode("idna").decode("ascii")
        except UnicodeError:
            raise bad_value(f"'{whole[:80]}' cannot be written as a DNS name") from None
    label = label.lower()
    if len(label) > 63 or not _LABEL.fullmatch(label):
        raise bad_value(
            f"'{whole[:80]}' is not a host name", "labels of a-z, 0-9 and '-', separated by dots: app.example.com"
        )
    return label


def host_name(value: str) -> str:
    """A DNS name in lower case with a final dot, labels in their ASCII form; the first label may be `*`."""
    if not 0 < len(value.removesuffix(".")) <= 1000:
        raise bad_value("a host name has 1 to 253 characters")
    first, dot, rest = value.removesuffix(".").partition(".")
    wild = first == "*" and bool(dot)
    labels = (rest if wild else value.removesuffix(".")).split(".")
    name = ("*." if wild else "") + ".".join(_ascii_label(label, value) for label in labels) + "."
    if len(name) > 254:
        raise out_of_range(f"'{value[:60]}…' is longer than the 253 characters of a DNS name")
    return name


def zone_name(value: str) -> str:
    """The name of a zone: a host name without a wildcard."""
    if value.startswith("*"):
        raise bad_value(f"'{value[:80]}' is not a zone: a zone has no wildcard")
    return host_name(value)


# --- texts --------------------------------------------------------------------------------------------------------


def no_nul(value: str) -> str:
    """A text that can be passed to a program."""
    if "\0" in value:
        raise bad_value("a NUL character cannot be passed to a program")
    return value


def env_name(value: str) -> str:
    """The name of an environment variable, with Kubernetes' syntax."""
    if _ENV_NAME.fullmatch(value):
        return value
    raise bad_value(
        f"'{value[:80]}' is not the name of a variable", "letters, digits, '_', '-' and '.', not starting with a digit"
    )


def header_name(value: str) -> str:
    """A token as in RFC 9110, section 5.6.2."""
    if _HEADER_NAME.fullmatch(value):
        return value
    raise bad_value(f"'{value[:80]!s}' is not the name of an HTTP header".replace("\n", "\\n").replace("\r", "\\r"))


def header_value(value: str) -> str:
    """A header value that cannot smuggle in another header."""
    if _HEADER_VALUE.fullmatch(value):
        return value
    raise bad_value("a header value has at most 4096 printable ASCII characters, and no line breaks")


def url_path(value: str) -> str:
    """The path (and query) of a request, as it goes on the wire."""
    if _URL_PATH.fullmatch(value):
        return value
    hint = (
        f"write '/{value}'"
        if re.fullmatch(r"[\x21-\x7e]+", value) and value[0] != "/"
        else "percent-encode other characters"
    )
    raise bad_value("an HTTP path starts with '/' and has printable ASCII characters without spaces", hint)


def relative_path(value: str) -> str:
    """A path in normal form that cannot lead out of the tree."""
    no_nul(value)
    if not value or value.startswith("/") or ".." in value.split("/"):
        raise bad_value(
            f"'{value[:80]}' is not a path inside the tree",
            "write a path relative to the manifests' directory, without '..'",
        )
    return posixpath.normpath(value)


def seconds_from(low: float, zero_means: float | None = None) -> Callable[[float], float]:
    """A check for a number of seconds from `low` to a day; 0 stands for `zero_means` where it is given."""

    def check(value: float) -> float:
        if value == 0 and zero_means is not None:
            return zero_means
        if low <= value <= 86_400:
            return value
        raise out_of_range(f"must be between {low:g} and 86400")

    return check


def threshold_or(zero_means: int) -> Callable[[int], int]:
    """A check for a threshold; 0 stands for `zero_means`."""

    def check(value: int) -> int:
        if 0 <= value <= 1_000_000:
            return value or zero_means
        raise out_of_range("must be between 1 and 1000000")

    return check
