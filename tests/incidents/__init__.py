"""Incidents: the same twelve kinds of faults under this program, under other tools, and under a rule that knows everything.

`make incidents` runs all of them in virtual time, prints the table of docs/healing.md and judges it; `python -m tests.incidents --help`
has the parts. `traces.py` is the physics, `peers.py` the other rules, `product.py` the real loop, `judge.py` the bounds, and `real.py` repeats
five of them with real processes.
"""
