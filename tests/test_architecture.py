"""docs/architecture.md shows the house as it stands: every module is in exactly one row."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ROW = re.compile(r"`((?:manifests|providers|reconciler)/[\w/.]+)`")


def places() -> list[list[str]]:
    """The files and folders of each row."""
    page = (ROOT / "docs" / "architecture.md").read_text()
    rows = [line.split("|")[1:-1] for line in page.splitlines() if line.startswith("| ")]
    return [found for cells in rows if (found := ROW.findall(cells[-1]))]


def modules() -> list[str]:
    """Every module of the three packages; packages that only name their room are no modules."""
    paths = [path for top in ("manifests", "providers", "reconciler") for path in (ROOT / top).rglob("*.py")]
    return sorted(str(path.relative_to(ROOT)) for path in paths if path.name != "__init__.py")


def test_every_module_stands_in_exactly_one_row():
    rows = places()
    counts = {
        module: sum(
            any(module == place or (place.endswith("/") and module.startswith(place)) for place in row) for row in rows
        )
        for module in modules()
    }
    assert {module: count for module, count in counts.items() if count != 1} == {}


def test_every_place_that_the_page_names_exists():
    named = [place for row in places() for place in row]
    assert [place for place in named if not (ROOT / place).exists()] == []
    assert len(named) == len(set(named))
