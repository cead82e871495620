"""Everything with side effects: clocks, looks, calls, the store and the loop. It decides nothing."""
