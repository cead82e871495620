"""`reconcile wait`: waits until a commit is applied on a host, for pipelines beside a daemon. Changes nothing."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from manifests.values.desired import SECOND
from reconciler.cli.options import Options, common_options, target_options, timeout_option, usage_error
from reconciler.cli.where import find, path_optional
from reconciler.exits import Exit

if TYPE_CHECKING:
    from reconciler.commits.waiting import Answer
    from reconciler.tree import Given

ASK_EVERY = 0.5
"""Seconds between two looks at the history of this host."""

ASK_REMOTE_EVERY = 3.0
"""Seconds between two questions to another host."""

SENTENCES = {
    Exit.OK: "the commit is applied and healthy",
    Exit.UNFINISHED: "the commit is not applied yet",
    Exit.MANUAL: "manual action required",
    Exit.SOURCE: "the commit was refused or superseded",
}


@click.command(
    epilog="""\b
The history of commits is kept by 'reconcile --watch' with manifests of a git repository.
On the host itself, name the instance as for 'reconcile status'. From elsewhere, --url asks the
push listener (spec.push.tcp), with the token in the file read.token of the state directory.

\b
Exit codes: 0 applied and healthy, 6 not yet at the time limit, 7 it failed or waits for an
operator, 8 refused or superseded by a newer commit.

\b
Examples:
  reconcile wait --commit "$(git rev-parse HEAD)"
  reconcile wait --commit "$CI_COMMIT_SHA" --instance-id my-host --timeout 15m
  reconcile wait --commit "$CI_COMMIT_SHA" --url http://10.0.0.5:9901 --token-file read.token
""",
)
@path_optional
@click.option("--commit", metavar="SHA", required=True, help="Whole number of the commit, 40 or 64 hex digits.")
@click.option("--url", metavar="URL", default="", help="Push listener of another host, instead of PATH.")
@click.option(
    "--token-file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="File with the readers' token, for --url.",
)
@timeout_option
@target_options
@common_options
def wait(path: "Given | None", commit: str, url: str, token_file: Path | None, instance_id: str, **raw: Any) -> Exit:
    """Wait until a commit is applied and healthy, or until it is known that it will not be."""
    from reconciler.forge.protocol import COMMIT  # noqa: PLC0415  (imported when it is needed)

    options = Options.of(raw)
    number = commit.strip().lower()
    if not COMMIT.fullmatch(number):
        hint = 'give all 40 or 64 hex digits: --commit "$(git rev-parse HEAD)"'
        raise usage_error(f"'{commit[:80]}' is not the whole number of a commit", hint)
    if url:
        given = (path, options.instance, options.state_dir, instance_id)
        if any(value for value in given):
            raise usage_error("--url names another host", "leave out PATH, --instance, --instance-id and --state-dir")
        from providers.errors import Rejected  # noqa: PLC0415

        try:
            answer = _remote(url, token_file, number, options)
        except Rejected as error:  # no time-out: asking again gives the same answer
            options.view.err(f"{options.view.paint_err.bad('error:')} {error}")
            return Exit.ERROR
        return _report(answer, options)
    if token_file is not None:
        raise usage_error("--token-file is for --url", "add --url, or remove it")
    return _report(_local(path, instance_id, number, options), options)


def _local(path: "Given | None", instance_id: str, commit: str, options: Options) -> "Answer":
    from reconciler.commits.waiting import of_state  # noqa: PLC0415

    state = find(path, options, instance_id).state_dir
    return _until(lambda: of_state(state, commit, time.time_ns()), options, ASK_EVERY)


def _remote(url: str, token_file: Path | None, commit: str, options: Options) -> "Answer":
    from providers.errors import Unreachable  # noqa: PLC0415
    from reconciler.commits.waiting import UNKNOWN, Answer, Remote  # noqa: PLC0415
    from reconciler.shell.clock import SystemClock  # noqa: PLC0415
    from reconciler.shell.secrets import SECRETS  # noqa: PLC0415

    if not url.startswith(("http://", "https://")):
        raise usage_error(f"'{url[:80]}' is not a URL", "write http://HOST:PORT or https://HOST")
    if token_file is None:
        raise usage_error("--url needs --token-file", "give a file with the token of read.token of that host")
    token = _token(token_file)
    SECRETS.add(token)
    clock = SystemClock()
    host = Remote(url.rstrip("/"), lambda: token, time.monotonic_ns, lambda: clock.now().wall / SECOND)

    def ask() -> "Answer":
        try:
            return host.ask(commit)
        except Unreachable as error:  # the daemon may be restarting
            return Answer(commit, UNKNOWN, f"{error.target}: {error.cause}")

    try:
        return _until(ask, options, ASK_REMOTE_EVERY)
    finally:
        host.close()


def _token(file: Path) -> str:
    """The token in a file. Raises a usage error."""
    try:
        with file.open("rb") as opened:
            data = opened.read(1_024)
    except OSError as error:
        raise usage_error(
            f"{file}: it cannot be read: {(error.strerror or '').lower()}", "name a readable file"
        ) from None
    text = data.strip()
    if len(text) == 64 and all(byte in b"0123456789abcdef" for byte in text):
        return text.decode()
    raise usage_error(f"{file}: it has no readers' token", "write the 64 hex digits of read.token to it")


def _until(ask: "Callable[[], Answer]", options: Options, pause: float) -> "Answer":
    """Ask until the answer is final or the time is over. Each new message goes to standard error."""
    end, shown = time.monotonic() + options.timeout / SECOND, ""
    while True:
        answer = ask()
        left = end - time.monotonic()
        if answer.exit is not None or left <= 0:
            return answer
        line = f"{answer.commit[:12]}: {answer.message}"
        if line != shown and not options.view.json:
            options.view.err(line)
        shown = line
        time.sleep(min(pause, left))


def _report(answer: "Answer", options: Options) -> Exit:
    code = Exit.UNFINISHED if answer.exit is None else answer.exit
    if options.view.json:
        options.view.document({**answer.document(), "exit_code": int(code), "result": SENTENCES[code]})
        return code
    review = [f"review: {answer.review}"] if answer.review else []
    head = f"commit {answer.commit}: {answer.state}: {answer.message}"
    options.view.out(head, *review, f"result: {SENTENCES[code]} (exit {int(code)})")
    return code
