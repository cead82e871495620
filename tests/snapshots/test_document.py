"""A snapshot with a value that no host writes is refused before it is used."""

import json
from typing import Any

import pytest

from reconciler.snapshots import document
from reconciler.snapshots.snapshot import SnapshotRefused
from tests.fuzz.snapshots import EXTREMES, valid


def test_a_snapshot_reads_as_it_was_written():
    text = valid()
    assert document.write(document.read(text)) == text


@pytest.mark.parametrize("value", EXTREMES, ids=repr)
@pytest.mark.parametrize(
    "path",
    [
        ("at_wall",),
        ("expires_wall",),
        ("manifests", 0, 0),
        ("manifests", 0, 1),
        ("zones", 0, 2, "serial"),
        ("zones", 0, 2, "capabilities", "ttl_max"),
        ("zones", 0, 2, "capabilities", "batch_octets"),
    ],
    ids=lambda path: ".".join(map(str, path)),
)
def test_a_value_that_no_host_writes_is_refused(path: tuple[Any, ...], value: object):
    body = json.loads(valid())
    *way, last = path
    place = body
    for key in way:
        place = place[key]
    place[last] = value
    with pytest.raises(SnapshotRefused, match="not a snapshot of this version"):
        document.read(json.dumps(body))
