"""What the documentation shows is what the program prints, and it names every rule."""

import re
from pathlib import Path

from reconciler.core.model.reasons import Rule

ROOT = Path(__file__).parents[2]
RUNNING = (ROOT / "docs/running.md").read_text()
PLANS = (ROOT / "docs/plans.md").read_text()
SHOWN = re.compile(r"<!-- golden: (\S+) -->\n(`{3,})text\n(.*?)\n\2\n", re.DOTALL)


def test_outputs_in_the_documentation_are_real():
    for page, least in ((RUNNING, 5), (PLANS, 2)):
        shown = SHOWN.findall(page)
        assert len(shown) >= least
        for name, _, text in shown:
            assert text == (ROOT / "tests/golden" / name).read_text().rstrip(), name


def test_every_rule_that_holds_is_explained():
    table = RUNNING[RUNNING.index("## Holds") :]
    missing = [rule.value for rule in Rule if not re.search(rf"\b{rule.value}\b", table)]
    assert missing == []
