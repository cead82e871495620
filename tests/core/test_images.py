"""Which image a policy wants: ranges of versions, newest tags and digests, never back and never one that was taken back."""

import pytest

from manifests.kinds.image_policy import ImagePolicy as Kind
from manifests.resolve.image_policies import policy_value
from manifests.values.image_policy import ImagePolicy
from manifests.values.version_range import parse_range, parse_version
from reconciler.core.images import of_digest, of_tags


def policy(image: str = "registry.test/shop:1.4.0", **given: object) -> ImagePolicy:
    return policy_value(Kind.model_validate({"container": "shop", **given}), image, image)


@pytest.mark.parametrize(
    ("wanted", "has", "has_not"),
    [
        (">=1.4 <2", "1.4.0 1.9.9", "1.3.9 2.0.0 2.0.0-rc.1 1.5.0-rc.1"),
        (">= 1.4, < 2", "1.4.0", "2.0.0"),
        ("^1.4", "1.4.0 1.9.0", "2.0.0 1.3.0"),
        ("^0.2.1", "0.2.1 0.2.9", "0.3.0 0.2.0"),
        ("^0.0.3", "0.0.3", "0.0.4"),
        ("~1.4.2", "1.4.2 1.4.9", "1.5.0 1.4.1"),
        ("~1", "1.0.0 1.9.0", "2.0.0"),
        ("1.x", "1.0.0 1.9.9", "2.0.0 0.9.0"),
        ("1.4", "1.4.0 1.4.9", "1.5.0"),
        ("*", "0.0.1 9.9.9", "1.0.0-rc.1"),
        (">1.4", "1.5.0", "1.4.9"),
        ("<=1.4", "1.4.9 1.3.0", "1.5.0"),
        ("=1.4.7", "1.4.7", "1.4.8"),
        (">=1.5.0-rc.1 <2", "1.5.0-rc.1 1.5.0-rc.2 1.5.0 1.6.0", "1.5.0-beta 1.6.0-rc.1 2.0.0-rc.1"),
        ("1.3.9 || >=3", "1.3.9 3.0.0", "2.0.0"),
    ],
)
def test_ranges_have_the_versions_that_semver_says(wanted, has, has_not):
    known = parse_range(wanted)
    assert [text for text in has.split() if not known.has(parse_version(text))] == []
    assert [text for text in has_not.split() if known.has(parse_version(text))] == []


def test_the_order_of_versions_is_that_of_the_specification():
    ordered = [
        "1.0.0-alpha",
        "1.0.0-alpha.1",
        "1.0.0-alpha.beta",
        "1.0.0-beta",
        "1.0.0-beta.2",
        "1.0.0-beta.11",
        "1.0.0-rc.1",
        "1.0.0",
    ]
    backwards = ordered[::-1]
    assert sorted(backwards, key=lambda text: parse_version(text).order) == ordered


@pytest.mark.parametrize(
    "text", ["latest", "1.4", "1", "01.2.3", "1.2.3.4", "1.2.3-01", "1.2.3-", "v1.2", "1.2.3+build"]
)
def test_other_texts_are_no_versions(text):
    assert parse_version(text) is None


@pytest.mark.parametrize("text", ["", "||", ">=", "latest", ">=1.4 <", "1.4-rc", "1.2.3.4", ">>1", "x" * 300])
def test_invalid_ranges_are_refused(text):
    with pytest.raises(ValueError):
        parse_range(text)


def chosen(rule: ImagePolicy, *tags: str, image: str = "registry.test/shop:1.4.0", taken_back=frozenset()) -> str:
    return of_tags(rule, image, tags, taken_back).image


def test_the_highest_version_of_the_range_is_chosen():
    rule = policy(semver=">=1.4 <2")
    assert chosen(rule, "1.4.0", "1.10.0", "1.9.0", "2.0.0", "latest", "1.11.0-rc.1") == "registry.test/shop:1.10.0"
    assert chosen(rule, "1.4.0", "1.3.0") == ""
    assert chosen(rule, "1.4.0", "v1.5.0") == "registry.test/shop:v1.5.0"
    assert chosen(rule) == ""


def test_an_image_never_goes_back():
    rule = policy(semver=">=1.4 <2")
    assert chosen(rule, "1.5.0", image="registry.test/shop:1.6.0") == ""
    assert chosen(rule, "1.5.0", image="registry.test/shop:2.1.0") == ""
    assert chosen(rule, "1.5.0", image="registry.test/shop:latest") == "registry.test/shop:1.5.0"


def test_what_was_taken_back_is_left_out():
    rule = policy(semver=">=1.4 <2")
    back = frozenset({"registry.test/shop:1.6.0"})
    assert chosen(rule, "1.5.0", "1.6.0", taken_back=back) == "registry.test/shop:1.5.0"
    assert chosen(rule, "1.5.0", "1.6.0", image="registry.test/shop:1.5.0", taken_back=back) == ""
    assert chosen(rule, "1.5.0", "1.6.0", "1.6.1", taken_back=back) == "registry.test/shop:1.6.1"


def test_the_spelling_of_the_image_stays():
    rule = policy("shop:1.4.0", semver="1.x")
    assert chosen(rule, "1.5.0", image="shop:1.4.0") == "shop:1.5.0"
    assert chosen(rule, "1.5.0", image=f"shop:1.4.0@sha256:{'a' * 64}") == "shop:1.5.0"
    assert chosen(rule, "1.5.0", image="localhost:5000/shop") == "localhost:5000/shop:1.5.0"


def test_newest_tags_compare_the_marked_part():
    rule = policy(newest={"pattern": "main-*-{value}", "order": "numeric"})
    assert (
        chosen(rule, "main-abc-9", "main-def-10", "dev-x-99", "main-1", image="r.test/shop:main-x-8")
        == "r.test/shop:main-def-10"
    )
    assert chosen(rule, "main-abc-9", image="r.test/shop:main-x-10") == ""
    dated = policy(newest={"pattern": "{value}-nightly", "order": "alphabetical"})
    tags = ("2026-01-02-nightly", "2026-01-10-nightly", "2026-02-01")
    assert chosen(dated, *tags, image="r.test/shop:2026-01-01-nightly") == "r.test/shop:2026-01-10-nightly"


def test_patterns_with_signs_of_expressions_are_literal():
    rule = policy(newest={"pattern": "v1.{value}", "order": "numeric"})
    assert chosen(rule, "v1x7", "v1.3", image="r.test/shop:v1.1") == "r.test/shop:v1.3"


def test_a_digest_follows_its_tag_until_it_was_taken_back():
    rule, a, b = policy(digest={"tag": "stable"}), f"sha256:{'a' * 64}", f"sha256:{'b' * 64}"
    assert of_digest(rule, "r.test/shop:stable", a, frozenset()).image == f"r.test/shop:stable@{a}"
    assert of_digest(rule, f"r.test/shop:stable@{a}", a, frozenset()).image == ""
    assert of_digest(rule, f"r.test/shop:stable@{a}", b, frozenset()).image == f"r.test/shop:stable@{b}"
    assert of_digest(rule, f"r.test/shop:stable@{a}", b, frozenset({f"r.test/shop:stable@{b}"})).image == ""
