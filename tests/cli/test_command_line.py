import importlib

import click
import pytest

from reconciler.cli.app import COMMANDS, HELP_NAMES, OPTIONS_WITH_VALUE, first_word, load, route

OWN_PARSER = {"push"}
"""Commands that parse their words themselves, because they must start without a library."""


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["plan", "x"], ("plan", ["x"])),
        (["--state-dir", "s", "plan", "x"], ("plan", ["--state-dir", "s", "x"])),
        (["--state-dir=s", "plan", "x"], ("plan", ["--state-dir=s", "x"])),
        (["-o", "json", "status"], ("status", ["-o", "json"])),
        (["-ojson", "status"], ("status", ["-ojson"])),
        (["-vo", "json", "status"], ("status", ["-vo", "json"])),
        (["--once", "status"], ("status", ["--once"])),
        (["--once", "./status"], ("", ["--once", "./status"])),
        (["manifests", "status"], ("", ["manifests", "status"])),
        (["--once", "--", "status"], ("", ["--once", "--", "status"])),
        (["--timeout", "status", "m"], ("", ["--timeout", "status", "m"])),
        (["--help"], ("", ["--help"])),
        ([], ("", [])),
    ],
)
def test_the_first_word_that_is_no_option_is_a_command_or_a_path(words, expected):
    assert route(words) == expected


def test_a_word_after_the_double_dash_is_the_first_word():
    assert first_word(["--once", "--", "-odd"]) == 2
    assert first_word(["--once", "--"]) is None


def every_command() -> dict[str, click.Command]:
    return {name: load(name) for name in ("", *COMMANDS)}


def test_all_options_with_a_value_are_known_before_the_import():
    options = {
        name
        for command in every_command().values()
        for option in command.params
        if isinstance(option, click.Option) and not option.is_flag
        for name in option.opts
    }
    assert options == OPTIONS_WITH_VALUE


def test_every_command_is_a_module_of_its_own_with_examples_in_its_help():
    for name, entry in COMMANDS.items():
        if name in OWN_PARSER:
            continue
        assert importlib.import_module(f"reconciler.cli.{entry.module}")
        help_text = load(name).get_help(
            click.Context(load(name), info_name=f"reconcile {name}", help_option_names=HELP_NAMES)
        )
        assert f"reconcile {name}" in help_text.partition("Examples:")[2], name


@pytest.mark.parametrize("name", ["", *(name for name in COMMANDS if name not in OWN_PARSER)])
def test_help_says(name, reconcile, golden):
    done = reconcile(*([name] if name else []), "--help")
    assert (done.code, done.err) == (0, "")
    golden(f"cli/help-{name or 'reconcile'}.txt", done.out)


def test_no_words_print_help_and_are_a_wrong_command_line(reconcile):
    done = reconcile()
    assert done.code == 64
    assert done.out == ""
    assert "Usage: reconcile PATH --once" in done.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["staus"], "did you mean 'reconcile status'?"),
        (["nowhere"], "commands: validate, plan"),
        (["--once"], "PATH is missing"),
        (["--onse", "m"], "--once"),
        (["m", "--once", "--watch"], "--once and --watch cannot be used together"),
        (["m", "--watch", "-o", "json"], "status -o json"),
        (["m", "--watch", "--no-wait"], "--once --no-wait"),
        (["m", "--dry-run", "--no-wait"], "leave out --no-wait"),
        (["m", "--once", "-v", "-q"], "cannot be used together"),
        (["m", "--once", "--timeout", "10"], "'10' is not a duration"),
        (["m", "--once", "--timeout", "soon"], "90s, 10m or 1h30m"),
        (["plan"], "PATH is missing"),
        (["apply"], "PATH is missing"),
        (["plan", "m", "--detailed-exit-code"], "--detailed-exitcode"),
        (["apply", "m"], "--yes, which does not ask"),
        (["destroy", "m"], "--yes, which does not ask"),
        (["suspend", "--reason", "x"], "KEY is missing"),
        (["suspend", "workload/web"], "Missing option '--reason'"),
        (["suspend", "a", "b", "--all", "--reason", "x"], "cannot be used together"),
        (["status", "--instance-id", "../x"], "is not a valid instance id"),
        (["status"], "no instance keeps its state"),
    ],
)
def test_a_wrong_command_line_ends_with_64_and_a_hint(words, said, reconcile):
    done = reconcile(*words)
    assert done.code == 64
    assert said in done.err
    assert done.out == ""
    assert "Traceback" not in done.err


def test_a_path_without_a_mode_is_refused_with_the_modes(tree, reconcile):
    done = reconcile(tree)
    assert done.code == 64
    assert f"run: reconcile --once {tree}" in done.err
