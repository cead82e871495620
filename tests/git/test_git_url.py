"""Addresses of git sources: what is taken, what is refused, and when two identities name the same set."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manifests.source.git_url import BadUrl, GitUrl, looks_like_url, parse
from manifests.source.identity import without_credentials
from manifests.values.source_identity import same_set

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.mark.parametrize(
    ("text", "remote", "path", "ref"),
    [
        ("git+https://h.example/o/r.git", "https://h.example/o/r.git", "", ""),
        ("git+https://h.example/o/r.git//deploy/prod?ref=main", "https://h.example/o/r.git", "deploy/prod", "main"),
        (
            "git+https://H.Example:8443/o/r//a%20b/?ref=refs/tags/v1",
            "https://h.example:8443/o/r",
            "a b",
            "refs/tags/v1",
        ),
        ("git+ssh://git@h.example/o/r.git//d", "ssh://git@h.example/o/r.git", "d", ""),
        ("git+ssh://git@[2001:db8::1]:22/o/r.git", "ssh://git@[2001:db8::1]:22/o/r.git", "", ""),
        (f"git+file:///srv/r.git?ref={COMMIT}", "file:///srv/r.git", "", COMMIT),
        ("git+https://h/r.git?ref=feature/x%2By", "https://h/r.git", "", "feature/x+y"),
    ],
)
def test_an_address_names_repository_path_and_ref(text: str, remote: str, path: str, ref: str) -> None:
    url = parse(text)
    assert (url.remote, url.path, url.ref) == (remote, path, ref)
    assert parse(str(url)) == url
    assert looks_like_url(text)


@pytest.mark.parametrize(
    "text",
    [
        "https://h/r.git",
        "git+http://h/r.git",
        "git://h/r.git",
        "git+git://h/r",
        "ext::sh -c touch% /tmp/x",
        "git+ext::sh -c x",
        "git+ext://sh",
        "git@h:o/r.git",
        "git::https://h/r.git",
        "git+https://user:pa55word@h/r.git",
        "git+https://pa55word@h/r.git",
        "git+ssh://git:pa55word@h/r.git",
        "git+ssh://-oProxyCommand=x/r",
        "git+ssh://-oProxyCommand=x@h/r",
        "git+ssh://h/r.git//../x",
        "git+ssh://h/../r.git",
        "git+https://h/r.git//a/.GIT/b",
        "git+https://h/r.git//a//b",
        "git+https://h/r.git//a\\b",
        "git+https://h/r.git//%00",
        "git+https://h/r.git//%ff",
        "git+https://h/r.git//a%2f..%2f..",
        "git+https://h/r\n.git",
        "git+https://h/\x1b[2Jr.git",
        "git+https://h",
        "git+https:///r.git",
        "git+https://h:0/r.git",
        "git+https://h:99999/r.git",
        "git+https://[::z]/r.git",
        "git+https://h/r.git?ref=--upload-pack=x",
        "git+https://h/r.git?ref=",
        "git+https://h/r.git?ref=a..b",
        "git+https://h/r.git?ref=a b",
        "git+https://h/r.git?ref=a&ref=b",
        "git+https://h/r.git?token=x",
        "git+https://h/r.git#main",
        "git+file://other/srv/r.git",
        "git+file:relative",
        "git+file:///srv/%2e%2e/r.git",
        f"git+https://h/{'r' * 3000}",
    ],
)
def test_other_addresses_are_refused_without_their_secrets(text: str) -> None:
    with pytest.raises(BadUrl) as raised:
        parse(text)
    assert "pa55word" not in str(raised.value)
    assert raised.value.hint
    assert str(raised.value).isprintable()


@given(st.text(max_size=60))
def test_no_address_reaches_git_as_an_option(text: str) -> None:
    for begin in ("", "git+https://", "git+ssh://", "git+file:///", "git+https://h/r?ref="):
        try:
            url = parse(begin + text)
        except BadUrl:
            continue
        assert url.remote.startswith(("https://", "ssh://", "file:///"))
        assert url.remote.isprintable()
        assert not url.ref.startswith("-")
        assert ".." not in url.path.split("/")


def test_a_windows_path_or_a_file_with_a_colon_is_no_address() -> None:
    assert not looks_like_url("manifests:old")
    assert not looks_like_url("./git+https")


@pytest.mark.parametrize(
    ("origin", "text"),
    [
        ("https://token@h.example/o/r.git", "git+https://h.example/o/r.git//d"),
        ("https://h.example/o/r", "git+ssh://git@h.example/o/r.git//d"),
        ("git@h.example:o/r.git", "git+ssh://git@h.example/o/r.git//d"),
        ("git@H.example:o/r.git", "git+https://h.example:443/o/r//d"),
        ("ssh://git@h.example:22/o/r.git/", "git+https://h.example/o/r//d"),
        ("/srv/git/r.git", "git+file:///srv/git/r.git//d"),
        ("file:///srv/git/r", "git+file:///srv/git/r.git//d"),
    ],
)
def test_a_checkout_and_a_git_source_are_the_same_set(origin: str, text: str) -> None:
    checkout = f"{without_credentials(origin)}//d"
    assert same_set(checkout, parse(text).identity)
    assert not same_set(checkout, parse(text.replace("//d", "//e")).identity)
    assert not same_set(checkout, parse(text.replace("/r", "/q")).identity)


@pytest.mark.parametrize(("one", "other"), [("/srv/a", "/srv/b"), ("/srv/a", "https://srv/a//"), ("", "/srv/a")])
def test_other_sets_are_not_the_same(one: str, other: str) -> None:
    assert not same_set(one, other)
    assert same_set(one, one)


def test_the_pinned_commit_is_known() -> None:
    assert GitUrl("https://h/r", "", COMMIT).commit == COMMIT
    assert GitUrl("https://h/r", "", "main").commit == ""
