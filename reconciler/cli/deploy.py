"""`reconcile deploy KEY --image REF`: writes an image and its activation time into the manifest, so that git stays authoritative.

The command changes the file, or writes to the git source (`reconciler/deployments/`); a run of `reconcile` does the rest. It checks all manifests with the edit before it replaces
the file, so that a running daemon never reads an invalid edit.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click
from pydantic_core import PydanticCustomError

from manifests.problems import ManifestErrors
from manifests.source.git_url import GitUrl
from manifests.source.identity import identity_of
from manifests.types.durations import Duration
from manifests.types.moments import parse_moment
from manifests.values.desired import SECOND, Desired, Workload
from manifests.values.image_ref import parse_image
from manifests.values.rollouts import STAGED, format_moment
from manifests.yaml.text import Refused
from providers.errors import ProviderError
from providers.lib import files
from providers.lib.secrets import on_resolve
from reconciler.cli.given import given, path_argument
from reconciler.cli.inbox import current_user
from reconciler.cli.objects import Known, of_desired, unknown_object
from reconciler.cli.options import DurationType, Options, common_options, instance_option, usage_error
from reconciler.cli.render.times import short
from reconciler.deployments.edit import ImageChange, NoSuchImage, NoSuchWorkload, When, edited
from reconciler.deployments.writer import Outcome, Writer
from reconciler.exits import Exit
from reconciler.git.errors import GitError, Unread
from reconciler.shell.clock import SystemClock
from reconciler.shell.secrets import SECRETS
from reconciler.tree import Location


class Result(NamedTuple):
    """An edit as it is reported: the file, the manifests with the edit, whether anything changed, and warnings."""

    file: Path
    desired: Desired
    changed: bool
    warnings: tuple[str, ...]


@click.command(
    epilog="""\b
PATH is the directory of the manifests or the address of a git source; by default the source
of --instance, else the current directory. A git source gets one commit on its branch, or a
merge request, as spec.source.writeBack in local documents allows; without that right the
patch is printed. Comments and layout of the file stay. An edit that would change more than the image and the time is refused.
Without --activate-at and --activate-in, the time in the manifest applies. A time in a
manifest that has passed is due; an --activate-at that has passed needs --now. In a git
work tree, commit and push the change.

\b
Exit codes: 0 written or already up to date, 1 the source cannot be written now, 3 the
manifests would be invalid, 7 edit the file by hand, or apply the printed patch, 8 the source
cannot be read or is refused, 64 no such workload or container. With any other code than 0
nothing is changed.

\b
Examples:
  reconcile deploy workload/web manifests/ --image registry.example.com/shop/web:1.5
  reconcile deploy workload/web --image web:1.5 --container web --activate-in 2m
  reconcile deploy workload/web --instance /etc/reconciler --image web:1.5 --reason 'issue 12'
  reconcile deploy workload/web --image web:1.5 --activate-at 2030-01-31T22:00:00+01:00 -o json
""",
)
@click.argument("key")
@path_argument
@click.option("--image", required=True, metavar="REF", help="The image, with a tag or a digest.")
@click.option("--reason", default="", metavar="TEXT", help="Why, for the message of a commit; only with a git source.")
@click.option("--container", default="", metavar="NAME", help="The container; required when there are several.")
@click.option(
    "--activate-at", default="", metavar="TIME", help="Earliest activation time, such as 2030-01-31T22:00:00Z."
)
@click.option(
    "--activate-in",
    type=DurationType(),
    metavar="DURATION",
    help="Earliest activation after the change is first observed, such as 30s.",
)
@click.option("--now", is_flag=True, help="Allow an --activate-at that has passed: the image is due at once.")
@instance_option
@common_options
def deploy(  # one parameter per argument and option of the command line
    key: str,
    path: Path | GitUrl | None,
    image: str,
    container: str,
    reason: str,
    activate_at: str,
    activate_in: int | None,
    now: bool,
    **raw: Any,
) -> Exit:
    """Write an image into the manifest of KEY (workload/web) below PATH."""
    options, key = Options.of(raw), key.lower()
    when = _when(activate_at, activate_in, now)
    try:
        parse_image(image)
    except ValueError as error:
        raise usage_error(f"--image '{image}': {error}") from None
    if not key.startswith("workload/"):
        raise usage_error(f"'{key}' is not a workload", "give a workload, such as workload/web")
    try:
        place = given(path, options) or Path()
        change = ImageChange(key, container, image, when)
        if isinstance(place, GitUrl):
            return _to_source(place, options, change, reason)
        written = _in_place(key, place, options, change)
    except NoSuchWorkload as error:
        raise _unknown(key, error.desired) from None
    except NoSuchImage as error:
        raise usage_error(error.cause, error.next_step.replace("name one of", "add --container with one of")) from None
    except Refused as error:
        return _failed(options, Exit.MANUAL, [error.cause], error.next_step)
    except ManifestErrors as error:
        if error.of_source:
            raise
        problems = [line for problem in error.problems if not problem.is_warning for line in problem.lines()]
        return _failed(options, Exit.INVALID, problems, "correct it; the file is unchanged")
    except ProviderError as error:
        return _failed(options, Exit.ERROR, [error.cause], error.next_step)
    except GitError as error:
        return _failed(options, Exit.SOURCE if isinstance(error, Unread) else Exit.ERROR, [error.cause], error.hint)
    return _report(options, key, written, image)


def _when(at: str, delay: int | None, allow_past: bool) -> When:
    """The requested time, checked. A time that has passed is more often a typo than a wish, so it has to be allowed."""
    if at and delay is not None:
        raise usage_error("--activate-at and --activate-in cannot be used together", "give one of them")
    if allow_past and not at:
        raise usage_error("--now has a meaning only with --activate-at", "leave out --now")
    if at:
        try:
            moment = parse_moment(at)
        except PydanticCustomError as error:
            context = error.context or {}
            raise usage_error(f"--activate-at: {context.get('message', error)}", str(context.get("hint", ""))) from None
        passed = SystemClock().now().wall - moment
        if passed >= 0 and not allow_past:
            raise usage_error(
                f"--activate-at: {at} has passed, {short(max(passed, SECOND))} ago",
                "give a time in the future, or add --now to activate the image as soon as its replicas are healthy",
            )
    return When(at, delay)


def _in_place(key: str, path: Path, options: Options, change: ImageChange) -> Result:
    """Replace the file of the workload, after all manifests were checked with the edit.

    Raises:
        ManifestErrors: the manifests are invalid, before or after the edit.
        Refused: the edit would change more than it should.
        ProviderError: the file cannot be read or replaced.
        click.UsageError: there is no such workload or container.
    """
    sources = Location(path, options.instance, environment=options.env).read()
    edit = edited(sources, [change])
    file = Path(sources.tree.root, edit.names[0][0]).resolve()
    warnings = tuple(warning.render() for warning in edit.warnings)
    for _, (before, after) in edit.files.items():
        if files.read(key, file) != before:
            raise Refused(f"{file} was changed meanwhile", "try again")
        files.replace(key, file, after, before)
    return Result(file, edit.desired, bool(edit.files), warnings)


def _to_source(url: GitUrl, options: Options, change: ImageChange, reason: str) -> Exit:
    """Write the change to a git source, and report what became of it."""
    host = SystemClock()
    writer = Writer(url, options.instance, options.state_dir, options.env, lambda: host.now().wall / SECOND)
    with on_resolve(SECRETS.add):
        written = writer.write([change], reason, f"reconcile deploy by {current_user()}")
    view = options.view
    code = Exit.MANUAL if written.outcome is Outcome.PATCH else Exit.OK
    name, container = written.edit.names[0]
    said = {
        Outcome.UNCHANGED: f"{name} has this image already at commit {written.commit}",
        Outcome.COMMIT: f"commit {written.commit} is pushed to {written.ref}",
        Outcome.MERGE_REQUEST: f"merge request {written.url} is open, from {written.ref}",
        Outcome.PATCH: f"nothing is written: {written.why}",
    }[written.outcome]
    if view.json:
        view.document(
            {
                "exit_code": int(code),
                "success": code is Exit.OK,
                "message": said,
                "object": change.key,
                "container": container,
                "image": change.image,
                "file": name,
                "changed": written.outcome in {Outcome.COMMIT, Outcome.MERGE_REQUEST},
                "outcome": written.outcome.value,
                "commit": written.commit or None,
                "ref": written.ref or None,
                "merge_request": written.url or None,
                "patch": written.patch or None,
                "revision": _workload(change.key, written.edit.desired).template.revision,
                "next_step": written.next_step or None,
                "warnings": [warning.render() for warning in written.edit.warnings],
            }
        )
        return code
    for warning in written.edit.warnings:
        view.err(*warning.render().split("\n"))
    if written.patch:
        view.patch(written.patch)
        view.err(f"{change.key}: {said}", f"next step: {written.next_step}")
        view.err(f"result: {code.sentence} (exit {int(code)})")
        return code
    for changed in written.images:
        view.out(f"{changed.key}, container {changed.container}: {changed.old} -> {changed.new}")
    view.out(f"{change.key}: {said}")
    return code


def _workload(key: str, desired: Desired) -> Workload:
    for workload in desired.workloads:
        if workload.key == key:
            return workload
    raise _unknown(key, desired)


def _unknown(key: str, desired: Desired) -> click.UsageError:
    known = {name for name in of_desired(desired) if name.startswith("workload/") and name.count("/") == 1}
    return unknown_object(key, Known(frozenset(known), frozenset()))


def _activation(workload: Workload, now: int) -> str:
    """The earliest activation of the new revision, RFC 3339; empty for a strategy that replaces replica by replica."""
    if workload.strategy not in STAGED:
        return ""
    rollout = workload.rollout
    wall = rollout.activate_at or now + rollout.delay
    return format_moment(wall if rollout.activate_at else wall // SECOND * SECOND)


def _report(options: Options, key: str, written: Result, image: str) -> Exit:
    workload, now = _workload(key, written.desired), SystemClock().now().wall
    activation = _activation(workload, now)
    changed = written.changed
    due = workload.rollout.activate_at
    if not changed:
        message = f"{written.file} is already up to date"
    elif not activation:
        message = f"replicas are replaced with strategy {workload.strategy.value}"
    elif due and due <= now:
        message = f"activated as soon as its replicas are healthy: {activation} has passed"
    elif due:
        message = f"activated at {activation} at the earliest"
    else:
        delay = Duration(workload.rollout.delay)
        message = f"activated {delay} after it is first observed at the earliest, not before {activation}"
    in_git = identity_of(written.file)[1]
    follow_up = f"git add {written.file.name} && git commit" if changed and in_git else ""
    if options.view.json:
        options.view.document(
            {
                "exit_code": 0,
                "success": True,
                "message": message,
                "revision": workload.template.revision,
                "activation_time": activation or None,
                "object": key,
                "image": image,
                "file": str(written.file),
                "changed": changed,
                "next_step": follow_up or None,
                "warnings": list(written.warnings),
            }
        )
        return Exit.OK
    for line in written.warnings:
        options.view.err(*line.split("\n"))
    verb = "wrote" if changed else "kept"
    options.view.out(
        f"{options.view.paint.good(verb)} {image} in {written.file}: revision {workload.template.revision}"
    )
    options.view.out(f"{key}: {message}")
    if follow_up:
        options.view.out(f"next step: {follow_up}")
    return Exit.OK


def _failed(options: Options, code: Exit, cause: Sequence[str], next_step: str) -> Exit:
    """Report in lines why nothing was written, and the next step."""
    view = options.view
    first, *more = cause
    if view.json:
        message = "\n".join(cause) + (f"; next step: {next_step}" if next_step else "")
        view.document(
            {"exit_code": int(code), "success": False, "message": message, "revision": None, "activation_time": None}
        )
        return code
    view.err(f"{view.paint_err.bad('error:')} {first}", *more)
    if next_step:
        view.err(f"next step: {next_step}")
    view.err(f"result: {code.sentence} (exit {int(code)})")
    return code
