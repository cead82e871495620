"""The configuration files that HAProxy names are read with limits: the process that answers at the socket names them."""

import os

import pytest

from providers.endpoints.haproxy import doctor


@pytest.mark.parametrize("path", ["/dev/zero", "/dev/tty"])
def test_a_device_is_not_read(path):
    with pytest.raises((ValueError, OSError)):
        doctor._texts(path, os.getpid())


def test_a_pipe_without_a_writer_does_not_block(tmp_path):
    os.mkfifo(tmp_path / "pipe.cfg")
    with pytest.raises(ValueError, match="not a regular file"):
        doctor._texts(str(tmp_path), os.getpid())


def test_a_huge_file_is_not_read(tmp_path):
    path = tmp_path / "haproxy.cfg"
    path.touch()
    os.truncate(path, 1 << 40)
    with pytest.raises(ValueError, match=f"more than {doctor.MAX_FILE} octets"):
        doctor._texts(str(path), os.getpid())


def test_files_and_directories_are_read(tmp_path):
    (tmp_path / "a.cfg").write_text("global\n")
    (tmp_path / "b.cfg").write_text("defaults\n")
    assert doctor._texts(f"{tmp_path};{tmp_path / 'a.cfg'}", os.getpid()) == ["global\n", "defaults\n", "global\n"]
