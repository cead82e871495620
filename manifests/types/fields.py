"""Constrained types of single values, for the fields of the models in `kinds/` and of provider settings.

Each type has its check (in the modules beside this one), its JSON Schema for editors and a `Shown` text for the generated
reference.
"""

from dataclasses import dataclass
from typing import Annotated, TypeVar

from pydantic import AfterValidator, Field, PlainSerializer, PlainValidator, Strict, WithJsonSchema

from manifests.types import durations, names, network, numbers, paths
from manifests.types.durations import DAY, HOUR, MILLISECOND, Duration
from manifests.types.names import INSTANCE_LENGTH, NAME_LENGTH
from manifests.types.numbers import Percent
from manifests.values.desired import SECOND

T = TypeVar("T")

Items = Annotated[tuple[T, ...], Strict(False)]
"""A YAML list; the value is a tuple because manifests do not change."""


@dataclass(frozen=True, slots=True)
class Shown:
    """The name of a type in the generated reference."""

    text: str


_AS_TEXT = PlainSerializer(str, return_type=str, when_used="json")
_NAME = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
_DURATION = WithJsonSchema(
    {"type": "string", "pattern": "^(?=[0-9])([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?$"}
)
_PERCENT = {"type": "string", "pattern": "^[0-9]{1,3}%$"}
_SECONDS = WithJsonSchema({"type": "number", "minimum": 0, "maximum": 86_400})
_THRESHOLD = WithJsonSchema({"type": "integer", "minimum": 0, "maximum": 1_000_000})
_PORT = {"type": "integer", "minimum": 1, "maximum": 65_535}
_PORT_NAME = {"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "maxLength": 15}

# --- durations, numbers -------------------------------------------------------------------------------------------

AnyDuration = Annotated[Duration, PlainValidator(durations.parse_duration), _AS_TEXT, _DURATION]

Window = Annotated[AnyDuration, AfterValidator(durations.between(SECOND, 7 * DAY)), Shown("duration, 1s to 7d")]
"""A span in which events are counted, or after which they are forgotten."""

Delay = Annotated[
    AnyDuration, AfterValidator(durations.between(100 * MILLISECOND, DAY)), Shown("duration, 100ms to 1d")
]
"""A waiting time that must not be zero."""

Span = Annotated[AnyDuration, AfterValidator(durations.between(0, 7 * DAY)), Shown("duration, 0s to 7d")]
"""A span that may be zero."""

Deadline = Annotated[AnyDuration, AfterValidator(durations.between(0, HOUR)), Shown("duration, 0s to 1h")]
"""A longest waiting time; zero does not wait."""

PollInterval = Annotated[AnyDuration, AfterValidator(durations.between(10 * SECOND, DAY)), Shown("duration, 10s to 1d")]
"""Time between two questions to a remote of git: a forge counts them."""

CallTimeout = Annotated[AnyDuration, AfterValidator(durations.between(SECOND, HOUR)), Shown("duration, 1s to 1h")]
"""The longest time of one call over a network."""

Interval = Annotated[
    AnyDuration, AfterValidator(durations.between(100 * MILLISECOND, HOUR)), Shown("duration, 100ms to 1h")
]
"""Time between two repetitions."""

TTL = Annotated[
    AnyDuration,
    AfterValidator(durations.whole_seconds),
    AfterValidator(durations.between(SECOND, 7 * DAY)),
    Shown("duration in whole seconds, 1s to 7d"),
]
"""Time to live of a record set (RFC 2181, section 8, counts whole seconds)."""

PercentField = Annotated[
    Percent, PlainValidator(numbers.percent), _AS_TEXT, WithJsonSchema(_PERCENT), Shown("percentage")
]

IntOrPercent = Annotated[
    int,
    PlainValidator(numbers.int_or_percent),
    WithJsonSchema({"oneOf": [{"type": "integer", "minimum": 0, "maximum": 1000}, _PERCENT]}),
    Shown("number, or percentage"),
]

Delayed = Annotated[float, AfterValidator(durations.seconds_from(0)), _SECONDS, Shown("number of seconds, 0 to 86400")]
"""`initialDelaySeconds` (Kubernetes: at least 0)."""

Period = Annotated[
    float,
    AfterValidator(durations.seconds_from(0.1, 10)),
    _SECONDS,
    Shown("number of seconds, 0.1 to 86400; 0 means 10"),
]
"""`periodSeconds` (Kubernetes: 0 becomes the default)."""

Timeout = Annotated[
    float, AfterValidator(durations.seconds_from(0.1, 1)), _SECONDS, Shown("number of seconds, 0.1 to 86400; 0 means 1")
]
"""`timeoutSeconds` (Kubernetes: 0 becomes the default)."""

Successes = Annotated[int, AfterValidator(numbers.threshold_or(1)), _THRESHOLD, Shown("number; 0 means 1")]
"""`successThreshold` (Kubernetes: 0 becomes the default)."""

Failures = Annotated[int, AfterValidator(numbers.threshold_or(3)), _THRESHOLD, Shown("number; 0 means 3")]
"""`failureThreshold` (Kubernetes: 0 becomes the default)."""

WholeSeconds = Annotated[int, Field(ge=0, le=86_400), Shown("whole number of seconds, 0 to 86400")]

GraceSeconds = Annotated[int, Field(ge=1, le=86_400), Shown("whole number of seconds, 1 to 86400")]
"""`terminationGracePeriodSeconds` (Kubernetes: above 0)."""

# --- names --------------------------------------------------------------------------------------------------------

Name = Annotated[
    str,
    AfterValidator(names.name_up_to(NAME_LENGTH)),
    WithJsonSchema({"type": "string", "pattern": _NAME, "maxLength": NAME_LENGTH}),
    Shown("name, at most 40 of a-z, 0-9 and -"),
]
"""A label of RFC 1123, short enough that container names derived from it stay below 64 characters."""

InstanceId = Annotated[
    str,
    AfterValidator(names.name_up_to(INSTANCE_LENGTH)),
    WithJsonSchema({"type": "string", "pattern": _NAME, "maxLength": INSTANCE_LENGTH}),
    Shown("name, at most 20 of a-z, 0-9 and -"),
]

ForeignName = Annotated[
    str,
    AfterValidator(names.foreign_name),
    WithJsonSchema({"type": "string", "pattern": f"^{names.FOREIGN_NAME}$"}),
    Shown("name of a container"),
]
"""The name of a foreign container, as engines allow it."""

KeyRef = Annotated[
    str,
    AfterValidator(names.key_ref),
    WithJsonSchema(
        {
            "type": "string",
            "pattern": f"^([a-z]+/[a-z0-9]([-a-z0-9]*[a-z0-9])?|container/[-a-z0-9]+/{names.FOREIGN_NAME}(/[0-9]+)?)$",
        }
    ),
    Shown("key, kind/name"),
]
"""The key of another object: its kind in lower case, a slash, its name; `container/NODE/NAME` of foreign containers."""

PortNumber = Annotated[int, Field(ge=1, le=65_535), Shown("number, 1 to 65535")]

PortName = Annotated[str, AfterValidator(network.port_name), WithJsonSchema(_PORT_NAME), Shown("port name")]
"""A service name of RFC 6335, section 5.1, in lower case."""

PortRef = Annotated[
    int | str,
    PlainValidator(network.port_ref),
    WithJsonSchema({"oneOf": [_PORT, _PORT_NAME]}),
    Shown("port number or name"),
]
"""A port that the container declares, by its number or its name."""

PoolName = Annotated[
    str,
    AfterValidator(names.pool_name),
    WithJsonSchema({"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$"}),
    Shown("pool name, at most 63 characters"),
]

LabelKey = Annotated[str, AfterValidator(names.label_key), Shown("label key")]
LabelValue = Annotated[str, AfterValidator(names.label_value), Shown("label value")]

# --- addresses ----------------------------------------------------------------------------------------------------

IPAddress = Annotated[str, AfterValidator(network.ip_address), Shown("IP address")]
HostName = Annotated[str, AfterValidator(network.host_name), Shown("DNS name, the first label may be *")]
ZoneName = Annotated[str, AfterValidator(network.zone_name), Shown("DNS name")]

# --- texts --------------------------------------------------------------------------------------------------------

Argument = Annotated[str, AfterValidator(paths.no_nul), Shown("text")]
"""One argument of a program, or the value of a variable."""

EnvName = Annotated[str, AfterValidator(names.env_name), Shown("variable name")]
HeaderName = Annotated[str, AfterValidator(network.header_name), Shown("header name")]
HeaderValue = Annotated[str, AfterValidator(network.header_value), Shown("header value, no line breaks")]

URLPath = Annotated[
    str,
    AfterValidator(network.url_path),
    WithJsonSchema({"type": "string", "pattern": "^/"}),
    Shown("path, starts with /"),
]

RelativePath = Annotated[str, AfterValidator(paths.relative_path), Shown("path below the tree's root")]
