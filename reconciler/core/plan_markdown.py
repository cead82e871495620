"""A plan as Markdown for a comment on a merge request: short enough for every forge, and no text of it can forge anything.

Names, values and messages come from manifests and servers. All of them stand in code spans and code blocks, where a forge makes neither
mentions, links, images, HTML nor references of them; `escape` has made every character visible that is not. The delimiters are longer
than any run of backticks inside. Called by `cli/plan.py`, and by whatever posts a comment.
"""

import re
from collections.abc import Iterable, Iterator, Sequence

from manifests.escape import escape
from reconciler.core import plan_review
from reconciler.core.plan_review import Group, Review

LIMIT = 65_000
"""Most characters of a comment, as UTF-16 counts them: GitHub refuses bodies of more than 65,536."""

DESTROYED = 20_000
"""Characters for the list of what is destroyed, which stands first."""

FILES = 15_000
"""Characters for the files that differ."""

TAIL = 12_000
"""Characters for holds, waits and notes, and for the result."""

LONGEST = 400
"""Characters of one line."""

MARKER = "<!-- reconcile plan of instance {instance} -->"
"""The first line: invisible where it is shown, and the same for every plan of an instance, so that a comment is updated."""


def marker(instance: str) -> str:
    """The first line of every comment about an instance. Its id has no character that could end the comment."""
    return MARKER.format(instance=re.sub(r"[^A-Za-z0-9._-]", "_", instance))


def to_markdown(review: Review, *, instance: str, result: str, command: str) -> str:
    """A review as Markdown of at most `LIMIT` characters. What does not fit is counted.

    Args:
        result: the result in one sentence, with the exit code.
        command: the command that shows the whole plan.
    """
    room = _Room(LIMIT)
    room.add([marker(instance)])
    first, *rest = review.heads or ("",)
    room.add([f"### Plan for {code(instance)}", "", *(f"- {code(line)}" for line in (first, *rest)), ""])
    if review.counts:
        for text, destroys in (("Destroys or interrupts", True), ("Changes", False)):
            shown = ", ".join(row.text for row in review.counts if row.destroys is destroys)
            room.add([f"**{text}:** {shown}", ""] if shown else [])
    tail = [*_list("Held", review.holds, TAIL // 2), *_list("Waits", review.waits, TAIL // 4)]
    tail += [*_list("Notes", review.notes, TAIL // 8), f"**Result:** {code(result)}"]
    room.reserve(tail)
    new = [line for line in review.privileges if " + " in line or " ? " in line]
    other = [line for line in review.privileges if line not in new]
    room.add(_list("Destroyed", review.destroyed, DESTROYED // 2))
    room.add(_list("New privileges", new, DESTROYED // 4))
    room.add(_list("Privileges that stay or go", other, DESTROYED // 4))
    _files(review.files, room)
    left = _objects(review.groups, room)
    if left:
        room.keep([f"_{left} more object{'' if left == 1 else 's'}, see_ {code(command)}", ""])
    return "\n".join([*room.lines, *tail]) + "\n"


def refusal(lines: Sequence[str], *, instance: str, result: str) -> str:
    """The comment about manifests that have no plan. It takes the place of an earlier plan, which no longer holds.

    Args:
        lines: the problems, each with its place, and what to do.
        result: the result in one sentence, with the exit code.
    """
    rows = [marker(instance), f"### No plan for {code(instance)}", "", *_list("Problems", lines, LIMIT - TAIL)]
    return "\n".join([*rows, f"**Result:** {code(result)}"]) + "\n"


class _Room:
    """Lines within a limit of characters."""

    def __init__(self, limit: int) -> None:
        self.lines: list[str] = []
        self._left = limit - 400  # for the line that counts what does not fit

    def reserve(self, lines: Sequence[str]) -> None:
        """Leave room for lines that come last."""
        self._left -= _size(lines)

    def add(self, lines: Sequence[str]) -> bool:
        """Add all of these lines, or none when they do not fit. Whether they did."""
        size = _size(lines)
        if size > self._left:
            return False
        self.lines += lines
        self._left -= size
        return True

    def keep(self, lines: Sequence[str]) -> None:
        """Add lines that room is kept for."""
        self.lines += lines


def _size(lines: Iterable[str]) -> int:
    return sum(len(line.encode("utf-16-le")) // 2 + 1 for line in lines)


def _list(title: str, rows: Sequence[str], room: int) -> list[str]:
    """A list of lines under a title, with the number of those that do not fit."""
    if not rows:
        return []
    shown: list[str] = []
    size = 0
    for row in rows:
        line = f"- {code(row)}"
        size += _size([line])
        if size > room:
            break
        shown.append(line)
    more = len(rows) - len(shown)
    return [f"**{title}:**", "", *shown, *([f"- _{more} more_"] if more else []), ""]


def _files(files: Sequence[Sequence[str]], room: _Room) -> None:
    """Add the files that differ: one without room for its lines is shown without them, and the others are counted."""
    if not files or not room.add(["**Files:**", ""]):
        return
    budget = _Room(FILES)
    for done, (head, *lines) in enumerate(files):
        whole = [f"- {code(head)}", "", *(block(line.removeprefix("    ") for line in lines) if lines else ()), ""]
        rows = next((rows for rows in (whole, [f"- {code(head)}", ""]) if budget.add(rows)), None)
        if rows is None or not room.add(rows):
            room.add([f"- _{len(files) - done} more_", ""])
            return


def _objects(groups: Sequence[Group], room: _Room) -> int:
    """Add the objects, those with changed fields first, as far as they fit. Returns how many do not.

    An object without room for its steps is shown without them.
    """
    ordered = sorted(range(len(groups)), key=lambda at: (not groups[at].changes, at))
    for done, at in enumerate(ordered):
        group = groups[at]
        if not room.add([*_head(group), *_changes(group), *_steps(group)]):
            count = len(group.steps)
            short = [f"_{count} step{'' if count == 1 else 's'} not shown_", ""] if count else []
            if not room.add([*_head(group), *_changes(group), *short]):
                return len(groups) - done
    return 0


def _head(group: Group) -> list[str]:
    title = f": {code(group.title)}" if group.title else ""
    where = f" ({code(group.where)})" if group.where else ""
    return [f"#### {code(group.object)}{where}{title}", ""]


def _changes(group: Group) -> list[str]:
    rows = [f"- {code(plan_review.change_text(field))}" for field in group.changes]
    rows += [f"- note: {code(note)}" for note in group.notes]
    rows += [f"- follows: {code(text)}" for text in group.follows]
    return [*rows, ""] if rows else []


def _steps(group: Group) -> list[str]:
    if not group.steps:
        return []
    count = len(group.steps)
    summary = f"<details><summary>{count} line{'' if count == 1 else 's'} of steps</summary>"
    return [summary, "", *block(group.steps), "", "</details>", ""]


def code(text: str) -> str:
    """A text as a code span: nothing in it is Markdown, HTML, a mention or a link."""
    shown = _cut(text)
    fence = "`" * (_longest_run(shown) + 1)
    # A blank at both ends is not a part of the span, and keeps backticks of the text apart from the delimiter.
    pad = " " if not shown or shown[0] in "` " or shown[-1] in "` " else ""
    return f"{fence}{pad}{shown or '-'}{pad}{fence}"


def block(lines: Iterable[str]) -> Iterator[str]:
    """Lines as a code block."""
    shown = [_cut(line) for line in lines]
    fence = "`" * max(3, *(_longest_run(line) + 1 for line in shown))
    yield f"{fence}text"
    yield from shown
    yield fence


def _cut(text: str) -> str:
    shown = escape(text)
    return shown if len(shown) <= LONGEST else f"{shown[:LONGEST]}…"


def _longest_run(text: str) -> int:
    return max(map(len, re.findall("`+", text)), default=0)
