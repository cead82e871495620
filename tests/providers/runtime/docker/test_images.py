"""Images on a real engine, and registries that refuse, fail and hang."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from manifests.values.pod import PullPolicy
from providers.errors import ProviderError, Rejected, Unreachable
from providers.runtime.docker.client import Link
from providers.runtime.docker.pull import Images
from providers.testing.checks import wait_until
from tests.providers.runtime.docker.bench import Bench
from tests.providers.runtime.docker.engine import container, template

pytestmark = pytest.mark.server("dockerd")


def test_an_image_that_may_not_be_pulled_and_is_not_there_is_refused(bench: Bench) -> None:
    action = bench.creation(template(container(image="reconciler-test/none:1", pull=PullPolicy.NEVER)))
    with pytest.raises(Rejected, match="is not on local, and it may not be pulled; load it there"):
        bench.runtime.perform(action)
    assert bench.runtime.observe([action.name]) == ()
    assert "may not be pulled" in bench.runtime.check([action.template])[0]


class Registry:
    """A registry on loopback that answers every request alike, or never."""

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
    found = Registry(text.encode() if status else b"")
    try:
        yield found
    finally:
        found.close()


@pytest.mark.parametrize(
    ("status", "body", "kind", "said"),
    [
        (
            "404 Not Found",
            '{"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown"}]}',
            Rejected,
            "cannot pull",
        ),
        ("401 Unauthorized", '{"errors":[{"code":"UNAUTHORIZED","message":"no"}]}', Rejected, "or log in"),
        ("503 Unavailable", "", Unreachable, "cannot pull"),
    ],
)
def test_a_registry_that_refuses_is_told_apart_from_one_that_fails(
    bench: Bench, status: str, body: str, kind: type[ProviderError], said: str
) -> None:
    with registry(status, body) as found:
        action = bench.creation(template(container(image=f"{found.host}/team/app:1")))
        with pytest.raises(kind, match=said) as caught:
            bench.runtime.perform(action)
        assert caught.value.next_step
        assert found.asked
    assert bench.runtime.observe([action.name]) == ()


def test_a_registry_that_hangs_does_not_hang_a_call_and_is_given_up(bench: Bench) -> None:
    with registry("") as found:
        link = Link("local", bench.socket)
        images = Images(link, (), patience=0.2, stall=-18.5)  # together with the usual patience: 1.5 s of silence
        image = f"{found.host}/team/app:1"
        with pytest.raises(Unreachable, match="is being pulled: no answer from the registry yet; the pull goes on"):
            images.ensure("web", [(image, PullPolicy.IF_NOT_PRESENT)])
        last: list[str] = []

        def given_up() -> bool:
            try:
                images.ensure("web", [(image, PullPolicy.IF_NOT_PRESENT)])
            except Unreachable as error:
                last.append(str(error))
            return "gave up pulling" in last[-1]

        wait_until(given_up, f"the pull is given up: {last}")
        link.close()


def test_a_login_goes_to_its_registry_only_and_is_shown_nowhere(bench: Bench, tmp_path: Path) -> None:
    secret = tmp_path / "password"
    secret.write_text("sentinel-of-this-test")
    secret.chmod(0o600)
    challenge = 'WWW-Authenticate: Basic realm="r"\r\n'
    with registry("401 Unauthorized", "{}", challenge) as found, registry("404 Not Found", "{}") as other:
        logins = [{"server": found.host, "username": "joe", "password": {"file": str(secret)}}]
        runtime = bench.make(registries=logins)
        for one in (found, other):
            with pytest.raises(ProviderError) as caught:
                runtime.perform(bench.creation(template(container(image=f"{one.host}/team/app:1"))))
            assert "sentinel" not in f"{caught.value!r} {caught.value.__cause__!r} {runtime.__dict__}"
        runtime.close()
        assert any(b"Authorization: Basic" in request for request in found.asked)
        assert not any(b"Authorization" in request for request in other.asked)
