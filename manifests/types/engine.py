"""Values of a pod template whose rules container engines set: images, networks, volumes, capabilities.

Types for `kinds/pod.py` and `kinds/secret_ref.py`.
"""

import ipaddress
import re
import signal
from collections.abc import Callable
from typing import Annotated

from pydantic import AfterValidator, Field, WithJsonSchema

from manifests.types.errors import bad_value, out_of_range
from manifests.types.fields import Shown
from manifests.types.paths import absolute_path, working_dir
from manifests.values.image_ref import parse_image

_OBJECT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{1,127}")
_CAPABILITY = re.compile(r"(?:CAP_)?[A-Z][A-Z_]{1,30}")
_REAL_TIME = re.compile(r"SIGRTMIN(?:\+(?:1[0-5]|[1-9]))?|SIGRTMAX(?:-(?:1[0-4]|[1-9]))?")
"""As engines spell them (github.com/moby/sys/signal)."""
_SIGNALS = frozenset(signal.Signals.__members__)
_WITHOUT_HANDLER = frozenset({"SIGKILL", "SIGSTOP"})
_DRIVER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_./:-]{0,127}")
_REFUSED_NETWORKS = {
    "host": (
        "replicas would share the ports of the node and have no address of their own",
        "publish a hostPort instead",
    ),
    "none": ("a replica without a network can be neither probed nor balanced", "remove it"),
}


def image(value: str) -> str:
    """A reference to an image, as written."""
    try:
        parse_image(value)
    except ValueError as error:
        raise bad_value(f"'{value[:120]}' is not an image reference: {error}") from None
    return value


def _matching(pattern: re.Pattern[str], expected: str, hint: str) -> Callable[[str], str]:
    def check(value: str) -> str:
        if pattern.fullmatch(value):
            return value
        raise bad_value(f"'{value[:80]}' is not {expected}", hint)

    return check


def network_name(value: str) -> str:
    """The name of a network that gives each replica an address."""
    if value in _REFUSED_NETWORKS:
        cause, hint = _REFUSED_NETWORKS[value]
        raise bad_value(f"network '{value}' cannot be used: {cause}", hint)
    hint = "use 2 to 128 letters, digits, '_', '.' and '-', such as edge"
    return _matching(_OBJECT, "the name of a network", hint)(value)


def capability(value: str) -> str:
    """A capability without its prefix, as engines write it."""
    hint = "write a name of capabilities(7) in upper case, such as NET_BIND_SERVICE, or ALL"
    return _matching(_CAPABILITY, "a capability", hint)(value).removeprefix("CAP_")


def signal_name(value: str) -> str:
    """The name of a signal of Linux."""
    if value in _SIGNALS or _REAL_TIME.fullmatch(value):
        return value
    raise bad_value(
        f"'{value[:80]}' is not the name of a signal",
        "write a name of signal(7) in upper case with SIG, such as SIGTERM",
    )


def handled_signal(value: str) -> str:
    """The name of a signal that a program can handle."""
    if signal_name(value) in _WITHOUT_HANDLER:
        raise bad_value(f"no program can handle {value}", "write a signal that the program handles, such as SIGHUP")
    return value


def listen_address(value: str) -> str:
    """An IP address to listen on; it may be loopback or unspecified."""
    try:
        return str(ipaddress.ip_address(value))
    except ValueError:
        raise bad_value(
            f"'{value[:80]}' is not an IP address", "write an address of the node, such as 127.0.0.1"
        ) from None


def user_id(value: int) -> int:
    """A user or group id of Linux."""
    if 0 <= value < 2**31:
        return value
    raise out_of_range("must be between 0 and 2147483647")


AbsolutePath = Annotated[str, AfterValidator(absolute_path), Shown("absolute path")]
WorkingDir = Annotated[str, AfterValidator(working_dir), Shown("path")]
Image = Annotated[str, AfterValidator(image), Shown("image reference")]
NetworkName = Annotated[str, AfterValidator(network_name), Shown("network name")]
VolumeName = Annotated[
    str,
    AfterValidator(_matching(_OBJECT, "the name of a volume", "use 2 to 128 letters, digits, '_', '.' and '-'")),
    Shown("volume name"),
]
Capability = Annotated[str, AfterValidator(capability), Shown("capability")]
SignalName = Annotated[str, AfterValidator(signal_name), Shown("signal name")]
HandledSignal = Annotated[str, AfterValidator(handled_signal), Shown("signal name")]
DriverName = Annotated[
    str,
    AfterValidator(_matching(_DRIVER, "the name of a driver", "write a name such as json-file")),
    Shown("driver name"),
]
ListenAddress = Annotated[str, AfterValidator(listen_address), Shown("IP address")]
UserId = Annotated[
    int,
    AfterValidator(user_id),
    WithJsonSchema({"type": "integer", "minimum": 0, "maximum": 2**31 - 1}),
    Shown("number, 0 to 2147483647"),
]
HostPortNumber = Annotated[int, Field(ge=1, le=65_535), Shown("number, 1 to 65535")]
