"""Finds the comment of a marker, and puts its text. Used by the three clients, whose comments differ only in paths and names.

A marker is visible in the source of a comment, so another author can copy it. Such a comment is never ours: its author could change
later what this program wrote there.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from providers.errors import Rejected
from reconciler.forge.calls import Calls
from reconciler.forge.protocol import COMMENT, Comment


class Paths:
    """Where comments are: the list, also for a new one, and one of them by its id. `update` is the method that replaces a text."""

    def __init__(self, listed: str, single: Callable[[int], str], update: str) -> None:
        self.listed, self.single, self.update = listed, single, update


def put(
    calls: Calls, paths: Paths, marker: str, body: str, ours: Callable[[Mapping[str, Any]], bool], url: str = "html_url"
) -> Comment:
    """Make or replace the comment. `ours`: whether a comment has our author; `url`: the field with its address."""
    text = f"{marker}\n{body}"
    if len(text) > COMMENT:
        raise Rejected(calls.target, f"the comment has {len(text)} characters, and {COMMENT} are allowed", "shorten it")
    with calls.shaped():
        earlier = _first(calls.pages(paths.listed), marker, ours)
        if earlier is None:
            made: Any = calls.send("POST", paths.listed, {"body": text}).body
            return Comment(int(made["id"]), str(made.get(url) or ""), True)
        if str(earlier["body"]).replace("\r\n", "\n") != text:
            calls.send(paths.update, paths.single(int(earlier["id"])), {"body": text})
        return Comment(int(earlier["id"]), str(earlier.get(url) or ""), False)


def _first(
    comments: Iterable[Mapping[str, Any]], marker: str, ours: Callable[[Mapping[str, Any]], bool]
) -> Mapping[str, Any] | None:
    for comment in comments:
        body = str(comment["body"])
        if (body == marker or body.startswith((f"{marker}\n", f"{marker}\r\n"))) and ours(comment):
            return comment
    return None
