"""The command line of the push client: `python -m reconciler.push`, and `reconcile push` without the rest of the program."""

import argparse
import os
import sys
from collections.abc import Sequence

EXAMPLES = """\
examples:
  reconcile push ready                                push once that this instance is ready
  reconcile push draining --inflight 3
  reconcile push run -- python3 server.py             start a program and push its state
  reconcile push run --probe http://127.0.0.1:8080/ready --interval 2s -- python3 server.py
  reconcile push run --probe http://127.0.0.1:8080/ready       as a sidecar, without a program

exit codes: 0 accepted, 1 refused or not reachable, 64 wrong command line; run: that of the program
"""

USAGE = 64
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0}


def _seconds(text: str) -> float:
    for unit, size in _UNITS.items():
        number = text.removesuffix(unit)
        if number != text and number.isdecimal() and 0 < int(number) * size <= 3600:
            return int(number) * size
    raise argparse.ArgumentTypeError(f"{text!r} is not a duration from 1ms to 60m, such as 5s or 500ms")


def _count(text: str) -> int:
    if text.isdecimal() and len(text) < 10:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not a number of at most 9 digits, such as 3")


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:  # type: ignore[override]
        """Print the error and end with exit code 64."""
        self.exit(USAGE, f"{self.prog}: {message}; see {self.prog} --help\n")


def _parsers() -> tuple[_Parser, _Parser]:
    shape = argparse.RawDescriptionHelpFormatter
    once = _Parser(
        prog="reconcile push", epilog=EXAMPLES, formatter_class=shape, description="Push the state of this instance."
    )
    once.add_argument(
        "event", choices=["startup", "ready", "not-ready", "draining", "run"], help="the state to push, or run"
    )
    once.add_argument("--inflight", type=_count, metavar="N", help="number of requests in flight")
    run = _Parser(
        prog="reconcile push run",
        epilog=EXAMPLES,
        formatter_class=shape,
        usage="reconcile push run [--probe URL] [--interval 5s] [--timeout 1s] [--failures 3] [-- COMMAND...]",
        description="Push the state of a program while it runs.",
    )
    run.add_argument(
        "--probe", metavar="URL", help="ready when this http URL answers 200-399; without it, ready at once"
    )
    run.add_argument("--interval", type=_seconds, default=5.0, metavar="5s", help="time between two probes")
    run.add_argument("--timeout", type=_seconds, default=1.0, metavar="1s", help="time limit of a probe")
    run.add_argument("--failures", type=_count, default=3, metavar="3", help="failed probes in a row until not-ready")
    return once, run


def main(arguments: Sequence[str]) -> int:
    """Run the arguments after `reconcile push`. Returns the exit code."""
    once, run = _parsers()
    try:
        if arguments and arguments[0] == "run":
            return _run(run, list(arguments[1:]))
        return _once(once.parse_args(arguments))
    except SystemExit as end:  # argparse ends this way, also after --help
        return end.code if isinstance(end.code, int) else USAGE


def _once(options: argparse.Namespace) -> int:
    from reconciler.push.client import Failed, Misconfigured, message_of, push, target_of  # noqa: PLC0415  (not for --help)

    try:
        answer = push(target_of(os.environ), options.event, options.inflight)
    except (Misconfigured, Failed) as error:
        sys.stderr.write(f"reconcile push: {error}\n")
        return 1
    if answer.status in (200, 202):
        return 0
    sys.stderr.write(f"reconcile push: refused with {answer.status}: {message_of(answer)}\n")
    return 1


def _run(parser: _Parser, arguments: list[str]) -> int:
    from reconciler.push.client import Misconfigured, target_of  # noqa: PLC0415  (not for --help)
    from reconciler.push.run import Runner, probe_of, say  # noqa: PLC0415

    argv: list[str] = []
    if "--" in arguments:
        index = arguments.index("--")
        arguments, argv = arguments[:index], arguments[index + 1 :]
        if not argv:
            parser.error("the command after -- is missing")
    options = parser.parse_args(arguments)
    probe = None
    if options.probe is not None:
        try:
            probe = probe_of(options.probe, options.interval, options.timeout, max(1, options.failures))
        except ValueError as error:
            parser.error(str(error))
    try:
        target = target_of(os.environ)
    except Misconfigured as error:
        if not argv:
            sys.stderr.write(f"reconcile push: {error}\n")
            return 1
        say(f"{error}; the program runs without pushes")
        target = None
    return Runner(target, probe, argv).run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
