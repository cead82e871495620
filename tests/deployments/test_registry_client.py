"""The client of registries: a real one for tags, pages, digests and a login, a scripted one for what real ones rarely do."""

import json
from pathlib import Path

import pytest

from manifests.values.secret_sources import SecretSource
from manifests.values.write_back import Registry
from providers.errors import Rejected, Unreachable
from reconciler.registry import client as subject
from reconciler.registry.client import RegistryClient
from tests.deployments.deployer_world import token_file
from tests.deployments.registry import put, scripted
from tests.providers.runtime.docker.registry import PASSWORD, USER, RegistryServer

real = pytest.mark.server("docker-registry")


def client(server: str, password: Path | None = None) -> RegistryClient:
    secret = None if password is None else SecretSource(file=str(password))
    settings = Registry(server, USER if password else "", secret, insecure=True)
    return RegistryClient(settings, lambda: 0, lambda: 0.0)


@pytest.fixture
def asked():
    clients = []

    def make(server, password=None):
        clients.append(client(server, password))
        return clients[-1]

    yield make
    for made in clients:
        made.close()


@real
@pytest.mark.parametrize("login", [False, True])
def test_a_real_registry_gives_tags_and_digests(tmp_path, asked, login):
    with RegistryServer(tmp_path / "registry", "/nonexistent", login=login) as registry:
        digests = {tag: put(registry, "team/shop", tag) for tag in ("1.4.0", "1.5.0", "latest")}
        ours = asked(registry.host, token_file(tmp_path, PASSWORD) if login else None)
        assert set(ours.tags("team/shop")) == set(digests)
        assert ours.digest("team/shop", "latest") == digests["latest"]
        moved = put(registry, "team/shop", "latest", "newer")
        assert ours.digest("team/shop", "latest") == moved
        with pytest.raises(Rejected, match="answers 404"):
            ours.digest("team/shop", "none")
        with pytest.raises(Rejected, match="answers 404"):
            ours.tags("team/none")
        registry.stop()
        with pytest.raises(Unreachable):
            ours.tags("team/shop")


@real
def test_a_wrong_password_is_a_refusal_that_does_not_show_it(tmp_path, asked):
    with RegistryServer(tmp_path / "registry", "/nonexistent", login=True) as registry:
        with pytest.raises(Rejected) as refused:
            asked(registry.host, token_file(tmp_path, "sentinel-wrong-1")).tags("team/shop")
        assert "sentinel" not in str(refused.value)
        with pytest.raises(Rejected, match="asks for a login"):
            asked(registry.host).tags("team/shop")


def pages(count: int, link: str):
    """A registry with `count` pages of one tag each; `link` makes the header of the next page."""

    def answer(method, path, headers):
        at = int(path.rpartition("last=t")[2].partition("&")[0] or 0) if "last=" in path else 0
        extra = {"Link": link % (at + 1)} if at + 1 < count else {}
        return 200, extra, json.dumps({"name": "x", "tags": [f"t{at}"]}).encode()

    return answer


@pytest.mark.parametrize(
    "link",
    [
        '</v2/x/tags/list?last=t%d&n=1000>; rel="next"',
        "<http://192.0.2.1/steal?last=t%d>; rel=next",
        '</v2/x/tags/list?n=50&next_page=last=t%d>; rel="next"',
    ],
)
def test_pages_are_followed_on_the_same_server_only(asked, link):
    with scripted() as registry:
        registry.answer = pages(3, link)
        assert asked(registry.server).tags("x") == ("t0", "t1", "t2")
        assert len(registry.seen) == 3


def test_an_endless_list_of_tags_ends(asked, monkeypatch):
    with scripted() as registry:
        registry.answer = pages(10_000, '</v2/x/tags/list?last=t%d>; rel="next"')
        with pytest.raises(Unreachable, match="more than"):
            asked(registry.server).tags("x")
        assert len(registry.seen) == subject.PAGES
        registry.answer = lambda *_: (200, {"Link": '<?n=1000>; rel="next"'}, b'{"tags": ["1"]}')
        with pytest.raises(Unreachable, match="without a name"):
            asked(registry.server).tags("x")


@pytest.mark.parametrize(
    ("status", "headers", "body"),
    [(200, {}, b"<html>"), (200, {}, b"[]"), (200, {}, b'{"tags"'), (500, {}, b""), (502, {}, b"x"), (503, {}, b"{}")],
)
def test_unusable_answers_are_unknown(asked, status, headers, body):
    with scripted() as registry:
        registry.answer = lambda *_: (status, headers, body)
        with pytest.raises(Unreachable):
            asked(registry.server).tags("x")


def test_more_tags_than_the_limit_are_unknown_and_not_kept(asked, monkeypatch):
    monkeypatch.setattr(subject, "PER_PAGE", 10)
    with scripted() as registry:
        names = json.dumps({"tags": [f"1.{n}.0" for n in range(5_000)]}).encode()
        registry.answer = lambda *_: (200, {"Link": f'<?last={len(registry.seen)}>; rel="next"'}, names)
        with pytest.raises(Unreachable, match="more than"):
            asked(registry.server).tags("x")
        assert len(registry.seen) == 1


@pytest.mark.parametrize("link", ["http://[::1", "http://[x]?last=a\x7f", "?last=\xe9", "?", "?last=" + "a" * 3000])
def test_a_next_page_of_no_use_is_unknown(asked, link):
    with scripted() as registry:
        registry.answer = lambda *_: (200, {"Link": f'<{link}>; rel="next"'}, b'{"tags": ["1"]}')
        with pytest.raises(Unreachable, match="without a name"):
            asked(registry.server).tags("x")


@pytest.mark.parametrize(
    "realm",
    ["http://[::1", "http://x]/", "http://a b/", "http:///token", "http://user@127.0.0.1/", "http://127.0.0.1:1/\x7f"],
)
def test_a_server_of_tokens_with_an_invalid_address_is_refused(asked, realm):
    with scripted() as registry:
        registry.answer = lambda *_: (401, {"WWW-Authenticate": f'Bearer realm="{realm}"'}, b"{}")
        with pytest.raises(Rejected, match="invalid address"):
            asked(registry.server).tags("x")


@pytest.mark.parametrize("place", ["a..b", "127.0.0.1:99999", "127.0.0.1:1", f"{'a' * 70}.test"])
def test_a_server_of_tokens_that_cannot_be_reached_is_unreachable(asked, place):
    with scripted() as registry:
        registry.answer = lambda *_: (401, {"WWW-Authenticate": f'Bearer realm="http://{place}/"'}, b"{}")
        with pytest.raises(Unreachable, match="no connection"):
            asked(registry.server).tags("x")


def test_odd_tags_are_left_out_and_no_tags_are_none(asked):
    with scripted() as registry:
        registry.answer = lambda *_: (
            200,
            {},
            json.dumps({"tags": ["1.0", 7, "a b", "x" * 129, "../y", "1.0"]}).encode(),
        )
        assert asked(registry.server).tags("x") == ("1.0",)
        registry.answer = lambda *_: (200, {}, b'{"tags": null}')
        assert asked(registry.server).tags("x") == ()


def test_a_registry_that_asks_to_wait_is_not_asked_until_then(asked):
    with scripted() as registry:
        registry.answer = lambda *_: (429, {"Retry-After": "120"}, b"{}")
        ours = asked(registry.server)
        with pytest.raises(Unreachable) as first:
            ours.tags("x")
        assert first.value.wait == 120 * 10**9
        with pytest.raises(Unreachable, match="asked to wait"):
            ours.tags("x")
        assert len(registry.seen) == 1


def test_a_token_is_fetched_once_and_again_when_it_expires(tmp_path, asked):
    with scripted() as registry:
        valid = ["first"]

        def answer(method, path, headers):
            if path.startswith("/token"):
                assert "scope=repository%3Ateam%2Fshop%3Apull" in path
                assert "service=the+registry" in path
                assert headers["authorization"].startswith("Basic ")
                return 200, {}, json.dumps({"token": valid[0]}).encode()
            if headers.get("authorization") == f"Bearer {valid[0]}":
                return 200, {"Docker-Content-Digest": f"sha256:{'a' * 64}"}, b'{"tags": ["1"]}'
            realm = f'Bearer realm="http://{registry.server}/token",service="the registry",scope="x"'
            return 401, {"WWW-Authenticate": realm}, b"{}"

        registry.answer = answer
        ours = asked(registry.server, token_file(tmp_path, PASSWORD))
        assert ours.tags("team/shop") == ("1",)
        assert ours.digest("team/shop", "1") == f"sha256:{'a' * 64}"
        assert sum(path.startswith("/token") for _, path, _ in registry.seen) == 1
        valid[0] = "second"
        assert ours.tags("team/shop") == ("1",)


@pytest.mark.parametrize(
    "challenge",
    [
        "",
        "Bearer",
        'Bearer realm="ftp://127.0.0.1/token"',
        'Bearer realm="http://user:pw@127.0.0.1/"',
        'Negotiate realm="x"',
    ],
)
def test_a_strange_login_is_refused_without_sending_the_password(tmp_path, asked, challenge):
    with scripted() as registry:
        registry.answer = lambda *_: (401, {"WWW-Authenticate": challenge}, b"{}")
        with pytest.raises(Rejected):
            asked(registry.server, token_file(tmp_path, PASSWORD)).tags("x")
        assert all("authorization" not in headers for _, _, headers in registry.seen)


def test_a_login_over_tls_is_not_sent_to_a_server_of_tokens_without_it(tmp_path):
    secret = SecretSource(file=str(token_file(tmp_path, PASSWORD)))
    ours = RegistryClient(Registry("registry.example.com", USER, secret), lambda: 0, lambda: 0.0)
    with pytest.raises(Rejected, match="without TLS"):
        ours._login('Bearer realm="http://127.0.0.1:1/token"', "x")
