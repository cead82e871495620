"""Every command line of `reconcile` in the README and in the documentation is one that the program accepts."""

import re
import shlex
from pathlib import Path

import click
import pytest

from reconciler.cli.app import HELP, MODES, load, route

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "examples").rglob("README.md")])
BLOCK = re.compile(r"^```(?:sh|console|shell|bash)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
COMMAND = re.compile(
    r"(?:^|[|;&(]|\bdo|\buntil|\bwhile)\s*(?:\$ )?(?:sudo (?:-\S+ )*(?:-u )?\w+ (?:-H )?)?(?:/opt/reconciler/bin/)?reconcile (.+)"
)
END = {"|", "||", "&&", "&", ";", ">", ">>", "2>", "2>&1", "<", ")"}
OWN_PARSER = {"push"}


def command_lines(text: str) -> list[list[str]]:
    """The words after `reconcile` in the blocks of commands of a page, up to a pipe, a redirection or a comment."""
    found = []
    for block in BLOCK.findall(text):
        for line in block.replace("\\\n", " ").splitlines():
            match = COMMAND.search(line)
            if match is None:
                continue
            lexer = shlex.shlex(match[1], posix=True, punctuation_chars="|&;<>()")
            lexer.whitespace_split = True
            words = []
            for word in lexer:
                if word in END or word[0] in "|&;<>":
                    break
                words.append(word)
            found.append(words[:-1] if words and words[-1] == "2" else words)
    return found


def refused(words: list[str]) -> str:
    """Why the program does not accept a command line; empty when it does."""
    name, rest = route([word.replace("$HOME", "/home/ops") for word in words])
    if name in OWN_PARSER:
        return ""
    if not name and not (MODES | HELP) & set(rest):
        return "neither a command nor a PATH with --once, --watch or --dry-run"
    try:
        load(name).make_context(name or "reconcile", rest)
    except click.exceptions.Exit:
        return ""
    except click.ClickException as error:
        message = error.format_message()
        return "" if "does not exist" in message else message  # a directory of the reader's host
    return ""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_line_of_a_page_is_accepted(page: Path):
    wrong = {shlex.join(words): refused(words) for words in command_lines(page.read_text()) if refused(words)}
    assert wrong == {}


def test_the_readme_has_commands_and_a_wrong_one_would_be_seen():
    assert len(command_lines((ROOT / "README.md").read_text())) > 15
    text = "```sh\nsudo -u ops -H reconcile plan DIR --no-such | head   # a comment\nuntil reconcile statu --instance X > /dev/null; do :; done\n```\n"
    lines = command_lines(text)
    assert lines == [["plan", "DIR", "--no-such"], ["statu", "--instance", "X"]]
    assert "no-such" in refused(lines[0])
    assert refused(lines[1])
