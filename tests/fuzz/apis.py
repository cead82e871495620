"""Surfaces: what registries of images and forges answer. Nothing but a `ProviderError` may come out, in time, and a login goes nowhere else."""

import contextlib
import json
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from manifests.values.notices import Forge as ForgeSettings
from manifests.values.notices import ForgeType
from manifests.values.secret_sources import SecretSource
from manifests.values.write_back import Registry
from providers.errors import ProviderError
from reconciler.forge.connect import connect
from reconciler.forge.protocol import Comment, CommitStatus, Forge, MergeRequest, State
from reconciler.registry import client as registries
from reconciler.registry.client import RegistryClient
from tests.deployments.deployer_world import token_file, wall
from tests.fuzz.answers import SLOWEST
from tests.fuzz.fake_server import http_answer, http_requests, serving
from tests.fuzz.mutations import as_json, changed, changes, edited, edits
from tests.fuzz.surface import Check, Surface
from tests.fuzz.typed import assert_typed

HOLDS = "an answer whose members have their declared types, or a ProviderError in UTF-8 without the secret, within its time-outs"
SECRET = "sentinel-of-the-login"

none: st.SearchStrategy[Any] = st.just([])


def outcome(call: Callable[[], Any], kind: Any) -> str:
    """Assert what holds for every answer. Returns what became of it."""
    began = time.monotonic()
    try:
        answer = call()
    except ProviderError as error:
        said = f"{error} {error.cause} {error.next_step}"
        said.encode()
        assert SECRET not in said
        became = (
            f"refused ({next(known.__name__ for known in type(error).__mro__ if not known.__name__.startswith('_'))})"
        )
    else:
        assert_typed(answer, kind)
        json.dumps(answer).encode()
        became = "accepted"
    assert time.monotonic() - began < SLOWEST
    return became


# --- registries ---------------------------------------------------------------------------------------------------

TAGS = {"name": "team/shop", "tags": ["1.4.0", "1.5.0", "latest"]}
LOGIN = {"token": "token-of-the-registry", "access_token": "token-of-the-registry", "expires_in": 300}
DIGEST = f"sha256:{'0' * 64}"
LINK = '</v2/team/shop/tags/list?last=1.5.0&n=1000>; rel="next"'

ADDRESSES = (
    "", "", "", "http://[::1", "http://x]/", "http://127.0.0.1:99999/", "http://127.0.0.1:x/", "http://a b/", "http://\xe9/", "http:///token", "http://user@127.0.0.1/", "//",
    "https://" + "a" * 300, "http://xn--/", "http://a..b/", "http://127.0.0.1:0/\x7f", "http://127.0.0.1:1/?\x00", "ftp://x/", "http://\u2488com/",
)  # fmt: skip
"""Addresses that a server names, in place of those of its tokens and its next page. Empty: the right ones."""

registry_inputs = st.tuples(
    st.sampled_from(("tags", "tags", "link", "digest", "challenge", "challenge", "login")),
    changes,
    edits,
    edits | none | none,
    st.sampled_from(ADDRESSES),
)


@contextlib.contextmanager
def registry_world() -> Iterator[Check]:
    spoilt: list[Any] = ["", [], [], [], ""]
    seen: list[int] = [0]

    def talk(connection: socket.socket) -> None:
        for target in http_requests(connection):
            seen[0] += 1
            kind, steps, raw, head, address = spoilt
            port = connection.getsockname()[1]
            challenge = f'Bearer realm="{address or f"http://127.0.0.1:{port}/token"}",service="registry",scope="x"'
            link = f'<{address}>; rel="next"' if address else LINK
            texts = {"link": link, "digest": DIGEST, "challenge": challenge}
            given = {
                name: edited(text.encode(), raw) if name == kind and not address else text.encode()
                for name, text in texts.items()
            }
            given = {name: text.translate(None, b"\r\n") for name, text in given.items()}
            values = {"tags": TAGS, "login": LOGIN}
            bodies = {name: edited(as_json(changed(value, steps)), raw) if name == kind else as_json(value) for name, value in values.items()}  # fmt: skip
            if "/token" in target:
                answer = http_answer(bodies["login"])
            elif kind in {"challenge", "login"} and seen[0] == 1:
                answer = http_answer(b"{}", status=401, more="Www-Authenticate: HERE\r\n").replace(b"HERE", given["challenge"])  # fmt: skip
            elif "/manifests/" in target:
                answer = http_answer(b"", more="Docker-Content-Digest: HERE\r\n").replace(b"HERE", given["digest"])
            else:
                more = "Link: HERE\r\n" if kind == "link" and "last=" not in target else ""
                answer = http_answer(bodies["tags"], more=more).replace(b"HERE", given["link"])
            top, _, rest = answer.partition(b"\r\n\r\n")
            connection.sendall(edited(top, head) + b"\r\n\r\n" + (b"" if target.startswith("HEAD") else rest))
            if head or seen[0] > 20:
                return

    with tempfile.TemporaryDirectory() as place, serving(talk) as port:
        password = SecretSource(file=str(token_file(Path(place), SECRET)))
        registries.TIMEOUT = 10**9 // 2
        settings = Registry(f"127.0.0.1:{port}", "puller", password, insecure=True)

        def check(value: Any) -> str:
            spoilt[:] = value
            seen[0] = 0
            client = RegistryClient(settings, time.monotonic_ns, wall)
            try:
                if value[0] == "digest":
                    return outcome(lambda: client.digest("team/shop", "latest"), str)
                return outcome(lambda: client.tags("team/shop"), tuple[str, ...])
            finally:
                client.close()

        yield check


# --- forges -------------------------------------------------------------------------------------------------------

COMMIT = "0" * 40
PULL = {
    "number": 7, "iid": 7, "title": "a change", "sha": COMMIT, "source_branch": "x", "target_branch": "main", "source_project_id": 1,
    "target_project_id": 1, "author": {"username": "ada", "id": 7}, "web_url": "https://forge.test/7", "html_url": "https://forge.test/7",
    "head": {"sha": COMMIT, "ref": "x", "repo": {"full_name": "team/shop"}}, "base": {"ref": "main"}, "user": {"login": "ada"},
}  # fmt: skip
USER = {"login": "bot", "id": 9, "username": "bot", "type": "User"}
NOTE = {
    "id": 3,
    "body": "<!-- reconciler: x -->\nold",
    "user": USER,
    "author": USER,
    "html_url": "https://forge.test/3",
    "web_url": "x",
}
STATUS = {
    "id": 1,
    "status": "success",
    "name": "reconciler/x",
    "message": "Cannot transition status via :run",
    "error": "x",
}

forge_inputs = st.tuples(
    st.sampled_from(tuple(ForgeType)),
    st.sampled_from(("list", "comment", "status", "open")),
    st.sampled_from(("user", "list", "one", "link")),
    changes,
    edits | none,
    edits | none | none,
    st.sampled_from((200, 201, 201, 400, 403, 404, 409, 422, 429)),
)


@contextlib.contextmanager
def forge_world() -> Iterator[Check]:
    spoilt: list[Any] = []
    seen: list[int] = [0]

    def talk(connection: socket.socket) -> None:
        for target in http_requests(connection):
            seen[0] += 1
            what, kind, steps, raw, head, status = spoilt
            sort = "user" if target.endswith("/user") else "list" if "page=" in target else "one"
            item = {"list": PULL, "open": PULL, "comment": NOTE, "status": STATUS}[what]
            value: Any = {"user": USER, "list": [item], "one": item}[sort]
            body = edited(as_json(changed(value, steps)), raw) if sort == kind else as_json(value)
            more = 'Link: <http://192.0.2.1/?page=2>; rel="next"\r\n' if kind == "link" and "page=1" in target else ""
            answer = http_answer(body, status=status if sort == "one" else 200, more=more)
            top, _, rest = answer.partition(b"\r\n\r\n")
            connection.sendall((edited(top, head) if sort == kind else top) + b"\r\n\r\n" + rest)
            if (head and sort == kind) or seen[0] > 20:
                return

    with tempfile.TemporaryDirectory() as place, serving(talk) as port:
        from reconciler.forge import calls as forge_calls  # noqa: PLC0415

        forge_calls.TIMEOUT = 10**9 // 2
        token = SecretSource(file=str(token_file(Path(place), SECRET)))

        def call(forge: Forge, what: str) -> Any:
            if what == "list":
                return forge.open_requests()
            if what == "comment":
                return forge.put_comment(7, "<!-- reconciler: x -->", "new")
            if what == "open":
                return forge.open_request("a change", "text", "x", "main")
            return forge.set_status(COMMIT, CommitStatus("reconciler/x", State.SUCCESS, "applied"))

        kinds: dict[str, Any] = {
            "list": tuple[MergeRequest, ...],
            "comment": Comment,
            "open": MergeRequest,
            "status": None,
        }

        def check(value: Any) -> str:
            dialect, what, *rest = value
            spoilt[:] = [what, *rest]
            seen[0] = 0
            settings = ForgeSettings(dialect, f"http://127.0.0.1:{port}", "team/shop", token)
            forge = connect(settings, time.monotonic_ns, wall)
            try:
                return outcome(lambda: call(forge, what), kinds[what])
            finally:
                forge.close()

        yield check


SURFACES = (
    Surface("registries", "a registry of images, or its server of tokens", f"{HOLDS}; the login goes to the registry and the server of tokens that it names", registry_inputs, registry_world),
    Surface("forges", "GitHub, GitLab, Gitea or Forgejo, or a server in their place", HOLDS, forge_inputs, forge_world),
)  # fmt: skip
