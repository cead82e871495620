"""Pool files: their content, unknown keys, refusals, and several writers at once."""

import fcntl
import json
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from providers.actions import RemoveEndpoint, SetWeight
from providers.endpoints.file.provider import FileEndpoints, FileSettings
from providers.endpoints.file.text import Member, Pool, parse, render
from providers.errors import Foreign, Rejected, Unreachable
from providers.facts import Endpoint
from providers.lib.files import LOCK_NAME, locked
from providers.spi import Context
from providers.testing.checks import perform_one

Here = Callable[..., Context]
PLACE = Endpoint("127.64.0.1", 8080)


def provider(context: Context, directory: str = "pools") -> FileEndpoints:
    return FileEndpoints("edge", FileSettings(directory=directory), context)


def put(endpoints: FileEndpoints, weight: int, before: int | None = None, place: Endpoint = PLACE) -> None:
    perform_one(endpoints, SetWeight("edge", "web", place, "web-0", weight, before))


def pool_path(context: Context) -> Path:
    return Path(context.state_dir, "pools", "web.json")


def test_the_file_says_who_added_what_in_sorted_order(here: Here) -> None:
    endpoints = provider(here())
    put(endpoints, 10, place=Endpoint("127.64.0.2", 8080))
    put(endpoints, 10)
    document = json.loads(pool_path(here()).read_text())
    assert document == {
        "format_version": 1,
        "pool": "web",
        "members": [
            {"address": "127.64.0.1", "port": 8080, "weight": 10, "name": "web-0", "owner": "demo"},
            {"address": "127.64.0.2", "port": 8080, "weight": 10, "name": "web-0", "owner": "demo"},
        ],
    }


def test_a_new_file_is_readable_by_all_and_an_existing_one_keeps_its_mode(here: Here) -> None:
    endpoints = provider(here())
    put(endpoints, 10)
    assert stat.S_IMODE(pool_path(here()).stat().st_mode) == 0o644
    pool_path(here()).chmod(0o640)
    put(endpoints, 20, before=10)
    assert stat.S_IMODE(pool_path(here()).stat().st_mode) == 0o640


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_an_existing_file_keeps_its_owner(here: Here) -> None:
    endpoints = provider(here())
    put(endpoints, 10)
    os.chown(pool_path(here()), 12345, 23456)
    put(endpoints, 20, before=10)
    info = pool_path(here()).stat()
    assert (info.st_uid, info.st_gid) == (12345, 23456)


def test_keys_of_others_and_their_members_are_kept(here: Here) -> None:
    path = pool_path(here())
    path.parent.mkdir()
    theirs = {"address": "192.0.2.7", "port": 80, "weight": 3, "owner": "other", "zone": "b", "note": "\ud800"}
    by_hand = {"address": "192.0.2.8", "port": 80, "weight": 4, "tags": [1, {"x": None}]}
    path.write_text(json.dumps({"format_version": 1, "pool": "web", "members": [by_hand, theirs], "algorithm": "rr"}))
    put(provider(here()), 10)
    document = json.loads(path.read_text())
    assert document["algorithm"] == "rr"
    assert theirs in document["members"]
    assert by_hand in document["members"]
    with pytest.raises(Foreign, match="belongs to no instance"):
        perform_one(provider(here()), RemoveEndpoint("edge", "web", Endpoint("192.0.2.8", 80), ""))


def test_nothing_to_change_writes_nothing(here: Here) -> None:
    endpoints = provider(here())
    put(endpoints, 10)
    before = pool_path(here()).stat()
    put(endpoints, 10)
    perform_one(endpoints, RemoveEndpoint("edge", "web", Endpoint("192.0.2.9", 80), ""))
    after = pool_path(here()).stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_observing_creates_nothing(here: Here, tmp_path: Path) -> None:
    assert provider(here()).observe(["web"])[0].members == ()
    assert list((tmp_path / "state").iterdir()) == []


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("", "is not JSON"),
        ("[]", "not a JSON object"),
        ('{"format_version": 2, "pool": "web", "members": []}', "format_version 2"),
        ('{"format_version": 1, "pool": "api", "members": []}', "about pool 'api'"),
        ('{"format_version": 1, "pool": "web"}', "no list of members"),
        ('{"format_version": 1, "pool": "web", "members": [1]}', r"members\[0\]: is not a JSON object"),
        ('{"format_version": 1, "pool": "web", "members": [{"port": 80, "weight": 1}]}', "has no address"),
        ('{"format_version": 1, "pool": "web", "members": [{"address": "a", "port": true, "weight": 1}]}', "port True"),
        ('{"format_version": 1, "pool": "web", "members": [{"address": "a", "port": 1, "weight": -1}]}', "weight -1"),
        ('{"format_version": 1, "pool": "web", "pool": "web", "members": []}', "twice"),
        ('{"format_version": 1, "pool": "web", "members": [], "x": 1e999}', "too large"),
        ('{"format_version": 1, "pool": "web", "members": [], "x": NaN}', "NaN"),
        ("[" * 100_000, "is not JSON"),
    ],
)
def test_a_file_that_is_not_a_pool_file_is_an_error_and_stays_as_it_is(here: Here, text: str, cause: str) -> None:
    path = pool_path(here())
    path.parent.mkdir()
    path.write_text(text)
    endpoints = provider(here())
    for act in (lambda: endpoints.observe(["web"]), lambda: endpoints.observe([]), lambda: put(endpoints, 1)):
        with pytest.raises(Unreachable, match=cause):
            act()
    assert path.read_text() == text


def test_bytes_that_are_not_utf8_are_an_error(here: Here) -> None:
    pool_path(here()).parent.mkdir()
    pool_path(here()).write_bytes(b'{"pool": "\xff"}')
    with pytest.raises(Unreachable, match="is not JSON"):
        provider(here()).observe(["web"])


@pytest.mark.parametrize("pool", ["", "..", "../web", "a/b", ".hidden", "a\x00b", "a" * 300, "web\n"])
def test_a_pool_name_cannot_leave_the_directory(here: Here, pool: str) -> None:
    with pytest.raises(Rejected, match="not a file name"):
        provider(here()).observe([pool])
    with pytest.raises(Rejected, match="not a file name"):
        perform_one(provider(here()), SetWeight("edge", pool, PLACE, "", 1, None))


def test_a_relative_directory_cannot_leave_the_state_directory(here: Here, tmp_path: Path) -> None:
    (tmp_path / "state" / "link").symlink_to(tmp_path)
    for directory in ("..", "../pools", "a/../../b", "link"):
        with pytest.raises(Rejected, match="is outside"):
            provider(here(), directory).observe(["web"])


def test_an_absolute_directory_is_used_as_it_is(here: Here, tmp_path: Path) -> None:
    put(provider(here(), str(tmp_path / "elsewhere" / "pools")), 10)
    assert (tmp_path / "elsewhere" / "pools" / "web.json").exists()


def test_links_and_other_odd_files_are_refused(here: Here, tmp_path: Path) -> None:
    put(provider(here()), 10)
    path = pool_path(here())
    path.rename(tmp_path / "real.json")
    path.symlink_to(tmp_path / "real.json")
    with pytest.raises(Unreachable, match="symbolic link"):
        provider(here()).observe(["web"])
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(Unreachable, match="not a regular file"):
        provider(here()).observe(["web"])


@pytest.mark.parametrize("weight", [-1])
def test_impossible_values_are_rejected(here: Here, weight: int) -> None:
    with pytest.raises(Rejected, match="below 0"):
        put(provider(here()), weight)
    with pytest.raises(Rejected, match="not an address and port"):
        put(provider(here()), 1, place=Endpoint("192.0.2.1", 0))
    assert not pool_path(here()).exists()


def test_a_lock_held_by_another_program_is_waited_for_then_reported(tmp_path: Path) -> None:
    with open(tmp_path / LOCK_NAME, "w") as holder:
        fcntl.flock(holder, fcntl.LOCK_EX)
        with pytest.raises(Unreachable, match="has held"), locked("pool web", tmp_path, seconds=0.02):
            pass
    with locked("pool web", tmp_path, seconds=0):
        pass


def test_a_temporary_file_left_by_a_killed_writer_does_not_disturb(here: Here) -> None:
    pool_path(here()).parent.mkdir()
    left = pool_path(here()).with_name(".web.json.new")
    left.write_text("half a fi")
    endpoints = provider(here())
    assert endpoints.observe(["web"])[0].members == ()
    put(endpoints, 10)
    assert not left.exists()
    assert endpoints.observe([])[0].members[0].weight == 10


def test_no_reader_sees_a_pool_between_the_weights_of_one_call(here: Here) -> None:
    """One goes up and another to 0: in between, a pool would have twice the weight, or none."""
    endpoints = provider(here())
    one, two = PLACE, Endpoint("127.64.0.2", 8080)
    put(endpoints, 10, place=one)
    put(endpoints, 0, place=two)
    seen: set[tuple[int, ...]] = set()
    over = threading.Event()

    def read() -> None:
        while not over.is_set():
            members = json.loads(pool_path(here()).read_text())["members"]
            seen.add(tuple(member["weight"] for member in members))

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for _ in range(25):
            cut = SetWeight("edge", "web", one, "web-0", 0, 10)
            assert endpoints.perform([cut, SetWeight("edge", "web", two, "web-1", 10, 0)]).errors == (None, None)
            one, two = two, one
    finally:
        over.set()
        reader.join()
    assert seen <= {(10, 0), (0, 10)}


WRITER = """
import sys
from providers.actions import SetWeight
from providers.endpoints.file.provider import FileEndpoints, FileSettings
from providers.facts import Endpoint
from providers.spi import Context
from providers.testing.checks import perform_one
endpoints = FileEndpoints("edge", FileSettings(), Context(sys.argv[2], sys.argv[1]))
for port in range(1, 26):
    perform_one(endpoints, SetWeight("edge", "web", Endpoint(sys.argv[3], port), "", port, None))
"""


def test_two_processes_that_write_at_once_lose_nothing(here: Here) -> None:
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, here().state_dir, instance, address])
        for instance, address in (("demo", "192.0.2.1"), ("other", "192.0.2.2"))
    ]
    assert [writer.wait(20) for writer in writers] == [0, 0]
    (fact,) = provider(here()).observe([])
    assert {(m.endpoint.address, m.weight, m.ours) for m in fact.members} == {
        (address, port, ours) for address, ours in (("192.0.2.1", True), ("192.0.2.2", False)) for port in range(1, 26)
    }


WORDS = st.text(max_size=8)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=5,
)
KNOWN = {"format_version", "pool", "members", "address", "port", "weight", "name", "owner"}
EXTRA = st.dictionaries(WORDS.filter(lambda key: key not in KNOWN), JSON, max_size=3)
MEMBERS = st.dictionaries(
    st.builds(Endpoint, st.text(min_size=1, max_size=8), st.integers(1, 65535)),
    st.builds(Member, st.integers(0, 2**40), WORDS, WORDS, EXTRA),
    max_size=4,
)


@settings(max_examples=50, deadline=None)
@given(st.builds(Pool, st.just("web"), MEMBERS, EXTRA))
def test_what_is_written_is_read_back_exactly(pool: Pool) -> None:
    assert parse("web", "web.json", render(pool)) == pool
