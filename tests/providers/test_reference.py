"""The page of provider types equals the models."""

from pathlib import Path

from providers.reference import main, provider_types_page
from providers.registry import BUILT_IN

ROOT = Path(__file__).resolve().parents[2]


def test_the_committed_page_is_what_the_models_say() -> None:
    """Run `python -m providers.reference` when this fails."""
    assert (ROOT / "docs" / "provider-types.md").read_text(encoding="utf-8") == provider_types_page()


def test_every_built_in_type_has_a_section(tmp_path: Path) -> None:
    main([str(tmp_path)])
    text = (tmp_path / "provider-types.md").read_text(encoding="utf-8")
    assert [line[3:] for line in text.splitlines() if line.startswith("## ")] == sorted(BUILT_IN)
