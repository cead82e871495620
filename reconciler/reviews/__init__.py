"""Reviews: the daemon plans open merge requests, and compares what was merged with what was reviewed.

reviewed.py   the content of a plan that is compared, and the comparison; pure
child.py      makes one plan, in a process of its own with a deadline
planner.py    starts that process
file.py       what was reviewed, over restarts
reviewer.py   the thread: which heads are due, comment and status, after the merge
"""
