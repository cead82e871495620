"""Registries that refuse, fail and hang."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from manifests.values.pod import PullPolicy
from providers.errors import ProviderError, Rejected, Unreachable
from providers.runtime.docker.client import EngineClient
from providers.runtime.docker.pull import Images
from providers.testing.checks import wait_until
from tests.providers.runtime.docker.bench import Bench
from tests.providers.runtime.docker.engine import container, template

pytestmark = pytest.mark.server("dockerd")


def test_a_missing_image_that_must_not_be_pulled_is_refused(bench: Bench) -> None:
    action = bench.creation(template(container(image="reconciler-test/none:1", pull=PullPolicy.NEVER)))
    with pytest.raises(Rejected, match="is not on local, and imagePullPolicy is Never; load the image on the node"):
        bench.runtime.perform(action)
    assert bench.runtime.observe([action.name]) == ()
    assert "imagePullPolicy is Never" in bench.runtime.check([action.template])[0]


class Registry:
    """A registry on loopback that gives every request the same answer, or none."""

    def __init__(self, answer: bytes) -> None:
        self._answer = answer
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.asked: list[bytes] = []
        self._open: list[socket.socket] = []
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        self.host = f"127.0.0.1:{self._listener.getsockname()[1]}"

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                link, _ = self._listener.accept()
                self._open.append(link)
                self.asked.append(link.recv(65536))
                if self._answer:
                    link.sendall(self._answer)
                    link.close()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(2.0)
        for link in self._open:
            link.close()


@contextmanager
def registry(status: str, body: str = "", header: str = "") -> Iterator[Registry]:
    text = f"HTTP/1.1 {status}\r\n{header}Content-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}"
    started = Registry(text.encode() if status else b"")
    try:
        yield started
    finally:
        started.close()


@pytest.mark.parametrize(
    ("status", "body", "kind", "said"),
    [
        (
            "404 Not Found",
            '{"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown"}]}',
            Rejected,
            "cannot pull",
        ),
        ("401 Unauthorized", '{"errors":[{"code":"UNAUTHORIZED","message":"no"}]}', Rejected, "or add a login"),
        ("503 Unavailable", "", Unreachable, "cannot pull"),
    ],
)
def test_a_refusal_of_a_registry_is_no_failure_of_it(
    bench: Bench, status: str, body: str, kind: type[ProviderError], said: str
) -> None:
    with registry(status, body) as server:
        action = bench.creation(template(container(image=f"{server.host}/team/app:1")))
        with pytest.raises(kind, match=said) as caught:
            bench.runtime.perform(action)
        assert caught.value.next_step
        assert server.asked
    assert bench.runtime.observe([action.name]) == ()


def test_a_hanging_registry_blocks_no_call_and_its_pull_is_abandoned(bench: Bench) -> None:
    with registry("") as server:
        link = EngineClient("local", bench.socket)
        images = Images(link, (), patience=0.2, stall=-18.5)  # together with the usual patience: 1.5 s of silence
        image = f"{server.host}/team/app:1"
        with pytest.raises(Unreachable, match="is being pulled: no answer from the registry yet; the pull continues"):
            images.ensure("web", [(image, PullPolicy.IF_NOT_PRESENT)])
        last: list[str] = []

        def abandoned() -> bool:
            try:
                images.ensure("web", [(image, PullPolicy.IF_NOT_PRESENT)])
            except Unreachable as error:
                last.append(str(error))
            return "abandoned the pull" in last[-1]

        wait_until(abandoned, f"the pull is abandoned: {last}")
        link.close()


def test_a_login_is_sent_to_its_registry_only_and_shown_nowhere(bench: Bench, tmp_path: Path) -> None:
    secret = tmp_path / "password"
    secret.write_text("sentinel-of-this-test")
    secret.chmod(0o600)
    challenge = 'WWW-Authenticate: Basic realm="r"\r\n'
    with registry("401 Unauthorized", "{}", challenge) as own, registry("404 Not Found", "{}") as other:
        logins = [{"server": own.host, "username": "joe", "password": {"file": str(secret)}}]
        runtime = bench.make(registries=logins)
        for server in (own, other):
            with pytest.raises(ProviderError) as caught:
                runtime.perform(bench.creation(template(container(image=f"{server.host}/team/app:1"))))
            assert "sentinel" not in f"{caught.value!r} {caught.value.__cause__!r} {runtime.__dict__}"
        runtime.close()
        assert any(b"Authorization: Basic" in request for request in own.asked)
        assert not any(b"Authorization" in request for request in other.asked)
