"""Parsing nginx's configuration; everything that is not ours stays."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.endpoints.nginx.text import Member, empty, parse, render, statements
from providers.facts import Endpoint

PLACES = st.builds(Endpoint, st.ip_addresses().map(str), st.integers(2, 65535))
MEMBERS = st.dictionaries(
    PLACES, st.tuples(st.integers(0, 1000), st.sampled_from(["", "web-0", "shop/web"])), max_size=5
)
FOREIGN = st.sampled_from(
    [
        empty("web"),
        "upstream web { least_conn; }\n",
        'map $a $b { default "}"; }\nupstream "web" {\n  server unix:/run/a.sock; # } {\n  }\n',
        "upstream web {\n    # reconciler begin other\n    server 203.0.113.1:80 down;\n    # reconciler end other\n}",
    ]
)


@given(FOREIGN, MEMBERS, MEMBERS)
def test_what_is_written_reads_back_and_everything_else_stays(
    text: str, first: dict[Endpoint, tuple[int, str]], second: dict[Endpoint, tuple[int, str]]
) -> None:
    before = parse(text, "web", "demo")
    for wanted in (first, second, {}):
        members = {place: Member(place, weight, name, "demo") for place, (weight, name) in wanted.items()}
        text = render(parse(text, "web", "demo"), members, "demo")
        found = parse(text, "web", "demo")
        assert found.ours == members
        assert found.foreign == before.foreign
        rest = (found.text[: found.begin] + found.text[found.end :]).split()
        assert rest == before.text.split()
        assert render(found, members, "demo") == text


def test_statements_know_quotes_comments_and_variables() -> None:
    text = "a 'b;}' \"c{\\\"\"; # d;\nlog_format x '$e' ${f}g;\nh {\n i#j k;\n}"
    assert [(statement.words, statement.end) for statement in statements(text)] == [
        (("a", "b;}", 'c{"'), ";"),
        (("log_format", "x", "$e", "${f}g"), ";"),
        (("h",), "{"),
        (("i#j", "k"), ";"),
        ((), "}"),
    ]


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("", "0 complete blocks"),
        ("upstream web {", "0 complete blocks"),
        ("upstream web { server a; } upstream web { server b; }", "2 complete blocks"),
        ("upstream web {\n# reconciler begin demo\n}\n", "no partner"),
        ("upstream web {\n# reconciler end demo\n}\n", "no partner"),
        ("upstream web {\n# reconciler begin demo\n# reconciler end other\n}\n", "no partner"),
        ("upstream web {\n# reconciler begin demo\nserver a.test;\n# reconciler end demo\n}\n", "markers is not ours"),
        (
            "upstream web {\n# reconciler begin demo\nserver 1.2.3.4:5 down;\nserver 1.2.3.4:5 down;\n# reconciler end demo\n}",
            "comes twice",
        ),
        ("upstream web { server; }", "no address"),
        ("upstream web { server 1.2.3.4 } server", "ends in the middle of"),
    ],
)
def test_a_file_that_is_not_exactly_a_pool_is_refused(text: str, cause: str) -> None:
    with pytest.raises(ValueError, match=cause):
        parse(text, "web", "demo")


def test_a_marker_inside_of_a_quoted_word_is_refused():
    text = (
        'upstream web {\n    server "\n    # reconciler begin demo\n    server 192.0.2.1:80 weight=1;\n    # reconciler end demo\n'
        '    ";\n}\n'
    )
    with pytest.raises(ValueError, match="a marker stands inside of directive 'server'"):
        parse(text, "web", "demo")
