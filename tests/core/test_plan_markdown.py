"""A plan as a comment: short enough, destructive things first, and no text of it is Markdown, whatever it holds."""

import re
from collections.abc import Iterator

from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from manifests.escape import escape
from reconciler.core.plan_markdown import LIMIT, LONGEST, code, marker, to_markdown
from reconciler.core.plan_review import Count, Group, Review
from reconciler.core.replicas.field_changes import Effect, FieldChange

SIGN = "ξ"
"""In every text from outside: it must not appear outside of code."""

NASTY = st.lists(
    st.sampled_from(
        [
            "`", "``", "```", "\n```\n", "~~~", "@octocat", "@org/team ", "#12", "GH-1", "[x](http://e.example)", "![i](u)",
            "<img src=x onerror=alert(1)>", "-->", "<!--", "</details>", "</summary>", "\u202e", "\u200b", "\n", "\n\n# h\n", "|",
            "\\", "&lt;", "- ", "    ", " ", "www.e.example", "https://e.example", "\r", "\x1b[31m", "/close\n", "😀", "**", "_", "$$", "::error::",
        ]
    ),
    max_size=8,
).map(lambda parts: SIGN + SIGN.join(parts) + SIGN)  # fmt: skip

OURS = re.compile(
    r"<!-- reconcile plan of instance [A-Za-z0-9._-]+ -->|<details><summary>\d+ lines? of steps</summary>|</details>"
)

PARSER = MarkdownIt("commonmark").enable(["table", "strikethrough"])


def leaves(tokens: list[Token]) -> Iterator[Token]:
    for token in tokens:
        yield from leaves(token.children) if token.children else (token,)


def review(texts: Iterator[str], groups: int = 2) -> Review:
    def some(count: int = 2) -> tuple[str, ...]:
        return tuple(next(texts) for _ in range(count))

    return Review(
        heads=some(),
        counts=(Count("downtimes", "downtime", 2, True), Count("containers_created", "container created", 1, False)),
        destroyed=some(),
        privileges=tuple(f"privilege workload/web: + {text}" for text in some()),
        groups=tuple(
            Group(
                next(texts), next(texts), next(texts),
                (FieldChange(*some(3), Effect.NEW_CONTAINER, next(texts)),), some(), some(), some(),
            )
            for _ in range(groups)
        ),
        files=(some(4), some(1)),
        holds=some(),
        waits=some(),
        notes=some(),
    )  # fmt: skip


def cycle(texts: list[str]) -> Iterator[str]:
    while True:
        yield from texts


@given(st.lists(NASTY, min_size=1, max_size=12))
@settings(max_examples=150, deadline=None)
def test_no_text_from_outside_is_anything_but_code(texts):
    source = cycle(texts)
    shown = to_markdown(review(source), instance=next(source), result=next(source), command=next(source))
    for token in leaves(PARSER.parse(shown)):
        if token.type in ("html_block", "html_inline"):
            assert all(OURS.fullmatch(line) for line in token.content.strip().splitlines()), token.content
        elif token.type not in ("code_inline", "fence"):
            assert SIGN not in token.content, token
            assert not re.search(r"[@\u202e]|#\d|https?:|www\.", token.content)
        assert token.type not in ("image", "link_open", "code_block")
    assert shown.isprintable() or set(shown) - {"\n"} == {letter for letter in shown if letter.isprintable()}


@given(NASTY)
def test_a_code_span_shows_the_whole_text(text):
    (token,) = [token for token in leaves(PARSER.parse(f"- {code(text)}")) if token.type == "code_inline"]
    wanted = escape(text)
    assert token.content == (wanted if len(wanted) <= LONGEST else f"{wanted[:LONGEST]}…")


def large(count: int, letter: str = "x") -> Review:
    def group(number: int) -> Group:
        field = FieldChange(f"containers[web].env[LEVEL{number}]", letter * 30, letter * 40, Effect.NEW_CONTAINER)
        return Group(f"workload/web-{number}", "", f"web.yaml:{number}:1", (field,), (), (), (f"[] {number} step",) * 9)

    return Review(
        heads=("instance 'shop': a -> b", "plan abc: 1 step, 0 held"),
        counts=(Count("record_sets_deleted", "record set deleted", count, True),),
        destroyed=tuple(f"delete name-{number}.example.test. A {letter * 50}" for number in range(count)),
        privileges=tuple(
            f"privilege workload/web-{number}: + main: privileged {letter * 50}" for number in range(count)
        ),
        groups=tuple(map(group, range(count))),
        holds=tuple(f"hold workload/web-{number}: {letter * 90}" for number in range(count)),
        waits=tuple(f"wait workload/web-{number}: {letter * 90}" for number in range(count)),
        notes=tuple(f"note {number}: {letter * 90}" for number in range(count)),
    )


def test_five_thousand_objects_fit_with_what_destroys_first():
    for letter in ("x", "😀", "`", "&"):
        shown = to_markdown(
            large(5000, letter), instance="shop", result="changes are planned", command="reconcile plan m/"
        )
        units = len(shown.encode("utf-16-le")) // 2
        assert LIMIT / 2 < units <= LIMIT < 65_536
        lines = shown.splitlines()
        assert lines[0] == marker("shop") == "<!-- reconcile plan of instance shop -->"
        order = [
            shown.index(text)
            for text in ("record sets deleted", "**Destroyed:**", "**New privileges:**", "workload/web-0`", "**Held:**")
        ]
        assert order == sorted(order)
        assert re.search(r"_\d{4} more objects, see_ `reconcile plan m/`", shown)
        assert re.search(r"- _\d{4} more_", shown)
        assert lines[-1] == "**Result:** `changes are planned`"
        assert shown.count("<details>") == shown.count("</details>")


def test_an_object_without_room_for_its_steps_is_shown_without_them():
    steps = tuple(f"[] {number} workload/web: {'x' * 300}" for number in range(400))
    field = FieldChange("replicas", "1", "400")
    shown = to_markdown(
        Review(("head",), (), (), (), (Group("workload/web", changes=(field,), steps=steps),)),
        instance="shop", result="ok", command="reconcile plan m/",
    )  # fmt: skip
    assert "`~ replicas: 1 -> 400`" in shown
    assert "_400 steps not shown_" in shown
    assert "more object" not in shown


def test_many_long_files_are_counted_and_leave_room_for_the_objects():
    long = tuple(
        (f"file workload/web: volume conf: {n}.conf", *(f"    +line {n} {'x' * 90}" for _ in range(60)))
        for n in range(400)
    )
    text = to_markdown(
        Review(
            heads=("plan",),
            counts=(),
            destroyed=(),
            privileges=(),
            groups=(Group("workload/web", "changed"),),
            files=long,
        ),
        instance="shop",
        result="changes are planned",
        command="reconcile plan manifests/",
    )
    assert len(text) < 65_536
    assert "0.conf" in text
    assert "+line 0" in text
    assert re.search(r"_\d+ more_", text)
    assert "workload/web`: `changed" in text
