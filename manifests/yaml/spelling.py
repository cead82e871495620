"""Spellings that YAML 1.2 allows and the parser refuses, written as the parser reads them. Called by `read.py` and `text.py`.

The result has the same length and the same lines as the text, so every position in it is a position in the text:

- tabs that only separate become spaces: after `-`, `:` and `---`, before comments; one at the begin of a comment becomes `#`
- `...` before a document without `---` becomes `---`
- unknown directives, and `...` where no document has begun, become comments, because YAML says to ignore them
- a byte order mark before a later document moves behind the line break, as a space: it comes from files that were joined
"""

import re

from manifests.yaml.outline import outline

_MARK_OF_JOINED = re.compile("(\r\n|\n|\r)\ufeff(?=---(?:[ \t\r\n]|$)|#|%)")


def spelled(text: str) -> str:
    """The text in the spelling of the parser; the text itself when there is nothing to change."""
    text = _MARK_OF_JOINED.sub(lambda found: f" {found.group(1)}", text)
    found = outline(text)
    changes = dict.fromkeys(found.separators, " ")
    changes |= dict.fromkeys(found.ends, "---")
    changes |= dict.fromkeys((*found.comments, *found.ignored), "#")
    if not changes:
        return text
    parts, last = [], 0
    for at, new in sorted(changes.items()):
        parts += [text[last:at], new]
        last = at + len(new)
    return "".join([*parts, text[last:]])
