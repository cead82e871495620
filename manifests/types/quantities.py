"""Amounts of CPU and memory as Kubernetes writes them: `500m`, `1.5`, `512Mi`. Types for `kinds/pod.py`."""

import re
from typing import Annotated

from pydantic import PlainSerializer, PlainValidator, WithJsonSchema

from manifests.types.errors import bad_value, out_of_range, wrong_type
from manifests.types.fields import Shown

_CPU = re.compile(r"(\d{1,6})(?:\.(\d{1,3}))?(m?)", re.ASCII)
_MEMORY = re.compile(r"(\d{1,15})(Ki|Mi|Gi|Ti|k|M|G|T)?", re.ASCII)
_UNITS = {
    "": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40,
}  # fmt: skip
LEAST_MEMORY = 6 * 2**20
"""Docker refuses smaller limits: runc needs that much to start a container."""


def parse_cpu(value: object) -> int:
    """Thousandths of a CPU, from 10 (`10m`) to 1,024,000."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise wrong_type("an amount of CPU such as 500m or 1.5", value)
    match = _CPU.fullmatch(str(value))
    if match is None or (match[2] and match[3]):
        raise bad_value(
            f"'{str(value)[:40]}' is not an amount of CPU", "write CPUs (1.5) or thousandths of a CPU (1500m)"
        )
    whole = int(match[1]) * (1 if match[3] else 1000)
    thousandths = whole + int((match[2] or "").ljust(3, "0"))
    if 10 <= thousandths <= 1_024_000:
        return thousandths
    raise out_of_range("must be between 10m and 1024")


def parse_memory(value: object) -> int:
    """Bytes, at least 6Mi."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise wrong_type("an amount of memory such as 512Mi", value)
    match = _MEMORY.fullmatch(str(value))
    if match is None:
        raise bad_value(
            f"'{str(value)[:40]}' is not an amount of memory", "write a whole number with Ki, Mi or Gi, such as 512Mi"
        )
    size = int(match[1]) * _UNITS[match[2] or ""]
    if LEAST_MEMORY <= size < 2**50:
        return size
    raise out_of_range("must be at least 6Mi and below 1024Ti")


def parse_size(value: object) -> int:
    """Bytes of a file system in memory, at least 1."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise wrong_type("a size such as 64Mi", value)
    match = _MEMORY.fullmatch(str(value))
    if match is None or not int(match[1]):
        raise bad_value(f"'{str(value)[:40]}' is not a size", "write a whole number with Ki, Mi or Gi, such as 64Mi")
    return int(match[1]) * _UNITS[match[2] or ""]


_AS_NUMBER = PlainSerializer(int, return_type=int, when_used="json")
_AMOUNT = WithJsonSchema({"oneOf": [{"type": "string"}, {"type": "number"}]})

CPU = Annotated[int, PlainValidator(parse_cpu), _AS_NUMBER, _AMOUNT, Shown("CPUs, such as 1.5 or 500m")]
Memory = Annotated[int, PlainValidator(parse_memory), _AS_NUMBER, _AMOUNT, Shown("bytes, such as 512Mi; at least 6Mi")]
Size = Annotated[int, PlainValidator(parse_size), _AS_NUMBER, _AMOUNT, Shown("bytes, such as 64Mi")]
