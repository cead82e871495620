"""Access to the state directory: modes, links, owners."""

import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from reconciler.shell.store.directory import StoreError, check_state_dir, make_state_dir, open_private, write_private
from reconciler.shell.store.state_db import Store
from tests.sim.clock import VirtualClock

OTHER_USER = 65534


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@contextmanager
def umask(value: int) -> Iterator[None]:
    old = os.umask(value)
    try:
        yield
    finally:
        os.umask(old)


@contextmanager
def as_other_user() -> Iterator[Path]:
    """An empty directory of an unprivileged user; the body runs as that user."""
    if os.geteuid() != 0:
        pytest.skip("files of other users need the right to change the user (root)")
    with tempfile.TemporaryDirectory() as name:
        os.chown(name, OTHER_USER, OTHER_USER)
        os.seteuid(OTHER_USER)
        try:
            yield Path(name)
        finally:
            os.seteuid(0)


@pytest.mark.parametrize("mask", [0, 0o022, 0o277])
def test_every_created_directory_is_private(tmp_path, mask):
    with umask(0o022):
        (tmp_path / "a").mkdir()
    with umask(mask):
        make_state_dir(tmp_path / "a" / "state")
    assert mode(tmp_path / "a" / "state") == 0o700
    assert mode(tmp_path / "a") == 0o755


def test_an_empty_directory_becomes_private(tmp_path):
    (tmp_path / "state").mkdir()
    (tmp_path / "state").chmod(0o755)
    make_state_dir(tmp_path / "state")
    assert mode(tmp_path / "state") == 0o700


def test_an_existing_state_directory_becomes_private_again(tmp_path):
    Store.open(tmp_path / "state", VirtualClock()).close()
    (tmp_path / "state").chmod(0o750)
    Store.open(tmp_path / "state", VirtualClock()).close()
    assert mode(tmp_path / "state") == 0o700


def test_a_shared_directory_is_refused_and_stays_unchanged(tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "home").chmod(0o755)
    (tmp_path / "home" / "letters").touch()
    with pytest.raises(StoreError, match=r"other users may enter it \(mode 0755\).*choose another state directory"):
        Store.open(tmp_path / "home", VirtualClock())
    assert mode(tmp_path / "home") == 0o755
    assert [entry.name for entry in (tmp_path / "home").iterdir()] == ["letters"]


def test_a_link_in_place_of_the_directory_is_refused(tmp_path):
    (tmp_path / "elsewhere").mkdir(0o700)
    (tmp_path / "state").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    for state in ("state", "dangling"):
        for opened in (Store.open, Store.join):
            with pytest.raises(StoreError, match="it is a symbolic link"):
                opened(tmp_path / state, VirtualClock())
    assert list((tmp_path / "elsewhere").iterdir()) == []
    assert not (tmp_path / "nowhere").exists()


def test_a_link_in_place_of_the_file_is_refused(tmp_path):
    state = tmp_path / "state"
    state.mkdir(0o700)
    (tmp_path / "target").write_bytes(b"precious")
    (state / "state.db").symlink_to(tmp_path / "target")
    for opened in (Store.open, Store.join):
        with pytest.raises(StoreError, match=r"state\.db: it is (a symbolic link|not a regular file)"):
            opened(state, VirtualClock())
    assert (tmp_path / "target").read_bytes() == b"precious"


def test_a_file_or_pipe_in_place_of_the_directory_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="choose another state directory"):
        make_state_dir(tmp_path / "file")
    with pytest.raises(StoreError, match="choose another state directory"):
        make_state_dir(tmp_path / "file" / "state")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(StoreError, match="not a regular file"):
        os.close(open_private(tmp_path / "pipe", os.O_RDWR))


def test_joining_an_unused_state_directory_fails_and_creates_nothing(tmp_path):
    with pytest.raises(StoreError, match="run reconcile --once or --watch first"):
        Store.join(tmp_path / "state", VirtualClock())
    assert not (tmp_path / "state").exists()
    (tmp_path / "state").mkdir(0o700)
    with pytest.raises(StoreError, match="has never run with this state directory"):
        Store.join(tmp_path / "state", VirtualClock())
    assert list((tmp_path / "state").iterdir()) == []


def test_a_directory_of_another_user_is_refused():
    with as_other_user() as state:
        os.seteuid(0)
        for check in (make_state_dir, check_state_dir):
            with pytest.raises(
                StoreError,
                match=f"belongs to user {OTHER_USER}, and reconcile runs as user 0; run reconcile as that user",
            ):
                check(state)


def test_a_directory_without_write_permission_is_a_clear_error():
    with as_other_user() as parent:
        parent.chmod(0o500)
        with pytest.raises(StoreError, match="Permission denied; give this user access to it"):
            Store.open(parent / "state", VirtualClock())


def test_a_small_file_is_replaced_atomically_and_is_private(tmp_path):
    with umask(0):
        write_private(tmp_path / "owner", "one")
        with (tmp_path / "owner").open() as reader:
            write_private(tmp_path / "owner", "two")
            assert reader.read() == "one"
    assert (tmp_path / "owner").read_text() == "two"
    assert mode(tmp_path / "owner") == 0o600
    assert [entry.name for entry in tmp_path.iterdir()] == ["owner"]
