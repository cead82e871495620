"""`python -m reconciler.push`, and `reconcile push` without the rest of the program: the command line of the client."""

import argparse
import os
import sys
from collections.abc import Sequence

EXAMPLES = """\
examples:
  reconcile push ready                                say once that this instance is ready
  reconcile push draining --inflight 3
  reconcile push run -- python3 server.py             start a program and tell its state
  reconcile push run --probe http://127.0.0.1:8080/ready --interval 2s -- python3 server.py
  reconcile push run --probe http://127.0.0.1:8080/ready       beside a program, as a sidecar

exit codes: 0 taken, 1 refused or not reached, 64 wrong command line; run: that of the program
"""

USAGE = 64
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0}


def _seconds(text: str) -> float:
    for unit, size in _UNITS.items():
        number = text.removesuffix(unit)
        if number != text and number.isdecimal() and 0 < int(number) * size <= 3600:
            return int(number) * size
    raise argparse.ArgumentTypeError(f"{text!r} is no duration from 1ms to 60m, such as 5s or 500ms")


def _count(text: str) -> int:
    if text.isdecimal() and len(text) < 10:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is no count, such as 3")


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:  # type: ignore[override]
        """Say what is wrong and end with the exit code of wrong command lines."""
        self.exit(USAGE, f"{self.prog}: {message}; see {self.prog} --help\n")


def _parsers() -> tuple[_Parser, _Parser]:
    shape = argparse.RawDescriptionHelpFormatter
    one = _Parser(
        prog="reconcile push", epilog=EXAMPLES, formatter_class=shape, description="Say what state this instance is in."
    )
    one.add_argument("event", choices=["startup", "ready", "not-ready", "draining", "run"], help="what to say, or run")
    one.add_argument("--inflight", type=_count, metavar="N", help="requests that are under way")
    run = _Parser(
        prog="reconcile push run",
        epilog=EXAMPLES,
        formatter_class=shape,
        usage="reconcile push run [--probe URL] [--interval 5s] [--timeout 1s] [--failures 3] [-- COMMAND...]",
        description="Tell the state of a program for as long as it runs.",
    )
    run.add_argument("--probe", metavar="URL", help="ready when this http URL answers 200-399; without it, at once")
    run.add_argument("--interval", type=_seconds, default=5.0, metavar="5s", help="time between two probes")
    run.add_argument("--timeout", type=_seconds, default=1.0, metavar="1s", help="how long a probe may take")
    run.add_argument(
        "--failures", type=_count, default=3, metavar="3", help="failed probes in a row that mean not-ready"
    )
    return one, run


def main(words: Sequence[str]) -> int:
    """Carry out the words after `reconcile push`. Returns the exit code."""
    one, run = _parsers()
    try:
        if words and words[0] == "run":
            return _run(run, list(words[1:]))
        return _once(one.parse_args(words))
    except SystemExit as end:  # argparse ends so, also after --help
        return end.code if isinstance(end.code, int) else USAGE


def _once(asked: argparse.Namespace) -> int:
    from reconciler.push.client import Failed, Misconfigured, push, target_of, told  # noqa: PLC0415  (not for --help)

    try:
        answer = push(target_of(os.environ), asked.event, asked.inflight)
    except (Misconfigured, Failed) as error:
        sys.stderr.write(f"reconcile push: {error}\n")
        return 1
    if answer.status in (200, 202):
        return 0
    sys.stderr.write(f"reconcile push: refused with {answer.status}: {told(answer)}\n")
    return 1


def _run(parser: _Parser, words: list[str]) -> int:
    from reconciler.push.client import Misconfigured, target_of  # noqa: PLC0415  (not for --help)
    from reconciler.push.run import Runner, probe_of, say  # noqa: PLC0415

    argv: list[str] = []
    if "--" in words:
        place = words.index("--")
        words, argv = words[:place], words[place + 1 :]
        if not argv:
            parser.error("there is no command after --")
    asked = parser.parse_args(words)
    probe = None
    if asked.probe is not None:
        try:
            probe = probe_of(asked.probe, asked.interval, asked.timeout, max(1, asked.failures))
        except ValueError as error:
            parser.error(str(error))
    try:
        target = target_of(os.environ)
    except Misconfigured as error:
        if not argv:
            sys.stderr.write(f"reconcile push: {error}\n")
            return 1
        say(f"{error}; the program runs without")
        target = None
    return Runner(target, probe, argv).run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
