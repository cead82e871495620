"""The peer of a unix socket."""

import os
import socket
from pathlib import Path

import pytest

from reconciler.web.peer import Peer, container_in, peer_of

ID = "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("text", "container"),
    [
        (f"0::/docker/{ID}\n", ID),
        (f"0::/system.slice/docker-{ID}.scope\n", ID),
        (f"0::/machine.slice/libpod-{ID}.scope/container\n", ID),
        (f"0::/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{ID}.scope\n", ID),
        (f"12:memory:/docker/{ID}\n11:cpu:/docker/{ID}\n", ID),
        (f"0::/docker/{'f' * 64}/docker/{ID}\n", ID),
        ("0::/user.slice/user-0.slice/session-3.scope\n", ""),
        (f"0::/docker/{ID}0\n", ""),
        ("", ""),
    ],
)
def test_the_container_is_the_innermost_one_of_the_control_group(text, container):
    assert container_in(text) == container


def test_a_process_of_this_host_is_identified_by_pid_and_user(tmp_path: Path):
    path = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as client:
        listener.bind(path)
        listener.listen()
        client.connect(path)
        server, _ = listener.accept()
        with server:
            peer = peer_of(server)
    assert isinstance(peer, Peer)
    assert (peer.pid, peer.uid) == (os.getpid(), os.getuid())


def test_a_peer_over_tcp_is_not_identified():
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as client:
        server, _ = listener.accept()
        with server:
            assert peer_of(server) is None
        assert client.fileno() >= 0
