from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from reconciler.shell.store.retention import Retention, Series


def series(name: str, step: str = "weight") -> Series:
    return Series(f"workload/{name}", "step", step)


class Table:
    """The rows of a table that follows a `Retention`."""

    def __init__(self, kept: int, slack: int) -> None:
        self.retention = Retention(kept, slack)
        self.rows: dict[int, Series] = {}

    def add(self, of: Series) -> None:
        number = self.retention.add(of)
        assert number not in self.rows
        self.rows[number] = of
        for dropped in self.retention.drop():
            del self.rows[dropped]

    def count(self) -> Counter[str]:
        return Counter(of.object for of in self.rows.values())


def test_one_flapper_takes_no_history_of_other_objects():
    table = Table(kept=100, slack=10)
    for number in range(9):
        for _ in range(10):
            table.add(series(f"quiet-{number}"))
    for _ in range(10_000):
        table.add(series("flapper"))
    assert all(table.count()[f"workload/quiet-{number}"] == 10 for number in range(9))
    assert 10 <= table.count()["workload/flapper"] <= 20
    newest = sorted(number for number, of in table.rows.items() if of.object == "workload/flapper")
    assert newest == list(range(newest[0], newest[0] + len(newest)))


def test_the_rare_actions_of_a_flapper_are_kept_as_well():
    table = Table(kept=100, slack=10)
    table.add(series("flapper", "restart"))
    for _ in range(10_000):
        table.add(series("flapper"))
    assert series("flapper", "restart") in table.rows.values()


def test_a_later_process_goes_on_with_the_same_rows():
    table = Table(kept=20, slack=5)
    for number in range(200):
        table.add(series("flapper" if number % 50 else "quiet"))
    again = Table(kept=20, slack=5)
    again.rows = dict(table.rows)
    again.retention = Retention(20, 5, sorted(table.rows.items()))
    for number in range(200):
        for copy in (table, again):
            copy.add(series("flapper" if number % 50 else "quiet"))
    assert again.rows == table.rows


@given(st.lists(st.integers(0, 6), max_size=300))
def test_the_total_is_bounded_and_no_short_series_loses_a_row(names):
    table, added = Table(kept=30, slack=5), Counter()
    for name in names:
        table.add(series(str(name)))
        added[f"workload/{name}"] += 1
    count = table.count()
    assert sum(count.values()) <= 35
    longest = max(count.values(), default=0)
    # An object that lost rows has as many as every other one may have, but for those that came since the last time.
    assert all(count[name] == added[name] or count[name] >= longest - 6 for name in added)
    assert not names or max(table.rows) == len(names)
