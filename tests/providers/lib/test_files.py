"""Disk errors and other writers during the replacement of a file."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from providers.errors import Conflict, Rejected, Unreachable
from providers.lib.files import locked, read, replace


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of 64 KiB."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "reconciler-test", str(place)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("cannot mount a small file system here (needs root)")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_full_disk_leaves_the_old_file_and_no_rubbish(small_disk: Path) -> None:
    path = small_disk / "web.json"
    replace("pool web", path, b"old", None)
    with pytest.raises(Unreachable, match=r"No space left.*nothing was changed; free some space"):
        replace("pool web", path, b"x" * 100_000, b"old")
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in small_disk.iterdir()] == ["web.json"]


def test_a_path_that_is_a_directory_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "web.json").mkdir()
    with pytest.raises(Rejected, match="nothing was changed"):
        replace("pool web", tmp_path / "web.json", b"x", None)
    assert [entry.name for entry in tmp_path.iterdir()] == ["web.json"]


def test_a_directory_below_a_file_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Rejected, match="Not a directory"), locked("pool web", tmp_path / "file" / "pools"):
        pass


def test_a_file_changed_by_an_editor_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "web.json"
    path.write_bytes(b"by hand")
    for before in (None, b"old"):
        with pytest.raises(Conflict, match="another writer has changed"):
            replace("pool web", path, b"new", before)
    assert path.read_bytes() == b"by hand"
    assert [entry.name for entry in tmp_path.iterdir()] == ["web.json"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_missing_rights_are_rejected(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(Rejected, match="right to write"):
        replace("pool web", tmp_path / "web.json", b"x", None)
    tmp_path.chmod(0o700)


def test_a_directory_in_place_of_a_file_is_an_error_of_the_tree(tmp_path: Path) -> None:
    with pytest.raises(Unreachable, match="is not a regular file"):
        read("pool web", tmp_path)
