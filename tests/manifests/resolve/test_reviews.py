"""Reviews of an Instance: what they need, and who may ask for them."""

import pytest

from manifests.load import load
from manifests.problems import ManifestErrors
from manifests.values.desired import SECOND
from manifests.values.reviews import Reviews
from tests.manifests.resolve.test_notices import FORGE, instance, loaded, refused
from tests.manifests.trees import PROVIDERS, TYPES

SOURCE = "source: {url: 'git+https://git.example.com/shop/manifests.git//prod?ref=main'}"


def reviews(tmp_path, *fields: str) -> Reviews | None:
    loaded(tmp_path, *fields)
    return load(
        tmp_path / "tree",
        settings_model=TYPES.get,
        known_types=lambda: list(TYPES),
        instance_file=tmp_path / "local.yaml",
    ).instance.reviews


def test_nothing_is_planned_by_default(tmp_path):
    assert reviews(tmp_path, SOURCE, FORGE) is None


def test_reviews_have_bounds(tmp_path):
    made = reviews(tmp_path, SOURCE, FORGE, "reviews: {}")
    assert made == Reviews(60 * SECOND, 120 * SECOND, 20)
    assert "limit" in refused(tmp_path, SOURCE, FORGE, "reviews: {limit: 101}")
    assert "interval" in refused(tmp_path, SOURCE, FORGE, "reviews: {interval: 1s}")


@pytest.mark.parametrize(("given", "missing"), [((SOURCE,), "forge"), ((FORGE,), "source")])
def test_reviews_need_a_source_and_a_forge(tmp_path, given, missing):
    assert f"reviews need {missing}" in refused(tmp_path, *given, "reviews: {}")


def test_a_tree_cannot_ask_for_reviews(tmp_path):
    (tmp_path / "one.yaml").write_text(f"{instance(SOURCE, FORGE, 'reviews: {}')}---\n{PROVIDERS}")
    with pytest.raises(ManifestErrors) as caught:
        load(tmp_path, settings_model=TYPES.get, known_types=lambda: list(TYPES))
    assert any("spec.reviews does nothing in the tree" in problem.message for problem in caught.value.problems)
