"""Makes the plan of one head, in a process of its own: `reconciler/reviews/planner.py` starts it, with a deadline.

It gets the daemon's observation on standard input, so it asks no provider, resolves no secret of a tree and runs nothing for it; it fetches the
commit into a mirror of its own. Its answer is one JSON document on standard output, by names only.
"""

import asyncio
import json
import logging
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from manifests.load import declared_instance, with_choices
from manifests.problems import ManifestErrors, Problem
from manifests.source.git_url import GitUrl
from manifests.source.local import read_local
from reconciler.cli.plan import exit_code
from reconciler.cli.render.untrusted import untrusted_markdown
from reconciler.core.plan_markdown import code, marker
from reconciler.exits import Exit
from reconciler.git.errors import GitError
from reconciler.git.reader import GitReader
from reconciler.intent import Intent
from reconciler.reviews import reviewed
from reconciler.snapshots import document
from reconciler.tree import Location, resolve
from reconciler.wire import make_plan

PROBLEMS = 20
"""Problems of a head that a comment shows."""

OLD = (
    "**This head does not contain the commit in force.** The plan takes back what was merged since: update the branch to see what it "
    "changes.\n\n"
)


def main() -> int:
    """Read the order, plan, and write the answer."""
    logging.disable(logging.CRITICAL)  # a log has texts of servers and of the tree
    os.nice(10)
    order = json.loads(sys.stdin.buffer.read())
    sys.stdout.write(json.dumps(answer(order)))
    return 0


def answer(order: dict[str, Any]) -> dict[str, Any]:
    """The plan of a head.

    Args:
        order: `instance_file`, `mirrors`, `ref` and `commit` of the head, `base`: the commit in force, `snapshot`, `environment`.
    """
    snapshot = document.read(order["snapshot"])
    instance_file = Path(order["instance_file"])
    spec = declared_instance(read_local(instance_file, os.devnull))
    source = None if spec is None else spec.source
    if source is None:
        return {"failed": "the local documents declare no source any more"}
    url: GitUrl = replace(source.parsed, ref=order["ref"])
    reader = GitReader(url, instance_file, Path(order["mirrors"]), environment=order["environment"])
    location = Location(url, instance_file, Path(order["mirrors"]), environment=order["environment"], reader=reader)
    sources = with_choices(location.read(), snapshot.choices)
    head = reader.head.commit if reader.head is not None else ""
    if head and head != order["commit"]:
        return {"moved": head}
    if reader.problem is not None:
        return {"failed": reader.problem.cause, "invalid_source": bool(head)}
    try:
        desired = resolve(sources)
    except ManifestErrors as error:
        return {"commit": head, "tree": reader.tree, **_invalid(error, snapshot.instance)}
    made = asyncio.run(
        make_plan(
            location,
            intent=Intent(),
            deadline=0,
            note=lambda _: None,
            untrusted=True,
            snapshot=snapshot,
        )
    )
    plan = made.plan
    plan = replace(plan, planned=replace(plan.planned, commit=head))
    made = made._replace(plan=plan, commit=head)
    result = exit_code(bool(plan.steps), unreadable=bool(made.decision.status.unknown), detailed=False)
    text = untrusted_markdown(made, desired, result, "reconcile plan PATH --untrusted")
    first, _, rest = text.partition("\n")
    seen = reviewed.of_plan(plan, reader.tree, head)
    return {
        "commit": head,
        "tree": reader.tree,
        "parents": list(_parents(reader, head)),
        "markdown": f"{first}\n{OLD}{rest}" if _is_old(reader, order["base"], head) else text,
        "steps": len(plan.steps),
        "held": len(plan.holds),
        "incomplete": sorted(made.decision.status.unknown),
        "hash": seen.hash,
        "lines": [list(line) for line in seen.lines],
    }


def _invalid(error: ManifestErrors, instance: str) -> dict[str, Any]:
    """The answer for a head whose manifests are invalid."""
    wrong = [problem for problem in error.problems if not problem.is_warning]
    shown = "\n".join(f"- {code(_line(problem))}" for problem in wrong[:PROBLEMS])
    more = f"\n\n{len(wrong) - PROBLEMS} more problems" if len(wrong) > PROBLEMS else ""
    head = f"{marker(instance)}\n### Plan for {code(instance)}\n\n**The manifests are invalid; this commit would be refused.**\n\n"
    return {
        "markdown": f"{head}{shown}{more}\n\n**Result:** {code(f'{Exit.INVALID.sentence} (exit {int(Exit.INVALID)})')}\n",
        "invalid": len(wrong),
    }


def _line(problem: Problem) -> str:
    """The place, the code and the message of a problem; not the hint, which names paths of this host."""
    place = f"{os.path.basename(problem.file)}:{problem.line}" if problem.line else os.path.basename(problem.file)
    return f"{place}: {problem.code.value}: {problem.message}"


def _is_old(reader: GitReader, base: str, head: str) -> bool:
    """Whether a head is known to lack the commit in force."""
    if not base or base == head or len(base) != len(head):
        return False
    try:
        with reader.mirror() as mirror:
            return mirror.is_ancestor(base, head) is False
    except GitError:
        return False


def _parents(reader: GitReader, commit: str) -> tuple[str, ...]:
    from reconciler.git.mirror import parents_of  # noqa: PLC0415  (beside its use)

    try:
        with reader.mirror() as mirror:
            return parents_of(mirror.object(commit).data)
    except GitError:
        return ()


if __name__ == "__main__":
    sys.exit(main())
