"""The acting half: clocks, looks, calls, the store and the loop. It decides nothing."""
