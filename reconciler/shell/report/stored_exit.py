"""The exit code of a stored decision: the one with which a single run would end in that state. For `reconcile status --exit-code`.

Pure. `summary.py` has the same rules for the decision itself; a test compares both.
"""

from collections.abc import Mapping
from typing import Any

from reconciler.core.model.reasons import Rule
from reconciler.exits import Exit, worst
from reconciler.shell.report.summary import APPROVALS, ASKED_FOR, HARMLESS, MANUAL, awaits_approval


def judge(stored: Mapping[str, Any], now: int, *, live: bool, max_age: int) -> tuple[Exit, tuple[str, ...]]:
    """The exit code and the reasons for it.

    Args:
        stored: the document of `summary.decision_json`.
        now: wall clock (ns).
        live: a daemon has just stored its present state.
        max_age: without a daemon, a decision that is older (ns) says nothing about the present: unfinished.
    """
    codes: list[Exit] = [Exit.OK]
    reasons: list[str] = []
    age = now - int(stored.get("at_wall", 0))
    if not live and age > max_age:
        codes.append(Exit.UNFINISHED)
        reasons.append(f"no daemon answers, and the last decision is {age // 10**9}s old")
    for hold in stored["holds"]:
        code = _of_hold(str(hold["rule"]))
        codes.append(code)
        if code is not Exit.OK:
            reasons.append(f"{hold['object']}: {hold['action']} is held ({hold['rule']}: {hold['message']})")
    rules = {rule.value for rule in APPROVALS}
    unapproved = {str(hold["object"]) for hold in stored["holds"] if hold["rule"] in rules}
    for wait in stored["waits"]:
        if wait["until_wall"] is None and awaits_approval(str(wait["object"]), str(wait["waiting"]), unapproved):
            continue
        # A process of an earlier version says nothing of what asked for a wait.
        if wait.get("unasked") or not _asked_for(str(wait["waiting"]), wait["until_wall"], now):
            codes.append(Exit.UNFINISHED)
            reasons.append(f"{wait['object']}: waiting for {wait['waiting']} ({wait['message']})")
    for step in stored["steps"]:
        codes.append(Exit.UNFINISHED)
        reasons.append(f"{step['object']}: {step['action']} was not done")
    for check in stored["status"].get("checks", ()):
        if check.get("healthy") is None:
            codes.append(Exit.UNFINISHED)
            reasons.append(f"{check['key']}: has no verdict ({check.get('reason', '')})")
    return worst(codes), tuple(dict.fromkeys(reasons))


def _of_hold(name: str) -> Exit:
    """A rule of a newer version of the program counts as unfinished."""
    if name not in {rule.value for rule in Rule}:
        return Exit.UNFINISHED
    rule = Rule(name)
    return Exit.OK if rule in HARMLESS else Exit.MANUAL if rule in MANUAL else Exit.UNFINISHED


def _asked_for(name: str, until: int | None, now: int) -> bool:
    return until is not None and until > now and name in {waiting.value for waiting in ASKED_FOR}
