"""What this program must reach on every incident, as bounds with numbers.

In the order of their weight: no law is broken, nothing is emptied by us, restarts in vain, lost requests, recovery. Bounds of lost requests and recovery are
relative: to the best other tool and to the rule that knows everything. On some traces no rule that knows only probes can reach that;
there the bound is the figure of `reference.json`, which `python -m tests.incidents --reference` wrote before the rules of healing were
changed.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from tests.incidents.cases import PRODUCT, Case, Outcome
from tests.incidents.score import Row
from tests.incidents.traces import TRACES

REFERENCE = Path(__file__).parent / "reference.json"

AS_BEFORE = {"3b", "4a", "8a", "8b", "8c"}
"""Traces on which lost requests and recovery must not be worse than in the reference."""

FIXED = {"3c": (6.0, 140.0)}
"""Traces with bounds of their own: recovery in minutes, and thousands of lost requests."""

OVERLOAD = {"8a", "8b", "8c"}
BY_SPELL = {"7a", "7b"}
"""Traces whose cause comes again: their recovery is the longest spell with fewer than all."""

CALLED_OFF = {"6b"}
"""Traces in which restarts that were called off must not delay the one that helps. Restarts that were made may: their pauses apply."""

ATTEMPTS = 5
"""`limits.restarts`: restarts of one replica in 5 min."""

ESCALATION = 7
"""Three restarts in vain, a recreation, and three more; then the replica is left alone."""

OTHERS = ("docker-autoheal", "kubelet", "Nomad")
ALL_KNOWING = "all-knowing"
NOISE = 0.1
"""Minutes and thousands of requests by which a figure may exceed the reference: a second more or less of sampling."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One bound of one case: `value` must not exceed `limit`. `value` None = it never recovered."""

    case: Case
    bound: str
    value: float | None
    limit: float

    @property
    def holds(self) -> bool:
        """Whether it is kept."""
        return self.value is not None and self.value <= self.limit + 1e-9

    def __str__(self) -> str:
        value = "never" if self.value is None else f"{self.value:g}"
        return f"{'ok  ' if self.holds else 'FAIL'} {self.case}: {self.bound} {value}, at most {self.limit:g}"


def judge(outcome: Outcome, reference: Row | None) -> list[Finding]:
    """All bounds of one outcome. Without a reference, bounds that need one are left out."""
    case, row = outcome.case, outcome.rows[PRODUCT]
    alone = case.size == 1 or TRACES[case.key].alone
    findings = [
        Finding(case, "laws broken" + (f" ({row.law})" if row.law else ""), float(bool(row.law)), 0),
        Finding(case, "minutes emptied by us", row.emptied, 0),
    ]
    if alone:
        findings.append(Finding(case, "restarts of one replica in 5 min", row.burst, ATTEMPTS))
        findings.append(Finding(case, "useless restarts of one replica", row.most, ESCALATION))
    else:
        findings.append(Finding(case, "useless restarts", row.first, 2 if case.key in OVERLOAD else 1))
    recovery = row.spell if case.key in BY_SPELL and row.recovery is not None else row.recovery
    lost_limit, recovery_limit = limits(outcome, reference)
    if lost_limit is not None:
        findings.append(Finding(case, "thousands of requests lost", row.lost, lost_limit))
    if recovery_limit is not None and not (case.key in CALLED_OFF and row.useless):
        findings.append(Finding(case, "minutes to recover", recovery, recovery_limit))
    return findings


def limits(outcome: Outcome, reference: Row | None) -> tuple[float | None, float | None]:
    """The bounds of lost requests (thousands) and of recovery (minutes); None = there is none."""
    case, rows = outcome.case, outcome.rows
    if case.key in FIXED:
        recovery, lost = FIXED[case.key]
        return lost, recovery
    if case.key in AS_BEFORE:
        if reference is None:
            return None, None
        before = None if reference.recovery is None else round(reference.recovery + NOISE, 2)
        return round(reference.lost + NOISE, 2), before
    best = max(min(rows[name].lost for name in OTHERS), rows[ALL_KNOWING].lost)
    knowing = rows[ALL_KNOWING]
    ideal = knowing.spell if case.key in BY_SPELL else knowing.recovery
    assert ideal is not None, f"{case}: the rule that knows everything did not recover"
    detection = case.trace().live.detection / 60
    return round(1.1 * best + 0.1, 2), round(2 * ideal + detection, 2)


def load_reference() -> dict[str, Row]:
    """The stored rows of this program, by case."""
    return {name: Row(**row) for name, row in json.loads(REFERENCE.read_text(encoding="utf-8")).items()}


def store_reference(outcomes: list[Outcome]) -> None:
    """Write the rows of this program as the reference, one line each."""
    lines = [
        f"{json.dumps(str(one.case))}: {json.dumps(one.rows[PRODUCT].data())}"
        for one in sorted(outcomes, key=lambda one: str(one.case))
    ]
    REFERENCE.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
