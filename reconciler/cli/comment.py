"""`reconcile comment FILE`: puts a plan in Markdown on a merge request. For CI jobs, which have a token and no access to the host."""

import os
import re
import time
from pathlib import Path
from typing import Any

import click

from reconciler.cli.options import Options, common_options, usage_error
from reconciler.cli.view import View
from reconciler.exits import Exit

MARKER = re.compile(r"<!-- reconcile plan of instance [A-Za-z0-9._-]+ -->")
"""The first line of every plan in Markdown (`core/plan_markdown.py`)."""

LARGEST = 4 * 65_536
"""Octets of a file that are read: no comment is longer."""


@click.command(
    epilog="""\b
FILE is the output of 'reconcile plan -o markdown'; - is standard input. One merge request has one
comment for each instance: the next plan replaces its text. Comments of other authors stay as they
are. In a job of GitHub Actions, Gitea or Forgejo, URL and PROJECT come from the job's environment
(GITHUB_SERVER_URL, GITHUB_REPOSITORY).

\b
Exit codes: 0 the merge request shows the plan, 1 FILE cannot be read or is no plan in Markdown,
6 the forge cannot be reached or refuses, 64 invalid command line.

\b
Examples:
  reconcile comment plan.md --forge github --number 7
  reconcile comment plan.md --forge gitea --number 7 --url https://git.example.com --project ops/hosts
  reconcile plan manifests/ --instance /etc/reconciler --untrusted -o markdown | reconcile comment - --forge gitlab --number 7
""",
)
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path, allow_dash=True))
@click.option(
    "--forge",
    required=True,
    type=click.Choice(["github", "gitlab", "gitea"]),
    help="API of the forge; gitea also for Forgejo.",
)
@click.option(
    "--number", required=True, type=click.IntRange(min=1), metavar="NUMBER", help="Number of the merge request."
)
@click.option("--url", default="", metavar="URL", help="Address of the forge's web pages; default: $GITHUB_SERVER_URL.")
@click.option(
    "--project", default="", metavar="PROJECT", help="Path of the repository there; default: $GITHUB_REPOSITORY."
)
@click.option(
    "--token-env", default="FORGE_TOKEN", metavar="NAME", help="Variable that has the token; default FORGE_TOKEN."
)
@click.option("--ca-file", default="", metavar="FILE", help="PEM certificates to trust instead of those of the system.")
@common_options
def comment(
    file: Path, forge: str, number: int, url: str, project: str, token_env: str, ca_file: str, **raw: Any
) -> Exit:
    """Put a plan on a merge request as a comment, or replace the comment of the earlier plan."""
    options = Options.of(raw)
    from manifests.values.desired import SECOND  # noqa: PLC0415
    from providers.lib.secrets import on_resolve  # noqa: PLC0415  (imported when it is needed)
    from reconciler.forge.connect import connect  # noqa: PLC0415
    from reconciler.shell.clock import SystemClock  # noqa: PLC0415
    from reconciler.shell.secrets import SECRETS  # noqa: PLC0415

    view = options.view
    settings = _settings(
        {
            "type": forge,
            "url": url or os.environ.get("GITHUB_SERVER_URL", ""),
            "project": project or os.environ.get("GITHUB_REPOSITORY", ""),
            "token": {"env": token_env},
            **({"caFile": os.path.abspath(ca_file)} if ca_file else {}),
        }
    )
    if not os.environ.get(token_env):
        raise usage_error(f"the variable {token_env} has no token", f"give the job's token to this step as {token_env}")
    try:
        with click.open_file(str(file), "rb") as opened:
            text = opened.read(LARGEST + 1).decode(errors="replace")
    except OSError as error:
        return _no_plan(view, f"{file} cannot be read: {error.strerror or error}")
    marker, _, body = text.partition("\n")
    if not text:
        return _no_plan(view, f"{file} is empty: the plan was not made")
    if not MARKER.fullmatch(marker) or len(text) > LARGEST:
        what = "its first line is not '<!-- reconcile plan of instance ID -->'"
        return _no_plan(view, f"{file} is no plan in Markdown: {what}")
    clock = SystemClock()
    with on_resolve(SECRETS.add):
        client = connect(settings, time.monotonic_ns, lambda: clock.now().wall / SECOND)
        try:
            put = client.put_comment(number, marker, body)
        finally:
            client.close()
    said = f"{'posted' if put.created else 'updated'} comment {put.id} on merge request {number}"
    if view.json:
        view.document({"exit_code": 0, "id": put.id, "url": put.url or None, "created": put.created, "number": number})
    else:
        view.out(f"{said}{f': {put.url}' if put.url else ''}")
    return Exit.OK


def _no_plan(view: View, cause: str) -> Exit:
    """Report that FILE has no plan."""
    next_step = "make it with: reconcile plan PATH --instance DIR --untrusted -o markdown"
    if view.json:
        view.document({"exit_code": int(Exit.ERROR), "message": cause, "next_step": next_step})
    else:
        view.err(f"{view.paint_err.bad('error:')} {cause}", f"next step: {next_step}")
    return Exit.ERROR


def _settings(raw: dict[str, Any]) -> Any:
    """The settings of the forge, checked as those of an Instance. Raises a usage error."""
    from pydantic import ValidationError  # noqa: PLC0415  (imported when it is needed)

    from manifests.kinds.forge import Forge  # noqa: PLC0415
    from manifests.resolve.notices import resolve_forge  # noqa: PLC0415

    for name in ("url", "project"):
        if not raw[name]:
            raise usage_error(f"--{name} is missing", f"add --{name}, as outside of a CI job nothing gives it")
    try:
        return resolve_forge(Forge.model_validate(raw))
    except ValidationError as error:
        first = error.errors()[0]
        raise usage_error(
            f"--{first['loc'][0] if first['loc'] else 'forge'}: {first['msg']}", "see: reconcile comment --help"
        ) from None
