"""A notice as text and as JSON. Called by the senders of all channels.

Names and messages hold text from outside: answers of servers, output of probes, reasons that operators typed. Each is one line of visible
characters, without secrets; what a service reads as a command to itself is broken up by its sender.
"""

import hashlib
from typing import Any

from manifests.escape import escape
from reconciler.core.notices.model import Notice, Phase
from reconciler.shell.clock import utc
from reconciler.shell.secrets import SECRETS

LINE = 400
"""Characters of one message in a notice."""

TITLE = 200

WORDS = {
    Phase.BEGAN: "",
    Phase.MORE: "more: ",
    Phase.REMINDER: "reminder: ",
    Phase.OVER: "over: ",
    Phase.APPLIED: "",
    Phase.DROPPED: "",
    Phase.TEST: "",
}


def clean(text: str, limit: int = LINE) -> str:
    """A text in one line of visible characters, without secrets, cut to `limit`."""
    line = escape(SECRETS.mask(text))
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def title(notice: Notice, instance: str) -> str:
    """The first line: the instance, and what the notice is about."""
    return f"[{instance}] {WORDS[notice.phase]}{clean(notice.title, TITLE)}"


def body(notice: Notice) -> str:
    """The text below the title, lines joined by line feeds."""
    lines = [f"{clean(name)}: {clean(message)}" if name else clean(message) for name, message in notice.lines]
    if notice.left:
        lines.append(f"and {notice.left} more")
    if notice.next_steps:
        lines += ["", *(f"next step: {clean(step)}" for step in notice.next_steps)]
    lines.append("")
    if notice.incident:
        lines.append(f"since {stamp(notice.began_wall)}")
        if notice.phase is Phase.OVER:
            lines.append(f"over at {stamp(notice.at_wall)}")
    if notice.commit or notice.revision:
        name = f"commit {notice.commit[:12]}" if notice.commit else ""
        revision = f"revision {notice.revision[:12]}" if notice.revision else ""
        lines.append(", ".join(filter(None, (revision, name))))
    return "\n".join(lines).strip("\n")


def stamp(wall: int) -> str:
    """A wall-clock instant (ns) as operators read it."""
    return f"{utc(wall):%Y-%m-%d %H:%M:%S} UTC"


def delivery(notice: Notice, instance: str) -> str:
    """The id of a message: the same in every try, so that a receiver can drop the second one."""
    return hashlib.sha256(f"{instance}\0{notice.id}".encode()).hexdigest()[:32]


def document(notice: Notice, instance: str) -> dict[str, Any]:
    """A notice as JSON: stable fields for programs, and `text` for chats that show it."""
    text = f"{title(notice, instance)}\n{body(notice)}"
    return {
        "version": 1,
        "id": delivery(notice, instance),
        "instance": instance,
        "topic": notice.topic.value,
        "phase": notice.phase.value,
        "cause": clean(notice.incident) or None,
        "title": clean(notice.title, TITLE),
        "objects": [{"key": clean(name) or None, "message": clean(message)} for name, message in notice.lines],
        "more_objects": notice.left,
        "next_steps": [clean(step) for step in notice.next_steps],
        "revision": notice.revision or None,
        "commit": notice.commit or None,
        "began": f"{utc(notice.began_wall):%Y-%m-%dT%H:%M:%SZ}",
        "at": f"{utc(notice.at_wall):%Y-%m-%dT%H:%M:%SZ}",
        "text": for_chat(text),
    }


def for_chat(text: str) -> str:
    """A text in which chats find no mention, link or markup of theirs: `&`, `<` and `>` as Slack wants them, and no word after an `@`.

    https://docs.slack.dev/messaging/formatting-message-text: these three are the only characters that it gives a meaning to.
    """
    shown = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return shown.replace("@", "@\u200b")
