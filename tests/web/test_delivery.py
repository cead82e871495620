"""Deliveries of webhooks, judged without a socket: which signatures are genuine, which ref was pushed, and which concern the source."""

import json
from urllib.parse import urlencode

import pytest

from reconciler.web.delivery import (
    Claimed,
    NoRef,
    Provider,
    Wanted,
    claimed,
    genuine,
    key_of,
    other,
    ref_of,
)
from tests.web.webhook_world import SECRET, body_of, headers_of, signed

FORGES = {"github": Provider.GITHUB, "gitlab": Provider.GITLAB, "gitea": Provider.GITEA, "forgejo": Provider.GITEA}


def header(headers: dict[str, str]):
    lower = {name.lower(): value for name, value in headers.items()}
    return lambda name: [lower[name]] if name in lower else []


@pytest.mark.parametrize(("forge", "provider"), FORGES.items())
def test_the_headers_of_each_forge_are_known(forge: str, provider: Provider) -> None:
    body = body_of()
    claim = claimed(header(headers_of(forge, body, "delivery-9")))
    assert claim is not None
    assert (claim.provider, claim.id) == (provider, "delivery-9")
    assert genuine(claim, body, SECRET)


@pytest.mark.parametrize("forge", FORGES)
def test_another_secret_is_not_genuine(forge: str) -> None:
    body = body_of()
    claim = claimed(header(headers_of(forge, body, secret="another")))
    assert claim is not None
    assert not genuine(claim, body, SECRET)


@pytest.mark.parametrize("forge", ["github", "gitea", "forgejo"])
def test_a_changed_body_is_not_genuine(forge: str) -> None:
    claim = claimed(header(headers_of(forge, body_of())))
    assert claim is not None
    assert not genuine(claim, body_of("refs/heads/main "), SECRET)


def test_the_digest_of_rfc_4231_is_genuine() -> None:
    # RFC 4231, test case 2, as GitHub would send it
    digest = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
    claim = Claimed(Provider.GITHUB, f"sha256={digest}", "", "")
    assert genuine(claim, b"what do ya want for nothing?", "Jefe")


BODY = body_of()


@pytest.mark.parametrize(
    "claim",
    [
        Claimed(Provider.GITHUB, signed(BODY), "", ""),
        Claimed(Provider.GITHUB, f"sha1={signed(BODY)}", "", ""),
        Claimed(Provider.GITHUB, f"sha256={signed(BODY)}00", "", ""),
        Claimed(Provider.GITHUB, "sha256=", "", ""),
        Claimed(Provider.GITHUB, "", "", ""),
        Claimed(Provider.GITEA, f"sha256={signed(BODY)}", "", ""),
        Claimed(Provider.GITEA, "\u0661" * 64, "", ""),
        Claimed(Provider.GITEA, "zz" * 32, "", ""),
        Claimed(Provider.GITLAB, "", "", ""),
        Claimed(Provider.GITLAB, SECRET + "\xff", "", ""),
        Claimed(Provider.GITLAB, signed(BODY), "", ""),
    ],
)
def test_a_signature_of_another_form_is_not_genuine(claim: Claimed) -> None:
    assert not genuine(claim, BODY, SECRET)


def test_only_the_declared_kind_of_forge_counts() -> None:
    body = body_of()
    assert claimed(header(headers_of("gitlab", body)), "github") is None
    assert claimed(header(headers_of("forgejo", body)), "gitea") is not None


def test_two_signatures_of_a_kind_are_no_claim() -> None:
    both = {"x-gitea-signature": [signed(BODY), "0" * 64]}
    assert claimed(lambda name: both.get(name, [])) is None


def test_a_wrong_signature_of_forgejo_is_not_saved_by_that_of_gitea() -> None:
    headers = headers_of("forgejo", BODY) | {"X-Forgejo-Signature": "0" * 64}
    claim = claimed(header(headers))
    assert claim is not None
    assert not genuine(claim, BODY, SECRET)


def test_a_delivery_without_an_id_is_known_by_its_body() -> None:
    claim = Claimed(Provider.GITEA, signed(BODY), "", "push")
    assert key_of(claim, BODY) == key_of(claim, BODY) != key_of(claim, body_of("refs/heads/dev"))


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (BODY, "application/json"),
        (BODY, ""),
        (urlencode({"payload": BODY.decode()}).encode(), "application/x-www-form-urlencoded"),
        (urlencode({"payload": BODY.decode()}).encode(), "Application/X-WWW-Form-Urlencoded; charset=utf-8"),
    ],
)
def test_the_ref_is_read_from_json_and_from_forms(body: bytes, content_type: str) -> None:
    assert ref_of(body, content_type) == "refs/heads/main"


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b"", ""),
        (b"\xff\xfe", ""),
        (b"[]", ""),
        (b"null", ""),
        (b"{}", ""),
        (b'{"ref": 7}', ""),
        (b'{"ref": ""}', ""),
        (b"[" * 200_000, ""),
        (b"payload=", "application/x-www-form-urlencoded"),
        (b"a=1&" * 100, "application/x-www-form-urlencoded"),
        (b"\xff=1", "application/x-www-form-urlencoded"),
        (BODY, "application/x-www-form-urlencoded"),
    ],
)
def test_a_body_without_a_ref_is_refused_with_its_reason(body: bytes, content_type: str) -> None:
    with pytest.raises(NoRef):
        ref_of(body, content_type)


@pytest.mark.parametrize(
    ("pushed", "wanted"),
    [
        ("refs/heads/main", Wanted("main")),
        ("refs/heads/main", Wanted("refs/heads/main")),
        ("refs/tags/v1", Wanted("v1")),
        ("refs/heads/whatever", Wanted()),
        ("refs/tags/v2", Wanted("main", tags=True)),
    ],
)
def test_a_push_that_may_move_the_source_concerns_it(pushed: str, wanted: Wanted) -> None:
    assert other(pushed, wanted) == ""


@pytest.mark.parametrize(
    ("pushed", "wanted"),
    [
        ("refs/heads/dev", Wanted("main")),
        ("main", Wanted("refs/heads/main")),
        ("refs/tags/main", Wanted("refs/heads/main")),
        ("refs/tags/v1", Wanted()),
        ("refs/tags/v1", Wanted("main")),
        ("refs/heads/main", Wanted("1" * 40)),
        ("refs/tags/v1", Wanted("1" * 64, tags=True)),
        ("refs/heads/dev\n::error::", Wanted("main")),
    ],
)
def test_a_push_of_another_ref_does_not_concern_the_source(pushed: str, wanted: Wanted) -> None:
    why = other(pushed, wanted)
    assert why
    assert "\n" not in why


def test_json_of_a_million_characters_is_read_quickly() -> None:
    assert ref_of(json.dumps({"x": "a" * 1_000_000, "ref": "refs/heads/main"}).encode(), "") == "refs/heads/main"
